"""`FileSecBoxSandbox`: a workspace as the sandbox of an agent that deepagents (LangChain) builds.

    from deepagents import create_deep_agent
    from filesecbox import FileSecBox
    from filesecbox.integrations.deepagents import FileSecBoxSandbox

    workspace = FileSecBox().workspace("alice", "demo")
    agent = create_deep_agent(model=model, backend=FileSecBoxSandbox(workspace))

Needs deepagents 0.6.12 or 0.7. Paths are those that commands see, such as ``/workspace/notes.txt``. What fails is told in the results, as
the framework wants it, and never raised.
"""

from __future__ import annotations

import base64
import dataclasses
import fnmatch
import re
from collections.abc import Sequence
from operator import methodcaller
from typing import Any, Literal, TypeVar

from deepagents.backends.protocol import (
    EditResult,
    ExecuteResponse,
    FileData,
    FileDownloadResponse,
    FileInfo,
    FileUploadResponse,
    GlobResult,
    GrepMatch,
    GrepResult,
    LsResult,
    ReadResult,
    SandboxBackendProtocol,
    WriteResult,
)

try:
    from deepagents.backends.protocol import DeleteResult

    _IS_OLD = False
except ImportError:
    # Of deepagents 0.6, in which nothing is removed; the fields are the same.
    from deepagents.backends.protocol import WriteResult as DeleteResult

    _IS_OLD = True

from .._async.workspace import AsyncWorkspace
from .._sync.workspace import Workspace
from ..errors import (
    CommandNotAllowed,
    Denied,
    EditMismatch,
    FileSecBoxError,
    Invalid,
    IsADirectory,
    NotADirectory,
    NotFound,
    PathEscape,
    Stale,
)
from ._steps import Steps, ado, do

__all__ = ["FileSecBoxSandbox"]

#: Where a workspace is for its commands.
_ROOT = "/workspace"
#: The most bytes of a file that is shown to a model: what the framework's own sandboxes show.
_SHOWN_BYTES = 512_000
#: The most files and lines that a search gives.
_FOUND_MAX = 10_000
#: Entries that are asked for at once.
_PAGE = 1_000
#: How often a replacement of all occurrences is tried while others change the text.
_TRIES = 5
#: What a shell says of a program that cannot be run, and of one that took too long.
_NOT_RUN, _TOO_LONG = 126, 124

T = TypeVar("T")


class FileSecBoxSandbox(SandboxBackendProtocol):  # type: ignore[misc]
    """The files and commands of one workspace.

    ``async_workspace`` is the same one of an `AsyncFileSecBox`, by which the methods of coroutines go; without it they use threads.
    Commands see the ``skills`` that are named, or ``"all"`` of the user's; ``timeout`` is their deadline in seconds unless a call
    has another.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        async_workspace: AsyncWorkspace | None = None,
        skills: Sequence[str] | Literal["all"] | None = None,
        timeout: float | None = None,
    ) -> None:
        self.workspace = workspace
        self.async_workspace = async_workspace
        self._skills = skills
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    @property
    def id(self) -> str:
        """The user and the agent."""
        return f"{self.workspace.user}/{self.workspace.agent}"

    # Of each operation, for a thread and for a coroutine

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a line for the shell to its end."""
        return self._do(self._execute(command, timeout))

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """As `execute`; a caller that is cancelled kills the run."""
        if self.async_workspace is None:
            return await super().aexecute(command, timeout=timeout)
        return await self._ado(self._execute(command, timeout))

    def ls(self, path: str) -> LsResult:
        """Lists a directory."""
        return self._do(_ls(path))

    async def als(self, path: str) -> LsResult:
        """As `ls`."""
        return await (super().als(path) if self.async_workspace is None else self._ado(_ls(path)))

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """Reads lines of a text, counted from 0, or a whole file of other bytes in base64."""
        return self._do(_read(file_path, offset, limit))

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """As `read`."""
        if self.async_workspace is None:
            return await super().aread(file_path, offset, limit)
        return await self._ado(_read(file_path, offset, limit))

    def write(self, file_path: str, content: str) -> WriteResult:
        """Replaces a file, or makes one, with the directories above it."""
        return self._do(_write(file_path, content))

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        """As `write`."""
        if self.async_workspace is None:
            return await super().awrite(file_path, content)
        return await self._ado(_write(file_path, content))

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """Replaces a passage that occurs once, or with ``replace_all`` each time that it occurs."""
        return self._do(_edit(file_path, old_string, new_string, replace_all))

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """As `edit`."""
        if self.async_workspace is None:
            return await super().aedit(file_path, old_string, new_string, replace_all)
        return await self._ado(_edit(file_path, old_string, new_string, replace_all))

    def delete(self, file_path: str) -> DeleteResult:
        """Removes an entry with everything below it."""
        return self._do(_delete(file_path))

    async def adelete(self, file_path: str) -> DeleteResult:
        """As `delete`."""
        if self.async_workspace is None:
            return await super().adelete(file_path)
        return await self._ado(_delete(file_path))

    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """Finds lines that have a text; ``max_count`` is the most in all files together."""
        return self._do(_grep(pattern, path, glob, max_count))

    async def agrep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """As `grep`."""
        if self.async_workspace is None:
            return await super().agrep(pattern, path, glob, max_count=max_count)
        return await self._ado(_grep(pattern, path, glob, max_count))

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Finds files by a pattern."""
        return self._do(_glob(pattern, path))

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        """As `glob`."""
        return await (super().aglob(pattern, path) if self.async_workspace is None else self._ado(_glob(pattern, path)))

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files, in order; of each it is told whether it is there."""
        return self._do(_upload(files))

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """As `upload_files`."""
        return await (super().aupload_files(files) if self.async_workspace is None else self._ado(_upload(files)))

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files whole, in order; of each it is told why it could not be read."""
        return self._do(_download(paths))

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """As `download_files`."""
        return await (super().adownload_files(paths) if self.async_workspace is None else self._ado(_download(paths)))

    def _do(self, steps: Steps[T]) -> T:
        return do(self.workspace, steps)

    async def _ado(self, steps: Steps[T]) -> T:
        return await ado(self.async_workspace, steps)

    def _execute(self, command: str, timeout: int | None) -> Steps[ExecuteResponse]:
        deadline = timeout or self._timeout
        try:
            result = yield methodcaller("run", command, timeout=deadline, skills=self._skills)
        except CommandNotAllowed as error:
            return ExecuteResponse(output=error.message, exit_code=_NOT_RUN)
        except FileSecBoxError as error:
            return ExecuteResponse(output=f"Error: {error}", exit_code=None)
        output = result.output
        if result.timed_out:
            output += f"\n[the command passed its deadline and was ended after {result.duration_ms / 1000:.1f} s]"
        if result.hint:
            output += f"\n[{result.hint}]"
        code = _TOO_LONG if result.timed_out else result.exit_code
        return ExecuteResponse(output=output, exit_code=code, truncated=result.truncated)


def _ls(path: str) -> Steps[LsResult]:
    if path == "/":
        return LsResult(entries=[FileInfo(path=_ROOT, is_dir=True)])
    try:
        inside = _inside(path)
        entries = yield methodcaller("list_dir", inside)
    except NotFound:
        return LsResult(error=f"Path '{path}': path_not_found")
    except NotADirectory:
        return LsResult(error=f"Path '{path}': not_a_directory")
    except FileSecBoxError as error:
        return LsResult(error=f"Path '{path}': {error}")
    base = _ROOT if inside == "." else f"{_ROOT}/{inside}"
    return LsResult(entries=[_info(each, f"{base}/{each.name}") for each in entries])


def _read(path: str, offset: int, limit: int) -> Steps[ReadResult]:
    if limit <= 0:
        return _result(ReadResult, file_data=FileData(content="", encoding="utf-8"), no_lines_requested=True)
    start = max(offset, 0) + 1
    try:
        inside = _inside(path)
        read = yield methodcaller("read_lines", inside, start, start + limit - 1)
    except NotFound:
        return ReadResult(error=f"File '{path}' not found")
    except FileSecBoxError as error:
        if error.code == "not_text":
            return (yield from _read_bytes(path, inside))
        total = error.details.get("total_lines")
        if error.code == "invalid" and isinstance(total, int):
            return ReadResult(error=f"Line offset {start - 1} exceeds file length ({total} lines)")
        return ReadResult(error=f"File '{path}': {error}")
    lines = _fitting(read.lines)
    if not lines:
        return ReadResult(file_data=FileData(content="", encoding="utf-8"))
    end = start + len(lines) - 1
    return _result(
        ReadResult,
        file_data=FileData(content="\n".join(lines), encoding="utf-8"),
        total_lines=max(read.total_lines, end),
        start_line=start,
        end_line=end,
        next_offset=end if end < read.total_lines else None,
    )


def _fitting(lines: list[str]) -> list[str]:
    """The first lines that are not too much to be shown; the first one is cut where it alone is."""
    fitting: list[str] = []
    room = _SHOWN_BYTES
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            if not fitting:
                kept = line.encode()[:_SHOWN_BYTES].decode(errors="ignore")
                fitting.append(f"{kept}… [cut: the line has {len(line.encode())} bytes]")
            break
        fitting.append(line)
    return fitting


def _read_bytes(path: str, inside: str) -> Steps[ReadResult]:
    try:
        # One more than is shown, so that the size need not be asked for.
        data: bytes = yield methodcaller("read_bytes", inside, 0, _SHOWN_BYTES + 1)
    except FileSecBoxError as error:
        return ReadResult(error=f"File '{path}': {error}")
    if len(data) > _SHOWN_BYTES:
        return ReadResult(error=f"File '{path}': Binary file exceeds maximum preview size of {_SHOWN_BYTES} bytes")
    return ReadResult(file_data=FileData(content=base64.b64encode(data).decode(), encoding="base64"))


def _write(path: str, content: str) -> Steps[WriteResult]:
    try:
        inside, data = _inside(path), content.encode()
        # Before 0.7 a file that is there is not replaced.
        yield methodcaller("write_bytes", inside, data, if_missing=_IS_OLD)
    except Stale:
        return WriteResult(error=f"Error: File '{path}' already exists: edit it, or write to another path")
    except (FileSecBoxError, UnicodeEncodeError) as error:
        return WriteResult(error=f"Error writing file '{path}': {error}")
    return WriteResult(path=path)


def _edit(path: str, old: str, new: str, replace_all: bool) -> Steps[EditResult]:
    count = 1
    try:
        inside = _inside(path)
        for _ in range(_TRIES):
            try:
                yield methodcaller("replace_text", inside, old, new, count=count)
            except EditMismatch as error:
                if not error.found:
                    return EditResult(error=f"Error: String not found in file: '{old}'")
                if not replace_all:
                    often = f"appears multiple times ({error.found}): use replace_all, or a longer string"
                    return EditResult(error=f"Error: String '{old}' {often}")
                count = error.found
            else:
                return EditResult(path=path, occurrences=count)
    except NotFound:
        return EditResult(error=f"Error: File '{path}' not found")
    except (FileSecBoxError, UnicodeEncodeError) as error:
        return EditResult(error=f"Error editing file '{path}': {error}")
    return EditResult(error=f"Error editing file '{path}': it keeps changing")


def _delete(path: str) -> Steps[DeleteResult]:
    try:
        inside = _inside(path)
        if inside == ".":
            return DeleteResult(error=f"Error deleting '{path}': it is the workspace itself")
        yield methodcaller("remove", inside, recursive=True)
    except NotFound:
        return DeleteResult(error=f"Error: '{path}' not found")
    except FileSecBoxError as error:
        return DeleteResult(error=f"Error deleting '{path}': {error}")
    return DeleteResult(path=path)


def _grep(pattern: str, path: str | None, glob: str | None, max_count: int | None) -> Steps[GrepResult]:
    # One more than wanted, which tells whether there are more.
    wanted = _FOUND_MAX if max_count is None else max(0, min(max_count, _FOUND_MAX))
    include = [glob] if glob else []
    matches: list[GrepMatch] = []
    cursor = None
    try:
        inside = _inside(path or _ROOT)
        while True:
            limit = min(_PAGE, wanted + 1 - len(matches))
            found = yield methodcaller(
                "grep", pattern, path=inside, include=include, literal=True, limit=limit, cursor=cursor
            )
            matches += [GrepMatch(path=f"{_ROOT}/{each.path}", line=each.line, text=each.text) for each in found.items]
            cursor = found.next
            if cursor is None or len(matches) > wanted:
                break
    except FileSecBoxError as error:
        return GrepResult(error=f"Error searching path '{path or _ROOT}': {error}")
    return _result(GrepResult, matches=matches[:wanted], truncated=len(matches) > wanted or found.truncated)


def _glob(pattern: str, path: str | None) -> Steps[GlobResult]:
    if ".." in re.split("[/{},]", pattern):
        return GlobResult(error=f"Error: pattern '{pattern}' has a segment `..`")
    matches: list[FileInfo] = []
    cursor = None
    try:
        inside = _inside(path or _ROOT)
        base = "" if inside == "." else f"{inside}/"
        while True:
            # Before 0.7 directories are found, too, and paths begin where it is looked.
            kind = "any" if _IS_OLD else "file"
            found = yield methodcaller("glob", pattern, path=inside, kind=kind, hidden=True, limit=_PAGE, cursor=cursor)
            for each in found.items:
                below = each.path.removeprefix(base)
                if (_IS_OLD or each.is_file) and _is_shown(below, pattern):
                    matches.append(_info(each, below if _IS_OLD else f"{_ROOT}/{each.path}"))
            cursor = found.next
            if cursor is None or len(matches) >= _FOUND_MAX:
                break
    except FileSecBoxError as error:
        return GlobResult(error=f"Error globbing path '{path or _ROOT}': {error}")
    if cursor is None and not found.truncated:
        return GlobResult(matches=matches)
    return _result(GlobResult, matches=matches[:_FOUND_MAX], truncated=True, truncation_reason="budget")


def _is_shown(path: str, pattern: str) -> bool:
    """Whether each name with a dot at its beginning is met by a part of the pattern that begins with one."""
    wanted = [part for part in re.split("[/{},]", pattern) if part.startswith(".")]
    names = path.split("/")
    # A pattern of one name is about names at any depth, wherever they lie.
    met = names if "/" in pattern.strip("/") or pattern.startswith("/") else names[-1:]
    return all(any(fnmatch.fnmatchcase(name, part) for part in wanted) for name in met if name.startswith("."))


def _upload(files: list[tuple[str, bytes]]) -> Steps[list[FileUploadResponse]]:
    done = []
    for path, data in files:
        try:
            inside = _inside(path)
            yield methodcaller("write_bytes", inside, data)
        except FileSecBoxError as error:
            done.append(FileUploadResponse(path=path, error=_word(error)))
        else:
            done.append(FileUploadResponse(path=path))
    return done


def _download(paths: list[str]) -> Steps[list[FileDownloadResponse]]:
    done = []
    for path in paths:
        try:
            inside = _inside(path)
            data = yield methodcaller("read_bytes", inside)
        except FileSecBoxError as error:
            done.append(FileDownloadResponse(path=path, error=_word(error)))
        else:
            done.append(FileDownloadResponse(path=path, content=data))
    return done


def _result(kind: Any, **fields: Any) -> Any:
    """A result with the fields that this version of the framework knows."""
    known = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in fields.items() if name in known})


def _inside(path: str) -> str:
    """A path of the framework as one of the tree; ``.`` is the tree."""
    if not path.startswith("/"):
        raise Invalid(f"`{path}` is no absolute path")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise Invalid(f"`{path}` has a segment `..`")
    if names[:1] != [_ROOT[1:]]:
        raise PathEscape(f"`{path}` is outside {_ROOT}")
    return "/".join(names[1:]) or "."


def _info(entry: Any, path: str) -> FileInfo:
    return FileInfo(path=path, is_dir=entry.is_dir, size=entry.size, modified_at=entry.modified_at)


def _word(error: FileSecBoxError) -> str:
    """The framework's word for a failure, or the sentence where it has none."""
    match error:
        case NotFound():
            return "file_not_found"
        case IsADirectory():
            return "is_directory"
        case Invalid() | NotADirectory() | PathEscape():
            return "invalid_path"
        case Denied():
            return "permission_denied"
    return str(error)
