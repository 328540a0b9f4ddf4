"""Settings of all tests."""

from hypothesis import settings

# The same examples on every machine and every run, and no failure because a machine is busy.
settings.register_profile("gumbelcast", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("gumbelcast")
