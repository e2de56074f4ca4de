"""The tools for LangChain, by LangChain's own tests of tools, and by an agent whose model says what is written down."""

import asyncio
import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain", reason="needs the packages of the extra `dev-langchain`")

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests

from filesecbox import AsyncFileSecBox, FileSecBox, Workspace
from filesecbox.integrations.langchain import FileSecBoxToolkit
from filesecbox.server import Server

#: The arguments of each tool, as a model would give them.
EXAMPLES: dict[str, dict[str, Any]] = {
    "run": {"command": "echo hello"},
    "read_file": {"path": "a.txt", "start_line": 1, "lines": 10},
    "write_file": {"path": "new/b.txt", "content": "x"},
    "edit_file": {"path": "a.txt", "old": "b", "new": "b", "replace_all": True},
    "glob": {"pattern": "*.txt"},
    "grep": {"pattern": "b+", "include": "*.txt"},
    "list_skills": {},
    "read_skill": {"skill_id": "greet"},
}


@pytest.fixture(scope="module")
def tools(server: Server) -> Iterator[dict[str, BaseTool]]:
    with server.client() as box:
        workspace = box.workspace("suite", "langchain")
        workspace.write_text("a.txt", "a\nbb\nb\n")
        box.skills("suite", "langchain").upload(_skill(), scope="overlay")
        yield {tool.name: tool for tool in FileSecBoxToolkit(workspace=workspace, skills="all").get_tools()}


class _Suite:
    @pytest.fixture(params=sorted(EXAMPLES), autouse=True)
    def name(self, request: pytest.FixtureRequest, tools: dict[str, BaseTool]) -> None:
        self.tools, self.current = tools, request.param

    @property
    def tool_constructor(self) -> BaseTool:
        return self.tools[self.current]

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return EXAMPLES[self.current]


class TestUnits(_Suite, ToolsUnitTests):  # type: ignore[misc]
    pass


class TestIntegration(_Suite, ToolsIntegrationTests):  # type: ignore[misc]
    pass


def test_the_suite_is_as_large_as_it_was() -> None:
    # For each of the eight tools.
    names = [
        name for suite in (ToolsUnitTests, ToolsIntegrationTests) for name in dir(suite) if name.startswith("test_")
    ]
    assert len(names) == 11


def test_there_is_an_example_of_each_tool(tools: dict[str, BaseTool]) -> None:
    assert set(tools) == set(EXAMPLES)
    assert all(field.get("description") for tool in tools.values() for field in tool.args.values())


def asked(tool: BaseTool, **arguments: Any) -> tuple[str, str]:
    """How a tool answers a model: the status and the text."""
    message = tool.invoke({"name": tool.name, "args": arguments, "id": "1", "type": "tool_call"})
    assert isinstance(message, ToolMessage)
    return message.status, str(message.content)


def test_failures_are_told_and_never_raised(workspace: Workspace) -> None:
    tools = {tool.name: tool for tool in FileSecBoxToolkit(workspace=workspace, timeout=60).get_tools()}
    workspace.write_text("a b a", "a b a")
    for name, arguments in {
        "read_file": {"path": "../../etc/passwd"},
        "write_file": {"path": "/etc/new", "content": "x"},
        "edit_file": {"path": "a b a", "old": "a", "new": "c"},
        "glob": {"pattern": "*", "path": "missing"},
        "grep": {"pattern": "("},
        "read_skill": {"skill_id": ".."},
    }.items():
        status, text = asked(tools[name], **arguments)
        assert status == "error" and text, name
    assert asked(tools["write_file"], path="f", content="\udc80")[0] == "error"
    assert asked(tools["read_skill"], skill_id="none", path="../SKILL.md")[0] == "error"
    assert asked(tools["edit_file"], path="a b a", old="a", new="c", replace_all=True) == (
        "success",
        "replaced 2 in a b a",
    )
    assert asked(tools["run"], command="echo out; exit 3") == ("success", "out\n\n[exit code 3]")
    assert "passed its deadline" in asked(tools["run"], command="sleep 100", timeout_seconds=0.2)[1]
    assert asked(tools["list_skills"]) == ("success", "there are none")
    assert asked(tools["glob"], pattern="*.none") == ("success", "nothing was found")


def test_texts_for_a_model_are_bounded(workspace: Workspace) -> None:
    tools = {tool.name: tool for tool in FileSecBoxToolkit(workspace=workspace).get_tools()}
    workspace.write_text("many.txt", "needle\n" * 5000)
    text = asked(tools["read_file"], path="many.txt")[1]
    assert text.endswith("[lines 1 to 2000 of 5000: go on with start_line=2001]")
    assert "characters were dropped" in asked(tools["run"], command="seq 100000")[1]
    text = asked(tools["grep"], pattern="needle")[1]
    assert text.startswith("many.txt:1: needle\n") and text.endswith("[there are more: narrow the search]")


class _Scripted(GenericFakeChatModel):  # type: ignore[misc]
    """A model that says what is written down, whatever it is told."""

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        return self


def test_an_agent_of_the_readme_works_in_a_workspace(server: Server, box: FileSecBox, monkeypatch: Any) -> None:
    box.skills("alice", "demo").upload(_skill(), scope="overlay")
    steps: list[tuple[str, dict[str, Any]]] = [
        ("read_skill", {"skill_id": "greet"}),
        ("write_file", {"path": "报告.md", "content": "one\ntwo\n"}),
        ("edit_file", {"path": "报告.md", "old": "two", "new": "zwei"}),
        ("run", {"command": "cat 报告.md skills/greet/SKILL.md"}),
    ]
    said: list[Any] = [
        AIMessage(content="", tool_calls=[{"name": name, "args": args, "id": str(number)}])
        for number, (name, args) in enumerate(steps)
    ]
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (example,) = [each for each in re.findall(r"```py\n(.*?)```", readme, re.DOTALL) if "FileSecBoxToolkit" in each]
    monkeypatch.setenv("FILESECBOX_URL", server.url)
    monkeypatch.setenv("FILESECBOX_TOKEN", server.token)
    names: dict[str, Any] = {"model": _Scripted(messages=iter([*said, AIMessage(content="done")]))}
    exec(compile(example, "README.md", "exec"), names)
    ended = names["agent"].invoke({"messages": [HumanMessage("write a report")]})["messages"]
    told = [each.content for each in ended if isinstance(each, ToolMessage)]
    assert ended[-1].content == "done" and "Say hello." in told[0]
    assert told[1:3] == ["made 报告.md", "replaced 1 in 报告.md"]
    assert told[3].startswith("one\nzwei\n") and told[3].endswith("Say hello.\n")
    assert server.token not in repr(names["toolkit"])
    names["workspace"].box.close()
    box.workspace("alice", "demo").remove("报告.md")


async def test_a_coroutine_that_is_cancelled_kills_its_run(server: Server, workspace: Workspace) -> None:
    async with AsyncFileSecBox(server.url, server.token) as box:
        remote = box.workspace(workspace.user, workspace.agent)
        run, *_ = FileSecBoxToolkit(workspace=workspace, async_workspace=remote).get_tools()
        assert await run.ainvoke({"command": "echo hello"}) == "hello\n"
        running = asyncio.create_task(run.ainvoke({"command": "sleep 100"}))
        while not [each for each in await remote.runs() if each.state == "running"]:
            await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not [each for each in await remote.runs() if each.state != "ended"]


def _skill() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("greet/SKILL.md", "---\nname: greet\ndescription: greets\n---\nSay hello.\n")
    return archive.getvalue()
