"""What differs between the two shells: pauses, deadlines, and calls that are finished even when their caller is interrupted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

import httpx2

#: How a connection ends in the midst of an answer.
BROKEN: tuple[type[Exception], ...] = (httpx2.TransportError,)
#: How a caller is interrupted while it waits.
INTERRUPTED: tuple[type[BaseException], ...] = (asyncio.CancelledError, KeyboardInterrupt)
#: Lets one caller in at a time.
Lock = asyncio.Lock


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


@contextlib.asynccontextmanager
async def after(seconds: float, work: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Does something when the block takes longer. Failing is no error."""

    async def later() -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(Exception):
            await work()

    task = asyncio.ensure_future(later())
    try:
        yield
    finally:
        task.cancel()


async def drop(iterator: AsyncIterator[object]) -> None:
    """Ends an iteration of which no more is wanted."""
    if isinstance(iterator, AsyncGenerator):
        await iterator.aclose()
