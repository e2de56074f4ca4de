"""Operations that are written once, for threads and for coroutines: generators that ask for one call after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from ..errors import FileSecBoxError

T = TypeVar("T")
#: A call of a tree, of either kind.
Ask = Callable[[Any], Any]
#: An operation: it asks for one call after the other, and gets what came of each.
Steps = Generator[Ask, Any, T]


def do(tree: Any, steps: Steps[T]) -> T:
    """Makes the calls of an operation."""
    try:
        ask = next(steps)
        while True:
            try:
                answer = ask(tree)
            except FileSecBoxError as error:
                ask = steps.throw(error)
            else:
                ask = steps.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def ado(tree: Any, steps: Steps[T]) -> T:
    """As `do`, for a tree of coroutines."""
    try:
        ask: Callable[[Any], Awaitable[Any]] = next(steps)
        while True:
            try:
                answer = await ask(tree)
            except FileSecBoxError as error:
                ask = steps.throw(error)
            else:
                ask = steps.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
