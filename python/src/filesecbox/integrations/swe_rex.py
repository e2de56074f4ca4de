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
import base64
import contextlib
import errno
import io
import logging
import os
import re
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
    NoExitCodeError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
    SwerexException,
)
from swerex.runtime.abstract import (
    AbstractRuntime,
    Action,
    BashAction,
    BashInterruptAction,
    BashObservation,
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
from .._async.process import AsyncProcess
from .._async.workspace import AsyncWorkspace
from .._kept import Kept
from ..errors import CommandNotAllowed, FileSecBoxError
from ..models import RunResult

__all__ = ["FileSecBoxRuntime"]

#: The most bytes of a file that is read, and those that are sent to a command at once.
_READ_BYTES, _PIECE_BYTES = 64 * 1024 * 1024, 4 * 1024 * 1024
#: Characters of a command's output in a session that are kept, and those in which its end is looked for.
_OUTPUT_CHARACTERS, _WINDOW_CHARACTERS = 4 * 1024 * 1024, 64 * 1024
#: How long the shell may take for what it does at once, in seconds.
_SETTLE_SECONDS = 30.0
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
        self._shells: dict[str, _Shell] = {}

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
        shell = self._shells[request.session] = _Shell()
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
        except _Ended as ended:
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

    def _shell(self, name: str) -> _Shell:
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


class _Ended(Exception):
    """A shell is no more."""


class _Shell:
    """A `bash` in a terminal that is typed into.

    Its prompt says of which command it is the end, and the exit code. So an end that nothing waited for, as after a timeout, is not
    taken for that of a later command.
    """

    def __init__(self) -> None:
        self.in_use = asyncio.Lock()
        self._word = uuid.uuid4().hex
        self._count = 0
        self._process: AsyncProcess | None = None
        self._terminal: _Terminal | None = None

    async def begin(self, process: AsyncProcess, sources: Sequence[str], timeout: float) -> str:
        self._process = process
        self._terminal = _Terminal(process)
        try:
            # Below tier `namespaces` commands cannot be made the terminal's foreground; there all are in one group with the shell.
            await self._send(f"stty -echo 2> /dev/null || set +m; {self._next()}")
            await self._until_prompt(_SETTLE_SECONDS)
            if not sources:
                return ""
            # These often set the prompt.
            await self._send(" ; ".join([*(f"source {path}" for path in sources), self._next()]))
            return self._plain((await self._until_prompt(timeout))[1])
        except TimeoutError as error:
            raise CommandTimeoutError(f"the shell was not ready after {timeout} s") from error
        except _Ended as ended:
            raise SwerexException(f"the shell ended at once{ended}") from ended

    async def run(self, action: BashAction) -> BashObservation:
        # As a terminal takes no line of any length, and no control characters as they are.
        encoded = base64.encodebytes(action.command.encode()).decode()
        await self._send(f"{self._next()}; eval \"$(base64 -d <<'END'\n{encoded}END\n)\"")
        found, output = await self._expect(action)
        code = int(found[1]) if found.re.pattern == self._prompt else None
        if action.check == "raise" and code != 0:
            told = f"of the command {action.command!r}. Its output was {output!r}"
            told = f"{action.error_msg}: {told}" if action.error_msg else told
            if code is None:
                raise NoExitCodeError(f"there is no exit code {told}")
            raise NonZeroExitCodeError(f"{code} is the exit code {told}")
        code = None if action.check == "ignore" else code
        return BashObservation(output=output, exit_code=code, expect_string=found.re.pattern)

    async def type(self, action: BashAction) -> BashObservation:
        """Types a line into a program that waits for one."""
        await self._send(action.command)
        found, output = await self._expect(action)
        if action.is_interactive_quit:
            await self._settle()
        else:
            # A program that edits lines shows what was typed.
            output = output.lstrip().removeprefix(action.command).strip()
        return BashObservation(output=output, exit_code=0, expect_string=found.re.pattern)

    async def interrupt(self, action: BashInterruptAction) -> BashObservation:
        """Interrupts what runs, and kills it when that does not end it."""
        for _ in range(action.n_retry):
            await self._send("\x03", end="")
            with contextlib.suppress(TimeoutError):
                found, output = await self._heard.expect([*action.expect, self._prompt], action.timeout)
                if found.re.pattern == self._prompt:
                    output += await self._settle()
                return BashObservation(output=self._plain(output).strip(), exit_code=0, expect_string=found.re.pattern)
        try:
            await self._send("\x1a", end="")
            found, output = await self._until_prompt(_SETTLE_SECONDS)
            await self._send("kill -9 %%")
            # That the shell tells of its end comes with the next command, as in the framework's own sessions.
            self._heard.put_back(await self._settle())
        except TimeoutError as error:
            raise CommandTimeoutError("what runs in the session can be neither interrupted nor stopped") from error
        return BashObservation(output=self._plain(output).strip(), exit_code=0, expect_string=found.re.pattern)

    async def end(self) -> None:
        if self._terminal is not None:
            self._terminal.close()
        if self._process is not None:
            await _io.finish(self._process.kill)

    @property
    def _heard(self) -> _Terminal:
        if self._terminal is None:
            raise _Ended
        return self._terminal

    @property
    def _prompt(self) -> str:
        return rf"<{self._word}\.{self._count}:(\d+)>"

    def _next(self) -> str:
        """A line that gives the shell the next prompt, whatever sets another one, and has it show nothing that is typed."""
        self._count += 1
        prompt = f"<{self._word}.{self._count}:%d>"
        return f"unset PROMPT_COMMAND; PROMPT_COMMAND=\"printf -v PS1 '{prompt}' \\$?; PS2= PS0=; stty -echo\""

    def _plain(self, text: str) -> str:
        """Without prompts and control sequences, and with plain line ends."""
        text = re.sub(rf"<{self._word}\.\d+:\d+>", "", text)
        return re.sub(r"\x1B[@-_][0-?]*[ -/]*[@-~]", "", text).replace("\r\n", "\n")

    async def _expect(self, action: BashAction) -> tuple[re.Match[str], str]:
        """Waits for one of what the action expects, or the prompt. A caller that is cancelled interrupts what runs."""
        try:
            found, output = await self._heard.expect([*action.expect, self._prompt], action.timeout)
            return found, self._plain(output)
        except TimeoutError as error:
            message = f"timeout after {action.timeout} seconds while running command {action.command!r}"
            raise CommandTimeoutError(message) from error
        except asyncio.CancelledError:
            await _io.finish(lambda: self._send("\x03", end=""))
            raise

    async def _until_prompt(self, timeout: float) -> tuple[re.Match[str], str]:
        return await self._heard.expect([self._prompt], timeout)

    async def _settle(self) -> str:
        """Waits until everything that was typed is done; gives what has been written meanwhile."""
        await self._send(self._next())
        try:
            return (await self._until_prompt(_SETTLE_SECONDS))[1]
        except TimeoutError as error:
            raise CommandTimeoutError("the shell of the session does not answer") from error

    async def _send(self, text: str, *, end: str = "\n") -> None:
        if self._process is None:
            raise _Ended
        try:
            await self._process.send(text + end)
        except FileSecBoxError as error:
            if error.code in ("conflict", "not_found"):
                raise _Ended from error
            raise SwerexException(str(error)) from error


class _Terminal:
    """What a run writes, and who waits for something in it."""

    def __init__(self, process: AsyncProcess) -> None:
        self._kept = Kept(_OUTPUT_CHARACTERS)
        #: The end of what came, in which something is looked for.
        self._text = ""
        self._wanted: list[re.Pattern[str]] = []
        self._found: asyncio.Future[tuple[re.Match[str], str]] | None = None
        self._end: _Ended | None = None
        self._task = asyncio.create_task(self._follow(process))

    def close(self) -> None:
        self._task.cancel()

    async def expect(self, patterns: Sequence[str], timeout: float | None) -> tuple[re.Match[str], str]:
        """Waits for what comes first of some regular expressions; gives it with what came before."""
        self._wanted = [re.compile(pattern, re.DOTALL) for pattern in patterns]
        self._found = asyncio.get_running_loop().create_future()
        try:
            self._look()
            if self._end is not None and not self._found.done():
                raise self._end
            return await asyncio.wait_for(self._found, timeout)
        finally:
            self._wanted, self._found = [], None

    def put_back(self, text: str) -> None:
        """Has a text come before everything that is not looked at yet."""
        self._text = text + self._text

    async def _follow(self, process: AsyncProcess) -> None:
        end = ""
        try:
            async for event in process.events():
                self._text += event.text
                self._look()
                if event.event == "exit" and event.result is not None:
                    end = f" with {RunResult.of(event.result).shell_code}"
        except FileSecBoxError as error:
            end = f": {error}"
        self._end = _Ended(end)
        if self._found is not None and not self._found.done():
            self._found.set_exception(self._end)

    def _look(self) -> None:
        if self._found is not None and not self._found.done():
            matches = [match for each in self._wanted if (match := each.search(self._text))]
            if matches:
                first = min(matches, key=lambda match: match.start())
                self._kept.add(self._text[: first.start()])
                self._found.set_result((first, self._kept.text()))
                self._kept, self._text = Kept(_OUTPUT_CHARACTERS), self._text[first.end() :]
        surplus = max(0, len(self._text) - _WINDOW_CHARACTERS)
        self._kept.add(self._text[:surplus])
        self._text = self._text[surplus:]


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
