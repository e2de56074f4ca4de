"""`AsyncTree`: the files of a workspace or of a skill, and the commands that run in it."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .. import _calls as calls
from .._kept import Kept
from .._local import Progress, Reporter, local_files, pieces, place
from ..errors import CommandFailed, FileSecBoxError, Unavailable
from ..models import Changed, Event, FileInfo, Found, Match, Page, RunInfo, RunResult, Text, TextLines, TreeEvent
from . import _io
from .paths import AsyncTreePath
from .process import TRIES, AsyncProcess, events_of
from .session import AsyncPythonSession

if TYPE_CHECKING:
    from .client import AsyncFileSecBox

Command = str | Sequence[str]


class AsyncTree:
    """What a workspace and a skill have in common. Paths are relative to the tree, or as commands see them (``/workspace/…``)."""

    def __init__(self, box: AsyncFileSecBox, tree: calls.TreeCalls) -> None:
        self.box = box
        self._tree = tree

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._tree.root!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncTree) and (self.box, self._tree) == (other.box, other._tree)

    def __hash__(self) -> int:
        return hash((id(self.box), self._tree))

    def __truediv__(self, path: str) -> AsyncTreePath:
        return AsyncTreePath(self, path)

    def path(self, *segments: str) -> AsyncTreePath:
        """A path in the tree; without segments that of the tree itself."""
        return AsyncTreePath(self, *segments)

    # Looking

    async def info(self) -> Mapping[str, Any]:
        """What a command of this agent finds in it: ``commands``, ``profile``, ``network``, and the limits that hold."""
        return await self.box.call(self._tree.info())

    async def stat(self, path: str = ".", *, follow: bool = True) -> FileInfo:
        """What an entry is; without ``follow`` of a link itself."""
        return await self.box.call(self._tree.stat(path, follow=follow))

    async def exists(self, path: str) -> bool:
        """Whether anything is there."""
        try:
            await self.stat(path)
        except FileNotFoundError:
            return False
        return True

    async def list_dir(self, path: str = ".") -> list[FileInfo]:
        """The entries of one directory, sorted by name."""
        return await self.box.call(self._tree.list_dir(path))

    async def files(self, path: str = ".", *, depth: int | None = None) -> list[FileInfo]:
        """Every file and link below a directory, at any depth, sorted by path; page after page."""
        found, cursor = [], None
        while True:
            page = await self.files_page(path, depth=depth, limit=1000, cursor=cursor)
            found.extend(page.items)
            cursor = page.next
            if cursor is None:
                return found

    async def files_page(
        self, path: str = ".", *, depth: int | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[FileInfo]:
        """One page of the files below a directory."""
        return await self.box.call(self._tree.files(path, depth, limit, cursor))

    async def glob(
        self,
        pattern: str,
        *,
        path: str = ".",
        kind: Literal["file", "directory", "any"] = "file",
        hidden: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Found[FileInfo]:
        """Entries whose paths match a pattern, as of ``.gitignore``; one without ``/`` matches at any depth."""
        return await self.box.call(self._tree.glob(pattern, path, kind, hidden, limit, cursor))

    async def grep(
        self,
        pattern: str,
        *,
        path: str = ".",
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        literal: bool = False,
        ignore_case: bool = False,
        context: int | None = None,
        hidden: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Found[Match]:
        """Lines that match a regular expression, or with ``literal`` have the text, by path and line."""
        body: dict[str, Any] = {"pattern": pattern, "path": path, "literal": literal, "ignore_case": ignore_case}
        body |= {"include": list(include), "exclude": list(exclude)}
        optional = {"context": context, "hidden": hidden, "limit": limit, "cursor": cursor}
        body |= {name: value for name, value in optional.items() if value is not None}
        return await self.box.call(self._tree.grep(body))

    async def read_text(self, path: str) -> Text:
        """A text in any of the encodings that the service knows, whole."""
        return await self.box.call(self._tree.read_text(path))

    async def read_lines(self, path: str, start: int | None = None, end: int | None = None) -> TextLines:
        """Lines of a text, counted from 1, both included, without their ends."""
        return await self.box.call(self._tree.read_lines(path, start, end))

    async def read_bytes(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        """The bytes of a file; those from ``start`` up to and without ``end`` when one of them is given. Behind its end there are none."""
        if end is not None and end <= (start or 0):
            return b""
        try:
            return await self.box.call(self._tree.read_bytes(path, start, end))
        except FileSecBoxError as error:
            if error.code != "range_not_satisfiable":
                raise
            return b""

    async def etag(self, path: str) -> str:
        """The tag of a file, for ``if_match``."""
        return (await self.box.call(self._tree.head(path)))["etag"]

    # Changing

    async def write_text(
        self,
        path: str,
        text: str,
        *,
        encoding: str | None = None,
        if_match: str | None = None,
        if_missing: bool = False,
    ) -> Changed:
        """Replaces a text, in the encoding that it was in, or makes one; missing directories are made."""
        return await self.box.call(self._tree.write_text(path, text, encoding, if_match, if_missing))

    async def write_bytes(
        self,
        path: str,
        data: bytes,
        *,
        parents: bool = True,
        mode: str | None = None,
        if_match: str | None = None,
        if_missing: bool = False,
    ) -> Changed:
        """Replaces or makes a file in one step; ``mode`` is octal, such as ``"0755"``."""
        return await self.box.call(self._tree.write_bytes(path, data, parents, mode, if_match, if_missing))

    async def edit_lines(self, path: str, start: int, end: int, text: str, *, if_match: str | None = None) -> Changed:
        """Replaces the lines ``start`` to ``end`` of a text; ``end = start - 1`` inserts, an empty text deletes."""
        return await self.box.call(self._tree.edit_lines(path, start, end, text, if_match))

    async def replace_text(
        self, path: str, old: str, new: str, *, count: int = 1, if_match: str | None = None
    ) -> Changed:
        """Replaces a passage that occurs exactly ``count`` times."""
        edit = {"old_string": old, "new_string": new, "expected_replacements": count}
        return await self.box.call(self._tree.replace(path, [edit], if_match))

    async def replace_texts(
        self, path: str, edits: Sequence[tuple[str, str]], *, if_match: str | None = None
    ) -> Changed:
        """Replaces passages in order, each of which occurs once: all of them or none."""
        sent = [{"old_string": old, "new_string": new} for old, new in edits]
        return await self.box.call(self._tree.replace(path, sent, if_match))

    async def patch(
        self, patch: str, *, etags: Mapping[str, str | None] | None = None, dry_run: bool = False
    ) -> list[Changed]:
        """Makes a unified diff of one or more files: all of it or nothing."""
        return await self.box.call(self._tree.patch(patch, etags, dry_run))

    async def mkdir(self, path: str, *, parents: bool = False, mode: str = "0755") -> bool:
        """Makes a directory; with ``parents`` those above it, and one that is there is no error. Tells whether there was none."""
        return await self.box.call(self._tree.mkdir(path, mode, parents))

    async def move(self, source: str, target: str, *, overwrite: bool = False, if_match: str | None = None) -> None:
        """Moves an entry within the tree; ``if_match`` is about ``source``."""
        await self.box.call(self._tree.move(source, target, overwrite, if_match))

    async def copy(
        self,
        source: str,
        target: str,
        *,
        overwrite: bool = False,
        recursive: bool = False,
        if_match: str | None = None,
    ) -> None:
        """Copies an entry within the tree; ``if_match`` is about ``target``."""
        await self.box.call(self._tree.copy(source, target, overwrite, recursive, if_match))

    async def remove(self, path: str, *, recursive: bool = False, if_match: str | None = None) -> None:
        """Removes an entry; a directory with entries only with ``recursive``."""
        await self.box.call(self._tree.remove(path, recursive, if_match))

    # Moving in and out

    async def get_archive(self, path: str = ".", *, archive_format: Literal["zip", "tar", "tar.gz"] = "zip") -> bytes:
        """A directory with everything in it as one archive."""
        return await self.box.call(self._tree.get_archive(path, archive_format))

    async def put_archive(
        self, path: str, archive: bytes, *, parents: bool = True, charset: str = "auto"
    ) -> Mapping[str, Any]:
        """Unpacks an archive as a new directory, in one step."""
        return await self.box.call(self._tree.put_archive(path, archive, parents, charset))

    async def upload(
        self, source: str | os.PathLike[str], target: str = ".", *, progress: Progress | None = None
    ) -> int:
        """Copies a local file to ``target``, or what is in a local directory below it. Links are left out. Gives the number of files.

        ``progress`` is called with the bytes that were sent, the bytes in all, and the path.
        """
        found = local_files(Path(source))
        report = Reporter(progress, sum(each.size for each in found))
        for each in found:
            path = "/".join(filter(None, [target if target != "." else "", each.path])) if each.path else target
            call = self._tree.write_bytes(path, None, True, each.mode, None, False)

            def body(each: Any = each, path: str = path) -> AsyncIterator[bytes]:
                return _sent(each.source, report, path)

            await self.box.call(call, body)
        report.end()
        return len(found)

    async def download(self, source: str, target: str | os.PathLike[str], *, progress: Progress | None = None) -> int:
        """Copies a file to the local ``target``, or what is in a directory below it. Gives the number of files.

        Each file comes under another name and is renamed when it is whole. Names that would lead out of ``target``, or that another
        system reads differently, are refused before anything is written. Links are left out.
        """
        base = Path(target)
        info = await self.stat(source)
        if info.is_dir:
            entries = [each for each in await self.files(source) if each.is_file]
            prefix = "" if source in (".", "") else source.rstrip("/") + "/"
            wanted = [(each, place(base, each.path.removeprefix(prefix))) for each in entries]
        else:
            wanted = [(info, base)]
        report = Reporter(progress, sum(each.size for each, _ in wanted))
        for each, local in wanted:
            await self._fetch(each, local, report)
        report.end()
        return len(wanted)

    async def _fetch(self, info: FileInfo, local: Path, report: Reporter) -> None:
        local.parent.mkdir(parents=True, exist_ok=True)
        partial = local.with_name(f".{local.name}.{uuid.uuid4().hex[:8]}.part")
        try:
            with partial.open("xb") as file:
                length, broken = None, 0
                while length is None or file.tell() < length:
                    # A file that has changed meanwhile is `stale`, and never two halves; without a tag it is begun anew.
                    before = file.tell() if info.etag else 0
                    if before == 0 and file.tell():
                        file.seek(0)
                        file.truncate()
                        report.back(info.path)
                    part = self._tree.read_bytes(info.path, before or None, None, info.etag or None)
                    try:
                        async with self.box.stream(part) as answered:
                            if before and answered.status_code != 206:
                                file.seek(0)
                                file.truncate()
                                report.back(info.path)
                                before = 0
                            length = before + _length(answered.headers.get("content-length"))
                            async for piece in answered.aiter_raw():
                                file.write(piece)
                                report.add(len(piece), info.path)
                    except _io.BROKEN as problem:
                        broken = broken + 1 if file.tell() == before else 0
                        if broken >= 3:
                            raise Unavailable(f"`{info.path}` broke off", code="unreachable") from problem
                        await _io.pause(0.2)
            if int(info.mode, 8) & 0o100:
                partial.chmod(partial.stat().st_mode | 0o111)
            partial.replace(local)
        finally:
            partial.unlink(missing_ok=True)

    # Running

    async def run(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        timeout: float | None = None,
        skills: Sequence[str] | Literal["all"] | None = None,
        network: Literal["none", "proxy", "host"] | None = None,
        isolation: Literal["process", "landlock", "namespaces"] | None = None,
        changes: bool = False,
        commit: Literal["now", "ask"] = "now",
        check: bool = False,
        on_output: Callable[[str, str], object] | None = None,
        on_bytes: Callable[[str, bytes], object] | None = None,
    ) -> RunResult:
        """Runs a command to its end: a ``str`` is a line for the shell, a list a program and its arguments.

        ``timeout`` is the deadline of the run, in seconds. ``on_output`` is called with ``"stdout"`` or ``"stderr"`` and each piece
        of text as it comes; the result then keeps the first and last 8 Mi characters of each stream. ``on_bytes`` gets the bytes as
        they are instead, and the result keeps none of them. A command that fails raises nothing, but with ``check``. A caller that is
        interrupted or cancelled kills the run, and so does a function for the output that raises.
        """
        if on_output is not None and on_bytes is not None:
            raise ValueError("the output comes as text (`on_output`) or as bytes (`on_bytes`), not as both")
        body = _run(command, cwd, env, stdin, timeout, skills, network, isolation)
        body |= {"changes": True} if changes else {}
        body |= {"commit": commit} if commit != "now" else {}
        exec_id = body["exec_id"] = uuid.uuid4().hex
        try:
            if on_bytes is not None:
                result = await self._listen_to_bytes(body | {"encoding": "base64"}, on_bytes)
            elif on_output is not None:
                result = await self._listen(body, on_output)
            else:
                result = await self.box.call(self._tree.run(body, False, False))
        except FileSecBoxError:
            raise
        except BaseException:
            # The caller was interrupted, or does not want more of the output.
            await _io.finish(lambda: self.kill(exec_id))
            raise
        if check and not result.ok:
            how = "passed its deadline" if result.timed_out else f"exited with {result.exit_code}"
            raise CommandFailed(f"the command {how}: {result.stderr[-2000:]}", result=result)
        return result

    async def _listen(self, body: Mapping[str, Any], on_output: Callable[[str, str], object]) -> RunResult:
        exec_id = str(body["exec_id"])
        written = {"stdout": Kept(), "stderr": Kept(), "output": Kept()}
        async for event in events_of(self.box, self._tree, exec_id, self._tree.run(body, False, True)):
            if event.event in ("stdout", "stderr"):
                written[event.event].add(event.text)
                written["output"].add(event.text)
                on_output(event.event, event.text)
            elif event.event == "exit":
                kept: dict[str, Any] = {name: each.text() for name, each in written.items()}
                kept["truncated"] = any(each.dropped for each in written.values())
                return _ended(event, exec_id, kept)
        raise FileSecBoxError("the run ended without a result", code="bad_answer")

    async def _listen_to_bytes(self, body: Mapping[str, Any], on_bytes: Callable[[str, bytes], object]) -> RunResult:
        exec_id = str(body["exec_id"])
        begin = self._tree.run(body, False, True)
        async for event in events_of(self.box, self._tree, exec_id, begin, encoding="base64"):
            if event.event in ("stdout", "stderr"):
                on_bytes(event.event, event.data)
            elif event.event == "exit":
                return _ended(event, exec_id, {})
        raise FileSecBoxError("the run ended without a result", code="bad_answer")

    async def start(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
        timeout: float | None = None,
        skills: Sequence[str] | Literal["all"] | None = None,
        network: Literal["none", "proxy", "host"] | None = None,
        isolation: Literal["process", "landlock", "namespaces"] | None = None,
        tty: bool = False,
        exec_id: str | None = None,
    ) -> AsyncProcess:
        """Starts a command in the background: with ``stdin`` it can be sent to, with ``tty`` it has a terminal.

        Used by ``with``, it is killed at the end, unless it has ended.
        """
        body = _run(command, cwd, env, None, timeout, skills, network, isolation)
        body |= {"stdin_open": True} if stdin else {}
        body |= {"tty": True} if tty else {}
        name = body["exec_id"] = exec_id or uuid.uuid4().hex
        call = self._tree.run(body, True, False)
        try:
            await self.box.call(calls.Call(**(vars(call) | {"decode": lambda _: None})))
        except _io.INTERRUPTED:
            await _io.finish(lambda: self.kill(name))
            raise
        return AsyncProcess(self.box, self._tree, name)

    def python(
        self,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        skills: Sequence[str] | Literal["all"] | None = None,
    ) -> AsyncPythonSession:
        """A Python interpreter that keeps its state from one piece of code to the next. Used by ``with``."""
        return AsyncPythonSession(self, cwd, env, skills)

    def attach(self, exec_id: str) -> AsyncProcess:
        """A run by its name."""
        return AsyncProcess(self.box, self._tree, exec_id)

    async def kill(self, exec_id: str) -> None:
        """Kills a run with all its processes."""
        await self.box.call(self._tree.kill(exec_id))

    async def runs(self) -> list[RunInfo]:
        """The runs under way, and those that are remembered."""
        return await self.box.call(self._tree.runs())

    async def commit(self, result: RunResult) -> Mapping[str, Any]:
        """Takes the changes of a run that was asked with ``commit="ask"``."""
        return await self.box.call(self._tree.commit(result.exec_id))

    async def discard(self, result: RunResult) -> None:
        """Drops the changes of a run that was asked with ``commit="ask"``."""
        await self.box.call(self._tree.discard(result.exec_id))

    async def ports(self) -> list[Mapping[str, Any]]:
        """What listens in the sandbox."""
        return await self.box.call(self._tree.ports())

    async def link_port(self, port: int, *, ttl_seconds: int = 3600) -> str:
        """Makes a link by which a browser reaches a port: a whole address."""
        return self.box.url + await self.box.call(self._tree.link_port(port, ttl_seconds))

    async def watch(self, *, after: str | None = None) -> AsyncIterator[TreeEvent]:
        """Changes of the tree as they happen, from now on, or behind the event with the id ``after``; goes on when cut off."""
        broken = 0
        while True:
            cause: Exception | None = None
            try:
                async with self.box.stream(self._tree.events(after)) as answered:
                    async for line in answered.aiter_lines():
                        if not line.strip():
                            continue
                        data = calls.Answer(200, {}, line.encode()).json()
                        event = TreeEvent.of(data, data=data)
                        after, broken = event.id, 0
                        yield event
                        if event.event == "end":
                            return
            except _io.BROKEN as problem:
                cause = problem
            broken += 1
            if broken >= TRIES:
                raise Unavailable("the changes of the tree broke off", code="unreachable") from cause
            await _io.pause(0.1 * broken)


def _ended(event: Event, exec_id: str, kept: Mapping[str, Any]) -> RunResult:
    if event.result is None:
        raise FileSecBoxError(str(event.raw.get("error", "the run failed")), code="internal")
    return RunResult.of(dict(event.result) | dict(kept), exec_id=exec_id)


def _length(header: str | None) -> int:
    if header is None or not header.isdecimal():
        raise FileSecBoxError("the service did not say how long the file is", code="bad_answer")
    return int(header)


async def _sent(source: Path, report: Reporter, path: str) -> AsyncIterator[bytes]:
    report.back(path)
    for piece in pieces(source):
        report.add(len(piece), path)
        yield piece


def _run(
    command: Command,
    cwd: str | None,
    env: Mapping[str, str] | None,
    stdin: str | bytes | None,
    timeout: float | None,
    skills: Sequence[str] | str | None,
    network: str | None,
    isolation: str | None,
) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if isinstance(command, str):
        body["shell"] = command
    else:
        program, *arguments = command
        body |= {"command": program, "args": arguments}
    if isinstance(stdin, str):
        body["stdin"] = stdin
    elif stdin is not None:
        body["stdin_base64"] = calls.base64_text(stdin)
    if timeout is not None:
        body["timeout_ms"] = max(1, round(timeout * 1000))
    if skills is not None:
        body["skills"] = skills if isinstance(skills, str) else list(skills)
    optional = {"dir": cwd, "env": dict(env) if env else None, "network": network, "isolation": isolation}
    return body | {name: value for name, value in optional.items() if value is not None}
