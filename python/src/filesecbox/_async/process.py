"""`AsyncProcess`: a run that goes on while its caller does something else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .. import _calls as calls
from ..errors import FileSecBoxError, OutputLost, Unavailable
from ..models import Event, RunInfo, RunResult
from . import _io

if TYPE_CHECKING:
    from .client import AsyncFileSecBox

#: How often in a row events are asked for without getting one.
TRIES = 5


async def events_of(
    box: AsyncFileSecBox,
    tree: calls.TreeCalls,
    exec_id: str,
    begin: calls.Call[Any] | None = None,
    after: int = 0,
    encoding: str | None = None,
) -> AsyncIterator[Event]:
    """The events of a run up to its end, across connections that break. ``begin`` is the call that begins it, if one has to."""
    call: calls.Call[Any] | None = begin
    broken = 0
    while True:
        cause: Exception | None = None
        try:
            async with box.stream(call or tree.run_events(exec_id, after, True, encoding)) as answered:
                async for line in answered.aiter_lines():
                    if not line.strip():
                        continue
                    data = calls.Answer(200, {}, line.encode()).json()
                    if data.get("event") == "gone":
                        raise OutputLost("output was dropped before it was read", details=data)
                    event = Event.of(data)
                    after, broken = event.seq, 0
                    yield event
                    if event.event == "exit":
                        return
        except _io.BROKEN as problem:
            cause = problem
        # A run that has told nothing yet may not have begun: the same call is the same run.
        call, broken = (begin if after == 0 else None), broken + 1
        if broken >= TRIES:
            raise Unavailable("the output of the run broke off", code="unreachable") from cause
        await _io.pause(0.1 * broken)


class AsyncProcess:
    """A run in the background. At the end of a ``with`` it is killed, unless it has ended."""

    def __init__(self, box: AsyncFileSecBox, tree: calls.TreeCalls, exec_id: str) -> None:
        self.exec_id = exec_id
        self._box = box
        self._tree = tree

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.exec_id!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _io.finish(self.kill)

    async def info(self) -> RunInfo:
        """The run as the service lists it."""
        return RunInfo.of(await self._box.call(self._tree.get_run(self.exec_id, False)))

    def events(self, *, after: int = 0) -> AsyncIterator[Event]:
        """What the run does and writes, from the beginning, or behind the event with this number, up to its end."""
        return events_of(self._box, self._tree, self.exec_id, None, after)

    async def send(self, data: str | bytes, *, close: bool = False) -> None:
        """Sends to its standard input; with ``close`` that ends behind it."""
        sent = data.encode() if isinstance(data, str) else data
        await self._box.call(self._tree.feed(self.exec_id, sent, close))

    async def close_stdin(self) -> None:
        """Ends its standard input."""
        await self.send(b"", close=True)

    async def signal(self, name: str) -> None:
        """Signals it: ``INT``, ``TERM``, ``HUP``, ``STOP``, ``CONT`` and so on."""
        await self._box.call(self._tree.signal(self.exec_id, name))

    async def kill(self) -> None:
        """Kills it with all its processes."""
        await self._box.call(self._tree.kill(self.exec_id))

    async def wait(self) -> RunResult:
        """Waits for its end. Its output is in ``events``, and not in the result, unless the run is no stream."""
        run = await self._box.call(self._tree.get_run(self.exec_id, True))
        result = run.get("result") or run.get("exit")
        if not isinstance(result, Mapping) or "exit_code" not in result:
            raise FileSecBoxError(f"the run failed: {result}", code="internal")
        return RunResult.of(result, exec_id=self.exec_id)
