"""The tools for CrewAI: an agent of the framework itself, whose model says what is written down."""

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("crewai", reason="needs the packages of the extra `dev-crewai`")

# The framework reports to its makers unless it is told not to.
os.environ.update(CREWAI_DISABLE_TELEMETRY="true", CREWAI_TRACING_ENABLED="false", OTEL_SDK_DISABLED="true")

from crewai import Agent
from crewai.llms.base_llm import BaseLLM
from crewai.tools.tool_failure import ToolFailure

from filesecbox import AsyncFileSecBox, Workspace
from filesecbox.integrations.crewai import tools_of
from filesecbox.server import Server


class _Scripted(BaseLLM):  # type: ignore[misc]
    """A model that says what is written down, and keeps what it was told."""

    said: list[str]
    told: list[str]

    def call(self, messages: Any, *args: Any, **more: Any) -> str:
        self.told.append(str(messages))
        return self.said.pop(0)

    def supports_function_calling(self) -> bool:
        return False


# The framework warns of what it does itself.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_agent_of_the_readme_works_in_a_workspace(server: Server, monkeypatch: Any) -> None:
    steps = [
        ("write_file", '{"path": "报告.md", "content": "one"}'),
        ("run", '{"command": "cat 报告.md"}'),
        ("write_file", '{"path": "报告.md", "content": "two"}'),
        # The same as before: what it gave then is not what it gives now.
        ("run", '{"command": "cat 报告.md"}'),
        ("read_file", '{"path": "/etc/passwd"}'),
    ]
    said = [f"Thought: next\nAction: {name}\nAction Input: {arguments}" for name, arguments in steps]
    model = _Scripted(
        model="scripted", said=[*said, "Thought: I now know the final answer\nFinal Answer: done"], told=[]
    )
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (example,) = [each for each in re.findall(r"```py\n(.*?)```", readme, re.DOTALL) if "crewai" in each]
    monkeypatch.setenv("FILESECBOX_URL", server.url)
    monkeypatch.setenv("FILESECBOX_TOKEN", server.token)
    names: dict[str, Any] = {"model": model}
    exec(compile(example, "README.md", "exec"), names)
    agent: Agent = names["agent"]
    assert "done" in str(agent.kickoff("write a report"))
    assert "Observation: one" in model.told[2] and "Observation: two" in model.told[4]
    assert "Error: " in model.told[5] and server.token not in repr(names["workspace"])
    names["workspace"].remove("报告.md")
    names["workspace"].box.close()


def test_failures_are_told_and_never_raised(workspace: Workspace) -> None:
    tools = {tool.name: tool for tool in tools_of(workspace, timeout=60)}
    assert tools["run"].run(command="echo out; exit 3") == "out\n\n[exit code 3]"
    for name, arguments in {
        "read_file": {"path": "missing"},
        "write_file": {"path": "../x", "content": "x"},
        "read_skill": {"skill_id": ".."},
    }.items():
        assert isinstance(tools[name].run(**arguments), ToolFailure)
        assert isinstance(asyncio.run(tools[name].arun(**arguments)), ToolFailure)
    with pytest.raises(ValueError, match="start_line"):
        tools["read_file"].run(path="f", start_line=0)


def test_a_coroutine_that_is_cancelled_kills_its_run(server: Server, workspace: Workspace) -> None:
    async def begin() -> None:
        async with AsyncFileSecBox(server.url, server.token) as box:
            remote = box.workspace(workspace.user, workspace.agent)
            run, *_ = tools_of(workspace, async_workspace=remote)
            assert await run.arun(command="echo hello") == "hello\n"
            running = asyncio.create_task(run.arun(command="sleep 100"))
            while not [each for each in await remote.runs() if each.state == "running"]:
                await asyncio.sleep(0.02)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert not [each for each in await remote.runs() if each.state != "ended"]

    asyncio.run(begin())
