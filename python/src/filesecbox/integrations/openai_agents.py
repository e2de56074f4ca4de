"""`FileSecBoxSandboxClient`: workspaces as the sandboxes of agents of the OpenAI Agents SDK (`agents.sandbox`).

    from agents import RunConfig, Runner
    from agents.sandbox import SandboxAgent, SandboxRunConfig
    from filesecbox import AsyncFileSecBox
    from filesecbox.integrations.openai_agents import FileSecBoxClientOptions, FileSecBoxSandboxClient

    client = FileSecBoxSandboxClient(AsyncFileSecBox())
    sandbox = SandboxRunConfig(client=client, options=FileSecBoxClientOptions(user="alice"))
    await Runner.run(SandboxAgent(name="assistant"), "…", run_config=RunConfig(sandbox=sandbox))

Needs openai-agents 0.24. The workspace is the user's with the agent that the options name. Without an agent it is one of the
session's own, and is removed when the session is deleted. Commands have one identity: users, groups and `run_as` of the framework
make no other one.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import posixpath
import shlex
import stat
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from agents.sandbox.errors import (
    ExecNonZeroError,
    ExecTimeoutError,
    ExecTransportError,
    InvalidManifestPathError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.files import EntryKind, FileEntry
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.dependencies import Dependencies
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.pty_types import (
    PtyExecUpdate,
    allocate_pty_process_id,
    clamp_pty_yield_time_ms,
    resolve_pty_write_yield_time_ms,
    truncate_text_by_tokens,
)
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.session.tar_workspace import shell_tar_exclude_args
from agents.sandbox.session.workspace_payloads import coerce_write_payload
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, Permissions, User
from agents.sandbox.workspace_paths import sandbox_path_str

from .._async import _io
from .._async.client import AsyncFileSecBox
from .._async.process import AsyncProcess
from .._async.workspace import AsyncWorkspace
from .._kept import Kept
from ..errors import AlreadyExists, Busy, CommandNotAllowed, Conflict, FileSecBoxError, NotFound, Stale, Unavailable
from ..models import RunResult

__all__ = ["FileSecBoxClientOptions", "FileSecBoxSandboxClient", "FileSecBoxSandboxSession", "FileSecBoxSessionState"]

#: Where a workspace is for its commands.
_ROOT = "/workspace"
#: The most bytes of a file that is read whole.
_READ_BYTES = 128 * 1024 * 1024
#: The most bytes of a workspace as one archive, those that are held in memory, and those that are sent at once.
_ARCHIVE_BYTES, _SPOOLED_BYTES, _PIECE_BYTES = 4 * 1024**3, 8 * 1024**2, 1024**2
#: Characters of a running command's output that wait for their reader.
_HELD_CHARACTERS = 1024 * 1024
#: What a shell says of a program that cannot be run.
_NOT_RUN = 126
#: What the framework's tool for standard input looks for.
_NO_STDIN = "stdin is not available for this process"


class FileSecBoxClientOptions(BaseSandboxClientOptions):  # type: ignore[misc]
    """Whose workspace it is. Commands see the ``skills`` that are named, or ``"all"`` of the user's."""

    type: Literal["filesecbox"] = "filesecbox"
    user: str
    agent: str | None = None
    skills: tuple[str, ...] | Literal["all"] | None = None


class FileSecBoxSessionState(SandboxSessionState):  # type: ignore[misc]
    """What a later process needs to go on with a session. ``is_own``: the workspace is the session's, and goes with it.

    It says whose workspace it is, and the client's token opens that: a state from elsewhere is to be checked first.
    """

    type: Literal["filesecbox"] = "filesecbox"
    user: str
    agent: str
    is_own: bool
    skills: tuple[str, ...] | Literal["all"] | None = None


class FileSecBoxSandboxClient(BaseSandboxClient[FileSecBoxClientOptions]):  # type: ignore[misc]
    """Makes sessions of the workspaces of one service."""

    backend_id = "filesecbox"

    def __init__(
        self,
        box: AsyncFileSecBox,
        *,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
    ) -> None:
        super().__init__()
        self.box = box
        self._instrumentation = instrumentation
        self._dependencies = dependencies

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.box!r})"

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: FileSecBoxClientOptions,
    ) -> SandboxSession:
        """Makes a session in the workspace that the options name, or in a new one."""
        manifest = _checked(self._validate_manifest_for_create(manifest or Manifest()))
        session_id = uuid.uuid4()
        state = FileSecBoxSessionState(
            session_id=session_id,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            manifest=manifest,
            user=options.user,
            agent=options.agent or f"session-{session_id.hex}",
            is_own=options.agent is None,
            skills=options.skills,
        )
        return self._session(state)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Goes on in the workspace of an earlier session. One that is gone is made anew of the session's snapshot, or manifest."""
        if not isinstance(state, FileSecBoxSessionState):
            raise TypeError(f"{type(self).__name__}.resume expects a FileSecBoxSessionState")
        state.assert_path_grants_rebound()
        _checked(state.manifest)
        usage = await self.box.workspace(state.user, state.agent).usage()
        # One that was not used for long is kept aside, and comes back when it is.
        is_there = bool(usage.get("workspace") or usage.get("kept"))
        state.workspace_root_ready = state.workspace_root_ready and is_there
        return self._session(state, is_there)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Ends what runs in a session, and removes the workspace if it is the session's own."""
        inner = session._inner
        if not isinstance(inner, FileSecBoxSandboxSession):
            raise TypeError(f"{type(self).__name__}.delete expects a session of this client")
        await inner.shutdown()
        if inner.state.is_own:
            await inner.workspace.delete(force=True, snapshots=True)
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """The state that was serialized."""
        return self._deserialize_session_state_payload(payload, FileSecBoxSessionState)

    def _session(self, state: FileSecBoxSessionState, is_there: bool = False) -> SandboxSession:
        inner = FileSecBoxSandboxSession(self.box.workspace(state.user, state.agent), state)
        inner._set_start_state_preserved(is_there)
        return self._wrap_session(inner, instrumentation=self._instrumentation)


def _checked(manifest: Manifest) -> Manifest:
    if manifest.root != _ROOT:
        raise ValueError(f"the root of a manifest is {_ROOT} here, not {manifest.root}")
    if manifest.extra_path_grants:
        raise ValueError(f"there are no paths beside {_ROOT} to be granted: leave `extra_path_grants` out")
    return manifest


@dataclass
class _Running:
    """A command that goes on, and what it has written since it was last asked."""

    process: AsyncProcess
    has_terminal: bool
    kept: Kept = field(default_factory=lambda: Kept(_HELD_CHARACTERS))
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    exit_code: int = 1
    task: asyncio.Task[None] | None = None

    async def follow(self) -> None:
        try:
            async for event in self.process.events():
                if event.event in ("stdout", "stderr"):
                    self.kept.add(event.text)
                elif event.event == "exit":
                    result = RunResult.of(event.result or {"exit_code": -1})
                    self.exit_code = result.shell_code
                    self.kept.add(f"\n[{result.hint}]\n" if result.hint else "")
        except FileSecBoxError as error:
            self.kept.add(f"\n[the output of the command was lost: {error}]\n")
            await _io.finish(self.process.kill)
        finally:
            self.ended.set()

    async def end(self) -> None:
        if self.task is not None:
            self.task.cancel()
        await _io.finish(self.process.kill)


class FileSecBoxSandboxSession(BaseSandboxSession):  # type: ignore[misc]
    """The files and commands of one workspace. A client makes it."""

    state: FileSecBoxSessionState

    def __init__(self, workspace: AsyncWorkspace, state: FileSecBoxSessionState) -> None:
        self.workspace = workspace
        self.state = state
        self._is_started = False
        self._running: dict[int, _Running] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.state.user!r}, {self.state.agent!r})"

    # Its life

    async def running(self) -> bool:
        """Whether it was started, and the service answers."""
        if not (self._is_started or self._workspace_state_preserved_on_start()):
            return False
        try:
            await self.workspace.exists(".")
        except FileSecBoxError:
            return False
        return True

    async def _after_start(self) -> None:
        self._is_started = True

    async def _after_shutdown(self) -> None:
        self._is_started = False
        self._set_start_state_preserved(False)

    async def _can_skip_snapshot_restore_on_resume(self, *, is_running: bool) -> bool:
        # A workspace with a name is others' too: what is in it is never put back to an earlier state.
        if not self.state.is_own:
            return True
        return bool(await super()._can_skip_snapshot_restore_on_resume(is_running=is_running))

    async def _apply_manifest(self, *, only_ephemeral: bool = False, provision_accounts: bool = True) -> Any:
        return await super()._apply_manifest(only_ephemeral=only_ephemeral, provision_accounts=False)

    async def provision_manifest_accounts(self) -> None:
        """Does nothing: there is one identity."""

    # Commands

    def _prepare_exec_command(
        self, *command: str | Path, shell: bool | list[str], user: str | User | None
    ) -> list[str]:
        return cast(list[str], super()._prepare_exec_command(*command, shell=shell, user=None))

    async def _exec_internal(
        self,
        *command: str | Path,
        timeout: float | None = None,  # noqa: RUF100, ASYNC109
    ) -> ExecResult:
        written = {"stdout": Kept(), "stderr": Kept()}
        try:
            result = await self.workspace.run(
                _line(command),
                env=await self.state.manifest.environment.resolve(),
                timeout=timeout,
                skills=self.state.skills,
                # Each byte as one character, which is what is counted.
                on_bytes=lambda stream, data: written[stream].add(data.decode("latin-1")),
            )
        except CommandNotAllowed as error:
            return ExecResult(stdout=b"", stderr=error.message.encode(), exit_code=_NOT_RUN)
        except FileSecBoxError as error:
            raise _transport(command, error) from error
        if result.timed_out:
            raise ExecTimeoutError(command=command, timeout_s=timeout)
        streams = {name: kept.text().encode("latin-1") for name, kept in written.items()}
        return ExecResult(exit_code=result.shell_code, **streams)

    def supports_pty(self) -> bool:
        """Commands may go on while the agent does something else."""
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,  # noqa: RUF100, ASYNC109
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Starts a command, with ``tty`` in a terminal, and waits for its end or as long as is asked."""
        words = self._prepare_exec_command(*command, shell=shell, user=user)
        try:
            process = await self.workspace.start(
                _line(words),
                env=await self.state.manifest.environment.resolve(),
                timeout=timeout,
                skills=self.state.skills,
                stdin=tty,
                tty=tty,
            )
        except CommandNotAllowed as error:
            return PtyExecUpdate(None, error.message.encode(), _NOT_RUN, None)
        except FileSecBoxError as error:
            raise _transport(command, error) from error
        running = _Running(process, tty)
        running.task = asyncio.create_task(running.follow())
        number = allocate_pty_process_id(set(self._running))
        self._running[number] = running
        yield_ms = clamp_pty_yield_time_ms(10_000 if yield_time_s is None else int(yield_time_s * 1000))
        try:
            return await self._update(number, running, yield_ms, max_output_tokens)
        except BaseException:
            # Nothing knows its number.
            self._running.pop(number, None)
            await running.end()
            raise

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Types into the terminal of a command, and tells what it wrote since it was last asked."""
        running: _Running = self._resolve_pty_session_entry(pty_processes=self._running, session_id=session_id)
        if chars:
            if not running.has_terminal:
                raise RuntimeError(_NO_STDIN)
            try:
                # One that has ended tells so below.
                with contextlib.suppress(Conflict):
                    await running.process.send(chars)
            except FileSecBoxError as error:
                raise _transport(("write_stdin",), error) from error
        yield_ms = resolve_pty_write_yield_time_ms(
            yield_time_ms=250 if yield_time_s is None else int(yield_time_s * 1000), input_empty=not chars
        )
        return await self._update(session_id, running, yield_ms, max_output_tokens)

    async def pty_terminate_all(self) -> None:
        """Ends every command that goes on."""
        running, self._running = self._running, {}
        await asyncio.gather(*(each.end() for each in running.values()))

    async def _update(self, number: int, running: _Running, yield_ms: int, tokens: int | None) -> PtyExecUpdate:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(running.ended.wait(), yield_ms / 1000)
        is_over = running.ended.is_set()
        written, running.kept = running.kept.text(), Kept(_HELD_CHARACTERS)
        shown, count = truncate_text_by_tokens(written, tokens)
        if is_over:
            self._running.pop(number, None)
        return PtyExecUpdate(
            process_id=None if is_over else number,
            output=shown.encode(),
            exit_code=running.exit_code if is_over else None,
            original_token_count=count,
        )

    # Files

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """Reads a file whole."""
        data = await self._read_bounded(path, max_bytes=_READ_BYTES + 1)
        if len(data) > _READ_BYTES:
            reason = f"it has more than {_READ_BYTES} bytes"
            raise WorkspaceArchiveReadError(path=path, context={"reason": reason}, retryable=False)
        return io.BytesIO(data)

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        inside = self._inside(path)
        try:
            return await self.workspace.read_bytes(inside, 0, max_bytes)
        except NotFound as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except FileSecBoxError as error:
            context = {"reason": str(error)}
            raise WorkspaceArchiveReadError(
                path=path, context=context, cause=error, retryable=_may_retry(error)
            ) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Replaces a file, or makes one, with the directories above it."""
        await self._write(path, data, is_new=False)

    async def _write_new_file(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        try:
            await self._write(path, data, is_new=True)
        except WorkspaceArchiveWriteError as error:
            if isinstance(error.cause, Stale):
                raise FileExistsError(f"{path} is there already") from error
            raise

    async def _write(self, path: Path, data: io.IOBase, *, is_new: bool) -> None:
        inside = self._inside(path, for_write=True)
        content = await asyncio.to_thread(coerce_write_payload(path=path, data=data).stream.read)
        try:
            await self.workspace.write_bytes(inside, content, if_missing=is_new)
        except FileSecBoxError as error:
            raise _not_written(path, str(error), error) from error

    async def ls(self, path: Path | str, *, user: str | User | None = None) -> list[FileEntry]:
        """The entries of a directory."""
        inside = self._inside(path)
        try:
            entries = await self.workspace.list_dir(inside)
        except FileSecBoxError as error:
            raise _nonzero(error, "ls", path) from error
        return [
            FileEntry(
                path=posixpath.normpath(posixpath.join(_ROOT, inside, each.name)),
                permissions=Permissions.from_mode(int(each.mode, 8) | (stat.S_IFDIR if each.is_dir else 0)),
                owner=each.owner or "",
                group="",
                size=each.size,
                kind=EntryKind(each.kind),
            )
            for each in entries
        ]

    async def mkdir(self, path: Path | str, *, parents: bool = False, user: str | User | None = None) -> None:
        """Makes a directory; with ``parents`` those above it, and one that is there is no error."""
        inside = self._inside(path, for_write=True)
        try:
            if inside != ".":
                await self.workspace.mkdir(inside, parents=parents)
            elif not parents:
                raise AlreadyExists(f"{_ROOT} is there")
        except FileSecBoxError as error:
            raise _nonzero(error, "mkdir", path) from error

    def _inside(self, path: Path | str, *, for_write: bool = False) -> str:
        """A path of the framework as one of the tree; ``.`` is the tree."""
        inside = posixpath.relpath(sandbox_path_str(self.normalize_path(path, for_write=for_write)), _ROOT)
        if inside.split("/")[0] == "..":
            raise InvalidManifestPathError(rel=path, reason="escape_root")
        return inside

    # The workspace as one archive

    async def persist_workspace(self) -> io.IOBase:
        """Everything in the workspace as a tar."""
        archive = tempfile.SpooledTemporaryFile(_SPOOLED_BYTES)  # noqa: SIM115
        said = Kept(4096)

        def take(stream: str, data: bytes) -> None:
            if stream == "stderr":
                said.add(data.decode(errors="replace"))
            elif archive.tell() + len(data) > _ARCHIVE_BYTES:
                raise OverflowError(f"the workspace has more than {_ARCHIVE_BYTES} bytes")
            else:
                archive.write(data)

        left_out = shell_tar_exclude_args(self._persist_workspace_skip_relpaths())
        try:
            result = await self.workspace.run(" ".join(["tar", *left_out, "-cf", "-", "."]), on_bytes=take)
            if not result.ok:
                raise OSError(f"tar ended with {result.shell_code}: {said.text()}")
            archive.seek(0)
        except BaseException as error:
            archive.close()
            if not isinstance(error, (FileSecBoxError, OSError, OverflowError)):
                raise
            context = {"reason": str(error)}
            raise WorkspaceArchiveReadError(path=Path(_ROOT), context=context, cause=error) from error
        return cast(io.IOBase, archive)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Unpacks a tar into the workspace. It is unpacked behind the walls that commands have."""
        try:
            async with await self.workspace.start("tar -xof -", stdin=True) as process:
                # One that fails before it has read all tells why below.
                with contextlib.suppress(Conflict):
                    while piece := await asyncio.to_thread(data.read, _PIECE_BYTES):
                        await process.send(piece)
                    await process.close_stdin()
                said = Kept(4096)
                result = RunResult(exit_code=-1)
                async for event in process.events():
                    said.add(event.text)
                    if event.event == "exit":
                        result = RunResult.of(event.result or {"exit_code": -1})
        except FileSecBoxError as error:
            raise _not_written(Path(_ROOT), str(error), error) from error
        if not result.ok:
            raise _not_written(Path(_ROOT), f"tar ended with {result.shell_code}: {said.text()}")


def _line(command: Sequence[str | Path]) -> str:
    # A program that is not there is told by the shell (127), as everywhere.
    return "exec " + shlex.join(str(word) for word in command)


def _may_retry(error: FileSecBoxError) -> bool:
    return isinstance(error, Busy | Unavailable)


def _transport(command: Sequence[str | Path], error: FileSecBoxError) -> ExecTransportError:
    # Where all places for what goes on are taken, the framework may run the command to its end instead.
    context = {"retry_safe": isinstance(error, Busy)}
    return ExecTransportError(
        command=command, context=context, cause=error, message=str(error), retryable=_may_retry(error)
    )


def _not_written(path: Path, reason: str, error: FileSecBoxError | None = None) -> WorkspaceArchiveWriteError:
    retryable = None if error is None else _may_retry(error)
    return WorkspaceArchiveWriteError(path=path, context={"reason": reason}, cause=error, retryable=retryable)


def _nonzero(error: FileSecBoxError, program: str, path: Path | str) -> ExecNonZeroError:
    told = ExecResult(stdout=b"", stderr=str(error).encode(), exit_code=1)
    return ExecNonZeroError(told, command=(program, sandbox_path_str(path)), cause=error)
