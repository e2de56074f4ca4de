"""`FileSecBoxCodeExecutor`: a workspace as the place where agents of AutoGen run their code.

    from autogen_agentchat.agents import CodeExecutorAgent
    from filesecbox import AsyncFileSecBox
    from filesecbox.integrations.autogen import FileSecBoxCodeExecutor

    executor = FileSecBoxCodeExecutor(AsyncFileSecBox().workspace("alice", "demo"))
    agent = CodeExecutorAgent("executor", code_executor=executor)

Needs autogen-core 0.7. Each block of code is a program of its own, in Python or for the shell, that begins in the workspace: what is
to be kept lies in files.
"""

from __future__ import annotations

import asyncio
import hashlib
import posixpath
from collections.abc import Sequence
from typing import Literal, Self

from autogen_core import CancellationToken, Component
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from pydantic import BaseModel

from .._async import _io
from .._async.client import AsyncFileSecBox
from .._async.workspace import AsyncWorkspace

__all__ = ["FileSecBoxCodeExecutor", "FileSecBoxCodeExecutorConfig"]

#: By which program a language is run, and how the names of its files end.
_LANGUAGES = {
    **dict.fromkeys(("python", "py", "python3"), ("python3", "py")),
    **dict.fromkeys(("bash", "sh", "shell"), ("bash", "sh")),
}
#: What the framework's own executors say of code that was cancelled.
_CANCELLED = 125
_NAME = "# filename:"


class FileSecBoxCodeExecutorConfig(BaseModel):  # type: ignore[misc]
    """What is written down of an executor. The token is not: it comes from ``FILESECBOX_TOKEN``."""

    url: str
    user: str
    agent: str
    timeout: float | None = 60
    skills: tuple[str, ...] | Literal["all"] | None = None


class FileSecBoxCodeExecutor(CodeExecutor, Component[FileSecBoxCodeExecutorConfig]):  # type: ignore[misc]
    """Runs blocks of code in one workspace.

    Code sees the ``skills`` that are named, or ``"all"`` of the user's; ``timeout`` is the deadline of a block in seconds.
    """

    component_config_schema = FileSecBoxCodeExecutorConfig
    component_provider_override = "filesecbox.integrations.autogen.FileSecBoxCodeExecutor"

    def __init__(
        self,
        workspace: AsyncWorkspace,
        *,
        timeout: float | None = 60,
        skills: Sequence[str] | Literal["all"] | None = None,
    ) -> None:
        self.workspace = workspace
        self._timeout = timeout
        self._skills = skills
        self._owns_box = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.workspace!r})"

    async def start(self) -> None:
        """Does nothing: a workspace is there when it is used."""

    async def stop(self) -> None:
        """Closes the connections of an executor that came of a configuration. The workspace stays."""
        if self._owns_box:
            await self.workspace.box.aclose()

    async def restart(self) -> None:
        """Does nothing: blocks share nothing but files."""

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        """Runs blocks one after the other, up to the first that fails. When the token is cancelled, the block that runs is killed.

        A first line such as ``# filename: run.py`` names the file that a block is written to, and that stays.
        """
        output = ""
        for block in code_blocks:
            task = asyncio.ensure_future(self._execute(block))
            cancellation_token.link_future(task)
            try:
                result = await task
            except asyncio.CancelledError:
                if not cancellation_token.is_cancelled():
                    raise
                return CodeResult(exit_code=_CANCELLED, output=f"{output}\nCancelled")
            output += result.output
            if result.exit_code != 0:
                return CodeResult(exit_code=result.exit_code, output=output)
        return CodeResult(exit_code=0, output=output)

    async def _execute(self, block: CodeBlock) -> CodeResult:
        program, ending = _LANGUAGES.get(block.language.lower(), (None, ""))
        if program is None:
            return CodeResult(exit_code=1, output=f"\nunknown language {block.language}")
        data = block.code.encode()
        first = block.code.partition("\n")[0]
        is_named = first.startswith(_NAME)
        if is_named:
            path = posixpath.relpath(posixpath.join("/workspace", first.removeprefix(_NAME).strip()), "/workspace")
            if path == "." or path.split("/")[0] == "..":
                return CodeResult(exit_code=1, output="Filename is not in the workspace")
        else:
            path = f"tmp_code_{hashlib.sha256(data).hexdigest()}.{ending}"
        await self.workspace.write_bytes(path, data)
        try:
            result = await self.workspace.run([program, f"./{path}"], timeout=self._timeout, skills=self._skills)
        finally:
            if not is_named:
                # Also when it is cancelled meanwhile; where that fails, the next block of the same text has the same name.
                await _io.finish(lambda: self.workspace.remove(path))
        output = result.output
        if result.timed_out:
            output += "\nTimeout"
        elif result.hint:
            output += f"\n[{result.hint}]"
        return CodeResult(exit_code=result.shell_code, output=output)

    def _to_config(self) -> FileSecBoxCodeExecutorConfig:
        skills = tuple(self._skills) if isinstance(self._skills, list | tuple) else self._skills
        return FileSecBoxCodeExecutorConfig(
            url=self.workspace.box.url,
            user=self.workspace.user,
            agent=self.workspace.agent,
            timeout=self._timeout,
            skills=skills,
        )

    @classmethod
    def _from_config(cls, config: FileSecBoxCodeExecutorConfig) -> Self:
        workspace = AsyncFileSecBox(config.url).workspace(config.user, config.agent)
        executor = cls(workspace, timeout=config.timeout, skills=config.skills)
        executor._owns_box = True
        return executor
