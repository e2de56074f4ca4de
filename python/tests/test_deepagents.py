"""The adapter for deepagents, by LangChain's own tests of sandboxes, and by what those leave out."""

import asyncio
import io
import re
import zipfile
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deepagents", reason="needs the packages of the extra `dev-deepagents`")

if version("deepagents").startswith("0.6."):
    pytest.skip("of deepagents 0.6 there is test_deepagents_06.py", allow_module_level=True)

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_tests.integration_tests import SandboxIntegrationTests

from filesecbox import AsyncFileSecBox, FileSecBox, Workspace
from filesecbox.integrations.deepagents import FileSecBoxSandbox
from filesecbox.server import Server

#: What LangChain's tests want of an older contract of deepagents: relative paths, directories among the files that are found, and
#: a write that fails where a file is.
OUTDATED = {
    "test_glob",
    "test_glob_basic_pattern",
    "test_glob_hidden_files_explicitly",
    "test_glob_with_character_class",
    "test_glob_with_directories",
    "test_glob_with_question_mark",
    "test_write_existing_file_fails",
}


class _Suite(SandboxIntegrationTests):  # type: ignore[misc]
    @property
    def sandbox_root_dir(self) -> str:
        return "/workspace/suite"

    @pytest.fixture(autouse=True)
    def outdated(self, request: pytest.FixtureRequest) -> None:
        if request.node.originalname in OUTDATED:
            request.applymarker(pytest.mark.xfail(strict=True, reason="of the contract before deepagents 0.7"))


def test_the_suite_is_as_large_as_it_was() -> None:
    assert len([name for name in dir(SandboxIntegrationTests) if name.startswith("test_")]) == 86


class TestInThreads(_Suite):
    @pytest.fixture(scope="class")
    def sandbox(self, server: Server) -> Iterator[FileSecBoxSandbox]:
        with server.client() as box:
            yield FileSecBoxSandbox(box.workspace("suite", "threads"))


class TestInCoroutines(_Suite):
    @pytest.fixture(scope="class")
    async def sandbox(self, server: Server) -> AsyncIterator[FileSecBoxSandbox]:
        with server.client() as box:
            async with AsyncFileSecBox(server.url, server.token) as other:
                yield FileSecBoxSandbox(
                    box.workspace("suite", "coroutines"), async_workspace=other.workspace("suite", "coroutines")
                )


@pytest.fixture
def sandbox(workspace: Workspace) -> FileSecBoxSandbox:
    return FileSecBoxSandbox(workspace)


def paths(found: Any) -> list[str]:
    assert found.error is None
    return [each["path"] for each in found.matches if found.matches is not None]


def test_names_with_dots_are_met_by_patterns_with_dots(sandbox: FileSecBoxSandbox, workspace: Workspace) -> None:
    for path in ("top.py", ".env", "src/app.py", "src/.hidden/deep.py", ".github/workflows/ci.yml", "src/[x].py"):
        workspace.write_text(path, "x")
    cases: list[tuple[str, str | None, list[str]]] = [
        ("*.yml", None, [".github/workflows/ci.yml"]),
        ("**/*.yml", None, []),
        (".github/**/*.yml", None, [".github/workflows/ci.yml"]),
        (".env", "/workspace", [".env"]),
        ("*", "/workspace/src", ["src/.hidden/deep.py", "src/[x].py", "src/app.py"]),
        ("/*.py", None, ["top.py"]),
        ("src/*.py", None, ["src/[x].py", "src/app.py"]),
        ("{top,app}.py", None, ["src/app.py", "top.py"]),
        ("**/*.py", None, ["src/[x].py", "src/app.py", "top.py"]),
    ]
    for pattern, below, expected in cases:
        assert paths(sandbox.glob(pattern, below)) == [f"/workspace/{each}" for each in expected], pattern
    assert "`..`" in (sandbox.glob("../*").error or "")


def test_lines_that_are_found_have_a_bound(sandbox: FileSecBoxSandbox, workspace: Workspace) -> None:
    workspace.write_text("many", "needle\n" * 2500)
    every = sandbox.grep("needle")
    assert (len(every.matches or []), every.truncated) == (2500, False)
    for count, truncated in [(2499, True), (2500, False), (0, True)]:
        found = sandbox.grep("needle", max_count=count)
        assert (len(found.matches or []), found.truncated) == (count, truncated)
    assert sandbox.grep("needle", "/workspace/missing").error
    assert sandbox.grep("needle", "/etc").error


def test_windows_of_a_text_go_on_where_they_end(sandbox: FileSecBoxSandbox, workspace: Workspace) -> None:
    long = "版" * 1000
    workspace.write_text("t", "\n".join([long] * 400))
    read, lines, offset = None, 0, 0
    while read is None or read.next_offset is not None:
        read = sandbox.read("/workspace/t", offset)
        assert read.error is None and read.total_lines == 400 and read.start_line == offset + 1
        lines += (read.end_line or 0) - offset
        offset = read.end_line or 0
    assert lines == 400
    workspace.write_text("one", "x" * 600_000)
    cut = sandbox.read("/workspace/one")
    assert cut.file_data and cut.file_data["content"].endswith("… [cut: the line has 600000 bytes]")
    assert sandbox.read("/workspace/t", -5, 1).start_line == 1
    assert sandbox.read("/workspace/t", 5, 0).no_lines_requested
    workspace.write_bytes("gbk", "中文说明书\n".encode("gbk") * 20)
    assert (sandbox.read("/workspace/gbk").file_data or {})["content"].startswith("中文说明书\n")


def test_commands_tell_how_they_ended(sandbox: FileSecBoxSandbox) -> None:
    both = sandbox.execute("echo out; echo err >&2; exit 3")
    assert (both.output, both.exit_code, both.truncated) == ("out\nerr\n", 3, False)
    late = sandbox.execute("sleep 60", timeout=1)
    assert late.exit_code == 124 and "passed its deadline" in late.output
    missing = sandbox.execute("no-such-program")
    assert missing.exit_code == 127 and "no-such-program" in missing.output
    large = sandbox.execute("head -c 5000000 /dev/zero | tr '\\0' x")
    assert large.truncated and large.exit_code == 0


def test_failures_are_told_and_never_raised(sandbox: FileSecBoxSandbox) -> None:
    for path in ("/etc/passwd", "relative", "/workspace/../etc/passwd", "/workspace/" + "x" * 5000, "/workspace/a\0b"):
        told = [
            sandbox.read(path).error,
            sandbox.write(path, "x").error,
            sandbox.edit(path, "a", "b").error,
            sandbox.delete(path).error,
            sandbox.ls(path).error,
            sandbox.glob("*", path).error,
            sandbox.grep("x", path).error,
            sandbox.upload_files([(path, b"")])[0].error,
            sandbox.download_files([path])[0].error,
        ]
        assert all(told), (path, told)
    assert sandbox.write("/workspace/f", "\udc80").error
    assert sandbox.delete("/workspace").error
    assert sandbox.ls("/").entries == [{"path": "/workspace", "is_dir": True}]
    gone = FileSecBoxSandbox(FileSecBox("http://127.0.0.1:9", "t").workspace("a", "b"))
    assert gone.read("/workspace/f").error and gone.execute("true").exit_code is None


def test_what_occurs_often_is_replaced_at_once(sandbox: FileSecBoxSandbox, workspace: Workspace) -> None:
    workspace.write_text("f", "a b a b a")
    assert "multiple" in (sandbox.edit("/workspace/f", "a", "c").error or "")
    assert sandbox.edit("/workspace/f", "a", "c", replace_all=True).occurrences == 3
    assert sandbox.edit("/workspace/f", "c b c b c", "done").occurrences == 1
    assert workspace.read_text("f").text == "done"
    workspace.write_text("d/e/f", "x")
    assert sandbox.delete("/workspace/d").path == "/workspace/d" and not workspace.exists("d")


def test_commands_see_the_skills_that_are_named(server: Server, box: FileSecBox) -> None:
    skills = box.skills("skilled", "deep")
    skills.upload(_skill(), scope="overlay")
    sandbox = FileSecBoxSandbox(box.workspace("skilled", "deep"), skills="all")
    assert sandbox.execute("cat /workspace/skills/greet/SKILL.md").output.endswith("Say hello.\n")
    read = sandbox.read("/workspace/skills/greet/SKILL.md")
    assert read.file_data and "Say hello." in read.file_data["content"]


class _Scripted(GenericFakeChatModel):  # type: ignore[misc]
    """A model that says what is written down, whatever it is told."""

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        return self


def test_an_agent_of_the_readme_works_in_a_workspace(server: Server, box: FileSecBox, monkeypatch: Any) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (example,) = [each for each in re.findall(r"```py\n(.*?)```", readme, re.DOTALL) if "deepagents" in each]
    steps = [
        ("write_file", {"file_path": "/workspace/报告.md", "content": "one\ntwo\n"}),
        ("edit_file", {"file_path": "/workspace/报告.md", "old_string": "two", "new_string": "zwei"}),
        ("execute", {"command": "wc -l 报告.md; exit 3"}),
        ("read_file", {"file_path": "/workspace/报告.md"}),
        ("grep", {"pattern": "zwei", "output_mode": "content"}),
        ("ls", {"path": "/workspace"}),
    ]
    said: list[Any] = [
        AIMessage(content="", tool_calls=[{"name": name, "args": args, "id": str(number)}])
        for number, (name, args) in enumerate(steps)
    ]
    monkeypatch.setenv("FILESECBOX_URL", server.url)
    monkeypatch.setenv("FILESECBOX_TOKEN", server.token)
    names: dict[str, Any] = {"model": _Scripted(messages=iter([*said, AIMessage(content="done")]))}
    exec(compile(example, "README.md", "exec"), names)
    ended = names["agent"].invoke({"messages": [HumanMessage("write a report")]})["messages"]
    told = [each.content for each in ended if isinstance(each, ToolMessage)]
    assert ended[-1].content == "done" and len(told) == len(steps)
    assert "2 报告.md" in told[2] and "3" in told[2]
    assert "zwei" in told[3] and "/workspace/报告.md" in told[4] and "/workspace/报告.md" in told[5]
    assert box.workspace("alice", "demo").read_text("报告.md").text == "one\nzwei\n"
    names["workspace"].box.close()


def test_a_coroutine_that_is_cancelled_kills_its_run(server: Server, box: FileSecBox) -> None:
    workspace = box.workspace("cancelled", "deep")

    async def begin() -> None:
        async with AsyncFileSecBox(server.url, server.token) as other:
            sandbox = FileSecBoxSandbox(workspace, async_workspace=other.workspace("cancelled", "deep"))
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(sandbox.aexecute("sleep 100"), 1.5)

    asyncio.run(begin())
    assert not [run for run in workspace.runs() if run.state == "running"]


def _skill() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("greet/SKILL.md", "---\nname: greet\ndescription: greets\n---\nSay hello.\n")
    return archive.getvalue()
