"""What differs between the two shells: pauses, and calls that are finished even when their caller is interrupted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import httpx2

#: How a connection ends in the midst of an answer.
BROKEN: tuple[type[Exception], ...] = (httpx2.TransportError,)
#: How a caller is interrupted while it waits.
INTERRUPTED: tuple[type[BaseException], ...] = (KeyboardInterrupt,)


def pause(seconds: float) -> None:
    """Waits."""
    time.sleep(seconds)


def finish(work: Callable[[], object]) -> None:
    """Does something to its end although the caller was interrupted. Failing is no error."""
    with contextlib.suppress(Exception):
        work()
