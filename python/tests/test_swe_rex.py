"""The adapter for SWE-ReX, by that framework's own tests of runtimes, and by what those leave out."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("swerex", reason="needs the packages of the extra `dev-swe-rex`")

from swerex.exceptions import (
    CommandTimeoutError,
    NoExitCodeError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
    SwerexException,
)
from swerex.runtime.abstract import (
    BashAction,
    BashInterruptAction,
    BashObservation,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
    WriteFileRequest,
)

from filesecbox import AsyncFileSecBox
from filesecbox.integrations import _swe_rex_shell, swe_rex
from filesecbox.integrations.swe_rex import FileSecBoxRuntime
from filesecbox.integrations.swe_rex_server import app_of
from filesecbox.server import Server

#: The directory of the framework's tests: they are in its source package, and not in what is installed.
SUITE = os.environ.get("FILESECBOX_SWE_REX_TESTS")


@pytest.mark.skipif(SUITE is None, reason="FILESECBOX_SWE_REX_TESTS names no directory: see scripts/test-python")
def test_the_frameworks_own_tests_pass(tmp_path: Path) -> None:
    assert SUITE is not None
    place = tmp_path / "suite"
    place.mkdir()
    shutil.copy(Path(SUITE) / "test_execution.py", place)
    shutil.copy(Path(__file__).with_name("swe_rex_conftest.py"), place / "conftest.py")
    (place / "__init__.py").touch()
    options = ["-p", "no:cacheprovider", "-rA", "--color=no", "-o", "asyncio_mode=auto"]
    options += ["-o", "asyncio_default_fixture_loop_scope=function", f"--rootdir={tmp_path}"]
    command = [sys.executable, "-m", "pytest", *options, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout
    # Each but one is run twice, directly and over HTTP. Two look at the files from this host, of one the framework itself says that it
    # need not pass, and one waits by the clock: a test below is about the same.
    counted = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", done.stdout.splitlines()[-1])}
    assert counted["passed"] == 91, done.stdout
    assert counted["xfailed"] + counted.get("xpassed", 0) == 8, done.stdout


@pytest.fixture
async def runtime(server: Server, request: pytest.FixtureRequest) -> AsyncIterator[FileSecBoxRuntime]:
    async with AsyncFileSecBox(server.url, server.token) as box:
        runtime = FileSecBoxRuntime(box.workspace("rex", request.node.name[:100]))
        yield runtime
        await runtime.close()
        # What ends is waited for by the service.
        assert not [run for run in await runtime.workspace.runs() if run.state != "ended"]


@pytest.fixture
async def shell(runtime: FileSecBoxRuntime) -> FileSecBoxRuntime:
    await runtime.create_session(CreateBashSessionRequest())
    return runtime


async def ran(runtime: FileSecBoxRuntime, command: str, **more: Any) -> BashObservation:
    return await runtime.run_in_session(BashAction(command=command, **{"timeout": 60, "check": "silent"} | more))


async def test_a_shell_takes_every_command_as_it_is(shell: FileSecBoxRuntime) -> None:
    for text in ("数据 'quoted' \"double\" $HOME `x` \\n !! \x03\x1a\t", "x" * 300_000, "END", "a\n\n\nb"):
        written = text.replace("'", "'\\''")
        assert (await ran(shell, f"printf %s '{written}'")).output == text
    assert (await ran(shell, "cd /tmp; export A=1; f() { return 7; }")).exit_code == 0
    assert (await ran(shell, "f")).exit_code == 7
    assert (await ran(shell, 'echo "$A $PWD"; false', check="ignore")).exit_code is None
    assert (await ran(shell, 'printf %s "$A $PWD"')).output == "1 /tmp"
    # Nothing of the shell's own words is in what it shows, whatever shows what is typed.
    assert (await ran(shell, "stty echo; echo shown")).output.startswith("shown\n")
    with pytest.raises(NonZeroExitCodeError, match=r"3 is the exit code why: .*told\\n"):
        await ran(shell, "echo told; (exit 3)", check="raise", error_msg="why")


async def test_output_of_a_shell_is_bounded(shell: FileSecBoxRuntime, monkeypatch: Any) -> None:
    monkeypatch.setattr(_swe_rex_shell, "_OUTPUT_CHARACTERS", 10_000)
    await ran(shell, "true")
    seen = await ran(shell, "seq 100000")
    assert seen.output.startswith("1\n2\n") and seen.output.endswith("99999\n100000\n")
    assert len(seen.output) < 80_000 and "characters were dropped" in seen.output


async def test_a_shell_that_ends_is_told_and_gone(shell: FileSecBoxRuntime) -> None:
    with pytest.raises(SessionExistsError):
        await shell.create_session(CreateBashSessionRequest())
    with pytest.raises(SessionDoesNotExistError, match="ended with 3"):
        await ran(shell, "exit 3")
    with pytest.raises(SessionDoesNotExistError, match="does not exist"):
        await ran(shell, "true")
    await shell.create_session(CreateBashSessionRequest())
    assert (await ran(shell, "true")).exit_code == 0


async def test_what_is_expected_ends_the_wait(shell: FileSecBoxRuntime) -> None:
    seen = await ran(shell, "read -p 'name[?] ' name", expect=[r"name\[\?\] "], check="ignore")
    assert (seen.expect_string, seen.exit_code) == (r"name\[\?\] ", None)
    assert (await ran(shell, "me", is_interactive_command=True)).exit_code == 0
    assert (await ran(shell, "printf %s $name")).output == "me"
    with pytest.raises(NoExitCodeError):
        await ran(shell, "echo one; sleep 100", expect=["one"], check="raise")
    assert (await shell.run_in_session(BashInterruptAction(timeout=30))).exit_code == 0
    assert (await ran(shell, "echo two")).output == "two\n"
    # A program with lines of its own, and back.
    await ran(shell, "python3", is_interactive_command=True, expect=[">>> "])
    assert (await ran(shell, "print(6 * 7)", is_interactive_command=True, expect=[">>> "])).output.endswith("42")
    await ran(shell, "quit()", is_interactive_quit=True)
    assert (await ran(shell, "echo three")).output == "three\n"


async def test_what_an_interrupt_does_not_end_is_killed(shell: FileSecBoxRuntime) -> None:
    with pytest.raises(CommandTimeoutError):
        await ran(shell, "bash -c 'trap \"\" INT; touch begun; while :; do sleep 0.1; done'", timeout=0.1)
    while not await shell.workspace.exists("begun"):
        await asyncio.sleep(0.02)
    assert (await shell.run_in_session(BashInterruptAction())).exit_code == 0
    seen = await ran(shell, "echo after")
    assert "Killed" in seen.output and seen.output.endswith("after\n")
    assert (await ran(shell, "echo next")).output == "next\n"


async def test_files_sourced_at_the_beginning_may_set_the_prompt(runtime: FileSecBoxRuntime) -> None:
    await runtime.write_file(WriteFileRequest(path="rc", content="PS1='mine> '\nA=sourced\necho hello\n"))
    request = CreateBashSessionRequest(session="rc", startup_source=["rc"], startup_timeout=60)
    assert "hello\n" in (await runtime.create_session(request)).output
    assert (await ran(runtime, "printf %s $A", session="rc")).output == "sourced"
    with pytest.raises(CommandTimeoutError):
        await runtime.create_session(
            CreateBashSessionRequest(session="late", startup_source=["<(sleep 100)"], startup_timeout=0.1)
        )
    with pytest.raises(SessionDoesNotExistError):
        await runtime.close_session(CloseBashSessionRequest(session="late"))


async def test_a_caller_that_is_cancelled_interrupts_what_runs(shell: FileSecBoxRuntime) -> None:
    running = asyncio.create_task(ran(shell, "touch begun; sleep 1000", timeout=None))
    while not await shell.workspace.exists("begun"):
        await asyncio.sleep(0.02)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await ran(shell, "echo after")).output.split() == ["after"]
    # The end of one that nothing waits for any more is not that of the next one.
    with pytest.raises(CommandTimeoutError):
        await ran(shell, "until test -e go; do sleep 0.02; done; echo late; (exit 9)", timeout=0.1)
    await shell.write_file(WriteFileRequest(path="go", content=""))
    late = await ran(shell, "echo next; (exit 5)")
    assert (late.output, late.exit_code) == ("late\nnext\n", 5)
    running = asyncio.create_task(shell.execute(Command(command=["sleep", "1000"])))
    while len([run for run in await shell.workspace.runs() if run.state == "running"]) < 2:
        await asyncio.sleep(0.02)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_commands_are_given_as_for_subprocess(runtime: FileSecBoxRuntime) -> None:
    async def done(**what: Any) -> tuple[int | None, str, str]:
        response = await runtime.execute(Command(**what))
        return response.exit_code, response.stdout, response.stderr

    assert await done(command=["printf", "%s|", "a b", "$HOME", "'", ""]) == (0, "a b|$HOME|'||", "")
    assert await done(command="printf '\\377' >&2; exit 3", shell=True) == (3, "", "\\xff")
    assert await done(command=["echo $1", "zero", "one"], shell=True) == (0, "one\n", "")
    assert (await done(command="no such program"))[0] == 127
    assert await done(command="echo $A; pwd", shell=True, env={"A": "b c"}, cwd="/tmp") == (0, "b c\n/tmp\n", "")
    assert (await done(command="pwd", cwd="/missing"))[0] == 1
    with pytest.raises(NonZeroExitCodeError, match=r"why: .*code 4"):
        await done(command="exit 4", shell=True, check=True, error_msg="why")
    with pytest.raises(SwerexException, match="LD_PRELOAD"):
        await done(command="true", shell=True, env={"LD_PRELOAD": "x"})


async def test_files_are_where_commands_see_them(runtime: FileSecBoxRuntime, tmp_path: Path, monkeypatch: Any) -> None:
    name = "it's -深/a $(b)"
    for place in ("/workspace/", "/tmp/", "/home/sandbox/", "", "./-"):
        await runtime.write_file(WriteFileRequest(path=place + name, content="数\r\n据"))
        assert (await runtime.read_file(ReadFileRequest(path=place + name))).content == "数\n据"
    assert await runtime.workspace.read_bytes(name) == "数\r\n据".encode()
    await runtime.workspace.write_bytes("latin", b"\xe4")
    assert (await runtime.read_file(ReadFileRequest(path="latin", encoding="latin-1"))).content == "ä"
    assert (await runtime.read_file(ReadFileRequest(path="latin", errors="replace"))).content == "\ufffd"
    with pytest.raises(UnicodeDecodeError):
        await runtime.read_file(ReadFileRequest(path="latin"))
    with pytest.raises(IsADirectoryError):
        await runtime.read_file(ReadFileRequest(path="/tmp"))
    with pytest.raises(FileNotFoundError):
        await runtime.read_file(ReadFileRequest(path="/root/secret"))
    with pytest.raises(OSError, match=r"cannot create|denied|Read-only|No such"):
        await runtime.write_file(WriteFileRequest(path="/etc/new", content="x"))
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "large").write_bytes(os.urandom(5_000_000))
    (source / "run.sh").write_text("echo ran\n")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("/etc/hostname")
    os.mkfifo(source / "pipe")
    await runtime.upload(UploadRequest(source_path=str(source), target_path="/tmp/tools/x"))
    seen = await runtime.execute(
        Command(command="cd /tmp/tools/x; ls; ./run.sh; readlink link; ls /tmp/.up*", shell=True)
    )
    assert seen.stdout == "deep\nlink\nrun.sh\nran\n/etc/hostname\n"
    await runtime.upload(UploadRequest(source_path=str(source / "deep" / "large"), target_path="in/large"))
    assert await runtime.workspace.read_bytes("in/large") == (source / "deep" / "large").read_bytes()
    monkeypatch.setattr(swe_rex, "_READ_BYTES", 1000)
    with pytest.raises(OSError, match="more than 1000 bytes"):
        await runtime.read_file(ReadFileRequest(path="in/large", errors="replace"))


async def test_a_runtime_of_the_readme_runs_commands(server: Server, monkeypatch: Any) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (example,) = [each for each in re.findall(r"```py\n(.*?)```", readme, re.DOTALL) if "swe_rex" in each]
    monkeypatch.setenv("FILESECBOX_URL", server.url)
    monkeypatch.setenv("FILESECBOX_TOKEN", server.token)
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)
    runtime: FileSecBoxRuntime = names["runtime"]
    assert await runtime.is_alive()
    await runtime.create_session(CreateBashSessionRequest())
    assert (await ran(runtime, "echo hello")).output == "hello\n"
    await runtime.close()
    await runtime.workspace.box.aclose()


async def test_over_http_a_token_is_wanted_and_a_request_is_made_once(
    runtime: FileSecBoxRuntime, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="token"):
        app_of(runtime, "")
    transport = httpx2.ASGITransport(app=app_of(runtime, "right"))
    async with httpx2.AsyncClient(transport=transport, base_url="http://rex") as http:
        for headers in ({}, {b"X-API-Key": b"wrong"}, {b"X-API-Key": "rïght".encode()}):
            for method, path in (("GET", "/"), ("GET", "/is_alive"), ("POST", "/execute"), ("POST", "/upload")):
                assert (await http.request(method, path, headers=headers)).status_code == 403
        http.headers["X-API-Key"] = "right"
        command = {"command": "echo once >> times; sleep 0.2; cat times", "shell": True}
        named = {"X-Request-ID": "first"}
        both = await asyncio.gather(*(http.post("/execute", json=command, headers=named) for _ in range(2)))
        again = await http.post("/execute", json=command, headers=named)
        assert [each.json()["stdout"] for each in (*both, again)] == ["once\n"] * 3
        assert (await http.post("/execute", json=command)).json()["stdout"] == "once\nonce\n"
        failed = await http.post("/read_file", json={"path": "missing"})
        told = failed.json()["swerexception"]
        assert (failed.status_code, told["class_path"], told["traceback"]) == (511, "builtins.FileNotFoundError", "")
        assert (await http.post("/execute", json={})).status_code == 422
        zipped = tmp_path / "sent.zip"
        with zipfile.ZipFile(zipped, "w") as archive:
            program = zipfile.ZipInfo("bin/run.sh")
            program.external_attr = 0o755 << 16
            archive.writestr(program, "echo ran")
            archive.writestr("../../out", "x")
        for unzip in ("true", "false"):
            sent = {"target_path": f"/tmp/sent-{unzip}", "unzip": unzip}
            answer = await http.post("/upload", data=sent, files={"file": zipped.read_bytes()})
            assert answer.status_code == 200, answer.text
        seen = await runtime.execute(
            Command(command="cd /tmp; sent-true/bin/run.sh; ls sent-true; wc -c < sent-false", shell=True)
        )
        assert seen.stdout == f"ran\nbin\nout\n{zipped.stat().st_size}\n"


async def test_a_service_that_is_gone_is_told() -> None:
    async with AsyncFileSecBox("http://127.0.0.1:9", "secret-token") as box:
        runtime = FileSecBoxRuntime(box.workspace("gone", "rex"))
        alive = await runtime.is_alive(timeout=30)
        assert not alive and "secret-token" not in f"{alive!r} {runtime!r}"
        with pytest.raises(SwerexException):
            await runtime.create_session(CreateBashSessionRequest())
        with pytest.raises(SwerexException):
            await runtime.execute(Command(command="true"))
