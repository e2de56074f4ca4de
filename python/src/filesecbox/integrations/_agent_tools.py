"""What tools of agents can do in a workspace: names, arguments and texts that are the same in each framework that has tools alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import Any, Literal

from pydantic import BaseModel, Field

from .._kept import Kept
from ..errors import CommandNotAllowed, EditMismatch
from ._steps import Steps

#: The most characters of a text that a model is shown.
_SHOWN_CHARACTERS = 30_000
#: The most lines of a file, and the most that a search finds.
_LINES, _FOUND = 2_000, 200
#: How often a replacement of all occurrences is tried while others change the text.
_TRIES = 5


class Run(BaseModel):  # type: ignore[misc]
    """What `run` takes."""

    command: str = Field(description="A line for bash. It begins in the workspace.")
    timeout_seconds: float | None = Field(default=None, gt=0, description="After so long the command is killed.")


class ReadFile(BaseModel):  # type: ignore[misc]
    """What `read_file` takes."""

    path: str = Field(description="A path in the workspace.")
    start_line: int = Field(default=1, ge=1, description="The first line, counted from 1.")
    lines: int = Field(default=_LINES, ge=1, le=_LINES, description="How many lines at most.")


class WriteFile(BaseModel):  # type: ignore[misc]
    """What `write_file` takes."""

    path: str = Field(description="A path in the workspace. Missing directories are made.")
    content: str = Field(description="The whole text.")


class EditFile(BaseModel):  # type: ignore[misc]
    """What `edit_file` takes."""

    path: str = Field(description="A path in the workspace.")
    old: str = Field(min_length=1, description="The passage as it stands in the file, which is there once.")
    new: str = Field(description="What comes in its place.")
    replace_all: bool = Field(default=False, description="Whether to replace the passage each time that it occurs.")


class Glob(BaseModel):  # type: ignore[misc]
    """What `glob` takes."""

    pattern: str = Field(description="A pattern such as *.py, at any depth, or src/**/*.py.")
    path: str = Field(default=".", description="The directory to look below.")


class Grep(BaseModel):  # type: ignore[misc]
    """What `grep` takes."""

    pattern: str = Field(description="A regular expression.")
    path: str = Field(default=".", description="The file, or the directory to look below.")
    include: str | None = Field(default=None, description="A pattern of the files to look in, such as *.py.")
    ignore_case: bool = Field(default=False, description="Whether A is a.")


class ListSkills(BaseModel):  # type: ignore[misc]
    """What `list_skills` takes."""


class ReadSkill(BaseModel):  # type: ignore[misc]
    """What `read_skill` takes."""

    skill_id: str = Field(description="The id of a skill.")
    path: str = Field(default="SKILL.md", description="A file of the skill.")


@dataclass(frozen=True)
class Operation:
    """Something that an agent can do. ``steps`` takes the arguments by name, and gives a text for the model."""

    name: str
    description: str
    arguments: type[BaseModel]
    steps: Callable[..., Steps[str]]


def operations(skills: Sequence[str] | Literal["all"] | None, timeout: float | None) -> list[Operation]:
    """All of them. Commands see the ``skills``, and have a deadline of ``timeout`` seconds unless a call has another."""
    return [
        Operation(
            "run",
            "Runs a command in the sandbox of the workspace, and gives its output. What it leaves in the background ends with it.",
            Run,
            partial(_run, skills=skills, timeout=timeout),
        ),
        Operation("read_file", "Reads lines of a text file.", ReadFile, _read_file),
        Operation("write_file", "Writes a text file, or replaces it.", WriteFile, _write_file),
        Operation("edit_file", "Replaces a passage of a text file.", EditFile, _edit_file),
        Operation("glob", "Finds files by a pattern of their paths.", Glob, _glob),
        Operation("grep", "Finds lines by a regular expression.", Grep, _grep),
        Operation("list_skills", "Lists the skills that there are, with what each is for.", ListSkills, _list_skills),
        Operation("read_skill", "Reads the instructions of a skill, or another file of it.", ReadSkill, _read_skill),
    ]


def _run(
    command: str, timeout_seconds: float | None = None, *, skills: Any = None, timeout: float | None = None
) -> Steps[str]:
    try:
        result = yield methodcaller("run", command, timeout=timeout_seconds or timeout, skills=skills)
    except CommandNotAllowed as error:
        return error.message
    told = [_shown(result.output)]
    if result.timed_out:
        told.append(f"[the command passed its deadline and was killed after {result.duration_ms / 1000:.1f} s]")
    elif result.exit_code != 0:
        told.append(f"[exit code {result.shell_code}]")
    if result.hint and not result.timed_out:
        told.append(f"[{result.hint}]")
    return "\n".join(told)


def _read_file(path: str, start_line: int = 1, lines: int = _LINES) -> Steps[str]:
    read = yield methodcaller("read_lines", path, start_line, start_line + lines - 1)
    text = _shown("\n".join(read.lines))
    if read.next is not None:
        text += f"\n[lines {start_line} to {read.next - 1} of {read.total_lines}: go on with start_line={read.next}]"
    return text


def _write_file(path: str, content: str) -> Steps[str]:
    changed = yield methodcaller("write_bytes", path, content.encode())
    return f"{'made' if changed.created else 'replaced'} {path}"


def _edit_file(path: str, old: str, new: str, replace_all: bool = False) -> Steps[str]:
    count, tries = 1, _TRIES
    while True:
        tries -= 1
        try:
            yield methodcaller("replace_text", path, old, new, count=count)
        except EditMismatch as error:
            if not (replace_all and error.found and tries):
                raise
            count = error.found
        else:
            return f"replaced {count} in {path}"


def _glob(pattern: str, path: str = ".") -> Steps[str]:
    found = yield methodcaller("glob", pattern, path=path, limit=_FOUND)
    return _listed([each.path for each in found.items], found.truncated)


def _grep(pattern: str, path: str = ".", include: str | None = None, ignore_case: bool = False) -> Steps[str]:
    asked = methodcaller(
        "grep",
        pattern,
        path=path,
        include=[include] if include else [],
        ignore_case=ignore_case,
        limit=_FOUND,
    )
    found = yield asked
    return _listed([f"{each.path}:{each.line}: {each.text}" for each in found.items], found.truncated)


def _list_skills() -> Steps[str]:
    catalog = yield lambda workspace: workspace.box.skills(workspace.user, workspace.agent).catalog()
    return _shown(catalog) if catalog else "there are none"


def _read_skill(skill_id: str, path: str = "SKILL.md") -> Steps[str]:
    text = yield lambda workspace: workspace.box.skills(workspace.user, workspace.agent)[skill_id].read_text(path)
    return _shown(text.text)


def _listed(lines: list[str], truncated: bool) -> str:
    if truncated:
        lines.append("[there are more: narrow the search]")
    return _shown("\n".join(lines)) if lines else "nothing was found"


def _shown(text: str) -> str:
    kept = Kept(_SHOWN_CHARACTERS)
    kept.add(text)
    return kept.text()
