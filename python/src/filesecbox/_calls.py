"""One function for each operation of the service: what to send, and what the answer means. No I/O.

Whether a call may be made again when its answer was lost is a property of the operation: ``repeatable``. A change with a condition
may, because a second one would be refused as stale.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from .errors import FileSecBoxError, Invalid, PathEscape
from .models import (
    Changed,
    Diff,
    FileInfo,
    Found,
    Lint,
    Match,
    Page,
    Pulled,
    RunInfo,
    RunResult,
    SkillInfo,
    Text,
    TextLines,
    Uploaded,
    UploadedSkill,
    Version,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Answer:
    """A whole answer that was no failure."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        """The envelope: ``data`` and what stands beside it."""
        try:
            decoded = json.loads(self.body)
        except ValueError as error:
            raise FileSecBoxError("the service answered no JSON", code="bad_answer", status=self.status) from error
        if not isinstance(decoded, dict):
            raise FileSecBoxError("the service answered no object", code="bad_answer", status=self.status)
        return decoded

    def data(self) -> Any:
        """What stands in ``data``."""
        return self.json().get("data")

    def records(self) -> list[Any]:
        """The list in ``data``."""
        data = self.data()
        if not isinstance(data, list):
            raise FileSecBoxError("the service answered no list", code="bad_answer", status=self.status)
        return data


@dataclass(frozen=True)
class Call(Generic[T_co]):
    """A request, and how to read its answer.

    ``operation`` is the ``operationId`` of ``GET /openapi.json``; of trees, without ``InWorkspace`` or ``InSkill``.
    """

    operation: str
    method: str
    path: str
    decode: Callable[[Answer], T_co]
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    repeatable: bool = False
    #: Whether a run is waited for, whose own deadline decides.
    waits: bool = False


#: Operations that have no method here, and why.
NOT_COVERED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("createDevbox", "deleteDevbox", "getDevbox", "execInDevbox", "downloadFromDevbox", "uploadToDevbox"),
            *("pauseDevbox", "resumeDevbox", "stopDevbox"),
        ),
        "a dialect for adapters of another provider, which bring their own client",
    ),
    **dict.fromkeys(("mcp", "mcpOfOwnUser"), "MCP has clients of its own"),
    **dict.fromkeys(("connectRunner", "fetchFile", "sendFile", "getReceived"), "what a runner asks, not a caller"),
    **dict.fromkeys(
        ("openTerminal",), "needs a WebSocket: use `start(..., tty=...)` for programs that want a terminal"
    ),
    **dict.fromkeys(
        ("getRoot", "getPage", "getOpenApi", "getMetrics"), "pages for people and machines: `request` fetches them"
    ),
    **dict.fromkeys(
        (
            f"{method}{which}"
            for method in ("get", "put", "post", "delete", "options", "head", "patch", "trace")
            for which in ("Port", "PortPath", "PortLink", "PortLinkPath")
        ),
        "the answers are those of a server in a sandbox: `request` asks it",
    ),
    **dict.fromkeys(("removeBytes", "execute"), "the same as `removeEntry` and `run`"),
}


def base64_text(data: bytes) -> str:
    """Bytes as JSON carries them."""
    return base64.b64encode(data).decode()


def segment(text: str) -> str:
    """One segment of a path, percent-encoded. ``.`` and ``..`` are refused: HTTP clients resolve them, and would ask another route."""
    if text in ("", ".", ".."):
        raise Invalid(f"`{text}` is no id")
    return quote(text, safe="")


def _nothing(_: Answer) -> None:
    return None


def _params(**values: object) -> dict[str, str]:
    def said(value: object) -> str:
        return ("true" if value else "false") if isinstance(value, bool) else str(value)

    return {name: said(value) for name, value in values.items() if value is not None}


def _json(value: object) -> dict[str, Any]:
    return {
        "body": json.dumps(value, ensure_ascii=False).encode(),
        "headers": {"Content-Type": "application/json"},
    }


def _conditions(if_match: str | None, if_missing: bool) -> dict[str, str]:
    if if_match is not None and if_missing:
        raise ValueError("`if_match` and `if_missing` exclude each other")
    return {"If-Match": if_match} if if_match is not None else {"If-None-Match": "*"} if if_missing else {}


def _changed(answer: Answer) -> Changed:
    return Changed.of(answer.json())


def _infos(answer: Answer) -> list[FileInfo]:
    return [FileInfo.of(each) for each in answer.records()]


def _object(answer: Answer) -> Mapping[str, Any]:
    data = answer.data()
    if not isinstance(data, dict):
        raise FileSecBoxError("the service answered no object", code="bad_answer", status=answer.status)
    return data


def _beside(answer: Answer) -> Mapping[str, Any]:
    return {name: value for name, value in answer.json().items() if name not in ("status", "data")}


def page(decode: Callable[[Any], T]) -> Callable[[Answer], Page[T]]:
    """Reads a page of a list."""
    return lambda answer: Page([decode(each) for each in answer.records()], answer.json().get("next"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return dict(value)


@dataclass(frozen=True)
class TreeCalls:
    """The operations of one tree; ``root`` is its path, such as ``/v1/sandbox/alice/demo``."""

    root: str

    def info(self) -> Call[Mapping[str, Any]]:
        """What a command finds in it, and the limits that hold for it."""
        return Call("getConditions", "GET", f"{self.root}/info", _object, repeatable=True)

    def stat(self, path: str, *, follow: bool = True) -> Call[FileInfo]:
        """Looks at an entry."""
        params = _params(path=path, follow=None if follow else False)
        return Call("getFacts", "GET", f"{self.root}/stat", lambda a: FileInfo.of(a.data()), params, repeatable=True)

    def list_dir(self, path: str) -> Call[list[FileInfo]]:
        """Lists one directory."""
        return Call("listDirectory", "GET", f"{self.root}/dir", _infos, _params(path=path), repeatable=True)

    def files(self, path: str, depth: int | None, limit: int | None, cursor: str | None) -> Call[Page[FileInfo]]:
        """Lists all files."""
        params = _params(path=path, depth=depth, detail=True, limit=limit, cursor=cursor)
        return Call("listFiles", "GET", f"{self.root}/files", page(FileInfo.of), params, repeatable=True)

    def glob(
        self, pattern: str, path: str, kind: str, hidden: bool | None, limit: int | None, cursor: str | None
    ) -> Call[Found[FileInfo]]:
        """Finds entries by a pattern."""
        params = _params(pattern=pattern, path=path, type=kind, hidden=hidden, detail=True, limit=limit, cursor=cursor)

        def decode(answer: Answer) -> Found[FileInfo]:
            beside = answer.json()
            return Found(_infos(answer), bool(beside.get("truncated")), beside.get("stopped_by"), beside.get("next"))

        return Call("findFiles", "GET", f"{self.root}/glob", decode, params, repeatable=True)

    def grep(self, body: Mapping[str, Any]) -> Call[Found[Match]]:
        """Finds lines by a regular expression."""

        def decode(answer: Answer) -> Found[Match]:
            beside = answer.json()
            matches = [Match.of(each) for each in answer.records()]
            return Found(matches, bool(beside.get("truncated")), beside.get("stopped_by"), beside.get("next"))

        return Call("searchLines", "POST", f"{self.root}/grep", decode, repeatable=True, **_json(body))

    def read_text(self, path: str) -> Call[Text]:
        """Reads a whole text."""

        def decode(answer: Answer) -> Text:
            beside = answer.json()
            return Text.of(beside, text=beside.get("data"), etag=answer.headers.get("etag"))

        return Call("readText", "GET", f"{self.root}/content", decode, _params(path=path), repeatable=True)

    def read_lines(self, path: str, start: int | None, end: int | None) -> Call[TextLines]:
        """Reads some lines of a text."""

        def decode(answer: Answer) -> TextLines:
            return TextLines.of(answer.json(), lines=answer.records(), etag=answer.headers.get("etag"))

        params = _params(path=path, start=1 if start is None else start, end=end)
        return Call("readText", "GET", f"{self.root}/content", decode, params, repeatable=True)

    def write_text(
        self, path: str, text: str, encoding: str | None, if_match: str | None, if_missing: bool
    ) -> Call[Changed]:
        """Replaces a text, or makes one."""
        headers = _conditions(if_match, if_missing) | {"Content-Type": "text/plain; charset=utf-8"}
        params = _params(path=path, encoding=encoding)
        return Call("editText", "PUT", f"{self.root}/edit", _changed, params, headers, text.encode(), repeatable=True)

    def edit_lines(self, path: str, start: int, end: int, text: str, if_match: str | None) -> Call[Changed]:
        """Replaces lines of a text."""
        headers = _conditions(if_match, False) | {"Content-Type": "text/plain; charset=utf-8"}
        params = _params(path=path, start=start, end=end)
        repeatable = if_match is not None
        return Call("editText", "PUT", f"{self.root}/edit", _changed, params, headers, text.encode(), repeatable)

    def replace(self, path: str, edits: Sequence[Mapping[str, Any]], if_match: str | None) -> Call[Changed]:
        """Replaces passages of a text, all of them or none."""
        sent = _json({"path": path, "edits": list(edits)})
        sent["headers"] |= _conditions(if_match, False)
        repeatable = if_match is not None
        return Call("replaceText", "POST", f"{self.root}/replace", _changed, repeatable=repeatable, **sent)

    def patch(self, patch: str, etags: Mapping[str, str | None] | None, dry_run: bool) -> Call[list[Changed]]:
        """Makes a unified diff, all of it or nothing."""
        body: dict[str, Any] = {"patch": patch, "dry_run": dry_run}
        if etags:
            body["etags"] = dict(etags)

        def decode(answer: Answer) -> list[Changed]:
            return [Changed.of(each) for each in answer.json().get("files", [])]

        return Call(
            "applyPatch", "POST", f"{self.root}/patch", decode, repeatable=bool(etags) or dry_run, **_json(body)
        )

    def raw(self, path: str) -> str:
        """The address of the bytes of a file.

        A ``..`` is refused here: HTTP clients resolve it, and would ask another route.
        """
        segments = [each for each in path.split("/") if each != "."]
        if ".." in segments:
            raise PathEscape(f"`{path}` leads out of its tree, or may: write it without `..`")
        if path.startswith("/"):
            return f"{self.root}/raw/%2F" + quote("/".join(segments[1:]), safe="/")
        return f"{self.root}/raw/" + quote("/".join(segments), safe="/")

    def head(self, path: str) -> Call[Mapping[str, str]]:
        """The headers of the bytes of a file."""
        return Call("headBytes", "HEAD", self.raw(path), lambda a: a.headers, repeatable=True)

    def read_bytes(self, path: str, start: int | None, end: int | None, if_match: str | None = None) -> Call[bytes]:
        """Reads a file, or the bytes from ``start`` up to and without ``end``."""
        headers = _conditions(if_match, False)
        if start is not None or end is not None:
            last = "" if end is None else str(end - 1)
            headers["Range"] = f"bytes={start or 0}-{last}"
        return Call("readBytes", "GET", self.raw(path), lambda a: a.body, headers=headers, repeatable=True)

    def write_bytes(
        self,
        path: str,
        body: bytes | None,
        parents: bool,
        mode: str | None,
        if_match: str | None,
        if_missing: bool,
    ) -> Call[Changed]:
        """Replaces or makes a file in one step."""
        headers = _conditions(if_match, if_missing) | {"Content-Type": "application/octet-stream"}
        params = _params(parents=parents or None, mode=mode)
        return Call("writeBytes", "PUT", self.raw(path), _changed, params, headers, body, repeatable=True)

    def remove(self, path: str, recursive: bool, if_match: str | None) -> Call[None]:
        """Removes an entry."""
        params, headers = _params(path=path, recursive=recursive or None), _conditions(if_match, False)
        return Call("removeEntry", "DELETE", f"{self.root}/file", _nothing, params, headers)

    def mkdir(self, path: str, mode: str, parents: bool) -> Call[bool]:
        """Makes a directory; tells whether there was none."""
        body = {"path": path, "mode": mode, "parents": parents}
        return Call(
            "makeDirectory",
            "POST",
            f"{self.root}/mkdir",
            lambda a: bool(a.json().get("created")),
            repeatable=parents,
            **_json(body),
        )

    def move(self, source: str, target: str, overwrite: bool, if_match: str | None) -> Call[None]:
        """Moves an entry within the tree."""
        sent = _json({"from": source, "to": target, "overwrite": overwrite})
        sent["headers"] |= _conditions(if_match, False)
        return Call("moveEntry", "POST", f"{self.root}/move", _nothing, **sent)

    def copy(self, source: str, target: str, overwrite: bool, recursive: bool, if_match: str | None) -> Call[None]:
        """Copies an entry within the tree."""
        sent = _json({"from": source, "to": target, "overwrite": overwrite, "recursive": recursive})
        sent["headers"] |= _conditions(if_match, False)
        return Call("copyEntry", "POST", f"{self.root}/copy", _nothing, **sent)

    def get_archive(self, path: str, archive_format: str) -> Call[bytes]:
        """Packs a directory."""
        params = _params(path=path, format=archive_format)
        return Call("getArchive", "GET", f"{self.root}/archive", lambda a: a.body, params, repeatable=True)

    def put_archive(self, path: str, body: bytes, parents: bool, charset: str) -> Call[Mapping[str, Any]]:
        """Unpacks an archive as a new directory."""
        params = _params(path=path, parents=parents or None, charset=charset)
        headers = {"Content-Type": "application/octet-stream"}
        return Call("putArchive", "PUT", f"{self.root}/archive", _beside, params, headers, body)

    def run(self, body: Mapping[str, Any], background: bool, stream: bool) -> Call[RunResult]:
        """Runs a command. The name in ``exec_id`` makes a repetition the same run."""

        def decode(answer: Answer) -> RunResult:
            return run_result(answer.json(), str(body["exec_id"]))

        sent = _json(body)
        if stream:
            sent["headers"]["Accept"] = "application/x-ndjson"
        params = _params(background=background or None)
        return Call("run", "POST", f"{self.root}/exec", decode, params, repeatable=True, waits=not background, **sent)

    def runs(self) -> Call[list[RunInfo]]:
        """The runs under way, and those that are remembered."""
        decode = lambda a: [RunInfo.of(each) for each in a.records()]  # noqa: E731
        return Call("listRuns", "GET", f"{self.root}/exec", decode, repeatable=True)

    def _of_run(self, exec_id: str, end: str = "") -> str:
        return f"{self.root}/exec/{segment(exec_id)}{end}"

    def get_run(self, exec_id: str, follow: bool) -> Call[Mapping[str, Any]]:
        """One run; with ``follow`` when it has ended."""
        params = _params(follow=follow or None)
        return Call("getRun", "GET", self._of_run(exec_id), _object, params, repeatable=True, waits=follow)

    def run_events(self, exec_id: str, after: int, follow: bool, encoding: str | None = None) -> Call[None]:
        """The events of a run behind the one with this number."""
        params = _params(after=after or None, follow=follow or None, encoding=encoding)
        headers = {"Accept": "application/x-ndjson"}
        return Call("getRun", "GET", self._of_run(exec_id), _nothing, params, headers, repeatable=True, waits=True)

    def kill(self, exec_id: str) -> Call[None]:
        """Kills a run with all its processes."""
        return Call("killRun", "DELETE", self._of_run(exec_id), _nothing, repeatable=True)

    def signal(self, exec_id: str, name: str) -> Call[None]:
        """Signals a run."""
        return Call("signalRun", "POST", self._of_run(exec_id, "/signal"), _nothing, **_json({"signal": name}))

    def feed(self, exec_id: str, body: bytes, close: bool) -> Call[None]:
        """Sends to the standard input of a run."""
        headers = {"Content-Type": "application/octet-stream"}
        params = _params(close=close or None)
        return Call("feedRun", "POST", self._of_run(exec_id, "/stdin"), _nothing, params, headers, body)

    def commit(self, exec_id: str) -> Call[Mapping[str, Any]]:
        """Takes the changes of a run that asked."""
        return Call("commitRun", "POST", self._of_run(exec_id, "/commit"), _beside)

    def discard(self, exec_id: str) -> Call[None]:
        """Drops the changes of a run that asked."""
        return Call("discardRun", "POST", self._of_run(exec_id, "/discard"), _nothing)

    def ports(self) -> Call[list[Mapping[str, Any]]]:
        """What listens."""
        decode = lambda a: [_mapping(each) for each in a.records()]  # noqa: E731
        return Call("listPorts", "GET", f"{self.root}/ports", decode, repeatable=True)

    def link_port(self, port: int, ttl_seconds: int) -> Call[str]:
        """Makes a link to a port, for a browser: a path behind the address of the service."""
        body = {"port": port, "ttl_seconds": ttl_seconds}
        return Call("linkPort", "POST", f"{self.root}/ports", lambda a: str(a.data()), repeatable=True, **_json(body))

    def events(self, after: str | None) -> Call[None]:
        """The changes of the tree as they happen."""
        headers = {"Accept": "application/x-ndjson"}
        params = _params(after=after)
        return Call("listen", "GET", f"{self.root}/events", _nothing, params, headers, repeatable=True, waits=True)


def run_result(envelope: Mapping[str, Any], exec_id: str) -> RunResult:
    """The result of a run, with what stands beside it."""
    beside = {name: envelope.get(name) for name in ("absorbed", "changes", "reached") if name in envelope}
    return RunResult.of(envelope.get("data"), exec_id=exec_id, **beside)


@dataclass(frozen=True)
class WorkspaceCalls(TreeCalls):
    """The operations of one workspace."""

    def usage(self) -> Call[Mapping[str, Any]]:
        """What it takes on the disk."""
        return Call("getWorkspace", "GET", self.root, _object, repeatable=True)

    def delete(self, force: bool, snapshots: bool) -> Call[None]:
        """Removes it with its home."""
        params = _params(force=force or None, snapshots=snapshots or None)
        return Call("removeWorkspace", "DELETE", self.root, _nothing, params)

    def prepare(self, body: Mapping[str, Any]) -> Call[Mapping[str, Any]]:
        """Brings it to the state that a round needs."""
        return Call("prepareWorkspace", "POST", f"{self.root}/prepare", _object, waits=True, **_json(body))

    def snapshots(self) -> Call[list[Mapping[str, Any]]]:
        """The snapshots, the oldest first."""
        decode = lambda a: [_mapping(each) for each in a.records()]  # noqa: E731
        return Call("listSnapshots", "GET", f"{self.root}/snapshots", decode, repeatable=True)

    def take_snapshot(self, name: str | None, note: str | None) -> Call[Mapping[str, Any]]:
        """Takes a snapshot."""
        body = {key: value for key, value in (("name", name), ("note", note)) if value is not None}
        return Call("takeSnapshot", "POST", f"{self.root}/snapshots", _object, **_json(body))

    def get_snapshot(self, snapshot: str) -> Call[Mapping[str, Any]]:
        """One snapshot."""
        return Call("getSnapshot", "GET", f"{self.root}/snapshots/{segment(snapshot)}", _object, repeatable=True)

    def restore(self, snapshot: str) -> Call[Mapping[str, Any]]:
        """Makes the workspace what it was at a snapshot."""
        return Call("restoreSnapshot", "POST", f"{self.root}/snapshots/{segment(snapshot)}/restore", _beside)

    def fork(self, snapshot: str, user: str, agent: str, replace: bool) -> Call[Mapping[str, Any]]:
        """Makes a snapshot the workspace of another user or agent."""
        body = {"user": user, "agent": agent, "replace": replace}
        path = f"{self.root}/snapshots/{segment(snapshot)}/fork"
        return Call("forkSnapshot", "POST", path, _beside, **_json(body))

    def remove_snapshot(self, snapshot: str) -> Call[None]:
        """Removes a snapshot."""
        return Call("removeSnapshot", "DELETE", f"{self.root}/snapshots/{segment(snapshot)}", _nothing)


@dataclass(frozen=True)
class SkillCalls(TreeCalls):
    """The operations of one skill."""

    def delete(self, scope: str) -> Call[None]:
        """Removes it from a layer."""
        return Call("removeSkill", "DELETE", self.root, _nothing, _params(scope=scope))

    def reset(self) -> Call[bool]:
        """Drops what the user changed; tells whether there was anything."""
        decode = lambda a: bool(a.json().get("changed"))  # noqa: E731
        return Call("resetSkill", "POST", f"{self.root}/reset", decode, repeatable=True)

    def diff(self) -> Call[list[Diff]]:
        """What the user changed."""
        decode = lambda a: [Diff.of(each) for each in a.records()]  # noqa: E731
        return Call("diffSkill", "GET", f"{self.root}/diff", decode, repeatable=True)

    def lint(self) -> Call[Lint]:
        """What other programs do not take of it."""
        decode = lambda a: Lint.of(a.data())  # noqa: E731
        return Call("lintSkill", "GET", f"{self.root}/lint", decode, repeatable=True)

    def versions(self) -> Call[list[Version]]:
        """The versions of the application that are there."""
        decode = lambda a: [Version.of(each) for each in a.records()]  # noqa: E731
        return Call("listVersions", "GET", f"{self.root}/versions", decode, repeatable=True)

    def version(self, version: str | int) -> Call[Version]:
        """One of them."""
        decode = lambda a: Version.of(a.data())  # noqa: E731
        return Call("getVersion", "GET", self._version(version), decode, repeatable=True)

    def remove_version(self, version: str | int, force: bool) -> Call[Mapping[str, Any]]:
        """Removes one."""
        return Call("removeVersion", "DELETE", self._version(version), _beside, _params(force=force or None))

    def pin_version(self, version: str | int) -> Call[Mapping[str, Any]]:
        """Has one stay."""
        return Call("pinVersion", "PUT", f"{self._version(version)}/pin", _beside, repeatable=True)

    def unpin_version(self, version: str | int) -> Call[Mapping[str, Any]]:
        """Lets one go like any other."""
        return Call("unpinVersion", "DELETE", f"{self._version(version)}/pin", _beside, repeatable=True)

    def download_version(self, version: str | int, layout: str) -> Call[bytes]:
        """One as a ZIP."""
        path, params = f"{self._version(version)}/download", _params(layout=layout)
        return Call("downloadVersion", "GET", path, lambda a: a.body, params, repeatable=True)

    def _version(self, version: str | int) -> str:
        return f"{self.root}/versions/{segment(str(version))}"

    def rollback(self, version: str | int, title: str | None, message: str | None) -> Call[Mapping[str, Any]]:
        """Makes a former or staged version the current one."""
        params = _params(version=str(version), title=title, message=message)
        return Call("rollbackSkill", "POST", f"{self.root}/rollback", _beside, params, repeatable=True)

    def promote(self, force: bool, title: str | None, message: str | None) -> Call[Mapping[str, Any]]:
        """Publishes what the user sees as the application's next version."""
        params = _params(force=force or None, title=title, message=message)
        return Call("promoteSkill", "POST", f"{self.root}/promote", _beside, params)

    def pull(self, prefer: str, dry_run: bool) -> Call[Pulled]:
        """Carries the user's changes over to the application's current version."""
        params = _params(prefer=prefer, dry_run=dry_run or None)
        decode = lambda a: Pulled.of(a.json())  # noqa: E731
        return Call("pullSkill", "POST", f"{self.root}/pull", decode, params, repeatable=dry_run)

    def download(self) -> Call[bytes]:
        """The merged view as a ZIP."""
        return Call("downloadSkill", "GET", f"{self.root}/download", lambda a: a.body, repeatable=True)


def list_skills(root: str) -> Call[list[SkillInfo]]:
    """The skills that a user sees with an agent; ``root`` is such as ``/v1/skills/alice/demo``."""
    decode = lambda a: [SkillInfo.of(each) for each in a.records()]  # noqa: E731
    return Call("listSkills", "GET", f"{root}/list", decode, repeatable=True)


def catalog(root: str, text_format: str) -> Call[str]:
    """The skills as a block for the prompt of a model."""
    params = _params(format=text_format)
    return Call("getCatalog", "GET", f"{root}/catalog", lambda a: str(a.data()), params, repeatable=True)


def shares(user: str, agent: str) -> Call[list[Mapping[str, Any]]]:
    """The share links of a user and agent."""
    return _get("listShares", f"/v1/shares/{segment(user)}/{segment(agent)}", _records)


def share(user: str, agent: str, body: Mapping[str, Any]) -> Call[Mapping[str, Any]]:
    """Makes a share link."""

    def decode(answer: Answer) -> Mapping[str, Any]:
        return {"link": answer.data(), **_beside(answer)}

    return Call("makeShare", "POST", f"/v1/shares/{segment(user)}/{segment(agent)}", decode, **_json(dict(body)))


def revoke_share(user: str, agent: str, share_id: str) -> Call[None]:
    """Revokes a share link."""
    path = f"/v1/shares/{segment(user)}/{segment(agent)}/{segment(share_id)}"
    return Call("revokeShare", "DELETE", path, _nothing)


def upload_skills(root: str, name: str, archive: bytes, **options: object) -> Call[Uploaded]:
    """Publishes the skills of an archive, which was called ``name``."""

    def decode(answer: Answer) -> Uploaded:
        result = answer.json().get("result")
        skills = [UploadedSkill.of(each) for each in (result or {}).get("skills", [])]
        return Uploaded.of(result, skills=skills)

    # A form, because the name of the file may name the skill. No archive holds its own digest.
    boundary = hashlib.sha256(archive).hexdigest()
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="archive"; '
        f"filename*=UTF-8''{quote(name, safe='')}\r\nContent-Type: application/octet-stream\r\n\r\n"
    )
    body = head.encode() + archive + f"\r\n--{boundary}--\r\n".encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    params = _params(**options)
    return Call("uploadSkills", "POST", f"{root}/upload", decode, params, headers, body, repeatable=True)


def _get(operation: str, path: str, decode: Callable[[Answer], T], **params: object) -> Call[T]:
    return Call(operation, "GET", path, decode, _params(**params), repeatable=True)


def _delete(operation: str, path: str, **params: object) -> Call[Mapping[str, Any]]:
    return Call(operation, "DELETE", path, _beside, _params(**params))


def _records(answer: Answer) -> list[Mapping[str, Any]]:
    return [_mapping(each) for each in answer.records()]


class ServiceCalls:
    """The operations of the service as a whole."""

    def health(self) -> Call[None]:
        """Whether the service answers."""
        return _get("getHealth", "/healthz", _nothing)

    def ready(self) -> Call[None]:
        """Whether the service takes changes."""
        return _get("getReadiness", "/readyz", _nothing)

    def info(self) -> Call[Mapping[str, Any]]:
        """What the service is, and what it grants."""
        return _get("getInfo", "/v1/info", _object)

    def whoami(self) -> Call[Mapping[str, Any]]:
        """The caller's role, and what its token is bound to."""
        return _get("getCaller", "/v1/whoami", _object)

    def audit(
        self, after: int | None, user: str | None, action: str | None, limit: int | None
    ) -> Call[list[Mapping[str, Any]]]:
        """Records of the audit log."""
        return _get("listAudit", "/v1/audit", _records, after=after, user=user, action=action, limit=limit)

    def registry(self, **filters: object) -> Call[Page[Mapping[str, Any]]]:
        """The table of what is published."""
        return _get("listRegistry", "/v1/registry", page(_mapping), **filters)

    def rebuild_registry(self) -> Call[Mapping[str, Any]]:
        """Makes that table anew."""
        return Call("rebuildRegistry", "POST", "/v1/registry/rebuild", _beside, repeatable=True)

    def runs(self, **filters: object) -> Call[Page[Mapping[str, Any]]]:
        """The runs of all trees."""
        return _get("listAllRuns", "/v1/runs", page(_mapping), **filters)

    def usage(self, **filters: object) -> Call[Page[Mapping[str, Any]]]:
        """What users take on the disk, agent by agent."""
        return _get("listUsage", "/v1/usage", page(_mapping), **filters)

    def users(self, limit: int | None, cursor: str | None) -> Call[Page[Mapping[str, Any]]]:
        """The users that have something here."""
        return _get("listUsers", "/v1/users", page(_mapping), limit=limit, cursor=cursor)

    def user(self, user: str) -> Call[Mapping[str, Any]]:
        """What one user has."""
        return _get("getUser", f"/v1/users/{segment(user)}", _object)

    def remove_user(self, user: str) -> Call[Mapping[str, Any]]:
        """Removes all that a user has."""
        return _delete("removeUser", f"/v1/users/{segment(user)}")

    def agents(self, limit: int | None, cursor: str | None) -> Call[Page[Mapping[str, Any]]]:
        """The agents that have something here."""
        return _get("listAgents", "/v1/agents", page(_mapping), limit=limit, cursor=cursor)

    def policy(self, agent: str) -> Call[Mapping[str, Any]]:
        """The policy of one agent."""
        return _get("getAgentPolicy", f"/v1/agents/{segment(agent)}/policy", _object)

    def set_policy(self, agent: str, policy: Mapping[str, Any]) -> Call[Mapping[str, Any]]:
        """Sets it."""
        path = f"/v1/agents/{segment(agent)}/policy"
        return Call("setAgentPolicy", "PUT", path, _beside, repeatable=True, **_json(dict(policy)))

    def remove_policy(self, agent: str) -> Call[Mapping[str, Any]]:
        """Removes it."""
        return _delete("removeAgentPolicy", f"/v1/agents/{segment(agent)}/policy")

    def workspaces(self, user: str | None, limit: int | None, cursor: str | None) -> Call[Page[Mapping[str, Any]]]:
        """The workspaces of all users, or of one."""
        if user is None:
            return _get("listWorkspaces", "/v1/sandbox", page(_mapping), limit=limit, cursor=cursor)
        path = f"/v1/sandbox/{segment(user)}"
        return _get("listWorkspacesOfUser", path, page(_mapping), limit=limit, cursor=cursor)

    def remove_workspaces(self, user: str | None, force: bool, snapshots: bool) -> Call[Mapping[str, Any]]:
        """Removes the workspaces of one user, or of all."""
        more = {"force": force or None, "snapshots": snapshots or None}
        if user is None:
            return _delete("removeAllWorkspaces", "/v1/sandbox", confirm="all-workspaces", **more)
        return _delete("removeWorkspacesOfUser", f"/v1/sandbox/{segment(user)}", **more)

    def runners(self, user: str) -> Call[list[Mapping[str, Any]]]:
        """The machines that a user lends."""
        return _get("listRunners", f"/v1/runners/{segment(user)}", _records)

    def of_runner(self, user: str, runner: str, act: str) -> Call[Mapping[str, Any]]:
        """Chooses, cuts or revokes a machine."""
        path = f"/v1/runners/{segment(user)}/{segment(runner)}"
        if act == "revoke":
            return _delete("revokeRunner", path)
        return Call(f"{act}Runner", "POST", f"{path}/{act}", _beside, repeatable=True)

    def issue_token(self, body: Mapping[str, Any]) -> Call[Mapping[str, Any]]:
        """Issues a signed token."""

        def decode(answer: Answer) -> Mapping[str, Any]:
            return {"token": answer.data(), **_beside(answer)}

        return Call("issueToken", "POST", "/v1/tokens", decode, **_json(dict(body)))

    def revocations(self, limit: int | None, cursor: str | None) -> Call[Page[Mapping[str, Any]]]:
        """The revocations that are in force."""
        return _get("listRevocations", "/v1/tokens", page(_mapping), limit=limit, cursor=cursor)

    def revoke_token(self, token_id: str) -> Call[Mapping[str, Any]]:
        """Revokes one token."""
        return _delete("revokeToken", f"/v1/tokens/{segment(token_id)}")

    def revoke_tokens_of(self, user: str) -> Call[Mapping[str, Any]]:
        """Revokes all tokens of a user."""
        return _delete("revokeTokensOfUser", "/v1/tokens", user=user)

    def put_package(self, version: str, archive: bytes, digest: str | None) -> Call[Mapping[str, Any]]:
        """Keeps the archive of a version."""
        headers = {"Content-Type": "application/octet-stream"}
        params = _params(digest=digest)
        path = f"/v1/packages/{segment(version)}"
        return Call("putPackage", "PUT", path, _beside, params, headers, archive, repeatable=True)

    def get_package(self, version: str) -> Call[bytes]:
        """The archive of a version."""
        return _get("readPackage", f"/v1/packages/{segment(version)}", lambda a: a.body)

    def describe_package(self, version: str) -> Call[Mapping[str, str]]:
        """The headers of the archive of a version."""
        path = f"/v1/packages/{segment(version)}"
        return Call("describePackage", "HEAD", path, lambda a: a.headers, repeatable=True)
