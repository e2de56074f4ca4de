"""The local side of copying in and out: which files there are, where they may come to lie, and how far it has got."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import FileSecBoxError

#: Told of bytes that have been copied, of all bytes, and of the path that is under way.
Progress = Callable[[int, int, str], object]

_PIECE_BYTES = 256 * 1024
#: The shortest time between two reports, in seconds.
_REPORT_SECONDS = 0.1
#: Names that mean devices on Windows, with any ending.
_DEVICES = frozenset(
    {"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"}
    | {f"{name}{number}" for name in ("COM", "LPT") for number in "123456789¹²³"}
)


@dataclass(frozen=True)
class LocalFile:
    """A regular file: where it is, its path below what is copied (empty for that itself), its size, and its mode for the service."""

    source: Path
    path: str
    size: int
    mode: str


def local_files(source: Path) -> list[LocalFile]:
    """The regular files of ``source``, sorted; links, sockets and the like are left out."""
    if not source.is_dir():
        return [_file(source, "", source.stat())]
    found = []
    for directory, below, names in os.walk(source):
        below.sort()
        for name in sorted(names):
            path = Path(directory, name)
            facts = path.lstat()
            if stat.S_ISREG(facts.st_mode):
                found.append(_file(path, path.relative_to(source).as_posix(), facts))
    return found


def _file(source: Path, path: str, facts: os.stat_result) -> LocalFile:
    return LocalFile(source, path, facts.st_size, "0755" if facts.st_mode & 0o100 else "0644")


def pieces(source: Path) -> Iterator[bytes]:
    """The bytes of a file, never whole in memory."""
    with source.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def place(base: Path, path: str) -> Path:
    """Where ``path``, which the service told, comes to lie below ``base``.

    A path that would lead out, or that another system reads differently, is refused; so is one that leads through a link.
    """
    segments = path.split("/")
    for segment in segments:
        is_odd = (
            segment in ("", ".", "..")
            or any(each in '\\:*?"<>|' or ord(each) < 32 or ord(each) == 127 for each in segment)
            or segment.endswith((" ", "."))
            or segment.split(".")[0].rstrip().upper() in _DEVICES
        )
        if is_odd:
            raise FileSecBoxError(
                f"`{path!r}` is no name for a file on every system: nothing was written", code="unsafe_name"
            )
    local = base
    for segment in segments:
        local = local / segment
        if local.is_symlink():
            raise FileSecBoxError(f"`{local}` is a link: nothing is written through it", code="unsafe_name")
    return local


class Reporter:
    """Tells how far a copy has got: not too often, and once at the end."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._of_path: dict[str, int] = {}
        self._told_at = 0.0
        self._path = ""

    def add(self, count: int, path: str) -> None:
        """So many bytes of a path more."""
        self._done += count
        self._of_path[path] = self._of_path.get(path, 0) + count
        self._path = path
        now = time.monotonic()
        if self._progress is not None and now - self._told_at >= _REPORT_SECONDS:
            self._told_at = now
            self._progress(self._done, self._total, path)

    def back(self, path: str) -> None:
        """A path is begun anew."""
        self._done -= self._of_path.pop(path, 0)

    def end(self) -> None:
        """All of it is done."""
        if self._progress is not None:
            self._progress(self._done, self._total, self._path)
