"""The adapter for the OpenAI Agents SDK: agents of the framework's own runner, whose model says what is written down."""

import asyncio
import io
import re
import tarfile
import uuid
import zipfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="needs the packages of the extra `dev-openai-agents`")

from agents import RunConfig, Runner
from agents.sandbox import Manifest, SandboxAgent, SandboxPathGrant, SandboxRunConfig
from agents.sandbox.entries import Dir, File
from agents.sandbox.errors import (
    ExecNonZeroError,
    ExecTimeoutError,
    ExecTransportError,
    InvalidManifestPathError,
    PtySessionNotFoundError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.session import SandboxSession
from agents.sandbox.snapshot import LocalSnapshotSpec
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from openai.types.responses import ResponseCustomToolCall

from filesecbox import AsyncFileSecBox, Retries
from filesecbox.integrations import openai_agents
from filesecbox.integrations.openai_agents import (
    FileSecBoxClientOptions,
    FileSecBoxSandboxClient,
    FileSecBoxSessionState,
)
from filesecbox.server import Server

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def client(server: Server) -> AsyncIterator[FileSecBoxSandboxClient]:
    async with AsyncFileSecBox(server.url, server.token) as box:
        yield FileSecBoxSandboxClient(box)


@pytest.fixture
async def session(client: FileSecBoxSandboxClient) -> AsyncIterator[SandboxSession]:
    async with await client.create(options=FileSecBoxClientOptions(user="session")) as session:
        yield session
    await client.delete(session)


def told(call: Any) -> str:
    """What the last tool of an agent answered."""
    return str(call.input[-1]["output"])


def number_of(call: Any) -> int:
    """The number of the command that goes on, of which the last tool told."""
    found = re.search(r"session ID (\d+)", told(call))
    assert found, told(call)
    return int(found[1])


def says(name: str, **arguments: Any) -> list[Any]:
    return [function_call(name, arguments, call_id=uuid.uuid4().hex)]


def patch(text: str) -> list[Any]:
    return [ResponseCustomToolCall(type="custom_tool_call", name="apply_patch", call_id=uuid.uuid4().hex, input=text)]


async def test_an_agent_of_the_readme_works_in_a_workspace(server: Server, monkeypatch: Any) -> None:
    heard: list[str] = []
    numbers: list[int] = []
    waits = "until test -e go; do sleep 0.05; done"

    def let_it_go(call: Any) -> list[Any]:
        numbers.append(number_of(call))
        return says("exec_command", cmd="touch go")

    def after(answer: Callable[[Any], list[Any]]) -> ModelStep:
        def respond(call: Any) -> list[Any]:
            heard.append(told(call))
            return answer(call)

        return ModelStep.respond(respond)

    model = ScriptedModel(
        [
            patch("*** Begin Patch\n*** Add File: src/报告.md\n+one\n+two\n*** End Patch"),
            after(lambda _: patch("*** Begin Patch\n*** Add File: src/报告.md\n+three\n*** End Patch")),
            after(
                lambda _: patch(
                    "*** Begin Patch\n*** Update File: src/报告.md\n*** Move to: moved.md\n@@\n one\n-two\n+zwei\n*** End Patch"
                )
            ),
            after(lambda _: says("exec_command", cmd="cat moved.md; ls src; exit 3")),
            # Longer than the agent waits for it.
            after(lambda _: says("exec_command", cmd=f"echo begun; {waits}; echo done; exit 4", yield_time_ms=250)),
            after(let_it_go),
            after(lambda _: says("write_stdin", session_id=numbers[0], yield_time_ms=30_000)),
            after(lambda _: says("exec_command", cmd="cat", workdir="src", yield_time_ms=30_000)),
            # Typed into a terminal, and interrupted there.
            after(lambda _: says("exec_command", cmd="test -t 0 && exec cat", tty=True, yield_time_ms=250)),
            after(lambda call: says("write_stdin", session_id=number_of(call), chars="typed\n")),
            after(lambda call: says("write_stdin", session_id=number_of(call), chars="\x03", yield_time_ms=30_000)),
            after(lambda _: says("write_stdin", session_id=999, chars="x")),
            after(lambda _: says("exec_command", cmd="true", workdir="../..")),
            after(lambda _: [assistant_message("done")]),
        ]
    )
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (example,) = [each for each in re.findall(r"```py\n(.*?)```", readme, re.DOTALL) if "openai_agents" in each]
    monkeypatch.setenv("FILESECBOX_URL", server.url)
    monkeypatch.setenv("FILESECBOX_TOKEN", server.token)
    names: dict[str, Any] = {"model": model}
    exec(compile(example, "README.md", "exec"), names)
    config = RunConfig(sandbox=names["sandbox"], tracing_disabled=True)
    result = await Runner.run(names["agent"], "write a report", run_config=config, max_turns=20)
    assert result.final_output == "done"
    model.assert_complete()
    assert "already exists" in heard[1]
    assert "code 3" in heard[3] and heard[3].endswith("one\nzwei")
    assert "begun" in heard[4] + heard[6] and "done" not in heard[4]
    assert "code 4" in heard[6] and heard[6].endswith("done\n")
    # Without a terminal standard input is at its end.
    assert "code 0" in heard[7]
    assert "typed" in heard[9] + heard[10] and "code 130" in heard[10]
    assert "not found: 999" in heard[11] and "Invalid workdir" in heard[12]
    box: AsyncFileSecBox = names["client"].box
    assert (await box.workspace("alice", "demo").read_text("moved.md")).text == "one\nzwei"
    assert server.token not in repr(names["client"])
    await box.aclose()


async def test_files_of_a_manifest_are_there_and_the_workspace_goes_with_its_session(
    client: FileSecBoxSandboxClient, monkeypatch: Any
) -> None:
    monkeypatch.setenv("GREETING", "hello")
    entries = {"data": Dir(children={"数.csv": File(content=b"1,2\n")}), "run.sh": File(content=b"echo $GREETING\n")}
    manifest = Manifest(entries=entries, environment={"value": {"GREETING": "hello"}}, users=[{"name": "nobody-else"}])
    agent = SandboxAgent(name="manifest", run_as="nobody-else")
    model = ScriptedModel(
        [says("exec_command", cmd="sh run.sh; cat data/*"), ModelStep.respond(lambda c: [assistant_message(told(c))])]
    )
    agent.model = model
    options = FileSecBoxClientOptions(user="manifest")
    sandbox = SandboxRunConfig(client=client, options=options, manifest=manifest)
    result = await Runner.run(agent, "go", run_config=RunConfig(sandbox=sandbox, tracing_disabled=True))
    assert str(result.final_output).endswith("hello\n1,2\n"), result.final_output
    assert not (await client.box.workspaces("manifest")).items


async def test_commands_tell_how_they_ended(session: SandboxSession) -> None:
    ended = await session.exec("printf '\\377'; printf bad >&2; exit 3", timeout=10)
    assert (ended.stdout, ended.stderr, ended.exit_code) == (b"\xff", b"bad", 3)
    words = ("printf", "%s|", "a b", "$HOME", "*", "'", "", "..", "../x")
    assert (await session.exec(*words, shell=False)).stdout == "".join(f"{word}|" for word in words[2:]).encode()
    assert (await session.exec("no-such-program", shell=False)).exit_code == 127
    assert (await session.exec("kill -KILL $$")).exit_code == 137
    assert (await session.exec("true", user="root")).ok()
    assert len((await session.exec("head -c 3000000 /dev/zero")).stdout) == 3_000_000
    with pytest.raises(ExecTimeoutError):
        await session.exec("sleep 100", timeout=0.5)
    await no_run(session)


async def no_run(session: SandboxSession) -> None:
    """Nothing runs in a session any more: what ends is waited for by the service."""
    assert not [run for run in await workspace_of(session).runs() if run.state != "ended"]


def workspace_of(session: SandboxSession) -> Any:
    return session._inner.workspace


async def test_a_caller_that_is_cancelled_ends_its_run(session: SandboxSession) -> None:
    for begin in (session.exec, session.pty_exec_start):
        running = asyncio.create_task(begin("sleep 100"))
        while not [run for run in await workspace_of(session).runs() if run.state == "running"]:
            await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await no_run(session)


async def test_what_goes_on_ends_with_its_session(server: Server) -> None:
    box = AsyncFileSecBox(server.url, server.token, retries=Retries(attempts=1))
    session = await FileSecBoxSandboxClient(box).create(options=FileSecBoxClientOptions(user="places"))
    first = await session.pty_exec_start("sleep 100", yield_time_s=0)
    assert first.process_id is not None and first.exit_code is None
    with pytest.raises(RuntimeError, match="stdin is not available"):
        await session.pty_write_stdin(session_id=first.process_id, chars="x")
    for _ in range(3):
        await session.pty_exec_start("sleep 100", yield_time_s=0)
    with pytest.raises(ExecTransportError) as full:
        # No more go on at once, and the framework may try it in another way.
        await session.pty_exec_start("true", yield_time_s=0)
    assert full.value.context["retry_safe"] is True
    await session.shutdown()
    await no_run(session)
    await box.aclose()
    with pytest.raises(PtySessionNotFoundError):
        await session.pty_write_stdin(session_id=first.process_id, chars="")


async def test_output_that_nobody_reads_is_bounded(session: SandboxSession) -> None:
    update = await session.pty_exec_start("head -c 5000000 /dev/zero | tr '\\0' x; echo end", yield_time_s=30)
    assert update.exit_code == 0 and update.output.endswith(b"end\n")
    assert len(update.output) < 1_100_000 and b"characters were dropped" in update.output
    assert (await session.pty_exec_start("seq 10000", yield_time_s=30, max_output_tokens=10)).original_token_count


async def test_files_are_read_and_written(session: SandboxSession, monkeypatch: Any) -> None:
    await session.write(Path("深/f.bin"), io.BytesIO(b"\xff\0"))
    await session.write(Path("empty"), io.BytesIO())
    assert (await session.read(Path("/workspace/深/f.bin"))).read() == b"\xff\0"
    assert (await session.read(Path("empty"))).read() == b""
    assert await session.read_bounded(Path("深/f.bin"), max_bytes=1) == b"\xff"
    entry, other = await session.ls(".")
    assert (entry.path, entry.kind.value, other.path) == (
        "/workspace/empty",
        "file",
        "/workspace/深",
    ) and other.is_dir()
    await session.mkdir("a/b", parents=True)
    await session.mkdir(".", parents=True)
    for path in ("a", ".", "x/y"):
        with pytest.raises(ExecNonZeroError):
            await session.mkdir(path)
    await session.mv("empty", "a/moved")
    assert await session.same_file("a/moved", "a/../a/moved") and not await session.same_file("a/moved", "深/f.bin")
    await session.rm("a", recursive=True)
    with pytest.raises(ExecNonZeroError):
        await session.ls("a")
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(Path("a/moved"))
    with pytest.raises(WorkspaceArchiveReadError):
        await session.read(Path("深"))
    with pytest.raises(WorkspaceWriteTypeError):
        await session.write(Path("text"), io.StringIO("text"))
    monkeypatch.setattr(openai_agents, "_READ_BYTES", 1)
    with pytest.raises(WorkspaceArchiveReadError) as large:
        await session.read(Path("深/f.bin"))
    assert "more than 1 bytes" in str(large.value.context)


async def test_what_is_outside_is_refused(session: SandboxSession) -> None:
    for path in (Path("/etc/passwd"), Path("../x"), Path("/workspace/../x")):
        for ask in (session.read(path), session.write(path, io.BytesIO()), session.ls(path), session.mkdir(path)):
            with pytest.raises(InvalidManifestPathError):
                await ask
    await session.exec("ln -s /etc/passwd out; ln -s /etc away")
    for path in (Path("out"), Path("away/passwd")):
        with pytest.raises(WorkspaceArchiveReadError):
            await session.read(path)
        with pytest.raises(WorkspaceArchiveWriteError):
            await session.write(path, io.BytesIO(b"x"))
    client = FileSecBoxSandboxClient(workspace_of(session).box)
    options = FileSecBoxClientOptions(user="refused")
    for manifest in (Manifest(root="/root"), Manifest(extra_path_grants=(SandboxPathGrant(path="/etc"),))):
        with pytest.raises(ValueError, match="/workspace"):
            await client.create(manifest=manifest, options=options)


async def test_a_workspace_goes_out_and_in_as_an_archive(session: SandboxSession, monkeypatch: Any) -> None:
    await session.exec(
        "mkdir -p d/e; echo one > d/e/f; chmod 750 d/e/f; ln -s e/f d/link; ln -s /nowhere d/far; echo x > left"
    )
    session._inner.register_persist_workspace_skip_path("left")
    archive = await session.persist_workspace()
    with tarfile.open(fileobj=archive) as tar:
        assert sorted(tar.getnames()) == [".", "./d", "./d/e", "./d/e/f", "./d/far", "./d/link"]
    archive.seek(0)
    await session.exec("rm -rf d")
    await session.hydrate_workspace(archive)
    archive.close()
    assert (await session.exec("stat -c %a d/e/f; cat d/link; readlink d/far")).stdout == b"750\none\n/nowhere\n"
    with pytest.raises(WorkspaceArchiveWriteError) as broken:
        await session.hydrate_workspace(io.BytesIO(b"no archive" * 1_000_000))
    assert "tar ended with" in str(broken.value.context)
    monkeypatch.setattr(openai_agents, "_ARCHIVE_BYTES", 10_000)
    with pytest.raises(WorkspaceArchiveReadError):
        await session.persist_workspace()
    await no_run(session)


async def test_archives_that_lead_out_stay_within_the_walls(session: SandboxSession) -> None:
    hostile = io.BytesIO()
    with tarfile.open(fileobj=hostile, mode="w") as tar:
        link = tarfile.TarInfo("out")
        link.type, link.linkname = tarfile.SYMTYPE, "/tmp"
        tar.addfile(link)
        for name in ("../../escaped", "/etc/escaped", "out/escaped"):
            tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(WorkspaceArchiveWriteError):
        await session.hydrate_workspace(io.BytesIO(hostile.getvalue()))
    assert not [each for place in ("/", "/etc", "/tmp") for each in Path(place).glob("escaped")]
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("../../escaped", "x")
    with pytest.raises(WorkspaceArchiveWriteError):
        await session.extract("bad", io.BytesIO(zipped.getvalue()), compression_scheme="zip")
    good = io.BytesIO()
    with zipfile.ZipFile(good, "w") as archive:
        archive.writestr("a/b.txt", "inside")
    await session.extract("in/good.zip", io.BytesIO(good.getvalue()))
    assert (await session.read(Path("in/a/b.txt"))).read() == b"inside"


async def test_a_session_goes_on_in_a_later_process(client: FileSecBoxSandboxClient, tmp_path: Path) -> None:
    options = FileSecBoxClientOptions(user="later")
    snapshot = LocalSnapshotSpec(base_path=tmp_path)
    session = await client.create(
        options=options, snapshot=snapshot, manifest=Manifest(entries={"m": File(content=b"m")})
    )
    async with session:
        await session.write(Path("kept"), io.BytesIO(b"kept"))
    sent = client.serialize_session_state(session.state)
    assert client.box.url not in str(sent)

    async def again() -> SandboxSession:
        return await client.resume(client.deserialize_session_state(dict(sent)))

    async with await again() as later:
        # It was there, and as it was.
        assert (await later.read(Path("kept"))).read() == b"kept"
    await client.delete(later)
    async with await again() as later:
        # It was gone, and is made anew of what was kept here.
        assert (await later.read(Path("kept"))).read() == b"kept"
        assert (await later.read(Path("m"))).read() == b"m"
    await workspace_of(later).write_text("after", "of another program")
    async with await again() as later:
        # It is another one now, and as it is the session's own, it is put back.
        with pytest.raises(WorkspaceReadNotFoundError):
            await later.read(Path("after"))
    await client.delete(later)


async def test_a_workspace_with_a_name_is_neither_removed_nor_put_back(
    client: FileSecBoxSandboxClient, tmp_path: Path
) -> None:
    options = FileSecBoxClientOptions(user="later", agent="named")
    workspace = client.box.workspace("later", "named")
    await workspace.write_text("before", "there")
    session = await client.create(options=options, snapshot=LocalSnapshotSpec(base_path=tmp_path))
    async with session:
        assert (await session.read(Path("before"))).read() == b"there"
    await client.delete(session)
    await workspace.write_text("other", "of another program")
    state = session.state
    assert isinstance(state, FileSecBoxSessionState) and not state.is_own
    async with await client.resume(state) as later:
        assert (await later.read(Path("other"))).read() == b"of another program"
    await workspace.delete(force=True)


async def test_commands_see_the_skills_that_are_named(client: FileSecBoxSandboxClient) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("greet/SKILL.md", "---\nname: greet\ndescription: greets\n---\nSay hello.\n")
    await client.box.skills("skilled", "openai").upload(archive.getvalue(), scope="overlay")
    options = FileSecBoxClientOptions(user="skilled", agent="openai", skills="all")
    async with await client.create(options=options) as session:
        assert (await session.exec("cat skills/greet/SKILL.md")).stdout.endswith(b"Say hello.\n")
        update = await session.pty_exec_start("cat skills/greet/SKILL.md", yield_time_s=30)
        assert update.output.endswith(b"Say hello.\n")


async def test_a_service_that_is_gone_is_told() -> None:
    async with AsyncFileSecBox("http://127.0.0.1:9", "secret-token") as box:
        session = await FileSecBoxSandboxClient(box).create(options=FileSecBoxClientOptions(user="gone"))
        with pytest.raises(ExecTransportError) as error:
            await session.exec("true")
        assert error.value.retryable and "secret-token" not in f"{error.value!r} {error.value} {session._inner!r}"
        assert not await session.running()
