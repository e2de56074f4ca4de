# Made by scripts/unasync.py of _async/shell.py: change that.
"""`Shell`: a `bash` in the sandbox that keeps its state."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from .. import _shell
from .._shell import ShellResult
from ..errors import Conflict, FileSecBoxError, NotFound, OutputLost
from ..models import RunResult
from . import _io
from .process import Process
from .session import Stream

if TYPE_CHECKING:
    from .tree import Tree

#: How long a command may go on after its interrupt, in seconds, before the shell is killed with it.
_GRACE_SECONDS = 3.0
#: Failures after which what the shell would say next belongs to no command.
_ENDING: tuple[type[BaseException], ...] = (*_io.INTERRUPTED, FileSecBoxError)


class Shell:
    """A shell in a workspace or skill: directory, variables and background processes stay from one command to the next.

    It begins with the first command, and is a run in the background: it lives as long as one may. One command runs at a time.
    """

    def __init__(
        self,
        tree: Tree,
        *,
        env: Mapping[str, str] | None = None,
        skills: Sequence[str] | Literal["all"] | None = None,
        characters: int,
    ) -> None:
        self._tree = tree
        self._env = env
        self._skills = skills
        self._characters = characters
        self._lock = _io.Lock()
        self._process: Process | None = None
        #: The number of the last event that was read, and what was written behind the end of the last command.
        self._after = 0
        self._rest = ""

    def close(self) -> None:
        """Ends the shell, and what runs in it. The next command has a new one."""
        process, self._process, self._after, self._rest = self._process, None, 0, ""
        if process is not None:
            process.kill()

    def run(self, command: str, timeout: float) -> ShellResult:
        """Runs a command. After ``timeout`` seconds it is interrupted, and when it goes on all the same, killed with the shell."""
        with self._lock:
            mark = f"\x1e{uuid.uuid4().hex} "
            try:
                process, is_new = self._told(_shell.line(command, mark))
                return self._hear(process, mark, timeout, is_new)
            except _ENDING:
                # The command must not go on; what the shell knew is lost.
                _io.finish(self.close)
                raise

    def _told(self, line: str) -> tuple[Process, bool]:
        """Tells a line to the shell, or to a new one where that has ended; gives the shell, and whether one had ended."""
        had = self._process is not None
        if self._process is not None:
            try:
                self._process.send(line)
            except (Conflict, NotFound):
                self._process = None
            else:
                return self._process, False
        self._after, self._rest = 0, ""
        self._process = self._tree.start(
            ["bash", "--noprofile", "--norc"], env=self._env, skills=self._skills, stdin=True
        )
        self._process.send(_shell.BEGIN + line)
        return self._process, had

    def _hear(self, process: Process, mark: str, timeout: float, is_new: bool) -> ShellResult:
        late: set[str] = set()

        def interrupt() -> None:
            late.add("interrupted")
            process.signal("INT")

        def kill() -> None:
            late.add("killed")
            process.kill()

        stream = Stream(mark, self._characters)
        stream.take(self._rest)
        ended = None
        with _io.after(timeout, interrupt), _io.after(timeout + _GRACE_SECONDS, kill):
            while ended is None and "\n" not in stream.behind:
                ended = self._follow(process, stream)
        if ended is not None or "killed" in late:
            self.close()
            return ShellResult(output=stream.written(), is_late=bool(late), is_new=is_new, ended=ended)
        code, _, self._rest = stream.behind.partition("\n")
        return ShellResult(output=stream.written(), exit_code=int(code), is_late=bool(late), is_new=is_new)

    def _follow(self, process: Process, stream: Stream) -> RunResult | None:
        """Reads up to the end of the command, or to that of the shell; then gives how it ended."""
        events = process.events(after=self._after)
        try:
            for event in events:
                self._after = event.seq
                if event.event == "exit":
                    return RunResult.of(event.result or {"exit_code": -1})
                if event.event in ("stdout", "stderr"):
                    stream.take(event.text)
                if "\n" in stream.behind:
                    return None
        except OutputLost as lost:
            # What the background writes between two commands is read by no one, and gives way in the end.
            if lost.first_seq is None or lost.first_seq <= self._after:
                raise
            self._after = lost.first_seq - 1
            stream.take("\n[earlier output was dropped]\n")
            return None
        finally:
            _io.drop(events)
        raise FileSecBoxError("the output of the shell ended", code="bad_answer")
