"""A service that was started by another program ends with it, whatever ends that program.

The program holds the writing end of a pipe and never writes. Its end closes when the program ends, by SIGKILL too, and
then the service, which holds the reading end, stops as on SIGTERM.
"""

from __future__ import annotations

import os
import signal
import threading

VARIABLE = "GUMBELCAST_LIFELINE"
"""Environment variable that names the file descriptor of the reading end."""


def hold() -> None:
    """Stop with the program at the other end, if there is one; called once, as early as can be."""
    descriptor = os.environ.pop(VARIABLE, "")
    if descriptor:
        threading.Thread(target=_watch, args=(int(descriptor),), name="lifeline", daemon=True).start()


def _watch(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
