"""`FileSecBoxTools`: tools for the tool runner of Anthropic's SDK that work in a workspace.

    from anthropic import Anthropic
    from filesecbox import FileSecBox
    from filesecbox.integrations.anthropic import FileSecBoxTools

    with FileSecBoxTools(FileSecBox().workspace("alice", "demo")) as tools:
        runner = Anthropic().beta.messages.tool_runner(model="…", max_tokens=4096, messages=[…], tools=tools)
        message = runner.until_done()

Needs anthropic 2.12. The tools have the names and arguments of the vendor's own set: `bash`, `read`, `write`, `edit`, `glob`, `grep`.
What fails is told to the model as an error of the tool, and not raised. `AsyncFileSecBoxTools` are those for coroutines, and for
sessions of managed agents: ``EnvironmentWorker(client, tools=lambda context: AsyncFileSecBoxTools(workspace))``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import methodcaller
from types import TracebackType
from typing import Any, Literal, Self

from anthropic.lib.tools import BetaAsyncFunctionTool, BetaFunctionTool, ToolError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .._async import _io
from .._async.shell import AsyncShell
from .._async.workspace import AsyncWorkspace
from .._shell import ShellResult
from .._sync import _io as _sync_io
from .._sync.shell import Shell
from .._sync.workspace import Workspace
from ..errors import FileSecBoxError
from ._agent_tools import Operation, operations
from ._steps import Steps, ado, do

__all__ = ["AsyncFileSecBoxTools", "FileSecBoxTools"]

#: The most characters of a command's output that a model is shown.
_OUTPUT_CHARACTERS = 30_000
#: The most bytes of a text, of an image and of a document that are read at once; the last two are what the vendor's API takes.
_TEXT_BYTES, _IMAGE_BYTES, _DOCUMENT_BYTES = 256 * 1024, 5 * 1024 * 1024 // 4 * 3, 20 * 1024 * 1024
#: How the names of files end that are shown as images and documents, and how what is in them begins: the vendor's API refuses a whole
#: request when an image is none, or another one than is said.
_SHOWN = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf")
_MEDIA = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF....WEBP": "image/webp",
    b"%PDF-": "application/pdf",
}


class _Arguments(BaseModel):  # type: ignore[misc]
    model_config = ConfigDict(extra="forbid")


class Bash(_Arguments):
    """What `bash` takes."""

    command: str | None = Field(default=None, description="A line for bash. Needed unless restart is true.")
    restart: bool | None = Field(default=None, description="Whether to begin a new shell first.")
    timeout_ms: int | None = Field(
        default=None, ge=0, le=86_400_000, description="After so many milliseconds the command is ended."
    )


class Read(_Arguments):
    """What `read` takes."""

    file_path: str = Field(description="A path in the workspace.")
    view_range: list[int] | None = Field(
        default=None,
        min_length=2,
        max_length=2,
        description="The first and the last line, counted from 1. A last line of 0 or less is the end of the file.",
    )


class Write(_Arguments):
    """What `write` takes."""

    file_path: str = Field(description="A path in the workspace. Missing directories are made.")
    content: str = Field(description="The whole text.")


class Edit(_Arguments):
    """What `edit` takes."""

    file_path: str = Field(description="A path in the workspace.")
    old_string: str = Field(min_length=1, description="The passage as it stands in the file, which is there once.")
    new_string: str = Field(description="What comes in its place.")
    replace_all: bool | None = Field(
        default=None, description="Whether to replace the passage each time that it occurs."
    )


class Glob(_Arguments):
    """What `glob` takes."""

    pattern: str = Field(description="A pattern such as *.py, at any depth, or src/**/*.py.")
    path: str | None = Field(default=None, description="The directory to look below.")


class Grep(_Arguments):
    """What `grep` takes."""

    pattern: str = Field(description="A regular expression.")
    path: str | None = Field(default=None, description="The file, or the directory to look below.")
    include: str | None = Field(default=None, description="A pattern of the files to look in, such as *.py.")
    ignore_case: bool | None = Field(default=None, description="Whether A is a.")


class FileSecBoxTools(list[BetaFunctionTool[Any]]):
    """Tools of one workspace for an `Anthropic`: `bash`, `read`, `write`, `edit`, `glob`, `grep`.

    `bash` keeps one shell, which begins with the first command; ``close``, or the end of the ``with``, ends it with what runs in it.
    Commands see the ``skills`` that are named, or ``"all"`` of the user's, and the variables in ``env``; ``timeout`` is their deadline
    in seconds unless a call has another.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        skills: Sequence[str] | Literal["all"] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
    ) -> None:
        self.workspace = workspace
        self._shell = Shell(workspace, env=env, skills=skills, characters=_OUTPUT_CHARACTERS)
        super().__init__(self._tool(each) for each in _operations(self._shell, timeout))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.workspace!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _sync_io.finish(self.close)

    def close(self) -> None:
        """Ends the shell. The workspace stays, and the next command has a new shell."""
        self._shell.close()

    def _tool(self, operation: Operation) -> BetaFunctionTool[Any]:
        def call(**arguments: Any) -> Any:
            try:
                return do(self.workspace, operation.steps(**_checked(operation, arguments)))
            except (FileSecBoxError, ValueError) as error:
                raise ToolError(f"{operation.name}: {error}") from error

        return _made(BetaFunctionTool, operation, call, self.close)


class AsyncFileSecBoxTools(list[BetaAsyncFunctionTool[Any]]):
    """As `FileSecBoxTools`, for an `AsyncAnthropic`. A call that is cancelled ends the shell with what runs in it."""

    def __init__(
        self,
        workspace: AsyncWorkspace,
        *,
        skills: Sequence[str] | Literal["all"] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
    ) -> None:
        self.workspace = workspace
        self._shell = AsyncShell(workspace, env=env, skills=skills, characters=_OUTPUT_CHARACTERS)
        super().__init__(self._tool(each) for each in _operations(self._shell, timeout))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.workspace!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _io.finish(self.close)

    async def close(self) -> None:
        """Ends the shell. The workspace stays, and the next command has a new shell."""
        await self._shell.close()

    def _tool(self, operation: Operation) -> BetaAsyncFunctionTool[Any]:
        async def call(**arguments: Any) -> Any:
            try:
                return await ado(self.workspace, operation.steps(**_checked(operation, arguments)))
            except (FileSecBoxError, ValueError) as error:
                raise ToolError(f"{operation.name}: {error}") from error

        return _made(BetaAsyncFunctionTool, operation, call, self.close)


def _made(kind: Any, operation: Operation, call: Callable[..., Any], close: Callable[[], Any]) -> Any:
    tool = kind(call, name=operation.name, description=operation.description, input_schema=operation.arguments)
    if operation.arguments is Bash:
        # The runner of sessions calls it, that of messages does not.
        tool.close = close
    return tool


def _checked(operation: Operation, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are given; in the SDK's own check the model is not told which of them is wrong."""
    try:
        given: dict[str, Any] = operation.arguments.model_validate(arguments).model_dump(exclude_none=True)
    except ValidationError as error:
        told = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise ToolError(f"{operation.name}: {'; '.join(told)}") from error
    return given


def _operations(shell: Any, timeout: float) -> Iterable[Operation]:
    known = {each.name: each.steps for each in operations(None, None)}

    def bash(command: str = "", restart: bool = False, timeout_ms: int = 0) -> Steps[str]:
        if restart:
            yield lambda _: shell.close()
        if command:
            result = yield lambda _: shell.run(command, timeout_ms / 1000 or timeout)
            return _told(result, timeout_ms / 1000 or timeout)
        if not restart:
            raise ToolError("bash: command is required")
        return "the next command has a new shell"

    def write(file_path: str, content: str) -> Steps[str]:
        return known["write_file"](file_path, content)

    def edit(file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> Steps[str]:
        return known["edit_file"](file_path, old_string, new_string, replace_all)

    return [
        Operation(
            "bash",
            "Runs a command in the shell of the workspace, and gives its output. Directory, variables and background "
            "processes stay from one command to the next, until restart is true.",
            Bash,
            bash,
        ),
        Operation(
            "read",
            f"Reads a text file, of at most {_TEXT_BYTES // 1024} KiB or in parts by view_range, an image or a PDF.",
            Read,
            _read,
        ),
        Operation("write", "Writes a text file, or replaces it.", Write, write),
        Operation("edit", "Replaces a passage of a text file.", Edit, edit),
        Operation("glob", "Finds files by a pattern of their paths.", Glob, known["glob"]),
        Operation("grep", "Finds lines by a regular expression.", Grep, known["grep"]),
    ]


def _told(result: ShellResult, timeout: float) -> str:
    """What the model is told of a command; one that failed is an error."""
    told = ["[the shell had ended: this is a new one, without its directory and variables]"] if result.is_new else []
    told += [result.output] if result.output else []
    if result.is_late:
        told.append(f"[the command passed its deadline of {timeout:g} s and was ended]")
    elif result.exit_code:
        told.append(f"[exit code {result.exit_code}]")
    if result.exit_code is None:
        how = f" with {result.ended.shell_code}" if result.ended and not result.is_late else ""
        told.append(f"[the shell ended{how}: the next command has a new one, without its directory and variables]")
        if result.ended and result.ended.hint:
            told.append(f"[{result.ended.hint}]")
    text = "\n".join(told)
    if result.exit_code != 0 or result.is_late:
        raise ToolError(text)
    return text or "[no output]"


def _read(file_path: str, view_range: Sequence[int] = ()) -> Steps[Any]:
    if file_path.lower().endswith(_SHOWN) and not view_range:
        return (yield from _read_media(file_path))
    if view_range:
        start, end = max(1, view_range[0]), view_range[1] if view_range[1] > 0 else None
        read = yield methodcaller("read_lines", file_path, start, end)
        text = "\n".join(read.lines)
        _within(len(text.encode()), _TEXT_BYTES, f"lines {start} to {start + len(read.lines) - 1} of {file_path}")
        return text if read.lines else f"[{file_path} has {read.total_lines} lines]"
    info = yield methodcaller("stat", file_path)
    if info.is_file:
        _within(info.size, _TEXT_BYTES, file_path)
    whole = yield methodcaller("read_text", file_path)
    return whole.text or "[the file is empty]"


def _read_media(file_path: str) -> Steps[Any]:
    data = yield methodcaller("read_bytes", file_path, 0, _DOCUMENT_BYTES + 1)
    media = next((media for begin, media in _MEDIA.items() if re.match(begin, data, re.DOTALL)), None)
    if media is None:
        raise ToolError(f"read: {file_path} is neither an image nor a PDF, as its name says")
    is_document = media == "application/pdf"
    limit = _DOCUMENT_BYTES if is_document else _IMAGE_BYTES
    if len(data) > limit:
        raise ToolError(f"read: {file_path} has more than the {limit} bytes that can be shown")
    source = {"type": "base64", "media_type": media, "data": base64.b64encode(data).decode()}
    return [{"type": "document" if is_document else "image", "source": source}]


def _within(size: int, limit: int, what: str) -> None:
    if size > limit:
        raise ToolError(
            f"read: {what} has {size} bytes, and at most {limit} are read at once: read fewer lines by view_range, such as [1, 500]"
        )
