"""`FileSecBoxEnvironment`: a workspace as the environment of an agent of Google's Agent Development Kit.

    from filesecbox import AsyncFileSecBox
    from filesecbox.integrations.google_adk import FileSecBoxEnvironment
    from google.adk.agents import LlmAgent
    from google.adk.tools.environment import EnvironmentToolset

    environment = FileSecBoxEnvironment(AsyncFileSecBox().workspace("alice", "demo"))
    agent = LlmAgent(name="assistant", model="…", tools=[EnvironmentToolset(environment=environment)])

Needs google-adk 2.13, which calls environments experimental. Paths are those that commands see, or relative to the workspace.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from google.adk.environment import BaseEnvironment, ExecutionResult

from .._async.workspace import AsyncWorkspace
from ..errors import CommandNotAllowed

__all__ = ["FileSecBoxEnvironment"]

#: The most bytes of a file that is read.
_READ_BYTES = 64 * 1024 * 1024
#: What a shell says of a program that cannot be run.
_NOT_RUN = 126


class FileSecBoxEnvironment(BaseEnvironment):  # type: ignore[misc]
    """The files and commands of one workspace, which stays when the environment is closed.

    Commands see the ``skills`` that are named, or ``"all"`` of the user's, and the variables in ``env``.
    """

    def __init__(
        self,
        workspace: AsyncWorkspace,
        *,
        skills: Sequence[str] | Literal["all"] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.workspace = workspace
        self._skills = skills
        self._env = env

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.workspace!r})"

    @property
    def working_dir(self) -> Path:
        """Where commands begin."""
        return Path("/workspace")

    async def initialize(self) -> None:
        """Asks whether the service is there."""
        await self.workspace.box.ready()
        self.is_initialized = True

    async def close(self) -> None:
        """Ends nothing: commands end by themselves, and the client is its maker's."""
        self.is_initialized = False

    async def execute(
        self,
        command: str,
        *,
        timeout: float | None = None,  # noqa: RUF100, ASYNC109
    ) -> ExecutionResult:
        """Runs a line for the shell to its end."""
        try:
            result = await self.workspace.run(command, timeout=timeout, skills=self._skills, env=self._env)
        except CommandNotAllowed as error:
            return ExecutionResult(exit_code=_NOT_RUN, stderr=error.message)
        hint = f"\n[{result.hint}]" if result.hint and not result.timed_out else ""
        return ExecutionResult(
            exit_code=result.shell_code,
            stdout=result.stdout,
            stderr=result.stderr + hint,
            timed_out=result.timed_out,
        )

    async def read_file(self, path: Path | str) -> bytes:
        """Reads a file whole."""
        data = await self.workspace.read_bytes(os.fspath(path), 0, _READ_BYTES + 1)
        if len(data) > _READ_BYTES:
            raise OSError(errno.EFBIG, f"more than {_READ_BYTES} bytes", os.fspath(path))
        return data

    async def write_file(self, path: Path | str, content: str | bytes) -> None:
        """Replaces a file, or makes one, with the directories above it."""
        data = content.encode() if isinstance(content, str) else content
        await self.workspace.write_bytes(os.fspath(path), data)
