# Made by scripts/unasync.py of _async/session.py: change that.
"""`PythonSession`: an interpreter in the sandbox that keeps its state."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from .._kept import CHARACTERS_MAX, Kept
from ..errors import FileSecBoxError, SessionEnded
from ..models import CellResult, Event, RunResult
from . import _io
from .process import Process

if TYPE_CHECKING:
    from .tree import Tree

#: Characters of the line in which the interpreter answers; the driver cuts what is in it.
_ANSWER_CHARACTERS_MAX = 4 * 1024 * 1024
#: Failures after which what the interpreter would say next belongs to no code.
_ENDING: tuple[type[BaseException], ...] = (*_io.INTERRUPTED, FileSecBoxError)
_DRIVER = Path(__file__).parents[1] / "_driver.py"


class PythonSession:
    """A Python interpreter in a workspace or skill. It begins with the first code, and ends with its ``with``.

    One piece of code runs at a time. The interpreter is a run in the background, and lives as long as one may.
    """

    def __init__(
        self,
        tree: Tree,
        cwd: str | None,
        env: Mapping[str, str] | None,
        skills: Sequence[str] | Literal["all"] | None,
    ) -> None:
        self._tree = tree
        self._cwd = cwd
        self._env = env
        self._skills = skills
        self._process: Process | None = None
        self._events: Iterator[Event] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _io.finish(self.close)

    def close(self) -> None:
        """Ends the interpreter."""
        process, self._process, self._events = self._process, None, None
        if process is not None:
            process.kill()

    def interrupt(self) -> None:
        """Interrupts the code that runs, from another thread or task: it ends with `KeyboardInterrupt`."""
        if self._process is not None:
            self._process.signal("INT")

    def run(self, code: str, *, timeout: float | None = None) -> CellResult:
        """Runs code. An exception of the code is a part of the result (``error``), and the interpreter goes on.

        After ``timeout`` seconds the code gets a `TimeoutError`. When the interpreter itself ends, `SessionEnded` is raised, and
        the next code has a new one.
        """
        if self._process is None or self._events is None:
            command = ["python3", "-u", "-c", _DRIVER.read_text(encoding="utf-8")]
            self._process = self._tree.start(
                command, cwd=self._cwd, env=self._env, skills=self._skills, stdin=True
            )
            self._events = self._process.events()
        mark = uuid.uuid4().hex
        request = {"id": mark, "code": code, "timeout": timeout}
        try:
            self._process.send(json.dumps(request) + "\n")
        except FileSecBoxError as problem:
            self.close()
            raise SessionEnded("the interpreter had ended before: the next code has a new one") from problem
        try:
            return self._hear(self._events, f"\x1e{mark}")
        except _ENDING:
            # The code must not go on; what the interpreter knew is lost.
            _io.finish(self.close)
            raise

    def _hear(self, events: Iterator[Event], mark: str) -> CellResult:
        streams = {"stdout": Stream(mark), "stderr": Stream(mark)}
        for event in events:
            if event.event == "exit":
                self._process = self._events = None
                result = RunResult.of(event.result or {"exit_code": -1})
                raise SessionEnded(
                    f"the interpreter ended with {result.exit_code}: the next code has a new one",
                    result=result,
                    stdout=streams["stdout"].written(),
                    stderr=streams["stderr"].written(),
                )
            if event.event in streams:
                streams[event.event].take(event.text)
            if all(each.is_whole for each in streams.values()):
                told = json.loads(streams["stdout"].behind)
                written = {name: each.written() for name, each in streams.items()}
                return CellResult.of(told, **written)
        raise FileSecBoxError("the output of the interpreter ended", code="bad_answer")


class Stream:
    """What came on one stream: the output up to the mark, and the line behind it."""

    def __init__(self, mark: str, characters: int = CHARACTERS_MAX) -> None:
        self._mark = mark
        self._kept = Kept(characters)
        #: The end of what came, in which the mark may have begun.
        self._tail = ""
        self._is_marked = False
        self.behind = ""

    @property
    def is_whole(self) -> bool:
        """Whether the line behind the mark has come."""
        return self.behind.endswith("\n")

    def take(self, text: str) -> None:
        """Takes a piece."""
        if not self._is_marked:
            before, found, behind = (self._tail + text).partition(self._mark)
            self._is_marked = bool(found)
            # As many characters as the mark has but one may be its beginning.
            border = len(before) if found else max(0, len(before) - len(self._mark) + 1)
            self._kept.add(before[:border])
            self._tail, text = before[border:], behind
        self.behind += text
        if len(self.behind) > _ANSWER_CHARACTERS_MAX:
            raise FileSecBoxError("the interpreter answered too much", code="bad_answer")

    def written(self) -> str:
        """What the code wrote."""
        return self._kept.text() + self._tail
