"""The tools for Anthropic's SDK: its own runners, whose model says what is written down."""

import asyncio
import base64
import json
import os
import re
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("anthropic", reason="needs the packages of the extra `dev-anthropic`")

from anthropic import Anthropic, AsyncAnthropic
from anthropic.lib.environments import EnvironmentWorker
from anthropic.lib.tools import ToolError

from filesecbox import AsyncFileSecBox, FileSecBox, Workspace
from filesecbox._async import shell as async_shell
from filesecbox._sync import shell as sync_shell
from filesecbox.integrations.anthropic import AsyncFileSecBoxTools, FileSecBoxTools
from filesecbox.server import Server

pytestmark = pytest.mark.anyio

Steps = list[tuple[str, dict[str, Any]]]
KERNEL = tuple(int(each) for each in re.findall(r"\d+", os.uname().release)[:2])


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


class Model(ThreadingHTTPServer):
    """The vendor's API with a model that calls what is written down, and keeps what it was told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.steps: Steps = []
        self.offered: list[str] = []
        #: The content of each result, and whether it was told as an error.
        self.told: list[tuple[Any, bool]] = []
        self.is_told = threading.Condition()
        self.is_stopped = False

    def take(self, result: dict[str, Any]) -> None:
        content = result["content"]
        if isinstance(content, list) and content[0]["type"] == "text":
            content = content[0]["text"]
        with self.is_told:
            self.told.append((content, bool(result.get("is_error"))))
            self.is_told.notify_all()


class _Answers(BaseHTTPRequestHandler):
    server: Model
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        if self.path.startswith("/v1/messages"):
            self._message(sent)
        elif "/heartbeat" in self.path:
            beat = {"type": "work_heartbeat", "state": "active", "lease_extended": True, "ttl_seconds": 60}
            self._tell(beat | {"last_heartbeat": "2026-01-01T00:00:00Z"})
        elif "/events" in self.path:
            for event in sent["events"]:
                self.server.take(event)
            self._tell({"data": []})
        else:
            self.server.is_stopped = self.path.partition("?")[0].endswith("/stop")
            self._tell({})

    def do_GET(self) -> None:
        if "/events/stream" in self.path:
            self._stream()
        elif "/events" in self.path:
            at = {"processed_at": "2026-01-01T00:00:00Z", "type": "agent.tool_use"}
            calls = [
                {"id": f"use_{number}", "name": name, "input": given} | at
                for number, (name, given) in enumerate(self.server.steps)
            ]
            self._tell({"data": calls, "next_page": None})
        else:
            self._tell({"id": "s", "type": "session", "status": "running", "resources": [], "agent": {"skills": []}})

    def _message(self, sent: dict[str, Any]) -> None:
        # A request that goes on with a thread has the new messages alone.
        self.server.offered = [each["name"] for each in sent.get("tools", [])] or self.server.offered
        for block in sent["messages"][-1]["content"]:
            if isinstance(block, dict) and block["type"] == "tool_result":
                self.server.take(block)
        block = {"type": "text", "text": "done"}
        if self.server.steps:
            name, given = self.server.steps.pop(0)
            block = {"type": "tool_use", "id": f"use_{len(self.server.told)}", "name": name, "input": given}
        self._tell(
            {
                "id": f"message_{len(self.server.told)}",
                "type": "message",
                "role": "assistant",
                "model": "scripted",
                "content": [block],
                "stop_reason": "end_turn" if block["type"] == "text" else "tool_use",
                "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            }
        )

    def _stream(self) -> None:
        """Says that the session is over when all calls have their results."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        with self.server.is_told:
            self.server.is_told.wait_for(lambda: len(self.server.told) == len(self.server.steps), 60)
        event = {"id": "end", "type": "session.status_terminated", "processed_at": "2026-01-01T00:00:00Z"}
        self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def _tell(self, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as model:
        thread = threading.Thread(target=model.serve_forever)
        thread.start()
        yield model
        model.shutdown()
        thread.join()


@pytest.fixture
async def remote(server: Server, workspace: Workspace) -> AsyncIterator[AsyncFileSecBoxTools]:
    async with (
        AsyncFileSecBox(server.url, server.token) as box,
        AsyncFileSecBoxTools(box.workspace(workspace.user, workspace.agent)) as tools,
    ):
        yield tools


def said(model: Model, tools: FileSecBoxTools, steps: Steps) -> list[tuple[Any, bool]]:
    """What the model is told when the SDK's runner makes the calls."""
    model.steps, model.told = list(steps), []
    with Anthropic(api_key="key", base_url=model.url, max_retries=0) as client:
        message = client.beta.messages.tool_runner(
            model="scripted", max_tokens=100, messages=[{"role": "user", "content": "begin"}], tools=tools
        ).until_done()
    assert message.content[0].text == "done"
    return model.told


async def asaid(model: Model, tools: AsyncFileSecBoxTools, steps: Steps) -> list[tuple[Any, bool]]:
    model.steps, model.told = list(steps), []
    async with AsyncAnthropic(api_key="key", base_url=model.url, max_retries=0) as client:
        message = await client.beta.messages.tool_runner(
            model="scripted", max_tokens=100, messages=[{"role": "user", "content": "begin"}], tools=tools
        ).until_done()
    assert message.content[0].text == "done"
    return model.told


def test_the_example_of_the_readme_works_in_a_workspace(server: Server, model: Model, monkeypatch: Any) -> None:
    model.steps = [
        ("write", {"file_path": "深/报告.md", "content": "一\n二\n三\n"}),
        ("read", {"file_path": "/workspace/深/报告.md", "view_range": [2, 2]}),
        ("edit", {"file_path": "深/报告.md", "old_string": "二", "new_string": "2"}),
        ("glob", {"pattern": "*.md"}),
        ("grep", {"pattern": "[0-9]", "path": "深"}),
        ("bash", {"command": "cd 深; cat *"}),
        ("bash", {"command": "pwd"}),
    ]
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (example,) = [each for each in re.findall(r"```py\n(.*?)```", readme, re.DOTALL) if "anthropic" in each]
    monkeypatch.setenv("FILESECBOX_URL", server.url)
    monkeypatch.setenv("FILESECBOX_TOKEN", server.token)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    names: dict[str, Any] = {"model": "scripted"}
    exec(compile(example, "README.md", "exec"), names)
    assert names["message"].content[0].text == "done"
    assert model.offered == ["bash", "read", "write", "edit", "glob", "grep"]
    assert model.told == [
        ("made 深/报告.md", False),
        ("二", False),
        ("replaced 1 in 深/报告.md", False),
        ("深/报告.md", False),
        ("深/报告.md:2: 2", False),
        ("一\n2\n三\n", False),
        ("/workspace/深\n", False),
    ]
    assert not running(names["workspace"]) and server.token not in repr(names["tools"])
    names["workspace"].remove("深", recursive=True)
    names["workspace"].box.close()
    names["client"].close()


def running(workspace: Workspace) -> list[str]:
    return [each.exec_id for each in workspace.runs() if each.state != "ended"]


def test_the_shell_keeps_its_state_until_it_is_begun_anew(model: Model, workspace: Workspace) -> None:
    with FileSecBoxTools(workspace, env={"A": "b"}) as tools:
        told = said(
            model,
            tools,
            [
                ("bash", {"command": "cd /tmp; x=1; f() { echo f$1; }; sleep 100 & echo $A"}),
                ("bash", {"command": 'echo $x; f 2; pwd; jobs -r | wc -l; read y; echo "y=$y"'}),
                ("bash", {"command": "cat <<'E'\n中 \"$x\"\nE\nbreak; (exit 3)"}),
                ("bash", {"command": "echo ("}),
                ("bash", {"command": "echo $x", "restart": True}),
                ("bash", {"restart": True}),
                ("bash", {"command": "echo bye; exit 4"}),
                ("bash", {"command": "kill -KILL $$"}),
                ("bash", {"command": "pwd; true"}),
            ],
        )
        assert [text for text, is_error in told if not is_error] == [
            "b\n",
            "1\nf2\n/tmp\n1\ny=\n",
            "\n",
            "the next command has a new shell",
            "/workspace\n",
        ]
        failed, syntax, left, killed = (text for text, is_error in told if is_error)
        assert failed.startswith('中 "$x"\n') and failed.endswith("[exit code 3]")
        assert "syntax error" in syntax and "[exit code" in syntax
        assert left.startswith("bye\n") and "[the shell ended with 4: the next command has a new one" in left
        assert "[the shell ended with 137" in killed
        (shell,) = running(workspace)
        workspace.kill(shell)
        ((text, is_error),) = said(model, tools, [("bash", {"command": "echo here"})])
        assert not is_error and text.startswith("[the shell had ended") and text.endswith("here\n")
    assert not running(workspace)


@pytest.mark.skipif(KERNEL < (6, 9), reason="before Linux 6.9 an interrupt reaches the shell alone")
def test_a_command_that_is_late_is_interrupted_and_the_shell_goes_on(model: Model, workspace: Workspace) -> None:
    with FileSecBoxTools(workspace, timeout=0.5) as tools:
        late, kept = said(
            model,
            tools,
            [
                ("bash", {"command": "x=1; sleep 101 & echo before; sleep 100"}),
                ("bash", {"command": "echo $x; jobs -r | wc -l", "timeout_ms": 60_000}),
            ],
        )
    assert late == ("before\n\n[the command passed its deadline of 0.5 s and was ended]", True)
    assert kept == ("1\n1\n", False)
    assert not running(workspace)


def test_a_command_that_goes_on_is_killed_with_the_shell(
    model: Model, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_shell, "_GRACE_SECONDS", 0.5)
    with FileSecBoxTools(workspace, timeout=0.3) as tools:
        killed, new = said(
            model,
            tools,
            [
                ("bash", {"command": "x=1; while :; do :; done"}),
                ("bash", {"command": "echo x=$x", "timeout_ms": 60_000}),
            ],
        )
    assert killed[1] and "0.3 s and was ended]\n[the shell ended: the next command has a new one" in killed[0]
    assert new == ("x=\n", False)
    assert not running(workspace)


def test_what_ends_a_shell_is_told_with_a_hint(model: Model) -> None:
    config = {"durability": "relaxed", "limits.runs.run_memory_bytes": 96 * 1024 * 1024}
    command = "python3 -c \"x = [b'a' * 2**20 for _ in range(10**6)]\"; sleep 20"
    with (
        Server(config=config) as small,
        small.client() as box,
        FileSecBoxTools(box.workspace("tests", "anthropic")) as tools,
    ):
        ((text, is_error),) = said(model, tools, [("bash", {"command": command})])
    assert is_error and "memory" in text


def test_output_too_large_is_cut_and_told(model: Model, workspace: Workspace) -> None:
    with FileSecBoxTools(workspace) as tools:
        cut, binary = said(
            model,
            tools,
            [
                ("bash", {"command": "echo begin; head -c 1000000 /dev/zero | tr '\\0' a; echo; echo end"}),
                ("bash", {"command": "printf '\\xff\\0x'"}),
            ],
        )
    assert cut[0].startswith("begin\na") and cut[0].endswith("a\nend\n") and len(cut[0]) < 31_000
    assert "characters were dropped]" in cut[0] and not cut[1]
    assert binary == ("\ufffd\0x", False)


def test_what_the_background_writes_between_commands_gives_way(model: Model) -> None:
    config = {"durability": "relaxed", "limits.sessions.log_bytes": 65_536}
    with Server(config=config) as small, small.client() as box:
        workspace = box.workspace("tests", "anthropic")
        with FileSecBoxTools(workspace) as tools:
            # Not before the first command has ended, which would hear of it.
            write = "until [ -e go ]; do sleep 0.01; done; for i in {1..30}; do head -c 99999 /dev/zero | tr '\\0' b; done; touch done"
            said(model, tools, [("bash", {"command": f"({write}) & echo begun"})])
            workspace.write_text("go", "")
            waited = threading.Event()
            while not workspace.exists("done"):
                waited.wait(0.05)
            lost, later = said(model, tools, [("bash", {"command": "echo here"}), ("bash", {"command": "echo more"})])
    assert "[earlier output was dropped]" in lost[0] and lost[0].endswith("here\n") and later == ("more\n", False)


def test_files_are_read_within_bounds(model: Model, workspace: Workspace) -> None:
    workspace.write_bytes("lines", b"".join(b"%d\n" % number for number in range(100_000)))
    workspace.write_bytes("line", b"a" * (256 * 1024 + 1))
    workspace.write_bytes("most", b"a" * 256 * 1024)
    png = b"\x89PNG\r\n\x1a\n"
    workspace.write_bytes("图.JPG", png)
    workspace.write_bytes("a.pdf", b"%PDF-2.0")
    workspace.write_bytes("big.gif", b"GIF89a" + b"a" * 4_000_000)
    workspace.write_bytes("none.png", b"")
    workspace.write_bytes("a.webp", b"RIFF\n\0\0\0WEBP")
    workspace.write_bytes("gbk", "中文".encode("gbk"))
    workspace.write_text("empty", "")
    reads: list[dict[str, Any]] = [
        {"file_path": "lines"},
        {"file_path": "lines", "view_range": [99_999, -1]},
        {"file_path": "lines", "view_range": [1, -1]},
        {"file_path": "lines", "view_range": [100_001, 100_002]},
        {"file_path": "line", "view_range": [1, 1]},
        {"file_path": "most"},
        {"file_path": "图.JPG"},
        {"file_path": "a.pdf"},
        {"file_path": "a.webp"},
        {"file_path": "big.gif"},
        {"file_path": "none.png"},
        {"file_path": "gbk"},
        {"file_path": "empty"},
    ]
    with FileSecBoxTools(workspace) as tools:
        told = said(model, tools, [("read", each) for each in reads])
    whole, end, all_lines, behind, line, most, image, document, webp, big, none, gbk, empty = told
    assert whole[1] and "has 588890 bytes, and at most 262144 are read at once" in whole[0]
    assert end == ("99998\n99999", False) and behind == ("[lines has 100000 lines]", False)
    assert all_lines[1] and "lines 1 to 100000 of lines" in all_lines[0] and line[1] and most == ("a" * 262_144, False)
    shown = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(png).decode()}
    assert image == ([{"type": "image", "source": shown}], False)
    assert document[0][0]["type"] == "document" and webp[0][0]["source"]["media_type"] == "image/webp"
    assert big == ("read: big.gif has more than the 3932160 bytes that can be shown", True)
    assert none == ("read: none.png is neither an image nor a PDF, as its name says", True)
    assert gbk == ("中文", False) and empty == ("[the file is empty]", False)


def test_failures_are_told_and_never_raised(model: Model, workspace: Workspace, caplog: Any) -> None:
    workspace.write_text("f", "a a")
    calls: Steps = [
        ("read", {"file_path": "/etc/passwd"}),
        ("read", {"file_path": "../x"}),
        ("read", {"file_path": "missing"}),
        ("read", {"file_path": "."}),
        ("read", {"file_path": "f", "view_range": [1]}),
        ("read", {"file_path": "f", "view_range": ["x", 2]}),
        ("write", {"file_path": "/workspace/../x", "content": "x"}),
        ("write", {"file_path": "f"}),
        ("edit", {"file_path": "f", "old_string": "a", "new_string": "b"}),
        ("edit", {"file_path": "f", "old_string": "c", "new_string": "b", "replace_all": True}),
        ("glob", {"pattern": "*", "path": "../.."}),
        ("grep", {"pattern": "("}),
        ("bash", {}),
        ("bash", {"command": "x='", "timeout_ms": -1}),
        ("bash", {"command": "ls", "timeout_ms": 10**18}),
        ("bash", {"command": "x" * 9_000_000}),
        ("bash", {"cmd": "ls"}),
    ]
    with FileSecBoxTools(workspace) as tools:
        told = said(model, tools, calls)
        assert said(
            model,
            tools,
            [
                ("edit", {"file_path": "f", "old_string": "a", "new_string": "b", "replace_all": True}),
                ("glob", {"pattern": "*.none"}),
            ],
        ) == [("replaced 2 in f", False), ("nothing was found", False)]
        with pytest.raises(ToolError, match="utf-8"):
            tools[2].call({"file_path": "x", "content": "\ud800"})
    assert all(
        is_error and text.startswith(f"{name}: ") for (text, is_error), (name, _) in zip(told, calls, strict=True)
    )
    assert "view_range" in told[4][0] and "cmd" in told[16][0]
    # What is no failure of the tool itself is nothing for the log.
    assert "Traceback" not in caplog.text


def test_a_service_that_is_gone_is_told(model: Model) -> None:
    with FileSecBox("http://127.0.0.1:9", "secret-token") as box:
        tools = FileSecBoxTools(box.workspace("gone", "anthropic"))
        told = said(model, tools, [("bash", {"command": "ls"}), ("read", {"file_path": "f"})])
        assert all(is_error for _, is_error in told)
        assert "secret-token" not in f"{told} {tools!r}"
        tools.close()


def test_a_caller_that_is_interrupted_ends_its_shell(workspace: Workspace) -> None:
    def interrupt() -> None:
        waited = threading.Event()
        while not workspace.exists("begun"):
            waited.wait(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    tools = FileSecBoxTools(workspace)
    assert tools[0].call({"command": "x=1"}) == "[no output]"
    thread = threading.Thread(target=interrupt)
    # A shell has what it begins in the background ignore the signal.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            tools[0].call({"command": "touch begun; sleep 100"})
        thread.join()
    finally:
        signal.signal(signal.SIGINT, former)
    assert not running(workspace)


async def test_coroutines_do_the_same(model: Model, remote: AsyncFileSecBoxTools, monkeypatch: Any) -> None:
    monkeypatch.setattr(async_shell, "_GRACE_SECONDS", 0.5)
    told = await asaid(
        model,
        remote,
        [
            ("write", {"file_path": "报告", "content": "a\na"}),
            ("edit", {"file_path": "报告", "old_string": "a", "new_string": "b", "replace_all": True}),
            ("read", {"file_path": "报告"}),
            ("read", {"file_path": "../x"}),
            ("glob", {"pattern": "报*"}),
            ("grep", {"pattern": "B", "include": "报*", "ignore_case": True}),
            ("bash", {"command": "cd /tmp; x=1"}),
            ("bash", {"command": "echo $x; pwd"}),
            ("bash", {"command": "while :; do :; done", "timeout_ms": 300}),
            ("bash", {"command": "pwd; exit 3"}),
            ("bash", {"restart": True}),
            ("bash", {"command": "head -c 100000 /dev/zero | tr '\\0' a"}),
        ],
    )
    assert [is_error for _, is_error in told] == [each in (3, 8, 9) for each in range(12)]
    texts = [text for text, _ in told]
    assert texts[2] == "b\nb" and texts[4] == "报告" and texts[5] == "报告:1: b\n报告:2: b"
    assert texts[7] == "1\n/tmp\n" and "deadline of 0.3 s and was ended]\n[the shell ended:" in texts[8]
    assert texts[9].startswith("/workspace\n") and "dropped]" in texts[11]


async def test_a_call_that_is_cancelled_leaves_no_run(model: Model, remote: AsyncFileSecBoxTools) -> None:
    begun = asyncio.create_task(asaid(model, remote, [("bash", {"command": "touch begun; sleep 100"})]))
    while not await remote.workspace.exists("begun"):
        await asyncio.sleep(0.02)
    begun.cancel()
    with pytest.raises(asyncio.CancelledError):
        await begun
    assert not [each for each in await remote.workspace.runs() if each.state != "ended"]
    assert await remote[0].call({"command": "echo here"}) == "here\n"
    await remote.close()
    assert not [each for each in await remote.workspace.runs() if each.state != "ended"]


async def test_calls_at_once_have_one_shell(remote: AsyncFileSecBoxTools) -> None:
    told = await asyncio.gather(*(remote[0].call({"command": f"sleep 0.0{each}; echo {each}"}) for each in range(5)))
    assert told == [f"{each}\n" for each in range(5)]
    assert len([each for each in await remote.workspace.runs() if each.state != "ended"]) == 1


@pytest.mark.parametrize("kind", ["coroutines", "threads"])
async def test_a_worker_of_managed_agents_works_in_a_workspace(
    kind: str, model: Model, workspace: Workspace, remote: AsyncFileSecBoxTools, tmp_path: Path
) -> None:
    model.steps = [
        ("bash", {"command": "x=1; sleep 100 & echo 数据 > f"}),
        ("bash", {"command": "cat f; echo $x; exit 3"}),
        ("read", {"file_path": "f"}),
        ("read", {"file_path": "../f"}),
        ("bash", {"command": "sleep 100 & echo begun"}),
    ]
    tools: Any = remote if kind == "coroutines" else FileSecBoxTools(workspace)
    async with AsyncAnthropic(api_key="key", base_url=model.url, max_retries=0) as client:
        worker = EnvironmentWorker(client, tools=lambda context: tools, workdir=tmp_path)
        await worker.handle_item(work_id="w", environment_id="e", session_id="s", environment_key="key")
    assert [is_error for _, is_error in model.told] == [False, True, False, True, False] and model.is_stopped
    assert model.told[1][0].startswith("数据\n1\n") and model.told[2][0] == "数据\n"
    # The runner of sessions closes the tools.
    assert not running(workspace)
