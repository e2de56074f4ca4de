"""Every operation that the package has, in one story, for both clients: written for the asynchronous one."""

import inspect
import io
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from filesecbox import AsyncFileSecBox, FileSecBox, NotFound, SessionEnded, _calls

VERSION = "65f2a1b3c4d5e6f708192a3b"


class Recording:
    """Notes which operations a client was asked for."""

    def __init__(self, box: AsyncFileSecBox | FileSecBox) -> None:
        self.operations: set[str] = set()
        for name in ("call", "stream"):
            setattr(box, name, self._noting(getattr(box, name)))

    def _noting(self, method: Any) -> Any:
        def noting(call: _calls.Call[Any], *rest: Any) -> Any:
            self.operations.add(call.operation)
            return method(call, *rest)

        return noting


class Awaited:
    """The synchronous client with the manners of the other one, so that one story is for both."""

    def __init__(self, thing: Any) -> None:
        self._thing = thing

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._thing, name)
        if not inspect.ismethod(value):
            return value
        if name in _PLAIN:
            return lambda *rest, **more: Awaited(value(*[_bare(each) for each in rest], **more))
        if inspect.isgeneratorfunction(value.__func__) or name == "events":
            return lambda *rest, **more: _each(value(*rest, **more))

        async def called(*rest: Any, **more: Any) -> Any:
            answer = value(*[_bare(each) for each in rest], **more)
            return Awaited(answer) if name in ("start", "rename", "replace", "copy") else answer

        return called

    def __getitem__(self, key: str) -> Any:
        return Awaited(self._thing[key])

    def __truediv__(self, key: str) -> Any:
        return Awaited(self._thing / key)

    def __str__(self) -> str:
        return str(self._thing)

    async def __aenter__(self) -> "Awaited":
        self._thing.__enter__()
        return self

    async def __aexit__(self, *rest: Any) -> None:
        self._thing.__exit__(*rest)


#: Methods that do no I/O.
_PLAIN = frozenset({"python", "workspace", "skills", "skill", "path", "attach", "with_suffix", "with_name", "joinpath"})


def _bare(value: Any) -> Any:
    return value._thing if isinstance(value, Awaited) else value


async def _each(values: Iterator[Any]) -> AsyncIterator[Any]:
    for value in values:
        yield Awaited(value) if hasattr(value, "tree") else value


def archive(name: str, **files: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        for path, text in files.items():
            made.writestr(zipfile.ZipInfo(f"{name}/{path.replace('__', '.')}"), text)
    return packed.getvalue()


async def story(box: Any, user: str, local: Path) -> None:
    """Everything that ``box`` can do, done once and looked at."""
    await service(box)
    workspace = box.workspace(user, "demo")
    await files(workspace)
    await paths(workspace)
    await copying(workspace, local)
    await runs(workspace)
    await session(workspace)
    await life(box, workspace, user)
    await skills(box.skills(user, "demo"), local)
    await administration(box, user)


async def service(box: Any) -> None:
    await box.health()
    await box.ready()
    assert (await box.info())["version"]
    assert (await box.whoami())["role"] == "admin"
    assert (await box.request("GET", "/v1/whoami")).data()["role"] == "admin"


async def files(tree: Any) -> None:
    made = await tree.write_text("src/主.py", "import os\nprint(1)\n", if_missing=True)
    assert made.created
    assert (await tree.read_text("src/主.py")).text == "import os\nprint(1)\n"
    lines = await tree.read_lines("src/主.py", 2)
    assert (lines.lines, lines.total_lines, lines.next) == (["print(1)"], 2, None)
    edited = await tree.edit_lines("src/主.py", 2, 2, "print(2)\n", if_match=made.etag)
    assert edited.etag == await tree.etag("src/主.py")
    await tree.replace_text("src/主.py", "print(2)", "print(3)")
    await tree.replace_texts("src/主.py", [("import os", "import sys"), ("print(3)", "print(sys.argv)")])
    patch = "--- a/src/主.py\n+++ b/src/主.py\n@@ -1,2 +1,2 @@\n-import sys\n+import sys  # patched\n print(sys.argv)\n"
    assert [each.path for each in await tree.patch(patch, dry_run=True)] == ["src/主.py"]
    await tree.patch(patch)
    assert await tree.read_bytes("src/主.py", 0, 10) == b"import sys"
    assert await tree.read_bytes("src/主.py", 3, 3) == b""
    assert await tree.read_bytes("src/主.py", 1000) == b"" == await tree.read_bytes("src/主.py", 1000, 1001)
    await tree.write_bytes("deep/er/tool", b"#!/bin/sh\n", mode="0755")
    assert (await tree.stat("deep/er/tool")).mode == "0755"
    assert await tree.exists("deep") and not await tree.exists("shallow")
    assert [each.name for each in await tree.list_dir() if each.is_dir] == ["deep", "src"]
    assert [each.path for each in await tree.files() if each.name != "SKILL.md" and "/" in each.path] == [
        "deep/er/tool",
        "src/主.py",
    ]
    found = await tree.glob("*.py")
    assert ([each.path for each in found.items], found.truncated) == (["src/主.py"], False)
    matches = (await tree.grep("print", include=["*.py"], context=1)).items
    assert [(each.path, each.line, each.before) for each in matches] == [("src/主.py", 2, ["import sys  # patched"])]
    assert await tree.mkdir("empty/below", parents=True)
    await tree.copy("deep", "copied", recursive=True)
    await tree.move("copied/er/tool", "moved")
    await tree.remove("copied", recursive=True)
    packed = await tree.get_archive("src")
    assert (await tree.put_archive("unpacked", packed))["files"] == 1


async def paths(tree: Any) -> None:
    path = tree / "notes" / "a.txt"
    await path.write_text("one\ntwo\n")
    assert (path.name, path.suffix, path.stem, str(path.parent)) == ("a.txt", ".txt", "a", "notes")
    assert await path.read_text() == "one\ntwo\n" and await path.read_lines(2, 2) == ["two"]
    assert await path.is_file() and not await path.is_dir() and not await path.is_symlink()
    await path.replace_text("one", "1")
    moved = await path.rename("notes/b.txt")
    assert not await path.exists() and await moved.read_bytes() == b"1\ntwo\n"
    await moved.copy("notes/c.txt")
    assert [each.name async for each in (tree / "notes").iterdir()] == ["b.txt", "c.txt"]
    assert sorted([str(each) async for each in (tree / "notes").glob("*.txt")]) == ["notes/b.txt", "notes/c.txt"]
    await (tree / "notes").mkdir(exist_ok=True)
    await moved.touch()
    assert await moved.read_bytes() == b"1\ntwo\n"
    await moved.unlink()
    await moved.unlink(missing_ok=True)
    await (tree / "notes").rmtree()
    await (tree / "empty" / "below").rmdir()


async def copying(tree: Any, local: Path) -> None:
    source = local / "source"
    (source / "子").mkdir(parents=True)
    (source / "子" / "large").write_bytes(b"x" * 3_000_000)
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("run.sh")
    told: list[tuple[int, int, str]] = []
    assert await tree.upload(source, "in", progress=lambda *facts: told.append(facts)) == 2
    assert told[-1][:2] == (3_000_019, 3_000_019)
    assert (await tree.stat("in/run.sh")).mode == "0755"
    assert await tree.download("in", local / "target") == 2
    assert (local / "target" / "子" / "large").read_bytes() == b"x" * 3_000_000
    assert (local / "target" / "run.sh").stat().st_mode & 0o111 == 0o111
    assert (local / "target" / "子" / "large").stat().st_mode & 0o111 == 0
    assert await tree.download("in/run.sh", local / "alone.sh") == 1
    assert [each.name for each in local.iterdir() if each.name.endswith(".part")] == []


async def runs(tree: Any) -> None:
    result = await tree.run("echo 你好; echo bad >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr, result.ok) == (3, "你好\n", "bad\n", False)
    result = await tree.run(["python3", "-c", "print(input())"], stdin="typed\n", env={"A": "b"}, cwd="src")
    assert result.stdout == "typed\n"
    heard: list[tuple[str, str]] = []
    result = await tree.run("echo one; sleep 0.1; echo two >&2", on_output=lambda *piece: heard.append(piece))
    assert (heard, result.output) == ([("stdout", "one\n"), ("stderr", "two\n")], "one\ntwo\n")
    pieces: list[tuple[str, bytes]] = []
    result = await tree.run("printf '\\377\\0'; exit 4", on_bytes=lambda *piece: pieces.append(piece))
    assert (pieces, result.exit_code, result.output) == ([("stdout", b"\xff\0")], 4, "")
    result = await tree.run("sleep 30", timeout=0.2)
    assert result.timed_out and (result.exit_code, result.shell_code) == (-1, 124)
    assert [(await tree.run(each)).shell_code for each in ("exit 5", "kill -TERM $$")] == [5, 143]
    asked = await tree.run("echo aside > aside", commit="ask", changes=True)
    assert asked.changes["created"][0]["path"] == "aside" and not await tree.exists("aside")
    await tree.commit(asked)
    assert await tree.exists("aside")
    await tree.discard(await tree.run("rm aside", commit="ask"))
    assert await tree.exists("aside")

    async with await tree.start(["python3", "-u", "-c", "while True: print(eval(input()))"], stdin=True) as process:
        await process.send("1 + 1\n")
        texts = ""
        async for event in process.events():
            if event.event == "stdout":
                texts += event.text
                if texts.endswith("\n"):
                    await process.close_stdin()
        assert texts == "2\n" and (await process.wait()).exit_code == 1
        assert (await process.info()).state == "ended"
    async with await tree.start("sleep 60") as process:
        assert process.exec_id in [run.exec_id for run in await tree.runs() if run.state != "ended"]
        await tree.attach(process.exec_id).signal("TERM")
        assert (await process.wait()).signal == "SIGTERM"
    async with await tree.start("exec python3 -m http.server 8123 --bind 127.0.0.1") as process:
        ports: list[Any] = []
        while not ports:
            ports = [port for port in await tree.ports() if port["port"] == 8123]
        assert "/v1/ports/" in await tree.link_port(8123, ttl_seconds=60)


async def session(tree: Any) -> None:
    async with tree.python() as python:
        assert (await python.run("x = 40")).value is None
        cell = await python.run("import sys\nprint('你好'); print('bad', file=sys.stderr)\nx + 2")
        assert (cell.value, cell.stdout, cell.stderr, cell.error) == ("42", "你好\n", "bad\n", None)
        failed = await python.run("def f():\n    return 1 / 0\nf()")
        assert failed.error["type"] == "ZeroDivisionError" and "in f" in failed.error["traceback"]
        assert "_driver" not in failed.error["traceback"] and "exec(" not in failed.error["traceback"]
        late = await python.run("import time\ntime.sleep(60)", timeout=0.2)
        assert late.error["type"] == "TimeoutError"
        assert (await python.run("input()")).error["type"] == "EOFError"
        large = await python.run("print('x' * 10_000_000)")
        assert large.stdout == "x" * 10_000_000 + "\n"
        assert (await python.run("x")).value == "40"
        with pytest.raises(SessionEnded) as ended:
            await python.run("import os\nprint('last', flush=True)\nos._exit(7)")
        assert (ended.value.result.exit_code, ended.value.stdout) == (7, "last\n")
        assert (await python.run("'x' in globals()")).value == "False"


async def life(box: Any, workspace: Any, user: str) -> None:
    assert (await workspace.usage())["workspace"] and (await workspace.info())["backend"] == "local"
    first = await workspace.take_snapshot("first", "of the tests")
    assert [each["id"] for each in await workspace.snapshots()] == [first["id"]]
    assert (await workspace.get_snapshot(first["id"]))["name"] == "first"
    await workspace.write_text("later.txt", "x")
    await workspace.restore(first["id"])
    assert not await workspace.exists("later.txt")
    assert (await workspace.fork(first["id"], user, "other"))["files"] > 0
    await workspace.remove_snapshot(first["id"])

    package = archive("writer", SKILL__md="---\nname: writer\ndescription: Writes.\n---\n")
    await box.put_package(VERSION, package)
    assert await box.get_package(VERSION) == package
    assert "digest" in await box.describe_package(VERSION)
    ready = await workspace.prepare(skills=[("writer", VERSION)], files={"a.csv": "1,2\n", "b.bin": b"\x00"})
    assert [skill["name"] for skill in ready["skills"]] == ["writer"]

    events = workspace.watch()
    seen: list[str] = []
    async for event in events:
        if event.event == "ready":
            await workspace.write_text("watched.txt", "x")
        elif event.data.get("path") == "watched.txt":
            seen.append(event.event)
            break
    assert seen == ["created"]


async def skills(skills: Any, local: Path) -> None:
    assert await skills.list() == [] and await skills.catalog() == ""
    folder = local / "统计"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: 统计\ndescription: Counts.\n---\n# Count\n")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_bytes(b"x")
    tried = await skills.upload(folder, scope="baseline", dry_run=True)
    assert tried.dry_run and await skills.list() == []
    uploaded = await skills.upload(folder, scope="baseline")
    assert [(each.skill_id, each.files) for each in uploaded.skills] == [("统计", 1)]
    assert "统计" in await skills.catalog("markdown")
    made = await skills.share(["统计"], note="for the page")
    assert made["link"].startswith("/s/") and [each["note"] for each in await skills.shares()] == ["for the page"]
    await skills.revoke_share(made["id"])
    assert await skills.shares() == []
    skill = skills["统计"]
    await files(skill)
    assert (await skill.info())["limits"].keys() == {"disk"} and "bash" in (await skill.info())["commands"]
    await skill.remove("src", recursive=True)
    assert [each.status for each in await skills.list()] == ["MODIFIED"]
    assert "deep/er/tool" in [each.path for each in await skill.diff()]
    linted = await skill.lint()
    assert linted.ok["agentskills"] and not linted.ok["anthropic"]
    assert [finding["code"] for finding in linted.findings] == ["name_not_ascii"]
    first = (await skill.versions())[0].version
    await skill.promote(title="2", message="with tools")
    second, former, *_ = await skill.versions()
    assert (second.state, second.title, former.state) == ("current", "2", "kept") and second.number > former.number
    assert await skill.pin_version(former.number) and await skill.unpin_version(first)
    assert await skill.download_version(former.number) == await skill.download_version(first)
    (folder / "more.md").write_text("more\n")
    await skills.upload(folder, scope="baseline")
    assert (await skill.rollback(first))["changed"]
    (folder / "more.md").write_text("staged\n")
    staged = (await skills.upload(folder, scope="baseline", current=False)).skills[0].number
    assert staged and (await skill.version(staged)).state == "staged"
    assert not (await skill.remove_version(staged, force=True))["skill_removed"]
    (folder / "more.md").write_text("more\n")
    await skill.write_text("own.md", "own\n")
    await skills.upload(folder, scope="baseline")
    assert (await skill.pull(dry_run=True)).changed and (await skill.pull(prefer="theirs")).changed
    assert (await skill.run("cat own.md more.md")).stdout == "own\nmore\n"
    with zipfile.ZipFile(io.BytesIO(await skill.download_zip())) as packed:
        assert "统计/own.md" in packed.namelist()
    assert await skill.reset() and not await skill.reset()
    await skill.delete()
    await skill.delete(scope="baseline")
    assert await skills.list() == []


async def administration(box: Any, user: str) -> None:
    assert (await box.audit(user=user, limit=1))[0]["user"] == user
    assert (await box.registry(agent="demo")).items == []
    await box.rebuild_registry()
    assert isinstance((await box.runs(user=user)).items, list)
    assert (await box.usage(user=user, agent="demo")).items[0]["workspace"]["bytes"] > 0
    assert user in [each["user"] for each in (await box.users()).items]
    assert (await box.user(user))["user"] == user
    assert "demo" in [each["agent"] for each in (await box.agents()).items]
    await box.set_policy("demo", {"profile": "strict"})
    assert await box.policy("demo")
    await box.remove_policy("demo")
    assert len((await box.workspaces(limit=1)).items) == 1
    assert {each["agent"] for each in (await box.workspaces(user)).items} == {"demo", "other"}
    assert await box.runners(user) == []
    for act in (box.choose_runner, box.cut_runner, box.revoke_runner):
        try:
            await act(user, "laptop")
        except NotFound:
            continue
    issued = await box.issue_token(user, agent="demo", ttl_seconds=60)
    assert issued["token"].startswith("fsb")
    await box.revoke_token(issued["id"])
    await box.revoke_tokens_of(user)
    assert issued["id"] in [each["id"] for each in (await box.revocations()).items]
    await box.workspace(user, "other").delete()
    await box.remove_workspaces(user, force=True, snapshots=True)
    await box.remove_user(user)
    await box.remove_workspaces(None)
