"""What calls answer: frozen dataclasses with the names of ``docs/API.md``.

Fields that a newer service adds are no error: every object keeps the whole answer in ``raw``.
"""

from __future__ import annotations

import base64
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Generic, Self, TypeVar

from .errors import FileSecBoxError

__all__ = [
    "CellResult",
    "Changed",
    "Diff",
    "Event",
    "FileInfo",
    "Found",
    "Match",
    "Page",
    "Pulled",
    "RunInfo",
    "RunResult",
    "SkillInfo",
    "Text",
    "TextLines",
    "TreeEvent",
    "Uploaded",
    "UploadedSkill",
    "Version",
]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class _Model:
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, data: object, /, **more: Any) -> Self:
        """Makes it of decoded JSON; fields that it does not know stay in ``raw``."""
        if not isinstance(data, Mapping):
            raise FileSecBoxError(
                f"the service answered no object where {cls.__name__} was expected", code="bad_answer"
            )
        known = {each.name for each in fields(cls)} - {"raw"}
        given = {name: value for name, value in data.items() if name in known}
        try:
            return cls(**(given | more), raw=dict(data))
        except TypeError as error:
            raise FileSecBoxError(f"the answer lacks a field of {cls.__name__}", code="bad_answer") from error


@dataclass(frozen=True, kw_only=True)
class FileInfo(_Model):
    """An entry of a tree.

    ``kind`` is ``file``, ``directory``, ``symlink`` or ``other``; ``size`` in bytes; ``mode`` permission bits in octal;
    ``layer`` is ``baseline``, ``overlay`` or ``workspace``; ``target`` where a link points to.
    """

    path: str = ""
    name: str = ""
    kind: str
    size: int
    mode: str
    modified_at: str
    layer: str = ""
    etag: str = ""
    owner: str | None = None
    target: str | None = None

    @property
    def modified(self) -> datetime:
        """When its contents changed last, in UTC."""
        return datetime.fromisoformat(self.modified_at)

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return self.kind == "directory"

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return self.kind == "file"


@dataclass(frozen=True, kw_only=True)
class Changed(_Model):
    """A file that was changed: its tag and size now, whether there was none before, and of a text its encoding."""

    path: str = ""
    etag: str | None = None
    size: int = 0
    created: bool = False
    encoding: str | None = None


@dataclass(frozen=True, kw_only=True)
class Text(_Model):
    """A whole text, which lies in ``encoding`` on the disk."""

    text: str
    encoding: str
    size: int
    layer: str = ""
    etag: str | None = None


@dataclass(frozen=True, kw_only=True)
class TextLines(_Model):
    """Some lines of a text, without their ends. ``next`` is the line to go on with, ``None`` at the end."""

    lines: list[str]
    total_lines: int
    next: int | None
    encoding: str
    etag: str | None = None


@dataclass(frozen=True, kw_only=True)
class Match(_Model):
    """A line that matches. ``line`` and ``column`` count from 1; ``cut`` when ``text`` is a part of a long line."""

    path: str
    line: int
    column: int
    text: str
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    cut: bool = False


@dataclass(frozen=True)
class Found(Generic[T]):
    """What a search found. ``stopped_by`` says why there may be more: ``limit``, ``time`` or ``size``; ``next`` goes on."""

    items: list[T]
    truncated: bool
    stopped_by: str | None
    next: str | None


@dataclass(frozen=True)
class Page(Generic[T]):
    """A part of a list; ``next`` is the ``cursor`` of the next page, ``None`` at the end."""

    items: list[T]
    next: str | None


@dataclass(frozen=True, kw_only=True)
class RunResult(_Model):
    """How a command ended, and what it wrote.

    ``exit_code`` is -1 when a signal or the deadline ended it; ``limit`` names the limit that did; ``hint`` says what to do about
    that; ``enforcement`` says what confined it. ``truncated`` when the middle of the output was dropped.
    """

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    output: str = ""
    signal: str | None = None
    timed_out: bool = False
    limit: str | None = None
    truncated: bool = False
    dropped_bytes: int = 0
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    duration_ms: int = 0
    hint: str | None = None
    enforcement: Mapping[str, Any] = field(default_factory=dict)
    exec_id: str = ""
    absorbed: Mapping[str, Any] | None = None
    changes: Mapping[str, Any] | None = None
    reached: Mapping[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, with 0."""
        return self.exit_code == 0 and not self.timed_out

    @property
    def shell_code(self) -> int:
        """The code by which a shell tells it: 124 after the deadline, 128 and the signal's number after a signal."""
        if self.timed_out:
            return 124
        if self.exit_code >= 0:
            return self.exit_code
        return 128 + signal.Signals.__members__.get(self.signal or "", 0)


@dataclass(frozen=True, kw_only=True)
class CellResult(_Model):
    """What a piece of code wrote, the ``repr`` of its last expression, and its exception: ``type``, ``message``, ``traceback``."""

    stdout: str = ""
    stderr: str = ""
    value: str | None = None
    error: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Event(_Model):
    """An event of a run: ``started``, ``stdout``, ``stderr`` with ``text``, or ``exit`` with ``result``."""

    seq: int
    event: str
    text: str = ""
    result: Mapping[str, Any] | None = None

    @property
    def data(self) -> bytes:
        """What was written, as bytes."""
        encoded = self.raw.get("base64")
        if encoded is None:
            return self.text.encode()
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, ValueError) as error:
            raise FileSecBoxError("the output of the run is no base64", code="bad_answer") from error


@dataclass(frozen=True, kw_only=True)
class RunInfo(_Model):
    """A run as the service lists it. ``state`` is ``starting``, ``running`` or ``ended``."""

    exec_id: str
    state: str
    kind: str
    command: str
    named: bool = True
    asked_at: str = ""
    decision: str | None = None
    exit: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class TreeEvent(_Model):
    """Something that happened in a tree; ``event`` and the fields are those of ``GET T/events``."""

    id: str
    event: str
    data: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class SkillInfo(_Model):
    """A skill as its user sees it. ``status`` is ``UNCHANGED``, ``MODIFIED``, ``LOCAL_ONLY`` or ``OUT_OF_SYNC``."""

    skill_id: str
    name: str
    description: str
    layer: str
    status: str
    version: str | None = None
    updated_at: str | None = None
    changes: list[Mapping[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class UploadedSkill(_Model):
    """A skill that came of an upload."""

    skill_id: str
    name: str
    description: str
    path: str
    version: str
    files: int
    bytes: int
    replaced: bool
    unchanged: bool = False
    number: int | None = None
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Uploaded(_Model):
    """What came of an upload: its skills, what was passed over, and what may have been meant otherwise."""

    scope: str
    dry_run: bool
    skills: list[UploadedSkill]
    skipped: list[Mapping[str, Any]] = field(default_factory=list)
    skipped_total: int = 0
    doubtful: list[Mapping[str, Any]] = field(default_factory=list)
    doubtful_total: int = 0
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Diff(_Model):
    """One file that the user changed; ``diff`` is ``None`` where no text can say it, and ``omitted`` why."""

    path: str
    change: str
    before_bytes: int | None = None
    after_bytes: int | None = None
    diff: str | None = None
    omitted: str | None = None


@dataclass(frozen=True, kw_only=True)
class Lint(_Model):
    """Which other programs take a skill as it is: ``ok`` by program (``agentskills``, ``anthropic``, ``npx-skills``, ``claude-code``).

    Each of ``findings`` has ``code``, ``class``, ``field``, ``line``, ``text`` and ``targets``, the programs that do not take the skill for it.
    """

    ok: Mapping[str, bool]
    findings: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Version(_Model):
    """A version of an application's skill, with the facts of its last publication; ``state`` is ``current``, ``kept`` or ``staged``."""

    version: str
    number: int
    state: str
    current: bool
    pinned: bool
    name: str
    description: str
    files: int
    bytes: int
    published_at: str
    published_by: str | None = None
    title: str | None = None
    message: str | None = None
    replaced_at: str | None = None


@dataclass(frozen=True, kw_only=True)
class Pulled(_Model):
    """What a pull did, or would do: ``conflicts`` are what both sides changed."""

    version: str | None
    changed: bool
    refreshed: int = 0
    conflicts: list[str] = field(default_factory=list)
    conflicts_total: int = 0
