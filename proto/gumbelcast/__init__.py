"""The wire: generated messages and services (``gumbelcast.v1``), conversions, channels and servers."""
