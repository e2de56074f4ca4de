"""`tools_of`: tools for agents of CrewAI that work in a workspace.

    from crewai import Agent
    from filesecbox import FileSecBox
    from filesecbox.integrations.crewai import tools_of

    agent = Agent(role="…", goal="…", backstory="…", tools=tools_of(FileSecBox().workspace("alice", "demo")))

Needs CrewAI 1.15. What fails is told to the agent as a failure of the tool, and not raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from crewai.tools import BaseTool
from crewai.tools.tool_failure import ToolFailure
from pydantic import PrivateAttr

from .._async.workspace import AsyncWorkspace
from .._sync.workspace import Workspace
from ..errors import FileSecBoxError
from ._agent_tools import Operation, operations
from ._steps import ado, do

__all__ = ["FileSecBoxTool", "tools_of"]


def tools_of(
    workspace: Workspace,
    *,
    async_workspace: AsyncWorkspace | None = None,
    skills: Sequence[str] | Literal["all"] | None = None,
    timeout: float | None = None,
) -> list[FileSecBoxTool]:
    """Tools of one workspace: `run`, `read_file`, `write_file`, `edit_file`, `glob`, `grep`, `list_skills`, `read_skill`.

    ``async_workspace`` is the same one of an `AsyncFileSecBox`, by which coroutines go; without it they use threads, and a call that
    is cancelled leaves its command to end by itself. Commands see the ``skills`` that are named, or ``"all"`` of the user's;
    ``timeout`` is their deadline in seconds unless a call has another.
    """
    return [FileSecBoxTool.of(each, workspace, async_workspace) for each in operations(skills, timeout)]


def _never(_arguments: Any = None, _result: Any = None) -> bool:
    return False


class FileSecBoxTool(BaseTool):  # type: ignore[misc]
    """One of the tools. What it gave is never given again without asking: files change."""

    _operation: Operation = PrivateAttr()
    _workspace: Workspace = PrivateAttr()
    _async_workspace: AsyncWorkspace | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, operation: Operation, workspace: Workspace, async_workspace: AsyncWorkspace | None) -> FileSecBoxTool:
        """The tool of an operation."""
        tool = cls(
            name=operation.name,
            description=operation.description,
            args_schema=operation.arguments,
            cache_function=_never,
        )
        tool._operation, tool._workspace, tool._async_workspace = operation, workspace, async_workspace
        return tool

    def _run(self, **arguments: Any) -> Any:
        try:
            return do(self._workspace, self._operation.steps(**arguments))
        except (FileSecBoxError, ValueError) as error:
            return ToolFailure(message=f"Error: {error}")

    async def _arun(self, **arguments: Any) -> Any:
        if self._async_workspace is None:
            return await asyncio.to_thread(self._run, **arguments)
        try:
            return await ado(self._async_workspace, self._operation.steps(**arguments))
        except (FileSecBoxError, ValueError) as error:
            return ToolFailure(message=f"Error: {error}")
