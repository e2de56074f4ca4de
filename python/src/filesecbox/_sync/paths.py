# Made by scripts/unasync.py of _async/paths.py: change that.
"""`TreePath`: a path in a tree, with the names of `pathlib`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from ..errors import IsADirectory, NotADirectory, Stale
from ..models import Changed, FileInfo

if TYPE_CHECKING:
    from .tree import Tree


class TreePath:
    """A path in a workspace or skill. It is no local path: ``open(path)`` and ``os.fspath(path)`` refuse it."""

    __slots__ = ("_pure", "tree")

    def __init__(self, tree: Tree, *segments: str | PurePosixPath) -> None:
        self.tree = tree
        self._pure = PurePosixPath(*segments)

    def _with(self, pure: PurePosixPath) -> TreePath:
        return TreePath(self.tree, pure)

    def __truediv__(self, other: str) -> TreePath:
        return self._with(self._pure / other)

    def __str__(self) -> str:
        return str(self._pure)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.tree!r}, {str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreePath) and (self.tree, self._pure) == (other.tree, other._pure)

    def __lt__(self, other: TreePath) -> bool:
        return self._pure < other._pure

    def __hash__(self) -> int:
        return hash((self.tree, self._pure))

    @property
    def parent(self) -> TreePath:
        """The directory that it is in."""
        return self._with(self._pure.parent)

    @property
    def name(self) -> str:
        """Its last segment."""
        return self._pure.name

    @property
    def suffix(self) -> str:
        """The last ending of its name, with the dot."""
        return self._pure.suffix

    @property
    def stem(self) -> str:
        """Its name without the last ending."""
        return self._pure.stem

    @property
    def parts(self) -> tuple[str, ...]:
        """Its segments."""
        return self._pure.parts

    def with_name(self, name: str) -> TreePath:
        """The same with another last segment."""
        return self._with(self._pure.with_name(name))

    def with_suffix(self, suffix: str) -> TreePath:
        """The same with another ending."""
        return self._with(self._pure.with_suffix(suffix))

    def joinpath(self, *segments: str) -> TreePath:
        """A path below it."""
        return self._with(self._pure.joinpath(*segments))

    def match(self, pattern: str) -> bool:
        """Whether it matches a pattern, as for ``PurePosixPath``."""
        return self._pure.match(pattern)

    def stat(self, *, follow: bool = True) -> FileInfo:
        """What is there."""
        return self.tree.stat(str(self), follow=follow)

    def exists(self) -> bool:
        """Whether anything is there."""
        return self.tree.exists(str(self))

    def is_file(self) -> bool:
        """Whether a regular file is there, or a link to one."""
        return self._kind() == "file"

    def is_dir(self) -> bool:
        """Whether a directory is there, or a link to one."""
        return self._kind() == "directory"

    def is_symlink(self) -> bool:
        """Whether a link is there."""
        return self._kind(follow=False) == "symlink"

    def _kind(self, *, follow: bool = True) -> str | None:
        try:
            return (self.stat(follow=follow)).kind
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read_text(self) -> str:
        """The text, in whichever encoding it lies on the disk."""
        return (self.tree.read_text(str(self))).text

    def read_lines(self, start: int | None = None, end: int | None = None) -> list[str]:
        """Lines from 1, both included, without their ends."""
        return (self.tree.read_lines(str(self), start, end)).lines

    def read_bytes(self) -> bytes:
        """The bytes."""
        return self.tree.read_bytes(str(self))

    def write_text(
        self, text: str, *, encoding: str | None = None, if_match: str | None = None, if_missing: bool = False
    ) -> Changed:
        """Replaces or makes a text, and missing directories above it."""
        return self.tree.write_text(str(self), text, encoding=encoding, if_match=if_match, if_missing=if_missing)

    def write_bytes(
        self, data: bytes, *, mode: str | None = None, if_match: str | None = None, if_missing: bool = False
    ) -> Changed:
        """Replaces or makes a file, and missing directories above it."""
        return self.tree.write_bytes(str(self), data, mode=mode, if_match=if_match, if_missing=if_missing)

    def replace_text(self, old: str, new: str, *, count: int = 1, if_match: str | None = None) -> Changed:
        """Replaces a passage that occurs exactly ``count`` times."""
        return self.tree.replace_text(str(self), old, new, count=count, if_match=if_match)

    def iterdir(self) -> Iterator[TreePath]:
        """The entries of the directory, sorted by name."""
        for entry in self.tree.list_dir(str(self)):
            yield self / entry.name

    def glob(
        self, pattern: str, *, kind: Literal["file", "directory", "any"] = "any"
    ) -> Iterator[TreePath]:
        """What matches below it. The pattern is that of the service: ``*.py`` matches at any depth, ``/*.py`` here alone."""
        cursor = None
        while True:
            found = self.tree.glob(pattern, path=str(self), kind=kind, cursor=cursor)
            for entry in found.items:
                yield self._with(PurePosixPath(entry.path))
            cursor = found.next
            if cursor is None:
                return

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False, mode: str = "0755") -> None:
        """Makes a directory."""
        try:
            self.tree.mkdir(str(self), parents=parents, mode=mode)
        except FileExistsError:
            if not exist_ok or not self.is_dir():
                raise

    def touch(self) -> None:
        """Makes an empty file where nothing is."""
        with contextlib.suppress(Stale):
            self.tree.write_bytes(str(self), b"", if_missing=True)

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Removes a file or link."""
        if self._kind(follow=False) == "directory":
            raise IsADirectory(f"`{self}` is a directory: use `rmdir` or `rmtree`")
        try:
            self.tree.remove(str(self))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self) -> None:
        """Removes an empty directory."""
        if self._kind(follow=False) not in ("directory", None):
            raise NotADirectory(f"`{self}` is no directory")
        self.tree.remove(str(self))

    def rmtree(self) -> None:
        """Removes it with all below it."""
        self.tree.remove(str(self), recursive=True)

    def rename(self, target: str | TreePath) -> TreePath:
        """Moves it where nothing is."""
        return self._move(target, overwrite=False)

    def replace(self, target: str | TreePath) -> TreePath:
        """Moves it, onto a file if there is one."""
        return self._move(target, overwrite=True)

    def _move(self, target: str | TreePath, *, overwrite: bool) -> TreePath:
        self.tree.move(str(self), str(target), overwrite=overwrite)
        return self._with(PurePosixPath(str(target)))

    def copy(self, target: str | TreePath, *, overwrite: bool = False) -> TreePath:
        """Copies it, a directory with all below it."""
        self.tree.copy(str(self), str(target), overwrite=overwrite, recursive=self.is_dir())
        return self._with(PurePosixPath(str(target)))
