"""gRPC's core writes lines of its own to standard error: those on failed handshakes become lines of our log."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time

_FAILED = re.compile(r"Handshake failed with error (?P<error>.*)")
_REASONS = (
    ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "a client came without a certificate"),
    ("CERTIFICATE_VERIFY_FAILED", "a certificate is not trusted: "),
    ("WRONG_VERSION_NUMBER", "a peer does not use TLS"),
    ("HTTP_REQUEST", "a peer does not use TLS"),
)
_QUIET_SECONDS = 1.0
"""One line a reason in this time, however many peers try."""

_log = logging.getLogger("gumbelcast.tls")


def explain(line: str) -> str | None:
    """What a line of the core says about a handshake, or None where it says nothing about one."""
    found = _FAILED.search(line)
    if found is None:
        return None
    error = found["error"]
    for name, meaning in _REASONS:
        if name in error:
            return meaning + (error.rpartition(": ")[2] if meaning.endswith(": ") else "")
    name = error.partition("OPENSSL_internal:")[2].partition(":")[0].replace("_", " ").lower()
    return f"a peer broke the handshake off, it may not trust the certificate of this program ({name or error})"


def divert() -> None:
    """From now on, what the core writes goes through our log; Python's own standard error stays as it is."""
    kept = os.dup(2)
    sys.stderr = os.fdopen(kept, "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    threading.Thread(target=_follow, args=(reading, kept), name="core log", daemon=True).start()


def _follow(reading: int, kept: int) -> None:
    told: dict[str, float] = {}
    with os.fdopen(reading, errors="backslashreplace") as lines:
        for line in lines:
            reason, now = explain(line), time.monotonic()
            if reason is None:
                os.write(kept, line.encode(errors="backslashreplace"))
            elif now - told.get(reason, -_QUIET_SECONDS) >= _QUIET_SECONDS:
                _log.warning("refused: %s", reason)
                told[reason] = now
