"""`AsyncFileSecBox`: a service, and what belongs to it as a whole."""

from __future__ import annotations

import contextlib
import json as codec
import os
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2

from .. import _calls as calls
from .._retry import Retries, may_repeat
from .._version import __version__
from ..errors import AmbiguousResult, CallTimeout, FileSecBoxError, Stale, Unauthenticated, Unavailable, of_answer
from ..models import Page
from . import _io
from .skills import AsyncSkill, AsyncSkills
from .workspace import AsyncWorkspace

T = TypeVar("T")
Token = str | Callable[[], str]

#: Where a service listens unless it is told otherwise.
DEFAULT_URL = "http://127.0.0.1:8003"
_CONNECT_SECONDS = 5.0
#: Silence of a stream after which it is taken for dead: it shows every 15 seconds that it lives.
_SILENCE_SECONDS = 45.0
#: Failures before anything was sent.
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


class AsyncFileSecBox:
    """A filesecbox service.

    ``url`` and ``token`` come from ``FILESECBOX_URL`` and ``FILESECBOX_TOKEN`` unless given. A token may be a function that returns
    one, which is asked again when the service refuses what it said before. ``timeout`` is the most seconds without a byte of an
    answer; a run that is waited for has its own deadline instead. ``http_client`` is used as it is, and not closed.
    """

    def __init__(
        self,
        url: str | None = None,
        token: Token | None = None,
        *,
        timeout: float = 60.0,
        retries: Retries | None = None,
        http_client: httpx2.AsyncClient | None = None,
    ) -> None:
        self.url = (url or os.environ.get("FILESECBOX_URL") or DEFAULT_URL).rstrip("/")
        self._token = token if token is not None else os.environ.get("FILESECBOX_TOKEN") or None
        self._told: str | None = None
        self._timeout = timeout
        self._retries = retries or Retries()
        self._http = http_client
        self._owns_http = http_client is None
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections. Workspaces and runs stay."""
        if self._owns_http and self._http is not None:
            http, self._http = self._http, None
            await http.aclose()

    def workspace(self, user: str | None = None, agent: str | None = None) -> AsyncWorkspace:
        """The workspace of a user with an agent; from ``FILESECBOX_USER`` and ``FILESECBOX_AGENT`` unless given."""
        return AsyncWorkspace(self, _said(user, "FILESECBOX_USER"), _said(agent, "FILESECBOX_AGENT"))

    def skills(self, user: str | None = None, agent: str | None = None) -> AsyncSkills:
        """The skills of a user with an agent."""
        return AsyncSkills(self, _said(user, "FILESECBOX_USER"), _said(agent, "FILESECBOX_AGENT"))

    def skill(self, skill_id: str, user: str | None = None, agent: str | None = None) -> AsyncSkill:
        """One skill of a user with an agent."""
        return self.skills(user, agent)[skill_id]

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> calls.Answer:
        """Makes any request, such as one for which this package has no method yet. It is repeated only when nothing was done."""
        sent = dict(headers or {})
        if json is not None:
            content = codec.dumps(json, ensure_ascii=False).encode()
            sent.setdefault("Content-Type", "application/json")
        call = calls.Call(
            "", method, path, lambda answer: answer, params or {}, sent, content, repeatable=method in ("GET", "HEAD")
        )
        return await self.call(call)

    async def call(self, call: calls.Call[T], body: Callable[[], AsyncIterator[bytes]] | None = None) -> T:
        """Makes one of the calls of this package; ``body`` gives its body anew for each attempt."""
        answered = await self._attempt(call, body, stream=False)
        try:
            content = await answered.aread()
            return call.decode(calls.Answer(answered.status_code, answered.headers, content))
        finally:
            await answered.aclose()

    @contextlib.asynccontextmanager
    async def stream(self, call: calls.Call[T]) -> AsyncIterator[httpx2.Response]:
        """Begins a call whose answer is read while it comes."""
        answered = await self._attempt(call, None, stream=True)
        try:
            yield answered
        finally:
            await answered.aclose()

    async def _attempt(
        self,
        call: calls.Call[T],
        body: Callable[[], AsyncIterator[bytes]] | None,
        *,
        stream: bool,
    ) -> httpx2.Response:
        """Makes a call until it is answered or may not be made again; gives the answer that is no failure."""
        began, attempt, named = time.monotonic(), 0, uuid.uuid4().hex
        is_renewed, is_lost = False, False
        while True:
            attempt += 1
            was_sent = True
            try:
                answered = await self._once(call, body, f"{named}-{attempt}", stream)
                if answered.status_code < 400:
                    return answered
                error = await _failure(answered)
            except _UNSENT as problem:
                error, was_sent = _unreachable(self.url, problem), False
            except httpx2.TimeoutException as problem:
                error = CallTimeout(f"{self.url} did not answer in time", status=0)
                error.__cause__ = problem
            except httpx2.TransportError as problem:
                error = _unreachable(self.url, problem)
            if isinstance(error, Unauthenticated) and callable(self._token) and not is_renewed:
                self._told, is_renewed = None, True
                continue
            if isinstance(error, Stale) and is_lost:
                raise AmbiguousResult(
                    "the answer was lost, and the file is another one now: the change was made, or another one came between",
                    status=error.status,
                    request_id=error.request_id,
                    details=error.details,
                ) from error
            is_lost = is_lost or (error.status == 0 and was_sent)
            pause = None
            if may_repeat(error, call.repeatable, was_sent):
                pause = self._retries.pause(attempt, time.monotonic() - began, error)
            if pause is None:
                raise error
            await _io.pause(pause)

    async def _once(
        self,
        call: calls.Call[T],
        body: Callable[[], AsyncIterator[bytes]] | None,
        request_id: str,
        stream: bool,
    ) -> httpx2.Response:
        if not call.path.startswith("/"):
            # It would be a part of the address, and the token might go to another host.
            raise ValueError("a path begins with `/`")
        read = _SILENCE_SECONDS if stream else None if call.waits else self._timeout
        headers = {
            "User-Agent": f"filesecbox-python/{__version__}",
            "x-request-id": request_id,
            # What comes is counted and put together again by its bytes.
            "Accept-Encoding": "identity",
            **call.headers,
        }
        token = self._present()
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        http = self._connected()
        request = http.build_request(
            call.method,
            self.url + call.path,
            params=dict(call.params) or None,
            headers=headers,
            content=body() if body is not None else call.body,
            timeout=httpx2.Timeout(self._timeout, connect=_CONNECT_SECONDS, read=read),
        )
        return await http.send(request, stream=True)

    def _connected(self) -> httpx2.AsyncClient:
        with self._lock:
            # Connections are not shared with a process that was forked.
            if self._http is None or (self._owns_http and self._pid != os.getpid()):
                self._http, self._pid = httpx2.AsyncClient(), os.getpid()
            return self._http

    def _present(self) -> str | None:
        if not callable(self._token):
            return self._token
        if self._told is None:
            self._told = self._token()
        return self._told

    async def health(self) -> None:
        """Returns when the service answers."""
        await self.call(calls.ServiceCalls().health())

    async def ready(self) -> None:
        """Returns when the service takes changes."""
        await self.call(calls.ServiceCalls().ready())

    async def info(self) -> Mapping[str, Any]:
        """What the service is, and what its host grants to commands."""
        return await self.call(calls.ServiceCalls().info())

    async def whoami(self) -> Mapping[str, Any]:
        """The caller's role, and what its token is bound to."""
        return await self.call(calls.ServiceCalls().whoami())

    async def audit(
        self,
        *,
        after: int | None = None,
        user: str | None = None,
        action: str | None = None,
        limit: int | None = None,
    ) -> list[Mapping[str, Any]]:
        """Records of the audit log, oldest first."""
        return await self.call(calls.ServiceCalls().audit(after, user, action, limit))

    async def registry(
        self,
        *,
        id: str | None = None,
        agent: str | None = None,
        user: str | None = None,
        skill: str | None = None,
        scope: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Mapping[str, Any]]:
        """The table of what is published; with `id` the row with this id alone."""
        filters = {"agent": agent, "user": user, "skill": skill, "scope": scope, "limit": limit, "cursor": cursor}
        return await self.call(calls.ServiceCalls().registry(id=id, **filters))

    async def rebuild_registry(self) -> Mapping[str, Any]:
        """Makes the table of what is published anew from the disk."""
        return await self.call(calls.ServiceCalls().rebuild_registry())

    async def runs(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        state: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Mapping[str, Any]]:
        """The runs of all trees that the caller may know of."""
        filters = {"user": user, "agent": agent, "state": state, "limit": limit, "cursor": cursor}
        return await self.call(calls.ServiceCalls().runs(**filters))

    async def usage(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Mapping[str, Any]]:
        """What users take on the disk, agent by agent."""
        filters = {"user": user, "agent": agent, "limit": limit, "cursor": cursor}
        return await self.call(calls.ServiceCalls().usage(**filters))

    async def users(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Mapping[str, Any]]:
        """The users that have something here."""
        return await self.call(calls.ServiceCalls().users(limit, cursor))

    async def user(self, user: str) -> Mapping[str, Any]:
        """What one user has."""
        return await self.call(calls.ServiceCalls().user(user))

    async def remove_user(self, user: str) -> Mapping[str, Any]:
        """Removes everything that a user has, everywhere."""
        return await self.call(calls.ServiceCalls().remove_user(user))

    async def agents(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Mapping[str, Any]]:
        """The agents that have something here."""
        return await self.call(calls.ServiceCalls().agents(limit, cursor))

    async def policy(self, agent: str) -> Mapping[str, Any]:
        """The policy of one agent."""
        return await self.call(calls.ServiceCalls().policy(agent))

    async def set_policy(self, agent: str, policy: Mapping[str, Any]) -> Mapping[str, Any]:
        """Sets the policy of one agent."""
        return await self.call(calls.ServiceCalls().set_policy(agent, policy))

    async def remove_policy(self, agent: str) -> Mapping[str, Any]:
        """Removes the policy of one agent."""
        return await self.call(calls.ServiceCalls().remove_policy(agent))

    async def workspaces(
        self, user: str | None = None, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Mapping[str, Any]]:
        """The workspaces of all users, or of one."""
        return await self.call(calls.ServiceCalls().workspaces(user, limit, cursor))

    async def remove_workspaces(
        self, user: str | None, *, force: bool = False, snapshots: bool = False
    ) -> Mapping[str, Any]:
        """Removes the workspaces of a user, with ``None`` those of all users."""
        return await self.call(calls.ServiceCalls().remove_workspaces(user, force, snapshots))

    async def runners(self, user: str) -> list[Mapping[str, Any]]:
        """The machines that a user lends."""
        return await self.call(calls.ServiceCalls().runners(user))

    async def choose_runner(self, user: str, runner: str) -> None:
        """Makes a machine the one that answers."""
        await self.call(calls.ServiceCalls().of_runner(user, runner, "choose"))

    async def cut_runner(self, user: str, runner: str) -> None:
        """Cuts the connection of a machine."""
        await self.call(calls.ServiceCalls().of_runner(user, runner, "cut"))

    async def revoke_runner(self, user: str, runner: str) -> None:
        """Forgets a machine, and revokes its token."""
        await self.call(calls.ServiceCalls().of_runner(user, runner, "revoke"))

    async def issue_token(
        self, user: str, *, agent: str | None = None, ttl_seconds: int | None = None
    ) -> Mapping[str, Any]:
        """Issues a signed token: ``token``, ``id`` and ``expires_at``."""
        body = {"user": user, "agent": agent, "ttl_seconds": ttl_seconds}
        return await self.call(calls.ServiceCalls().issue_token({k: v for k, v in body.items() if v is not None}))

    async def revocations(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Mapping[str, Any]]:
        """The revocations of tokens that are in force."""
        return await self.call(calls.ServiceCalls().revocations(limit, cursor))

    async def revoke_token(self, token_id: str) -> None:
        """Revokes one token, or a link to a port."""
        await self.call(calls.ServiceCalls().revoke_token(token_id))

    async def revoke_tokens_of(self, user: str) -> None:
        """Revokes all signed tokens of a user that were issued until now."""
        await self.call(calls.ServiceCalls().revoke_tokens_of(user))

    async def put_package(self, version: str, archive: bytes, *, digest: str | None = None) -> Mapping[str, Any]:
        """Keeps the archive of a version, which ``prepare`` deploys; ``digest`` is ``sha256:`` and 64 digits."""
        return await self.call(calls.ServiceCalls().put_package(version, archive, digest))

    async def get_package(self, version: str) -> bytes:
        """The archive of a version."""
        return await self.call(calls.ServiceCalls().get_package(version))

    async def describe_package(self, version: str) -> Mapping[str, str]:
        """The headers of the archive of a version, its digest among them."""
        return await self.call(calls.ServiceCalls().describe_package(version))


def _said(value: str | None, variable: str) -> str:
    value = value if value is not None else os.environ.get(variable)
    if not value:
        raise ValueError(f"say whose it is: neither the argument nor {variable} is given")
    return value


async def _failure(answered: httpx2.Response) -> FileSecBoxError:
    try:
        text = await answered.aread()
    finally:
        await answered.aclose()
    try:
        body = codec.loads(text)
    except ValueError:
        body = None
    headers = answered.headers
    return of_answer(answered.status_code, body, headers.get("retry-after"), headers.get("x-request-id"))


def _unreachable(url: str, problem: Exception) -> FileSecBoxError:
    error = Unavailable(f"{url} cannot be reached, or broke off: {problem}", code="unreachable")
    error.__cause__ = problem
    return error
