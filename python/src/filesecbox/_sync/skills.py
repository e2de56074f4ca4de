# Made by scripts/unasync.py of _async/skills.py: change that.
"""`Skills` and `Skill`: the skills of a user with an agent."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .. import _calls as calls
from .._local import local_files
from ..models import Diff, Lint, Pulled, SkillInfo, Uploaded, Version
from .tree import Tree

if TYPE_CHECKING:
    from .client import FileSecBox

Scope = Literal["overlay", "baseline"]
#: Directories that no skill needs.
_LEFT_OUT = frozenset({".git", "__pycache__", "__MACOSX", "node_modules", ".venv"})
#: The time of every entry of an archive that is made here, so that equal directories give equal archives.
_EPOCH = (1980, 1, 1, 0, 0, 0)


class Skills:
    """The skills of a user with an agent; ``skills["pdf"]`` is one of them."""

    def __init__(self, box: FileSecBox, user: str, agent: str) -> None:
        self.box = box
        self.user = user
        self.agent = agent
        self._root = f"/v1/skills/{calls.segment(user)}/{calls.segment(agent)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.user!r}, {self.agent!r})"

    def __getitem__(self, skill_id: str) -> Skill:
        return Skill(self.box, self._root, skill_id)

    def catalog(self, text_format: Literal["xml", "markdown"] = "xml") -> str:
        """The skills as a block for the prompt of a model; empty when there are none."""
        return self.box.call(calls.catalog(self._root, text_format))

    def shares(self) -> list[Mapping[str, Any]]:
        """The share links that were made here and count."""
        return self.box.call(calls.shares(self.user, self.agent))

    def share(
        self,
        skills: Sequence[str] | None = None,
        *,
        view: Literal["user", "baseline"] = "user",
        ttl_seconds: int | None = None,
        note: str | None = None,
    ) -> Mapping[str, Any]:
        """Makes a link by which installers read these skills, or all, without a token: ``link``, which is told only here, and ``id``."""
        body = {"view": view, "skills": skills, "ttl_seconds": ttl_seconds, "note": note}
        return self.box.call(calls.share(self.user, self.agent, body))

    def revoke_share(self, share_id: str) -> None:
        """Revokes a link."""
        self.box.call(calls.revoke_share(self.user, self.agent, share_id))

    def upload(
        self,
        source: str | os.PathLike[str] | bytes,
        *,
        name: str | None = None,
        scope: Scope = "overlay",
        charset: Literal["auto", "utf-8", "gbk"] = "auto",
        dry_run: bool = False,
        current: bool = True,
        title: str | None = None,
        message: str | None = None,
    ) -> Uploaded:
        """Publishes the skills of an archive (ZIP, tar, tar.gz, tar.zst), or of a local directory.

        With ``dry_run`` nothing is published, and the answer is the same. ``name`` is the archive's, where it is given as bytes. For
        ``scope="baseline"``: ``current=False`` keeps the version beside the current one until a rollback to it, and ``title`` and
        ``message`` stand in the list of versions.
        """
        if isinstance(source, bytes):
            archive, called = source, name or "archive.zip"
        else:
            path = Path(source).resolve()
            called = name or (f"{path.name}.zip" if path.is_dir() else path.name)
            archive = pack(path) if path.is_dir() else path.read_bytes()
        options = {"scope": scope, "charset": charset, "dry_run": dry_run or None, "title": title, "message": message}
        current_or_not = None if current else False
        return self.box.call(calls.upload_skills(self._root, called, archive, current=current_or_not, **options))

    def list(self) -> list[SkillInfo]:
        """The skills that the user sees, sorted by id."""
        return self.box.call(calls.list_skills(self._root))


class Skill(Tree):
    """A skill as its user sees it: the application's baseline under the user's overlay."""

    _tree: calls.SkillCalls

    def __init__(self, box: FileSecBox, root: str, skill_id: str) -> None:
        super().__init__(box, calls.SkillCalls(f"{root}/{calls.segment(skill_id)}"))
        self.skill_id = skill_id

    def delete(self, *, scope: Scope = "overlay") -> None:
        """Removes it: for this user, or with ``scope="baseline"`` for all users of the agent."""
        self.box.call(self._tree.delete(scope))

    def reset(self) -> bool:
        """Drops what the user changed; tells whether there was anything."""
        return self.box.call(self._tree.reset())

    def diff(self) -> list[Diff]:
        """What the user changed, against the application's current version."""
        return self.box.call(self._tree.diff())

    def lint(self) -> Lint:
        """Which other programs take the skill as it is, and why one does not."""
        return self.box.call(self._tree.lint())

    def versions(self) -> list[Version]:
        """The versions of the application that are there, the one that was published last first."""
        return self.box.call(self._tree.versions())

    def version(self, version: str | int) -> Version:
        """One version, by its 32 digits or by the number of one of its publications."""
        return self.box.call(self._tree.version(version))

    def remove_version(self, version: str | int, *, force: bool = False) -> Mapping[str, Any]:
        """Removes a version; with ``force`` also one that is pinned, or that a user's changes began with."""
        return self.box.call(self._tree.remove_version(version, force))

    def pin_version(self, version: str | int) -> bool:
        """Has a version stay whatever is published after it; tells whether it was not pinned before."""
        return bool((self.box.call(self._tree.pin_version(version)))["changed"])

    def unpin_version(self, version: str | int) -> bool:
        """Lets a version go like any other; tells whether it was pinned before."""
        return bool((self.box.call(self._tree.unpin_version(version)))["changed"])

    def download_version(self, version: str | int, *, layout: Literal["wrapped", "flat"] = "wrapped") -> bytes:
        """A version as a ZIP, the same bytes for the same version everywhere."""
        return self.box.call(self._tree.download_version(version, layout))

    def rollback(
        self, version: str | int, *, title: str | None = None, message: str | None = None
    ) -> Mapping[str, Any]:
        """Makes a former or staged version the current one, for all users."""
        return self.box.call(self._tree.rollback(version, title, message))

    def promote(
        self, *, force: bool = False, title: str | None = None, message: str | None = None
    ) -> Mapping[str, Any]:
        """Publishes what this user sees as the application's next version."""
        return self.box.call(self._tree.promote(force, title, message))

    def pull(self, *, prefer: Literal["ours", "theirs"] = "ours", dry_run: bool = False) -> Pulled:
        """Carries the user's changes over to the application's current version."""
        return self.box.call(self._tree.pull(prefer, dry_run))

    def download_zip(self) -> bytes:
        """The merged view as a ZIP."""
        return self.box.call(self._tree.download())


def pack(directory: Path) -> bytes:
    """A directory as a ZIP, its own name first in every path: the same bytes for the same files."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in local_files(directory):
            if _LEFT_OUT.intersection(each.path.split("/")):
                continue
            entry = zipfile.ZipInfo(f"{directory.name}/{each.path}", _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | int(each.mode, 8)) << 16
            archive.writestr(entry, each.source.read_bytes())
    return packed.getvalue()
