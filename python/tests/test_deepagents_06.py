"""The adapter for deepagents with the contract before 0.7, by LangChain's own tests of sandboxes."""

from collections.abc import AsyncIterator, Iterator
from importlib.metadata import version

import pytest

pytest.importorskip("deepagents", reason="needs the packages of the extra `dev-deepagents-06`")
if not version("deepagents").startswith("0.6."):
    pytest.skip("of deepagents 0.7 there is test_deepagents.py", allow_module_level=True)

from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_tests.integration_tests import SandboxIntegrationTests

from filesecbox import AsyncFileSecBox, Workspace
from filesecbox.integrations.deepagents import FileSecBoxSandbox
from filesecbox.server import Server


class _Suite(SandboxIntegrationTests):  # type: ignore[misc]
    @property
    def sandbox_root_dir(self) -> str:
        return "/workspace/suite"


def test_the_suite_is_as_large_as_it_was() -> None:
    assert len([name for name in dir(SandboxIntegrationTests) if name.startswith("test_")]) == 86


class TestInThreads(_Suite):
    @pytest.fixture(scope="class")
    def sandbox(self, server: Server) -> Iterator[FileSecBoxSandbox]:
        with server.client() as box:
            yield FileSecBoxSandbox(box.workspace("suite", "threads-06"))


class TestInCoroutines(_Suite):
    @pytest.fixture(scope="class")
    async def sandbox(self, server: Server) -> AsyncIterator[FileSecBoxSandbox]:
        with server.client() as box:
            async with AsyncFileSecBox(server.url, server.token) as other:
                yield FileSecBoxSandbox(
                    box.workspace("suite", "coroutines-06"), async_workspace=other.workspace("suite", "coroutines-06")
                )


class _Scripted(GenericFakeChatModel):  # type: ignore[misc]
    """A model that says what is written down, whatever it is told."""

    def bind_tools(self, tools: object, **more: object) -> object:
        return self


def test_an_agent_works_in_a_workspace(workspace: Workspace) -> None:
    steps = [
        ("write_file", {"file_path": "/workspace/报告.md", "content": "one\ntwo\n"}),
        ("write_file", {"file_path": "/workspace/报告.md", "content": "lost"}),
        ("edit_file", {"file_path": "/workspace/报告.md", "old_string": "two", "new_string": "zwei"}),
        ("read_file", {"file_path": "/workspace/报告.md"}),
        ("execute", {"command": "wc -l 报告.md; exit 3"}),
    ]
    said = [
        AIMessage(content="", tool_calls=[{"name": name, "args": args, "id": str(number)}])
        for number, (name, args) in enumerate(steps)
    ]
    model = _Scripted(messages=iter([*said, AIMessage(content="done")]))
    agent = create_deep_agent(model=model, backend=FileSecBoxSandbox(workspace))
    told = [
        each.content
        for each in agent.invoke({"messages": [HumanMessage("go")]})["messages"]
        if isinstance(each, ToolMessage)
    ]
    assert "already exists" in told[1] and "zwei" in told[3] and "2 报告.md" in told[4]
    assert workspace.read_text("报告.md").text == "one\nzwei\n"
