"""What differs between the two shells: pauses, and calls that are finished even when their caller is interrupted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import httpx2

#: How a connection ends in the midst of an answer.
BROKEN: tuple[type[Exception], ...] = (httpx2.TransportError,)
#: How a caller is interrupted while it waits.
INTERRUPTED: tuple[type[BaseException], ...] = (asyncio.CancelledError, KeyboardInterrupt)


async def pause(seconds: float) -> None:
    """Waits."""
    await asyncio.sleep(seconds)


async def finish(work: Callable[[], Awaitable[object]]) -> None:
    """Does something to its end although the caller was interrupted. Failing is no error."""

    async def quietly() -> None:
        with contextlib.suppress(Exception):
            await work()

    task = asyncio.ensure_future(quietly())
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
