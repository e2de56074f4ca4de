"""`AsyncTreePath`: a path in a tree, with the names of `pathlib`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from ..errors import IsADirectory, NotADirectory, Stale
from ..models import Changed, FileInfo

if TYPE_CHECKING:
    from .tree import AsyncTree


class AsyncTreePath:
    """A path in a workspace or skill. It is no local path: ``open(path)`` and ``os.fspath(path)`` refuse it."""

    __slots__ = ("_pure", "tree")

    def __init__(self, tree: AsyncTree, *segments: str | PurePosixPath) -> None:
        self.tree = tree
        self._pure = PurePosixPath(*segments)

    def _with(self, pure: PurePosixPath) -> AsyncTreePath:
        return AsyncTreePath(self.tree, pure)

    def __truediv__(self, other: str) -> AsyncTreePath:
        return self._with(self._pure / other)

    def __str__(self) -> str:
        return str(self._pure)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.tree!r}, {str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncTreePath) and (self.tree, self._pure) == (other.tree, other._pure)

    def __lt__(self, other: AsyncTreePath) -> bool:
        return self._pure < other._pure

    def __hash__(self) -> int:
        return hash((self.tree, self._pure))

    @property
    def parent(self) -> AsyncTreePath:
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

    def with_name(self, name: str) -> AsyncTreePath:
        """The same with another last segment."""
        return self._with(self._pure.with_name(name))

    def with_suffix(self, suffix: str) -> AsyncTreePath:
        """The same with another ending."""
        return self._with(self._pure.with_suffix(suffix))

    def joinpath(self, *segments: str) -> AsyncTreePath:
        """A path below it."""
        return self._with(self._pure.joinpath(*segments))

    def match(self, pattern: str) -> bool:
        """Whether it matches a pattern, as for ``PurePosixPath``."""
        return self._pure.match(pattern)

    async def stat(self, *, follow: bool = True) -> FileInfo:
        """What is there."""
        return await self.tree.stat(str(self), follow=follow)

    async def exists(self) -> bool:
        """Whether anything is there."""
        return await self.tree.exists(str(self))

    async def is_file(self) -> bool:
        """Whether a regular file is there, or a link to one."""
        return await self._kind() == "file"

    async def is_dir(self) -> bool:
        """Whether a directory is there, or a link to one."""
        return await self._kind() == "directory"

    async def is_symlink(self) -> bool:
        """Whether a link is there."""
        return await self._kind(follow=False) == "symlink"

    async def _kind(self, *, follow: bool = True) -> str | None:
        try:
            return (await self.stat(follow=follow)).kind
        except (FileNotFoundError, NotADirectoryError):
            return None

    async def read_text(self) -> str:
        """The text, in whichever encoding it lies on the disk."""
        return (await self.tree.read_text(str(self))).text

    async def read_lines(self, start: int | None = None, end: int | None = None) -> list[str]:
        """Lines from 1, both included, without their ends."""
        return (await self.tree.read_lines(str(self), start, end)).lines

    async def read_bytes(self) -> bytes:
        """The bytes."""
        return await self.tree.read_bytes(str(self))

    async def write_text(
        self, text: str, *, encoding: str | None = None, if_match: str | None = None, if_missing: bool = False
    ) -> Changed:
        """Replaces or makes a text, and missing directories above it."""
        return await self.tree.write_text(str(self), text, encoding=encoding, if_match=if_match, if_missing=if_missing)

    async def write_bytes(
        self, data: bytes, *, mode: str | None = None, if_match: str | None = None, if_missing: bool = False
    ) -> Changed:
        """Replaces or makes a file, and missing directories above it."""
        return await self.tree.write_bytes(str(self), data, mode=mode, if_match=if_match, if_missing=if_missing)

    async def replace_text(self, old: str, new: str, *, count: int = 1, if_match: str | None = None) -> Changed:
        """Replaces a passage that occurs exactly ``count`` times."""
        return await self.tree.replace_text(str(self), old, new, count=count, if_match=if_match)

    async def iterdir(self) -> AsyncIterator[AsyncTreePath]:
        """The entries of the directory, sorted by name."""
        for entry in await self.tree.list_dir(str(self)):
            yield self / entry.name

    async def glob(
        self, pattern: str, *, kind: Literal["file", "directory", "any"] = "any"
    ) -> AsyncIterator[AsyncTreePath]:
        """What matches below it. The pattern is that of the service: ``*.py`` matches at any depth, ``/*.py`` here alone."""
        cursor = None
        while True:
            found = await self.tree.glob(pattern, path=str(self), kind=kind, cursor=cursor)
            for entry in found.items:
                yield self._with(PurePosixPath(entry.path))
            cursor = found.next
            if cursor is None:
                return

    async def mkdir(self, *, parents: bool = False, exist_ok: bool = False, mode: str = "0755") -> None:
        """Makes a directory."""
        try:
            await self.tree.mkdir(str(self), parents=parents, mode=mode)
        except FileExistsError:
            if not exist_ok or not await self.is_dir():
                raise

    async def touch(self) -> None:
        """Makes an empty file where nothing is."""
        with contextlib.suppress(Stale):
            await self.tree.write_bytes(str(self), b"", if_missing=True)

    async def unlink(self, *, missing_ok: bool = False) -> None:
        """Removes a file or link."""
        if await self._kind(follow=False) == "directory":
            raise IsADirectory(f"`{self}` is a directory: use `rmdir` or `rmtree`")
        try:
            await self.tree.remove(str(self))
        except FileNotFoundError:
            if not missing_ok:
                raise

    async def rmdir(self) -> None:
        """Removes an empty directory."""
        if await self._kind(follow=False) not in ("directory", None):
            raise NotADirectory(f"`{self}` is no directory")
        await self.tree.remove(str(self))

    async def rmtree(self) -> None:
        """Removes it with all below it."""
        await self.tree.remove(str(self), recursive=True)

    async def rename(self, target: str | AsyncTreePath) -> AsyncTreePath:
        """Moves it where nothing is."""
        return await self._move(target, overwrite=False)

    async def replace(self, target: str | AsyncTreePath) -> AsyncTreePath:
        """Moves it, onto a file if there is one."""
        return await self._move(target, overwrite=True)

    async def _move(self, target: str | AsyncTreePath, *, overwrite: bool) -> AsyncTreePath:
        await self.tree.move(str(self), str(target), overwrite=overwrite)
        return self._with(PurePosixPath(str(target)))

    async def copy(self, target: str | AsyncTreePath, *, overwrite: bool = False) -> AsyncTreePath:
        """Copies it, a directory with all below it."""
        await self.tree.copy(str(self), str(target), overwrite=overwrite, recursive=await self.is_dir())
        return self._with(PurePosixPath(str(target)))
