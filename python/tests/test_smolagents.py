"""The adapter for smolagents: agents of the framework itself, whose model says what is written down."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("smolagents", reason="needs the packages of the extra `dev-smolagents`")

from smolagents import CodeAgent, tool
from smolagents.models import ChatMessage, Model
from smolagents.utils import AgentError

from filesecbox import FileSecBox, Workspace
from filesecbox.integrations.smolagents import FileSecBoxExecutor
from filesecbox.server import Server


class _Scripted(Model):  # type: ignore[misc]
    """A model that says what is written down, and keeps what it was told."""

    def __init__(self, *codes: str) -> None:
        super().__init__()
        self._codes = list(codes)
        self.told: list[str] = []

    def generate(self, messages: Any, **more: Any) -> ChatMessage:
        self.told.append(str(messages[-1].content))
        return ChatMessage(role="assistant", content=f"<code>\n{self._codes.pop(0)}\n</code>")


@tool  # type: ignore[untyped-decorator]
def doubled(number: int) -> int:
    """Doubles a number.

    Args:
        number: The number.
    """
    return number * 2


@tool  # type: ignore[untyped-decorator]
def lacking() -> str:
    """Needs a package that there is nowhere."""
    import no_such_package_of_filesecbox  # type: ignore[import-not-found]

    return str(no_such_package_of_filesecbox)


@pytest.fixture
def executor(workspace: Workspace) -> Iterator[FileSecBoxExecutor]:
    with FileSecBoxExecutor(workspace) as executor:
        yield executor


def test_an_agent_of_the_readme_works_in_a_workspace(server: Server, box: FileSecBox, monkeypatch: Any) -> None:
    model = _Scripted(
        "x = doubled(20)\nopen('数.txt', 'w').write('kept')\nprint('数据')\nx + 2",
        "1 / 0",
        "import os\nprint('last', flush=True)\nos._exit(7)",
        # A new interpreter, which knows the tools and what the agent was given.
        "final_answer({'x': doubled(given), 'text': open('数.txt').read(), 'many': {1: (2, b'3')}})",
    )
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (example,) = [each for each in re.findall(r"```py\n(.*?)```", readme, re.DOTALL) if "smolagents" in each]
    monkeypatch.setenv("FILESECBOX_URL", server.url)
    monkeypatch.setenv("FILESECBOX_TOKEN", server.token)
    names: dict[str, Any] = {"model": model, "tools": [doubled]}
    exec(compile(example, "README.md", "exec"), names)
    agent: CodeAgent = names["agent"]
    answer = agent.run("write a report", additional_args={"given": 21})
    assert answer == {"x": 42, "text": "kept", "many": {1: (2, b"3")}}
    assert "数据" in model.told[1] and "42" in model.told[1]
    assert "ZeroDivisionError" in model.told[2] and "_driver" not in model.told[2]
    assert "last" in model.told[3] and "ended with 7" in model.told[3]
    agent.cleanup()
    workspace = box.workspace("alice", "demo")
    assert workspace.read_text("数.txt").text == "kept"
    assert not [run for run in workspace.runs() if run.state != "ended"]
    names["workspace"].box.close()


def test_an_agent_runs_more_than_once(executor: FileSecBoxExecutor) -> None:
    model = _Scripted("x = 1\nfinal_answer(x)", "final_answer(x + 1)")
    agent = CodeAgent(tools=[], model=model, executor=executor, verbosity_level=-1)
    assert [agent.run("go"), agent.run("go on", reset=False)] == [1, 2]


def test_an_answer_may_be_long_and_is_never_unpickled(executor: FileSecBoxExecutor) -> None:
    agent = CodeAgent(
        tools=[], model=_Scripted("final_answer('数' * 1_000_000)"), executor=executor, verbosity_level=-1
    )
    assert agent.run("go") == "数" * 1_000_000
    for value in ("'pickle:gASVAAAA'", "'unknown'", "'safe:{'", "5"):
        forged = f"class FinalAnswerException(Exception):\n    value = {value}\nraise FinalAnswerException({value})"
        with pytest.raises(AgentError, match="cannot be read"):
            executor(forged)
    assert executor("6 * 7").output == "42"


def test_code_has_a_deadline_and_the_interpreter_goes_on(workspace: Workspace) -> None:
    with FileSecBoxExecutor(workspace, timeout=0.2) as executor:
        executor.send_variables({"x": 40})
        with pytest.raises(AgentError, match="TimeoutError"):
            executor("import time\ntime.sleep(60)")
        assert executor("x + 2").output == "42"
        executor.send_variables({})


def test_packages_that_cannot_be_installed_are_told(workspace: Workspace) -> None:
    for package in ("no/such/directory", "--help"):
        with pytest.raises(AgentError, match="cannot be installed"):
            FileSecBoxExecutor(workspace, [package])


def test_a_tool_whose_packages_cannot_be_installed_is_tried_all_the_same(executor: FileSecBoxExecutor) -> None:
    configure = "mkdir -p ~/.config/pip && printf '[global]\\nretries = 0\\n' > ~/.config/pip/pip.conf"
    executor.workspace.run(configure, check=True)
    agent = CodeAgent(tools=[lacking], model=_Scripted(), executor=executor, verbosity_level=-1)
    with pytest.raises(AgentError, match="ModuleNotFoundError"):
        agent.run("go")


def test_a_package_is_installed_for_the_user(workspace: Workspace) -> None:
    workspace.write_text("pack/pyproject.toml", "")
    made = workspace.run("python3 -c 'import setuptools' && python3 -m pip --version")
    if not made.ok:
        pytest.skip(f"the host's Python installs nothing: {made.output}")
    workspace.write_text("pack/setup.py", "from setuptools import setup\nsetup(name='packed', py_modules=['packed'])\n")
    workspace.write_text("pack/packed.py", "value = 42\n")
    workspace.remove("pack/pyproject.toml")
    with FileSecBoxExecutor(workspace, ["./pack"]) as executor:
        assert executor("import packed\npacked.value").output == "42"


def test_a_service_that_is_gone_is_told() -> None:
    box = FileSecBox("http://127.0.0.1:9", "secret-token")
    executor = FileSecBoxExecutor(box.workspace("gone", "smol"))
    with pytest.raises(AgentError) as error:
        executor("1")
    assert "secret-token" not in f"{error.value!r} {executor!r}"
    with pytest.raises(AgentError):
        FileSecBoxExecutor(box.workspace("gone", "smol"), ["package"])
    box.close()
