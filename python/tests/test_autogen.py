"""The adapter for AutoGen: an agent of the framework itself, which runs the code of the messages that it is sent."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("autogen_core", reason="needs the packages of the extra `dev-autogen`")

from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult

from filesecbox import AsyncFileSecBox, Unavailable
from filesecbox.integrations.autogen import FileSecBoxCodeExecutor
from filesecbox.server import Server

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def executor(server: Server, request: pytest.FixtureRequest) -> AsyncIterator[FileSecBoxCodeExecutor]:
    async with (
        AsyncFileSecBox(server.url, server.token) as box,
        FileSecBoxCodeExecutor(box.workspace("autogen", request.node.name[:100])) as executor,
    ):
        yield executor


async def ran(executor: CodeExecutor, *blocks: tuple[str, str], token: CancellationToken | None = None) -> CodeResult:
    told = [CodeBlock(code=code, language=language) for language, code in blocks]
    return await executor.execute_code_blocks(told, token or CancellationToken())


# What it warns of without a function that approves of code: that the code is run.
@pytest.mark.filterwarnings("ignore:No approval function:UserWarning")
async def test_an_agent_of_the_readme_runs_code(server: Server, monkeypatch: Any) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (example,) = [each for each in re.findall(r"```py\n(.*?)```", readme, re.DOTALL) if "autogen" in each]
    monkeypatch.setenv("FILESECBOX_URL", server.url)
    monkeypatch.setenv("FILESECBOX_TOKEN", server.token)
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)
    text = "```python\nprint('数据')\n```\n\n```python\nraise SystemExit(3)\n```"
    response = await names["agent"].on_messages([TextMessage(content=text, source="user")], CancellationToken())
    assert "数据" in response.chat_message.content and "exit code: 3" in response.chat_message.content
    await names["executor"].workspace.box.aclose()


async def test_blocks_run_in_order_up_to_one_that_fails(executor: FileSecBoxCodeExecutor) -> None:
    done = await ran(
        executor,
        ("Python", "# filename: deep/mod.py\nvalue = 40"),
        ("python", "import sys\nsys.path.append('deep')\nimport mod\nprint(mod.value + 2)"),
        ("sh", "ls; echo bad >&2; exit 4"),
        ("python", "print('never')"),
    )
    assert done.exit_code == 4 and done.output.startswith("42\ndeep\n") and done.output.endswith("bad\n")
    assert [each.name for each in await executor.workspace.list_dir()] == ["deep"]
    for language, code in (("ruby", "1"), ("python", "# filename: ../x\n1"), ("python", "# filename: /etc/x\n1")):
        assert (await ran(executor, (language, code))).exit_code == 1
    assert (await ran(executor, ("python", "# filename: -c\nprint('file')"))).output == "file\n"


async def test_code_that_is_late_or_cancelled_is_killed(executor: FileSecBoxCodeExecutor) -> None:
    late = await ran(FileSecBoxCodeExecutor(executor.workspace, timeout=0.5), ("bash", "echo before; sleep 100"))
    assert late.exit_code == 124 and late.output == "before\n\nTimeout"
    token = CancellationToken()
    for cancel in (token.cancel, None):
        running = asyncio.create_task(ran(executor, ("bash", "echo x; sleep 100"), token=token if cancel else None))
        while not [run for run in await executor.workspace.runs() if run.state == "running"]:
            await asyncio.sleep(0.02)
        if cancel:
            cancel()
            assert (await running).exit_code == 125
        else:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert not [run for run in await executor.workspace.runs() if run.state != "ended"]
    assert await executor.workspace.list_dir() == []


async def test_it_is_written_down_without_its_token(
    server: Server, executor: FileSecBoxCodeExecutor, monkeypatch: Any
) -> None:
    written = executor.dump_component().model_dump_json()
    assert server.token not in written + repr(executor)
    monkeypatch.setenv("FILESECBOX_TOKEN", server.token)
    async with CodeExecutor.load_component(executor.dump_component()) as again:
        assert isinstance(again, FileSecBoxCodeExecutor) and again.workspace.agent == executor.workspace.agent
        assert (await ran(again, ("python", "print(1)"))).output == "1\n"
        await again.restart()


async def test_a_service_that_is_gone_is_told() -> None:
    async with AsyncFileSecBox("http://127.0.0.1:9", "secret-token") as box:
        with pytest.raises(Unavailable) as error:
            await ran(FileSecBoxCodeExecutor(box.workspace("gone", "autogen")), ("python", "1"))
        assert "secret-token" not in str(error.value)
