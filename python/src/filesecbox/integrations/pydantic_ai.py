"""`FileSecBoxBackend`: a workspace as the environment of an agent of Pydantic AI (`pydantic_ai.workspaces`).

    from filesecbox import AsyncFileSecBox
    from filesecbox.integrations.pydantic_ai import FileSecBoxBackend
    from pydantic_ai.workspaces import Workspace

    backend = FileSecBoxBackend(AsyncFileSecBox().workspace("alice", "demo"))
    result = await Workspace(backend).run(["python3", "--version"])

Needs Pydantic AI 2.68. The workspace is made by the first operation, and is removed by nobody but who asks for it. Of the
framework's rules one does not hold, by design: what a command leaves in the background ends with it (`Workspace.start` is for what
is to stay).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import posixpath
import shlex
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, TypeVar

from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    WorkspaceCommand,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

from .._async.client import AsyncFileSecBox
from .._async.workspace import AsyncWorkspace
from ..errors import CommandNotAllowed, Denied, FileSecBoxError, Invalid, NotFound, Stale, Unavailable
from ..models import FileInfo, RunResult

__all__ = ["FileSecBoxBackend"]

_PROVIDER = "filesecbox"
#: Where a workspace is for its commands.
_ROOT = "/workspace"
#: As many links as a kernel follows.
_LINKS_MAX = 40
#: How many entries of a directory are looked at at once.
_AT_ONCE = 16
#: What a shell says of a program that cannot be run.
_NOT_RUN = 126

T = TypeVar("T")


class FileSecBoxBackend:
    """Commands and files of one workspace.

    Commands see the ``skills`` that are named, or ``"all"`` of the user's. Without a timeout of a call their deadline is the
    service's own.
    """

    def __init__(
        self, workspace: AsyncWorkspace, *, skills: Sequence[str] | Literal["all"] | None = None, attach: bool = False
    ) -> None:
        self.workspace = workspace
        self._skills = skills
        self._ref: WorkspaceRef | None = self._identity() if attach else None
        self._is_ready = False
        self._lock = asyncio.Lock()

    @classmethod
    def attach(
        cls, box: AsyncFileSecBox, ref: WorkspaceRef, *, skills: Sequence[str] | Literal["all"] | None = None
    ) -> FileSecBoxBackend:
        """The workspace that an earlier backend's `ref` names; it is not made anew when it is gone."""
        user, _, agent = ref.id.partition("/")
        if ref.provider != _PROVIDER or not agent:
            raise ValueError(f"{ref!r} names no workspace of filesecbox")
        return cls(box.workspace(user, agent), skills=skills, attach=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._identity().id!r})"

    @property
    def ref(self) -> WorkspaceRef | None:
        """The user and the agent, from the first operation on."""
        return self._ref

    async def working_dir(self) -> str:
        """Where commands begin."""
        await self._ready()
        return _ROOT

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: RUF100, ASYNC109
    ) -> CommandResult:
        """Runs a program with its arguments, or with ``shell`` a line, to its end."""
        if isinstance(command, str) != shell:
            raise TypeError("a string is a command for the shell (shell=True), a list a program and its arguments")
        if timeout is not None and not (isinstance(timeout, int | float) and math.isfinite(timeout) and timeout > 0):
            raise ValueError("timeout must be a positive finite number or None")
        # A program that is not there is told by the shell (127), as everywhere.
        line = command if isinstance(command, str) else shlex.join(command)
        await self._ready()
        try:
            result = await self.workspace.run(line, env=env, timeout=timeout, skills=self._skills)
        except CommandNotAllowed as error:
            return CommandResult(exit_code=_NOT_RUN, stdout="", stderr=error.message)
        except NotFound as error:
            raise await self._gone_or(error) from error
        except Unavailable as error:
            # Runs end before the workspace is away.
            raise await self._gone_or(error, looks=20) from error
        if result.signal is not None or result.exit_code < 0:
            # It may have been ended with its workspace.
            await self._alive()
        return _result(result, timeout)

    async def read_bytes(self, path: str) -> bytes:
        """Reads a file whole."""
        return await self._ask(path, self.workspace.read_bytes)

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Replaces a file, or makes one with the directories above it; a link is written through."""

        async def write(inside: str) -> None:
            await self.workspace.write_bytes(inside, data)

        await self._ask(path, write)

    async def stat(self, path: str) -> FileEntry:
        """What is at a path; links are followed."""
        info = await self._ask(path, self.workspace.stat)
        return _entry(info, posixpath.normpath(path))

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        """The entries of a directory, by name."""
        entries = await self._ask(path, self.workspace.list_dir)
        gate = asyncio.Semaphore(_AT_ONCE)

        async def followed(entry: FileInfo) -> FileEntry:
            place = posixpath.join(posixpath.normpath(path), entry.name)
            if entry.kind == "symlink":
                async with gate:
                    try:
                        return _entry(await self.workspace.stat(_inside(place)), place)
                    except (OSError, FileSecBoxError):
                        # A link to nothing, or to itself.
                        return FileEntry(name=entry.name, path=place, is_dir=False, size=None)
            return _entry(entry, place)

        return await asyncio.gather(*(followed(entry) for entry in entries))

    async def make_dir(self, path: str) -> None:
        """Makes a directory with those above it; one that is there is no error."""

        async def make(inside: str) -> None:
            if inside != ".":
                await self.workspace.mkdir(inside, parents=True)

        await self._ask(path, make)

    async def remove(self, path: str) -> None:
        """Removes an entry with everything below it; of a link the link."""
        if posixpath.normpath(path) in ("/", _ROOT):
            raise ValueError(f"{path} holds the working directory")

        async def remove(inside: str) -> None:
            # Looked at first: what is not there is to be an error.
            await self.workspace.stat(inside, follow=False)
            await self.workspace.remove(inside, recursive=True)

        await self._ask(path, remove)

    async def exists(self, path: str) -> bool:
        """Whether anything is at a path."""
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def realpath(self, path: str) -> str:
        """Where a path leads, without links on the way; names that are missing stay as they are."""
        await self._ready()
        waiting = list(reversed(path.split("/")))
        real, links = "/", 0
        while waiting:
            name = waiting.pop()
            if name in ("", "."):
                continue
            if name == "..":
                real = posixpath.dirname(real)
                continue
            place = posixpath.join(real, name)
            target = await self._target(place)
            if target is None:
                real = place
                continue
            links += 1
            if links > _LINKS_MAX:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                real = "/"
            waiting.extend(reversed(target.split("/")))
        return real

    async def _target(self, place: str) -> str | None:
        """What a link in the workspace says; nothing for all else."""
        if not place.startswith(f"{_ROOT}/"):
            return None
        try:
            info = await self.workspace.stat(_inside(place), follow=False)
        except (FileNotFoundError, NotADirectoryError, Invalid):
            return None
        return info.target if info.kind == "symlink" else None

    def _identity(self) -> WorkspaceRef:
        return WorkspaceRef(provider=_PROVIDER, id=f"{self.workspace.user}/{self.workspace.agent}")

    async def _ready(self) -> None:
        """Makes the workspace, or finds the one that the ref names; once."""
        if self._is_ready:
            return
        async with self._lock:
            if self._is_ready:
                return
            if self._ref is None:
                self._ref = self._identity()
                if not (await self.workspace.usage()).get("workspace"):
                    # One is there once something was in it. A file of that name that comes meanwhile is another's, who made it then.
                    with contextlib.suppress(Stale, NotFound):
                        made = await self.workspace.write_bytes(_MARK, b"", if_missing=True)
                        await self.workspace.remove(_MARK, if_match=made.etag)
            else:
                await self._alive()
            self._is_ready = True

    async def _alive(self) -> None:
        usage = await self.workspace.usage()
        # One that was not used for long is kept aside, and comes back when it is.
        if not (usage.get("workspace") or usage.get("kept")):
            raise WorkspaceUnavailableError(f"the workspace {self._identity().id} is gone")

    async def _gone_or(self, error: Exception, looks: int = 1) -> Exception:
        """What a failure is, when nothing was found: the workspace may be gone, or going, for which it looks so often."""
        for look in range(looks):
            if look:
                await asyncio.sleep(0.25)
            try:
                await self._alive()
            except (WorkspaceUnavailableError, FileSecBoxError) as gone:
                return gone
        return error

    async def _ask(self, path: str, ask: Callable[[str], Coroutine[Any, Any, T]]) -> T:
        await self._ready()
        inside = _inside(path)
        try:
            return await ask(inside)
        except NotFound as error:
            raise await self._gone_or(error) from error
        except Invalid as error:
            # Such as a pipe, or a path with bytes that none can have.
            raise OSError(errno.EINVAL, str(error), path) from error


#: A file for a moment, by which a workspace is made.
_MARK = ".filesecbox-made"


def _inside(path: str) -> str:
    """A path of the framework as one of the tree; ``.`` is the tree."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    if not path.startswith("/") or ".." in names:
        raise ValueError(f"`{path}` is no absolute path without `..`")
    if names[:1] != [_ROOT[1:]]:
        raise Denied(f"`{path}` is outside {_ROOT}")
    return "/".join(names[1:]) or "."


def _entry(info: FileInfo, path: str) -> FileEntry:
    size = info.size if info.is_file else None
    return FileEntry(name=posixpath.basename(path), path=path, is_dir=info.is_dir, size=size)


def _result(result: RunResult, timeout: float | None) -> CommandResult:
    if result.timed_out:
        # Without a timeout of its own it is the service's, which is one all the same.
        after = f" after {timeout:g} s" if timeout is not None else ""
        message = f"the command passed its deadline{after} and was killed"
        raise WorkspaceTimeoutError(message, stdout=result.stdout, stderr=result.stderr)
    if result.truncated:
        shown = len(result.stdout.encode()) + len(result.stderr.encode())
        message = f"{result.dropped_bytes} bytes of the command's output are more than the service keeps"
        raise WorkspaceOutputLimitError(message, limit=shown, stdout=result.stdout, stderr=result.stderr)
    return CommandResult(exit_code=result.exit_code, stdout=result.stdout, stderr=result.stderr)
