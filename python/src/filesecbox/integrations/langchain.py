"""`FileSecBoxToolkit`: tools for agents of LangChain that work in a workspace.

    from filesecbox import FileSecBox
    from filesecbox.integrations.langchain import FileSecBoxToolkit
    from langchain.agents import create_agent

    toolkit = FileSecBoxToolkit(workspace=FileSecBox().workspace("alice", "demo"))
    agent = create_agent(model, tools=toolkit.get_tools())

Needs langchain-core 1. What fails is told to the model, as the status of the tool's message, and not raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from langchain_core.tools import BaseTool, BaseToolkit, StructuredTool, ToolException
from pydantic import ConfigDict

from .._async.workspace import AsyncWorkspace
from .._sync.workspace import Workspace
from ..errors import FileSecBoxError
from ._agent_tools import Operation, operations
from ._steps import ado, do

__all__ = ["FileSecBoxToolkit"]


class FileSecBoxToolkit(BaseToolkit):  # type: ignore[misc]
    """Tools of one workspace: commands, files and skills.

    ``async_workspace`` is the same one of an `AsyncFileSecBox`, by which coroutines go; without it they use threads, and a call that
    is cancelled leaves its command to end by itself. Commands see the ``skills`` that are named, or ``"all"`` of the user's;
    ``timeout`` is their deadline in seconds unless a call has another.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    workspace: Workspace
    async_workspace: AsyncWorkspace | None = None
    skills: tuple[str, ...] | Literal["all"] | None = None
    timeout: float | None = None

    def get_tools(self) -> list[BaseTool]:
        """The tools: `run`, `read_file`, `write_file`, `edit_file`, `glob`, `grep`, `list_skills`, `read_skill`."""
        return [
            StructuredTool.from_function(
                func=self._function(operation),
                coroutine=self._coroutine(operation),
                name=operation.name,
                description=operation.description,
                args_schema=operation.arguments,
                handle_tool_error=True,
            )
            for operation in operations(self.skills, self.timeout)
        ]

    def _function(self, operation: Operation) -> Callable[..., str]:
        def call(**arguments: Any) -> str:
            try:
                return do(self.workspace, operation.steps(**arguments))
            except (FileSecBoxError, ValueError) as error:
                raise ToolException(str(error)) from error

        return call

    def _coroutine(self, operation: Operation) -> Callable[..., Coroutine[Any, Any, str]]:
        async def call(**arguments: Any) -> str:
            if self.async_workspace is None:
                return await asyncio.to_thread(self._function(operation), **arguments)
            try:
                return await ado(self.async_workspace, operation.steps(**arguments))
            except (FileSecBoxError, ValueError) as error:
                raise ToolException(str(error)) from error

        return call
