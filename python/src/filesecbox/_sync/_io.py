"""What differs between the two shells: pauses, deadlines, and calls that are finished even when their caller is interrupted."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterator

import httpx2

#: How a connection ends in the midst of an answer.
BROKEN: tuple[type[Exception], ...] = (httpx2.TransportError,)
#: How a caller is interrupted while it waits.
INTERRUPTED: tuple[type[BaseException], ...] = (KeyboardInterrupt,)
#: Lets one caller in at a time.
Lock = threading.Lock


def pause(seconds: float) -> None:
    """Waits."""
    time.sleep(seconds)


def finish(work: Callable[[], object]) -> None:
    """Does something to its end although the caller was interrupted. Failing is no error."""
    with contextlib.suppress(Exception):
        work()


@contextlib.contextmanager
def after(seconds: float, work: Callable[[], object]) -> Iterator[None]:
    """Does something, in a thread of its own, when the block takes longer. Failing is no error."""
    timer = threading.Timer(seconds, finish, [work])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def drop(iterator: Iterator[object]) -> None:
    """Ends an iteration of which no more is wanted."""
    if isinstance(iterator, Generator):
        iterator.close()
