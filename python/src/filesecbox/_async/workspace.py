"""`AsyncWorkspace`: the own files of a user with an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import _calls as calls
from .tree import AsyncTree

if TYPE_CHECKING:
    from .client import AsyncFileSecBox


class AsyncWorkspace(AsyncTree):
    """The workspace of a user with an agent: empty until something is written."""

    _tree: calls.WorkspaceCalls

    def __init__(self, box: AsyncFileSecBox, user: str, agent: str) -> None:
        super().__init__(box, calls.WorkspaceCalls(f"/v1/sandbox/{calls.segment(user)}/{calls.segment(agent)}"))
        self.user = user
        self.agent = agent

    async def usage(self) -> Mapping[str, Any]:
        """What it takes on the disk, counted now."""
        return await self.box.call(self._tree.usage())

    async def delete(self, *, force: bool = False, snapshots: bool = False) -> None:
        """Removes it with its home; with ``force`` runs under way are killed, with ``snapshots`` those go, too."""
        await self.box.call(self._tree.delete(force, snapshots))

    async def prepare(
        self,
        *,
        mode: str = "run",
        skills: Sequence[tuple[str, str]] = (),
        entrypoint: str | None = None,
        files: Mapping[str, str | bytes] | None = None,
        bootstrap: Sequence[str] = (),
        timeout_seconds: int | None = None,
    ) -> Mapping[str, Any]:
        """Brings it to the state that a round of a conversation needs: ``workdir``, ``skills`` and ``steps``.

        ``skills`` are pairs of a skill's id and a version's; ``files`` are input files by name.
        """
        body: dict[str, Any] = {"mode": mode}
        if skills:
            body["skills"] = [{"skill_id": skill, "version_id": version} for skill, version in skills]
        if files:
            body["files"] = [
                {"name": name, "content": content}
                if isinstance(content, str)
                else {"name": name, "content_base64": calls.base64_text(content)}
                for name, content in files.items()
            ]
        optional = {"entrypoint": entrypoint, "bootstrap": list(bootstrap) or None, "timeout_seconds": timeout_seconds}
        body |= {name: value for name, value in optional.items() if value is not None}
        return await self.box.call(self._tree.prepare(body))

    async def snapshots(self) -> list[Mapping[str, Any]]:
        """The snapshots, the oldest first."""
        return await self.box.call(self._tree.snapshots())

    async def take_snapshot(self, name: str | None = None, note: str | None = None) -> Mapping[str, Any]:
        """Keeps the state of now."""
        return await self.box.call(self._tree.take_snapshot(name, note))

    async def get_snapshot(self, snapshot: str) -> Mapping[str, Any]:
        """One snapshot."""
        return await self.box.call(self._tree.get_snapshot(snapshot))

    async def restore(self, snapshot: str) -> Mapping[str, Any]:
        """Makes the workspace what it was at a snapshot."""
        return await self.box.call(self._tree.restore(snapshot))

    async def fork(self, snapshot: str, user: str, agent: str, *, replace: bool = False) -> Mapping[str, Any]:
        """Makes the state of a snapshot the workspace of another user or agent."""
        return await self.box.call(self._tree.fork(snapshot, user, agent, replace))

    async def remove_snapshot(self, snapshot: str) -> None:
        """Removes a snapshot."""
        await self.box.call(self._tree.remove_snapshot(snapshot))
