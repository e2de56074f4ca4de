"""`FileSecBoxEnvironment` and `FileSecBoxCodeExecutor`: a workspace for agents of Google's Agent Development Kit.

    from filesecbox import AsyncFileSecBox
    from filesecbox.integrations.google_adk import FileSecBoxEnvironment
    from google.adk.agents import LlmAgent
    from google.adk.tools.environment import EnvironmentToolset

    environment = FileSecBoxEnvironment(AsyncFileSecBox().workspace("alice", "demo"))
    agent = LlmAgent(name="assistant", model="…", tools=[EnvironmentToolset(environment=environment)])

Agents that write code in their answers have it run by the executor:

    executor = FileSecBoxCodeExecutor(FileSecBox().workspace("alice", "demo"), stateful=True)
    agent = LlmAgent(name="analyst", model="…", code_executor=executor)

Needs google-adk 2.13, which calls environments experimental. Paths are those that commands see, or relative to the workspace.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import mimetypes
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from google.adk.agents.invocation_context import InvocationContext
from google.adk.code_executors import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult, File
from google.adk.environment import BaseEnvironment, ExecutionResult
from pydantic import Field, PrivateAttr

from .._async.workspace import AsyncWorkspace
from .._kept import Kept
from .._sync import _io
from .._sync.session import PythonSession
from .._sync.workspace import Workspace
from ..errors import CommandNotAllowed, FileSecBoxError, SessionEnded
from ..models import FileInfo

__all__ = ["FileSecBoxCodeExecutor", "FileSecBoxEnvironment"]

#: The most bytes of a file that is read.
_READ_BYTES = 64 * 1024 * 1024
#: What a shell says of a program that cannot be run, and of one that was late.
_NOT_RUN, _LATE = 126, 124
#: The most characters of a stream that a model is shown.
_OUTPUT_CHARACTERS = 30_000
#: How long code may go on after the exception at its deadline, in seconds, before the interpreter is killed with it.
_GRACE_SECONDS = 3.0
#: The most interpreters at once, one less than a user may have runs in the background, and the most of which is known that they ended.
_INTERPRETERS, _ENDED = 3, 1_000
#: The most files of a workspace in which changed ones are looked for.
_FILES = 20_000


class FileSecBoxEnvironment(BaseEnvironment):  # type: ignore[misc]
    """The files and commands of one workspace, which stays when the environment is closed.

    Commands see the ``skills`` that are named, or ``"all"`` of the user's, and the variables in ``env``.
    """

    def __init__(
        self,
        workspace: AsyncWorkspace,
        *,
        skills: Sequence[str] | Literal["all"] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.workspace = workspace
        self._skills = skills
        self._env = env

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.workspace!r})"

    @property
    def working_dir(self) -> Path:
        """Where commands begin."""
        return Path("/workspace")

    async def initialize(self) -> None:
        """Asks whether the service is there."""
        await self.workspace.box.ready()
        self.is_initialized = True

    async def close(self) -> None:
        """Ends nothing: commands end by themselves, and the client is its maker's."""
        self.is_initialized = False

    async def execute(
        self,
        command: str,
        *,
        timeout: float | None = None,  # noqa: RUF100, ASYNC109
    ) -> ExecutionResult:
        """Runs a line for the shell to its end."""
        try:
            result = await self.workspace.run(command, timeout=timeout, skills=self._skills, env=self._env)
        except CommandNotAllowed as error:
            return ExecutionResult(exit_code=_NOT_RUN, stderr=error.message)
        hint = f"\n[{result.hint}]" if result.hint and not result.timed_out else ""
        return ExecutionResult(
            exit_code=result.shell_code,
            stdout=result.stdout,
            stderr=result.stderr + hint,
            timed_out=result.timed_out,
        )

    async def read_file(self, path: Path | str) -> bytes:
        """Reads a file whole."""
        data = await self.workspace.read_bytes(os.fspath(path), 0, _READ_BYTES + 1)
        if len(data) > _READ_BYTES:
            raise OSError(errno.EFBIG, f"more than {_READ_BYTES} bytes", os.fspath(path))
        return data

    async def write_file(self, path: Path | str, content: str | bytes) -> None:
        """Replaces a file, or makes one, with the directories above it."""
        data = content.encode() if isinstance(content, str) else content
        await self.workspace.write_bytes(os.fspath(path), data)


class FileSecBoxCodeExecutor(BaseCodeExecutor):  # type: ignore[misc]
    """Runs the Python code of an agent's answers in one workspace.

    With ``stateful`` each session of the framework has an interpreter that keeps its state; without it each piece of code has a new
    one. Files stay in both cases. One piece of code runs at a time. Code sees the ``skills`` that are named, or ``"all"`` of the
    user's, and the variables in ``env``. Files that it makes or changes become artifacts, within ``output_files_max`` and
    ``output_bytes_max``; what is left out is told. ``close``, or the end of the ``with``, ends the interpreters.
    """

    timeout_seconds: int | None = Field(default=300, gt=0)
    output_files_max: int = Field(default=20, ge=0)
    output_bytes_max: int = Field(default=16 * 1024 * 1024, ge=0)

    _workspace: Workspace = PrivateAttr()
    _skills: Sequence[str] | Literal["all"] | None = PrivateAttr()
    _env: Mapping[str, str] | None = PrivateAttr()
    _lock: Any = PrivateAttr(default_factory=threading.Lock)
    #: By the session's id, the one that was used last at the end; those of ids without one have ended.
    _interpreters: OrderedDict[str, PythonSession | None] = PrivateAttr(default_factory=OrderedDict)

    def __init__(
        self,
        workspace: Workspace,
        *,
        skills: Sequence[str] | Literal["all"] | None = None,
        env: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(**fields)
        self._workspace, self._skills, self._env = workspace, skills, env

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._workspace!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _io.finish(self.close)

    @property
    def workspace(self) -> Workspace:
        """Where the code runs."""
        return self._workspace

    def close(self) -> None:
        """Ends the interpreters. The workspace stays."""
        for name, interpreter in list(self._interpreters.items()):
            self._interpreters[name] = None
            if interpreter is not None:
                interpreter.close()

    def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        """Runs code after its input files were written. What fails is told in ``stderr``, and not raised."""
        with self._lock:
            try:
                for file in code_execution_input.input_files:
                    data = base64.b64decode(file.content) if isinstance(file.content, str) else file.content
                    self._workspace.write_bytes(file.name, data)
                before = self._files()
                with self._interpreter(code_execution_input.execution_id) as (interpreter, is_new):
                    result = self._run(interpreter, code_execution_input.code)
            except (FileSecBoxError, ValueError) as error:
                return CodeExecutionResult(stderr=f"the code could not be run: {error}", exit_code=_NOT_RUN)
            result.output_files, left_out = self._changed(before)
        first = "[the interpreter is a new one, which knows none of the earlier variables]" if is_new else ""
        # The model is shown the errors alone when there are any.
        shown = "stderr" if result.stderr else "stdout"
        setattr(result, shown, "\n".join(filter(None, [first, getattr(result, shown), left_out])))
        return result

    def _run(self, interpreter: PythonSession, code: str) -> CodeExecutionResult:
        timeout, is_killed = self.timeout_seconds, threading.Event()

        def kill() -> None:
            is_killed.set()
            interpreter.close()

        try:
            with _io.after(timeout + _GRACE_SECONDS, kill) if timeout else contextlib.nullcontext():
                cell = interpreter.run(code, timeout=timeout)
        except SessionEnded as ended:
            exit_code = _LATE if is_killed.is_set() else ended.result.shell_code if ended.result else _NOT_RUN
            late = f"the code ran longer than {timeout} s" if is_killed.is_set() else ""
            hint = ended.result.hint if ended.result and not late else None
            written = [ended.stderr, late, ended.message, hint]
            return _result(exit_code, [ended.stdout], written)
        if is_killed.is_set():
            # It came to its end while the interpreter was being ended.
            late = f"the code ran longer than {timeout} s: the next code has a new interpreter"
            return _result(_LATE, [cell.stdout], [cell.stderr, late])
        if cell.error is None:
            return _result(0, [cell.stdout, cell.value], [cell.stderr])
        is_late = cell.error["message"] == f"the code ran longer than {timeout} s"
        return _result(_LATE if is_late else 1, [cell.stdout], [cell.stderr, cell.error["traceback"]])

    @contextlib.contextmanager
    def _interpreter(self, name: str | None) -> Iterator[tuple[PythonSession, bool]]:
        """The interpreter of a session, and whether it takes the place of one that was ended for others."""
        if name is None:
            with self._workspace.python(skills=self._skills, env=self._env) as interpreter:
                yield interpreter, False
            return
        is_known = name in self._interpreters
        kept = self._interpreters.pop(name, None)
        live = [other for other, each in self._interpreters.items() if each is not None]
        for other in live[: max(0, len(live) - _INTERPRETERS + 1)]:
            ended, self._interpreters[other] = self._interpreters[other], None
            if ended is not None:
                ended.close()
        interpreter = kept or self._workspace.python(skills=self._skills, env=self._env)
        self._interpreters[name] = interpreter
        while len(self._interpreters) > _ENDED:
            self._interpreters.popitem(last=False)
        try:
            yield interpreter, is_known and kept is None
        except FileSecBoxError:
            # The interpreter has ended with that.
            self._interpreters[name] = None
            raise

    def _files(self) -> dict[str, FileInfo] | None:
        """The files that may become artifacts: those that are not hidden, nor Python's own. Nothing when there are too many."""
        found: dict[str, FileInfo] = {}
        cursor, seen = None, 0
        while self.output_files_max:
            page = self._workspace.files_page(limit=1000, cursor=cursor)
            cursor, seen = page.next, seen + len(page.items)
            if seen > _FILES:
                return None
            found |= {each.path: each for each in page.items if each.is_file and not _is_hidden(each.path)}
            if cursor is None:
                break
        return found

    def _changed(self, before: Mapping[str, FileInfo] | None) -> tuple[list[File], str]:
        """The files that are new or changed, as far as they are within the bounds, and what is told of the others."""
        files: list[File] = []
        left_out: list[str] = []
        room = self.output_bytes_max
        try:
            after = self._files()
            if before is None or after is None:
                return files, f"[the workspace has more than {_FILES} files: changed ones are not looked for]"
            for path, info in sorted(after.items()):
                if path in before and _state(before[path]) == _state(info):
                    continue
                is_within = len(files) < self.output_files_max and info.size <= room
                data = self._workspace.read_bytes(path, 0, room + 1) if is_within else None
                if data is None or len(data) > room:
                    left_out.append(path)
                    continue
                room -= len(data)
                media = mimetypes.guess_type(path)[0] or "application/octet-stream"
                files.append(File(name=path, content=data, mime_type=media))
        except FileSecBoxError as error:
            return files, f"[not all changed files could be read: {error}]"
        bounds = f"at most {self.output_files_max} of {self.output_bytes_max} bytes together become artifacts"
        names = ", ".join(left_out[:5]) + (", …" if left_out[5:] else "")
        return files, f"[{len(left_out)} changed files were left out: {bounds}: {names}]" if left_out else ""


def _result(exit_code: int, stdout: Sequence[str | None], stderr: Sequence[str | None]) -> CodeExecutionResult:
    """The framework takes anything in ``stderr`` for a failure: what code that succeeds writes there, such as warnings, is output."""
    if exit_code == 0:
        return CodeExecutionResult(stdout=_shown(*stdout, *stderr), exit_code=0)
    return CodeExecutionResult(stdout=_shown(*stdout), stderr=_shown(*stderr), exit_code=exit_code)


def _shown(*texts: str | None) -> str:
    kept = Kept(_OUTPUT_CHARACTERS)
    kept.add("\n".join(filter(None, texts)))
    return kept.text()


def _is_hidden(path: str) -> bool:
    return any(name.startswith(".") or name == "__pycache__" for name in path.split("/"))


def _state(info: FileInfo) -> tuple[str, int, str]:
    return info.etag, info.size, info.modified_at
