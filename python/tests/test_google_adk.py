"""The adapter for Google's ADK: agents of the framework's own runner, whose model says what is written down."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="needs the packages of the extra `dev-google-adk`")

from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

from filesecbox import AsyncFileSecBox, Unavailable
from filesecbox.integrations import google_adk
from filesecbox.integrations.google_adk import FileSecBoxEnvironment
from filesecbox.server import Server

pytestmark = [
    pytest.mark.anyio,
    # The framework says so of its environments.
    pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL.*:UserWarning"),
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def environment(server: Server, request: pytest.FixtureRequest) -> AsyncIterator[FileSecBoxEnvironment]:
    async with AsyncFileSecBox(server.url, server.token) as box:
        yield FileSecBoxEnvironment(box.workspace("adk", request.node.name[:100]), env={"A": "b"})


class _Scripted(BaseLlm):  # type: ignore[misc]
    """A model that calls what is written down, and keeps what it was told."""

    model: str = "scripted"
    steps: list[tuple[str, dict[str, Any]]]
    told: list[dict[str, Any]]

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        answers = [part.function_response for part in llm_request.contents[-1].parts if part.function_response]
        self.told.extend(answer.response for answer in answers)
        if self.steps:
            name, args = self.steps.pop(0)
            part = types.Part(function_call=types.FunctionCall(name=name, args=args))
        else:
            part = types.Part(text="done")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def test_an_agent_of_the_readme_works_in_a_workspace(server: Server, monkeypatch: Any) -> None:
    model = _Scripted(
        told=[],
        steps=[
            ("WriteFile", {"path": "deep/报告.md", "content": "one\ntwo\n"}),
            ("EditFile", {"path": "/workspace/deep/报告.md", "old_string": "two", "new_string": "zwei"}),
            ("ReadFile", {"path": "deep/报告.md", "start_line": 2}),
            ("Execute", {"command": "cat deep/*; echo bad >&2; exit 3"}),
            ("ReadFile", {"path": "missing"}),
            ("ReadFile", {"path": "../../etc/passwd"}),
        ],
    )
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (example,) = [each for each in re.findall(r"```py\n(.*?)```", readme, re.DOTALL) if "google_adk" in each]
    monkeypatch.setenv("FILESECBOX_URL", server.url)
    monkeypatch.setenv("FILESECBOX_TOKEN", server.token)
    names: dict[str, Any] = {"model": model}
    exec(compile(example, "README.md", "exec"), names)
    async with InMemoryRunner(agent=names["agent"], app_name="tests") as runner:
        session = await runner.session_service.create_session(app_name="tests", user_id="alice")
        asked = types.Content(role="user", parts=[types.Part(text="write a report")])
        said = [each async for each in runner.run_async(user_id="alice", session_id=session.id, new_message=asked)]
    assert said[-1].content.parts[0].text == "done"
    assert [each["status"] for each in model.told] == ["ok", "ok", "ok", "error", "error", "error"]
    assert "zwei" in model.told[2]["content"] and "one" not in model.told[2]["content"]
    ended = {name: model.told[3][name] for name in ("stdout", "stderr", "exit_code")}
    assert ended == {"stdout": "one\nzwei\n", "stderr": "bad\n", "exit_code": 3}
    assert "not found" in model.told[4]["error"]
    await names["environment"].workspace.box.aclose()


async def test_commands_tell_how_they_ended(environment: FileSecBoxEnvironment) -> None:
    await environment.initialize()
    assert environment.is_initialized
    assert (await environment.execute("printf %s $A; pwd")).stdout == f"b{environment.working_dir}\n"
    late = await environment.execute("echo before; sleep 100", timeout=0.5)
    assert (late.exit_code, late.stdout, late.timed_out) == (124, "before\n", True)
    assert (await environment.execute("kill -KILL $$")).exit_code == 137
    running = asyncio.create_task(environment.execute("sleep 100"))
    while not [run for run in await environment.workspace.runs() if run.state == "running"]:
        await asyncio.sleep(0.02)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not [run for run in await environment.workspace.runs() if run.state != "ended"]
    await environment.close()
    assert not environment.is_initialized


async def test_files_are_read_and_written(environment: FileSecBoxEnvironment, monkeypatch: Any) -> None:
    await environment.write_file(Path("深/f"), b"\xff\0")
    await environment.write_file(Path("/workspace/empty"), "")
    assert await environment.read_file(Path("/workspace/深/f")) == b"\xff\0"
    assert await environment.read_file("empty") == b""
    for path in (Path("/etc/passwd"), "../x", "/workspace/../x"):
        with pytest.raises(PermissionError):
            await environment.read_file(path)
        with pytest.raises(PermissionError):
            await environment.write_file(path, "x")
    with pytest.raises(FileNotFoundError):
        await environment.read_file("missing")
    monkeypatch.setattr(google_adk, "_READ_BYTES", 1)
    with pytest.raises(OSError, match="more than 1 bytes"):
        await environment.read_file("深/f")


async def test_a_service_that_is_gone_is_told() -> None:
    async with AsyncFileSecBox("http://127.0.0.1:9", "secret-token") as box:
        environment = FileSecBoxEnvironment(box.workspace("gone", "adk"))
        with pytest.raises(Unavailable) as error:
            await environment.initialize()
        assert "secret-token" not in f"{error.value} {environment!r}"
