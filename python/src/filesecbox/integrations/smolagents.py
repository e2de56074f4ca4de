"""`FileSecBoxExecutor`: a workspace as the place where agents of smolagents (Hugging Face) run their code.

    from filesecbox import FileSecBox
    from filesecbox.integrations.smolagents import FileSecBoxExecutor
    from smolagents import CodeAgent

    executor = FileSecBoxExecutor(FileSecBox().workspace("alice", "demo"))
    agent = CodeAgent(tools=[], model=model, executor=executor)

Needs smolagents 1.26. The code runs in an interpreter that keeps its state, begins in the workspace and sees its files. When the
interpreter ends, the agent is told, and the next code has a new one that knows the tools and variables again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.tools import Tool
from smolagents.utils import AgentError

from .._sync.workspace import Workspace
from ..errors import FileSecBoxError, SessionEnded
from ..models import CellResult

__all__ = ["FileSecBoxExecutor"]

#: Writes the answer of the exception by which an agent ends, however long it is.
_ANSWER = "__import__('sys').__stdout__.write(__import__('sys').last_value.value); None"


class FileSecBoxExecutor(RemotePythonExecutor):  # type: ignore[misc]
    """Runs the code of one agent in one workspace.

    ``additional_imports`` are packages that are installed first. Code sees the ``skills`` that are named, or ``"all"`` of the user's;
    ``timeout`` is the deadline of each piece of code in seconds. Answers come as JSON, never by `pickle`.
    """

    def __init__(
        self,
        workspace: Workspace,
        additional_imports: Sequence[str] = (),
        logger: AgentLogger | None = None,
        *,
        skills: Sequence[str] | Literal["all"] | None = None,
        timeout: float | None = None,
    ) -> None:
        super().__init__(list(additional_imports), logger or AgentLogger(level=LogLevel.ERROR))
        self.workspace = workspace
        self._timeout = timeout
        self._python = workspace.python(skills=skills)
        #: What a new interpreter has to run first, by what it is for.
        self._known: dict[str, list[str]] = {}
        self._learning: list[str] | None = None
        self._is_new = False
        self._asked: set[str] = set()
        self.installed_packages = self.install_packages(self.additional_imports)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.workspace!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cleanup()

    def cleanup(self) -> None:
        """Ends the interpreter. The workspace stays."""
        self._python.close()

    def send_tools(self, tools: dict[str, Tool]) -> None:
        """Makes the tools known to the code."""
        with self._learned("tools"):
            super().send_tools(tools)

    def _patch_final_answer_with_exception(self, final_answer_tool: Tool) -> None:
        # Each run of an agent sends its tools; wrapped twice, this one no longer works.
        if not hasattr(final_answer_tool, "_forward"):
            super()._patch_final_answer_with_exception(final_answer_tool)

    def send_variables(self, variables: dict[str, Any]) -> None:
        """Makes variables known to the code."""
        with self._learned("variables"):
            super().send_variables(variables)

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Installs packages in the user's home, as far as the network that commands have allows it.

        What the source of a tool imports may be there already, or not be needed: where it cannot be installed, that is logged.
        """
        wanted = [each for each in additional_imports if each not in self._asked]
        if wanted:
            self._asked.update(wanted)
            command = ["python3", "-m", "pip", "install", "--user", "--quiet", "--", *wanted]
            try:
                # A system's own interpreter refuses otherwise; the home is the user's all the same.
                result = self.workspace.run(command, env={"PIP_BREAK_SYSTEM_PACKAGES": "1"})
            except FileSecBoxError as error:
                raise AgentError(f"the packages {wanted} cannot be installed: {error}", self.logger) from error
            if not result.ok:
                hint = f"\n[{result.hint}]" if result.hint else ""
                told = f"the packages {wanted} cannot be installed: {result.output[-2000:]}{hint}"
                if self._learning is None:
                    raise AgentError(told, self.logger)
                self.logger.log_error(told)
        return additional_imports

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Runs code; its exceptions, but for the one that brings the final answer, are an `AgentError`."""
        if self._learning is not None:
            self._learning.append(code)
        elif self._is_new:
            self._is_new = False
            for known in [*self._known.get("variables", []), *self._known.get("tools", [])]:
                self._run(known)
        cell = self._run(code)
        logs = cell.stdout + cell.stderr
        if cell.error is None:
            return CodeOutput(output=cell.value, logs=logs, is_final_answer=False)
        if cell.error["type"] != self.FINAL_ANSWER_EXCEPTION:
            raise AgentError(f"{logs}\n{cell.error['traceback']}", self.logger)
        try:
            answer = self._deserialize_final_answer(self._run(_ANSWER).stdout, allow_pickle=False)
        except Exception as error:
            # Whatever it is that came.
            raise AgentError(f"the final answer cannot be read: {error}", self.logger) from error
        return CodeOutput(output=answer, logs=logs, is_final_answer=True)

    def _run(self, code: str) -> CellResult:
        try:
            return self._python.run(code, timeout=self._timeout)
        except SessionEnded as ended:
            self._is_new = True
            told = f"{ended.stdout}{ended.stderr}\n{ended.message}; it knows none of the variables that were set since"
            raise AgentError(told, self.logger) from ended
        except FileSecBoxError as error:
            self._is_new = True
            raise AgentError(f"the code could not be run: {error}", self.logger) from error

    @contextlib.contextmanager
    def _learned(self, what: str) -> Iterator[None]:
        self._learning = []
        try:
            yield
            self._known[what] = self._learning
        finally:
            self._learning = None
