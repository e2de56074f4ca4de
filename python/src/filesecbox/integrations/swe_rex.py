"""`FileSecBoxRuntime`: a workspace as a runtime of SWE-ReX, for SWE-agent and its like.

    from filesecbox import AsyncFileSecBox
    from filesecbox.integrations.swe_rex import FileSecBoxRuntime
    from swerex.runtime.abstract import BashAction, CreateBashSessionRequest

    runtime = FileSecBoxRuntime(AsyncFileSecBox().workspace("alice", "demo"))
    await runtime.create_session(CreateBashSessionRequest())
    observation = await runtime.run_in_session(BashAction(command="ls"))

Needs SWE-ReX 1.4. Paths are those that commands see: files are read and written by commands, in the workspace, in the user's home
and in ``/tmp``, wherever the walls let them. A session is a `bash` in a terminal. It lives as long as a run in the background may.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import logging
import os
import shlex
import tarfile
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal

from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
    SwerexException,
)
from swerex.runtime.abstract import (
    AbstractRuntime,
    Action,
    BashInterruptAction,
    CloseBashSessionResponse,
    CloseResponse,
    CloseSessionRequest,
    CloseSessionResponse,
    Command,
    CommandResponse,
    CreateBashSessionResponse,
    CreateSessionRequest,
    CreateSessionResponse,
    IsAliveResponse,
    Observation,
    ReadFileRequest,
    ReadFileResponse,
    UploadRequest,
    UploadResponse,
    WriteFileRequest,
    WriteFileResponse,
)

from .._async import _io
from .._async.workspace import AsyncWorkspace
from .._kept import Kept
from ..errors import CommandNotAllowed, FileSecBoxError
from ..models import RunResult
from ._swe_rex_shell import Ended, Shell

__all__ = ["FileSecBoxRuntime"]

#: The most bytes of a file that is read, and those that are sent to a command at once.
_READ_BYTES, _PIECE_BYTES = 64 * 1024 * 1024, 4 * 1024 * 1024
#: What a shell says of a program that cannot be run.
_NOT_RUN = 126

#: Of a path: nothing is there (3), a directory is (4), or its bytes.
_READ = 'test -e "$1" || exit 3; test -d "$1" && exit 4; exec cat -- "$1"'
_WRITE = 'case $1 in */*) mkdir -p -- "${1%/*}/" || exit;; esac; exec cat > "$1"'
_APPEND = 'exec cat >> "$1"'
_UNPACK = 'mkdir -p -- "$2" && tar -xof "$1" -C "$2"; code=$?; rm -f -- "$1"; exit $code'


class FileSecBoxRuntime(AbstractRuntime):  # type: ignore[misc]
    """Shells, commands and files of one workspace. Commands see the ``skills`` that are named, or ``"all"`` of the user's."""

    def __init__(
        self,
        workspace: AsyncWorkspace,
        *,
        skills: Sequence[str] | Literal["all"] | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self.workspace = workspace
        self.logger = logger or logging.getLogger(__name__)
        self._skills = skills
        self._shells: dict[str, Shell] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.workspace!r})"

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:  # noqa: RUF100, ASYNC109
        """Whether the service answers."""
        try:
            async with asyncio.timeout(timeout):
                await self.workspace.box.ready()
        except (FileSecBoxError, TimeoutError) as error:
            return IsAliveResponse(is_alive=False, message=str(error))
        return IsAliveResponse(is_alive=True)

    async def create_session(self, request: CreateSessionRequest) -> CreateSessionResponse:
        """Starts a shell."""
        if request.session in self._shells:
            raise SessionExistsError(f"session {request.session} already exists")
        shell = self._shells[request.session] = Shell()
        try:
            with _told():
                process = await self.workspace.start(["bash", "--noediting"], stdin=True, tty=True, skills=self._skills)
            output = await shell.begin(process, request.startup_source, request.startup_timeout)
        except BaseException:
            del self._shells[request.session]
            await _io.finish(shell.end)
            raise
        return CreateBashSessionResponse(output=output)

    async def run_in_session(self, action: Action) -> Observation:
        """Runs a command in a shell, types into a program there, or interrupts it. A call that is cancelled interrupts it, too."""
        shell = self._shell(action.session)
        try:
            async with shell.in_use:
                if isinstance(action, BashInterruptAction):
                    return await shell.interrupt(action)
                if action.is_interactive_command or action.is_interactive_quit:
                    return await shell.type(action)
                await self._check_syntax(action.command)
                return await shell.run(action)
        except Ended as ended:
            if self._shells.get(action.session) is shell:
                del self._shells[action.session]
            await shell.end()
            raise SessionDoesNotExistError(f"the shell of session {action.session!r} has ended{ended}") from ended

    async def close_session(self, request: CloseSessionRequest) -> CloseSessionResponse:
        """Ends a shell with everything that runs in it."""
        shell = self._shell(request.session)
        del self._shells[request.session]
        await shell.end()
        return CloseBashSessionResponse()

    async def execute(self, command: Command) -> CommandResponse:
        """Runs a command outside of the shells, to its end."""
        line = _line_of(command)
        if command.cwd is not None:
            line = f"cd -- {shlex.quote(command.cwd)} || exit\n{line}"
        written = {"stdout": Kept(), "stderr": Kept()}
        if command.merge_output_streams:
            written["stderr"] = written["stdout"]
        try:
            result = await self._run(line, written, timeout=command.timeout, env=command.env)
        except CommandNotAllowed as error:
            result = RunResult(exit_code=_NOT_RUN)
            written["stderr"].add(error.message)
        if result.timed_out:
            raise CommandTimeoutError(f"the command passed its deadline ({command.timeout} s) and was killed")
        streams = {name: _text_of(kept) for name, kept in written.items()}
        if command.merge_output_streams:
            streams["stderr"] = ""
        if command.check and result.shell_code != 0:
            told = f"Command {command.command!r} failed with exit code {result.shell_code}: {streams}"
            raise NonZeroExitCodeError(f"{command.error_msg}: {told}" if command.error_msg else told)
        return CommandResponse(exit_code=result.shell_code, **streams)

    async def read_file(self, request: ReadFileRequest) -> ReadFileResponse:
        """Reads a text."""
        data = bytearray()
        said = Kept(4096)

        def take(stream: str, piece: bytes) -> None:
            if stream == "stderr":
                said.add(piece.decode(errors="replace"))
            elif len(data) + len(piece) > _READ_BYTES:
                raise OSError(errno.EFBIG, f"more than {_READ_BYTES} bytes", request.path)
            else:
                data.extend(piece)

        with _told():
            result = await self.workspace.run(_script(_READ, request.path), skills=self._skills, on_bytes=take)
        if result.exit_code in (3, 4):
            kind, number = (
                (FileNotFoundError, errno.ENOENT) if result.exit_code == 3 else (IsADirectoryError, errno.EISDIR)
            )
            raise kind(number, os.strerror(number), request.path)
        if not result.ok:
            raise OSError(errno.EIO, said.text().strip() or "it could not be read", request.path)
        text = io.TextIOWrapper(io.BytesIO(data), request.encoding or "utf-8", request.errors)
        return ReadFileResponse(content=text.read())

    async def write_file(self, request: WriteFileRequest) -> WriteFileResponse:
        """Writes a text, and missing directories above it."""
        await self._write(request.path, io.BytesIO(request.content.encode()))
        return WriteFileResponse()

    async def upload(self, request: UploadRequest) -> UploadResponse:
        """Copies a local file, or what is in a local directory. Links stay links."""
        source = Path(request.source_path)
        if await asyncio.to_thread(source.is_dir):
            with tempfile.TemporaryFile() as archive:
                await asyncio.to_thread(_pack, source, archive)
                packed = f"/tmp/.upload-{uuid.uuid4().hex}"
                await self._write(packed, archive)
            await self._must(_script(_UNPACK, packed, request.target_path), request.target_path)
        else:
            with await asyncio.to_thread(source.open, "rb") as file:
                await self._write(request.target_path, file)
        return UploadResponse()

    async def close(self) -> CloseResponse:
        """Ends all shells. The workspace stays."""
        shells, self._shells = self._shells, {}
        await asyncio.gather(*(shell.end() for shell in shells.values()))
        return CloseResponse()

    def _shell(self, name: str) -> Shell:
        shell = self._shells.get(name)
        if shell is None:
            raise SessionDoesNotExistError(f"session {name!r} does not exist")
        return shell

    async def _run(self, line: str, written: dict[str, Kept], **more: Any) -> RunResult:
        def take(stream: str, data: bytes) -> None:
            # Each byte as one character, which is what is counted.
            written[stream].add(data.decode("latin-1"))

        with _told(CommandNotAllowed):
            return await self.workspace.run(line, skills=self._skills, on_bytes=take, **more)

    async def _check_syntax(self, command: str) -> None:
        written = {"stdout": Kept(4096), "stderr": Kept(4096)}
        result = await self._run("exec bash -n", written, stdin=command)
        if not result.ok:
            told = {f"bash_{name}": _text_of(kept) for name, kept in written.items()}
            message = f"bash cannot read the command {command!r}: {told['bash_stderr']}"
            raise BashIncorrectSyntaxError(message, extra_info=told)

    async def _write(self, path: str, source: IO[bytes]) -> None:
        script = _WRITE
        while True:
            piece = await asyncio.to_thread(source.read, _PIECE_BYTES)
            if not piece and script == _APPEND:
                return
            await self._must(_script(script, path), path, stdin=piece)
            script = _APPEND

    async def _must(self, line: str, path: str, **more: Any) -> None:
        written = {"stdout": Kept(4096), "stderr": Kept(4096)}
        result = await self._run(line, written, **more)
        if not result.ok:
            raise OSError(errno.EIO, _text_of(written["stderr"]).strip() or "it could not be written", path)


@contextlib.contextmanager
def _told(*kept: type[FileSecBoxError]) -> Iterator[None]:
    """Failures of the service as the framework's own, but for those that are kept."""
    try:
        yield
    except kept:
        raise
    except FileSecBoxError as error:
        raise SwerexException(str(error)) from error


def _line_of(command: Command) -> str:
    """A command, which is given as for `subprocess.run`, as a line for the shell."""
    if isinstance(command.command, str):
        return command.command if command.shell else shlex.quote(command.command)
    if command.shell:
        first, *rest = command.command
        return shlex.join(["bash", "-c", first, *rest])
    return shlex.join(command.command)


def _script(script: str, *arguments: str) -> str:
    # As a line: of the arguments of programs, the service wants that they point into the tree.
    return shlex.join(["exec", "bash", "-c", script, "bash", *arguments])


def _pack(source: Path, archive: IO[bytes]) -> None:
    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return member if member.isfile() or member.isdir() or member.issym() or member.islnk() else None

    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(source, ".", filter=plain)
    archive.seek(0)


def _text_of(kept: Kept) -> str:
    return kept.text().encode("latin-1").decode(errors="backslashreplace")
