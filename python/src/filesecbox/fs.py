"""`FileSecBoxFileSystem`: workspaces and skills for programs that read and write through fsspec.

``filesecbox://alice/demo/data/a.csv`` is a file of a workspace, ``filesecbox+skill://alice/demo/pdf/a.csv`` one of a skill. Needs
the extra ``fsspec``. The address and the token come from ``FILESECBOX_URL`` and ``FILESECBOX_TOKEN``, or from ``url`` and ``token``.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.spec import AbstractBufferedFile

from ._sync.client import FileSecBox, Token
from ._sync.tree import Tree
from .errors import AlreadyExists, IsADirectory, NotFound, Stale
from .models import FileInfo

__all__ = ["FileSecBoxFileSystem", "FileSecBoxSkillFileSystem"]

#: Bytes of a file that are written in memory; more lie in a temporary file until they are sent.
_SPOOLED_BYTES = 8 * 1024 * 1024


class FileSecBoxFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The workspaces of a service: ``user/agent/path``."""

    protocol = "filesecbox"
    root_marker = ""
    #: How many segments before the path say which tree it is.
    _heads = 2

    def __init__(self, url: str | None = None, token: Token | None = None, **more: Any) -> None:
        super().__init__(**more)
        self.box = FileSecBox(url, token)

    def _tree(self, path: str) -> tuple[Tree, str, str]:
        """The tree that a path is in, its own path there (``.`` for the tree), and the name of the tree."""
        segments = self._strip_protocol(path).split("/")
        if len(segments) < self._heads or not all(segments[: self._heads]):
            raise NotFound(f"`{path}` names no tree: it begins with {self._heads} ids")
        head = segments[: self._heads]
        return self._of(head), "/".join(segments[self._heads :]) or ".", "/".join(head)

    def _of(self, head: list[str]) -> Tree:
        return self.box.workspace(*head)

    @staticmethod
    def _facts(info: FileInfo, name: str) -> dict[str, Any]:
        kind = {"file": "file", "directory": "directory", "symlink": "link"}.get(info.kind, "other")
        facts = {"name": name, "size": info.size, "type": kind, "mode": info.mode, "mtime": info.modified}
        return facts | {"etag": info.etag, "layer": info.layer}

    def info(self, path: str, **more: Any) -> dict[str, Any]:
        """What is at a path; links are followed."""
        tree, inside, head = self._tree(path)
        if inside == ".":
            return {"name": head, "size": 0, "type": "directory"}
        return self._facts(tree.stat(inside), f"{head}/{inside}")

    def ls(self, path: str, detail: bool = True, **more: Any) -> list[Any]:
        """The entries of a directory, or the file itself."""
        tree, inside, head = self._tree(path)
        try:
            entries = tree.list_dir(inside)
        except NotADirectoryError:
            found = [self.info(path)]
        else:
            below = head if inside == "." else f"{head}/{inside}"
            found = [self._facts(each, f"{below}/{each.name}") for each in entries]
        return found if detail else [each["name"] for each in found]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **more: Any) -> bytes:
        """The bytes of a file, or some of them; negative places count from its end."""
        tree, inside, _ = self._tree(path)
        if (start is not None and start < 0) or (end is not None and end < 0):
            size = tree.stat(inside).size
            start = None if start is None else max(0, start + size if start < 0 else start)
            end = None if end is None else max(0, end + size if end < 0 else end)
        return tree.read_bytes(inside, start, end)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **more: Any) -> None:
        """Writes a file in one step; with the mode ``create`` only where nothing is."""
        tree, inside, _ = self._tree(path)
        try:
            tree.write_bytes(inside, bytes(value), if_missing=mode == "create")
        except Stale as taken:
            raise AlreadyExists(f"`{path}` already exists") from taken

    def mkdir(self, path: str, create_parents: bool = True, **more: Any) -> None:
        """Makes a directory."""
        tree, inside, _ = self._tree(path)
        if inside != ".":
            if create_parents and tree.exists(inside):
                raise FileExistsError(path)
            tree.mkdir(inside, parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a directory and those above it."""
        with contextlib.suppress(FileExistsError) if exist_ok else contextlib.nullcontext():
            self.mkdir(path)

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        tree, inside, _ = self._tree(path)
        tree.path(inside).rmdir()

    def rm_file(self, path: str) -> None:
        """Removes a file."""
        tree, inside, _ = self._tree(path)
        tree.remove(inside)

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes files, and with ``recursive`` directories."""
        if maxdepth is not None:
            super().rm(path, recursive=recursive, maxdepth=maxdepth)
            return
        for each in self.expand_path(path, recursive=False):
            tree, inside, _ = self._tree(each)
            if inside == ".":
                if not recursive:
                    raise IsADirectory(f"`{each}` is a whole tree: say `recursive=True`")
                for entry in tree.list_dir():
                    tree.remove(entry.name, recursive=True)
            else:
                tree.remove(inside, recursive=recursive)

    def cp_file(self, path1: str, path2: str, **more: Any) -> None:
        """Copies a file; a directory is made."""
        (tree, inside, head), (other, target, onto) = self._tree(path1), self._tree(path2)
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
        elif head == onto:
            if "/" in target:
                tree.mkdir(target.rsplit("/", 1)[0], parents=True)
            tree.copy(inside, target, overwrite=True)
        else:
            other.write_bytes(target, tree.read_bytes(inside), mode=tree.stat(inside).mode)

    def mv_file(self, path1: str, path2: str, **more: Any) -> None:
        """Moves a file."""
        (tree, inside, head), (_, target, onto) = self._tree(path1), self._tree(path2)
        if head == onto:
            tree.move(inside, target, overwrite=True)
        else:
            self.cp_file(path1, path2)
            tree.remove(inside)

    def created(self, path: str) -> Any:
        """When it changed last: nothing else is kept."""
        return self.modified(path)

    def modified(self, path: str) -> Any:
        """When it changed last."""
        return self.info(path)["mtime"]

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **more: Any,
    ) -> Any:
        if "r" in mode:
            return _Reader(self, path, mode, block_size or "default", cache_options=cache_options, **more)
        return _Writer(self, path, mode)


class FileSecBoxSkillFileSystem(FileSecBoxFileSystem):
    """The skills of a service, as their users see them: ``user/agent/skill/path``."""

    protocol = "filesecbox+skill"
    _heads = 3

    def _of(self, head: list[str]) -> Tree:
        user, agent, skill = head
        return self.box.skill(skill, user, agent)


class _Reader(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is read in parts, all of them of one state: one that has changed meanwhile is `Stale`."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        tree, inside, _ = self.fs._tree(self.path)
        if end <= start:
            return b""
        return tree.box.call(tree._tree.read_bytes(inside, start, end, self.details.get("etag") or None))  # type: ignore[no-any-return]


class _Writer(tempfile.SpooledTemporaryFile[bytes]):
    """A file that is sent in one step when it is closed; after a failure in its ``with`` it is not."""

    def __init__(self, fs: FileSecBoxFileSystem, path: str, mode: str) -> None:
        super().__init__(max_size=_SPOOLED_BYTES, mode="w+b")
        self.fs, self.path, self._is_sent = fs, path, False
        tree, inside, _ = fs._tree(path)
        if "x" in mode and tree.exists(inside):
            raise FileExistsError(path)
        self._is_new = "x" in mode
        if "a" in mode:
            with contextlib.suppress(FileNotFoundError):
                self.write(tree.read_bytes(inside))

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._is_sent = self._is_sent or kind is not None
        self.close()

    def close(self) -> None:
        """Sends what was written."""
        if not self._is_sent:
            self._is_sent = True
            tree, inside, _ = self.fs._tree(self.path)
            call = tree._tree.write_bytes(inside, None, True, None, None, self._is_new)
            tree.box.call(call, self._pieces)
        super().close()

    def _pieces(self) -> Iterator[bytes]:
        self.seek(0)
        while piece := self.read(256 * 1024):
            yield piece

    def __del__(self) -> None:
        # What was never closed is not sent.
        super().close()
