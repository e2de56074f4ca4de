"""The adapter for Google's ADK: agents of the framework's own runner, whose model says what is written down."""

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="needs the packages of the extra `dev-google-adk`")

from google.adk.agents import LlmAgent
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, File
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

from filesecbox import AsyncFileSecBox, FileSecBox, Unavailable, Workspace
from filesecbox.integrations import google_adk
from filesecbox.integrations.google_adk import FileSecBoxCodeExecutor, FileSecBoxEnvironment
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
    (example,) = [each for each in re.findall(r"```py\n(.*?)```", readme, re.DOTALL) if "FileSecBoxEnvironment" in each]
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


class _Coding(BaseLlm):  # type: ignore[misc]
    """A model that writes the code that is written down, and keeps what it was told of it."""

    model: str = "scripted"
    codes: list[str]
    told: list[str]

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        last = llm_request.contents[-1].parts[-1].text or ""
        if last.startswith("```tool_output"):
            self.told.append(last.removeprefix("```tool_output\n").removesuffix("\n```"))
        text = f"I try:\n```python\n{self.codes.pop(0)}\n```\nand see." if self.codes else "done"
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))


async def coded(agent: LlmAgent, *parts: types.Part) -> tuple[list[str], dict[str, bytes]]:
    """What the agent said, and its artifacts, after a conversation of its own."""
    async with InMemoryRunner(agent=agent, app_name="tests") as runner:
        session = await runner.session_service.create_session(app_name="tests", user_id="alice")
        asked = types.Content(role="user", parts=[types.Part(text="begin"), *parts])
        events = [each async for each in runner.run_async(user_id="alice", session_id=session.id, new_message=asked)]
        of = {"app_name": "tests", "user_id": "alice", "session_id": session.id}
        artifacts = {}
        for name in await runner.artifact_service.list_artifact_keys(**of):
            loaded = await runner.artifact_service.load_artifact(filename=name, **of)
            artifacts[name] = loaded.inline_data.data
    said = [part.text for each in events if each.content for part in each.content.parts if part.text]
    return said, artifacts


def ran(executor: FileSecBoxCodeExecutor, code: str, session: str | None = None, *files: File) -> Any:
    return executor.execute_code(None, CodeExecutionInput(code, list(files), session))


def running(workspace: Workspace) -> list[str]:
    return [each.exec_id for each in workspace.runs() if each.state != "ended"]


async def test_code_of_the_readmes_agent_runs_in_a_workspace(server: Server, monkeypatch: Any) -> None:
    model = _Coding(
        told=[],
        codes=[
            "x = 40\nprint('数据')",
            "import os\nos.mkdir('深')\nopen('深/报告.csv', 'w').write('a,b')\nprint(x + 2)",
            "import sys\nprint('careful', file=sys.stderr)\nx",
            "1 / 0",
        ],
    )
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (example,) = [
        each for each in re.findall(r"```py\n(.*?)```", readme, re.DOTALL) if "adk import FileSecBoxCode" in each
    ]
    monkeypatch.setenv("FILESECBOX_URL", server.url)
    monkeypatch.setenv("FILESECBOX_TOKEN", server.token)
    names: dict[str, Any] = {"model": model}
    exec(compile(example, "README.md", "exec"), names)
    said, artifacts = await coded(names["agent"])
    assert said[-1] == "done"
    first, second, third, failed = model.told
    assert first == "Code execution result:\n数据\n\n" and "\n42\n" in second and "`深/报告.csv`" in second
    assert artifacts == {"深/报告.csv": b"a,b"}
    assert "40\ncareful" in third and "ZeroDivisionError" in failed and "Code execution result" not in failed
    executor: FileSecBoxCodeExecutor = names["executor"]
    assert len(running(executor.workspace)) == 1 and server.token not in repr(executor)
    executor.close()
    assert not running(executor.workspace)
    executor.workspace.remove("深", recursive=True)
    executor.workspace.box.close()


async def test_without_state_each_piece_of_code_has_an_interpreter_of_its_own(workspace: Workspace) -> None:
    model = _Coding(codes=["x = 1\nopen('f', 'w').write('kept')", "print(open('f').read())\nprint(x)"], told=[])
    said, artifacts = await coded(
        LlmAgent(name="analyst", model=model, code_executor=FileSecBoxCodeExecutor(workspace))
    )
    assert said[-1] == "done" and "NameError" in model.told[1] and artifacts == {"f": b"kept"}
    assert not running(workspace)


async def test_data_of_a_message_is_a_file_before_the_code_runs(workspace: Workspace) -> None:
    model = _Coding(codes=["print(open('data_1_2.csv').read())"], told=[])
    executor = FileSecBoxCodeExecutor(workspace, optimize_data_file=True, error_retry_attempts=9)
    data = types.Part.from_bytes(data="a,b\n1,中\n".encode(), mime_type="text/csv")
    said, artifacts = await coded(LlmAgent(name="analyst", model=model, code_executor=executor), data)
    # The framework looks at the data with pandas first, which may not be there.
    assert said[-1] == "done" and "1,中" in model.told[-1] and not artifacts


def test_a_session_keeps_its_interpreter_until_others_need_it(workspace: Workspace) -> None:
    with FileSecBoxCodeExecutor(workspace, stateful=True, env={"A": "b"}) as executor:
        for session in "abc":
            assert ran(executor, f"x = {session!r}", session).exit_code == 0
        assert ran(executor, "import os\nprint(x, os.environ['A'])", "a").stdout == "a b\n"
        assert ran(executor, "x = 'd'", "d").stdout == "" and len(running(workspace)) == 3
        assert ran(executor, "x", "a").stdout == "'a'"
        ended = ran(executor, "x", "b")
        assert ended.exit_code == 1 and ended.stderr.startswith("[the interpreter is a new one")
        assert ran(executor, "print(2)", "b").stdout == "2\n"
        left = ran(executor, "print(1)\nraise SystemExit(3)", "b")
        assert (left.stdout, left.exit_code) == ("1\n", 3) and "the next code has a new one" in left.stderr
        left = ran(executor, "print(1)\nraise SystemExit", "b")
        assert (left.stderr, left.exit_code) == ("", 0) and "the next code has a new one" in left.stdout
    assert not running(workspace)
    assert ran(executor, "1", "a").stdout.startswith("[the interpreter is a new one")
    executor.close()


def test_code_that_is_late_is_ended(workspace: Workspace, monkeypatch: Any) -> None:
    monkeypatch.setattr(google_adk, "_GRACE_SECONDS", 0.5)
    with FileSecBoxCodeExecutor(workspace, stateful=True, timeout_seconds=1) as executor:
        late = ran(executor, "x = 1\nprint('before')\nimport time\ntime.sleep(100)", "a")
        assert (late.exit_code, late.stdout) == (124, "before\n") and "longer than 1 s" in late.stderr
        assert ran(executor, "x", "a").stdout == "1"
        assert ran(executor, "raise TimeoutError('mine')", "a").exit_code == 1
        stubborn = "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nprint('y')\nwhile True: pass"
        for session in ("a", None):
            killed = ran(executor, stubborn, session)
            assert (killed.exit_code, killed.stdout) == (124, "y\n")
            assert "longer than 1 s" in killed.stderr and "new one" in killed.stderr
        assert not running(workspace)
        assert ran(executor, "2", "a").stdout == "2"


def test_files_come_in_and_out_within_bounds(workspace: Workspace, monkeypatch: Any) -> None:
    workspace.write_text("old", "a")
    workspace.write_text("same", "a")
    executor = FileSecBoxCodeExecutor(workspace, output_files_max=3, output_bytes_max=100)
    code = """
import os
print(open("in/数据").read(), open("raw").read())
os.makedirs(".cache"); open(".cache/x", "w").write("x")
for name, size in {"a.png": 10, "big": 200, "c": 60, "d": 60, "e": 1, "f": 1, "old": 5}.items():
    open(name, "wb").write(b"z" * size)
None"""
    files = [File("in/数据", base64.b64encode("中".encode()).decode()), File("raw", b"bytes")]
    result = ran(executor, code, None, *files)
    assert [(each.name, len(each.content), each.mime_type) for each in result.output_files] == [
        ("a.png", 10, "image/png"),
        ("c", 60, "application/octet-stream"),
        ("e", 1, "application/octet-stream"),
    ]
    assert result.stdout.startswith("中 bytes\n") and result.stderr == ""
    assert "[4 changed files were left out: at most 3 of 100 bytes together become artifacts: big, d, f, old]" in (
        result.stdout
    )
    assert "left out" in ran(executor, "open('g', 'w').write('x' * 200)\n1 / 0").stderr
    assert not ran(FileSecBoxCodeExecutor(workspace, output_files_max=0), "open('h', 'w')").output_files
    monkeypatch.setattr(google_adk, "_FILES", 3)
    many = ran(executor, "open('i', 'w').close()")
    assert not many.output_files and "more than 3 files" in many.stdout


def test_output_too_large_is_cut_and_told(workspace: Workspace) -> None:
    result = ran(FileSecBoxCodeExecutor(workspace), "print('中' * 100_000)\nraise ValueError('x' * 100_000)")
    assert len(result.stdout) < 31_000 and len(result.stderr) < 31_000
    assert "characters were dropped" in result.stdout and "characters were dropped" in result.stderr


def test_what_cannot_be_run_is_told() -> None:
    with FileSecBox("http://127.0.0.1:9", "secret-token") as box:
        executor = FileSecBoxCodeExecutor(box.workspace("gone", "adk"))
        result = ran(executor, "1")
        assert result.exit_code == 126 and "could not be run" in result.stderr
        assert "secret-token" not in f"{result} {executor!r}"


def test_input_files_stay_in_the_workspace(workspace: Workspace) -> None:
    for name in ("../x", "/etc/x"):
        assert ran(FileSecBoxCodeExecutor(workspace), "1", None, File(name, b"x")).exit_code == 126
    assert ran(FileSecBoxCodeExecutor(workspace), "1", None, File("x", "abcde")).exit_code == 126
