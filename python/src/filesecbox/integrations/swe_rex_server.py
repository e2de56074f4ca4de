"""`app_of`: the HTTP routes of SWE-ReX in front of a workspace, for programs that know its `RemoteRuntime` alone.

    import uvicorn
    from filesecbox import AsyncFileSecBox
    from filesecbox.integrations.swe_rex import FileSecBoxRuntime
    from filesecbox.integrations.swe_rex_server import app_of

    runtime = FileSecBoxRuntime(AsyncFileSecBox().workspace("alice", "demo"))
    uvicorn.run(app_of(runtime, token), host="127.0.0.1", port=8000)

The routes and their answers are those of SWE-ReX 1.4; a request with the ``X-Request-ID`` of an earlier one is that one. No traceback
is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import tempfile
import zipfile
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, File, Form, Header, HTTPException, UploadFile
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from swerex.runtime.abstract import (
    AbstractRuntime,
    Action,
    CloseSessionRequest,
    Command,
    CreateSessionRequest,
    ReadFileRequest,
    UploadRequest,
    UploadResponse,
    WriteFileRequest,
)

__all__ = ["app_of"]

#: How many answers are remembered, for requests that come again.
_REMEMBERED = 64
#: The most bytes that an archive unpacks to.
_UNPACKED_BYTES = 2 * 1024**3

#: The name of a request.
RequestId = Annotated[str | None, Header(alias="X-Request-ID")]
#: Something that is done, and what comes of it.
Work = Callable[[], Awaitable[BaseModel]]


def app_of(runtime: AbstractRuntime, token: str) -> FastAPI:
    """The routes of one runtime, for callers that have the token. The runtime is closed with the application."""
    if not token:
        raise ValueError("whoever may run commands has to say a token: give one that is not empty")

    def checked(key: Annotated[str, Header(alias="X-API-Key")] = "") -> None:
        if not secrets.compare_digest(key.encode(), token.encode()):
            raise HTTPException(403, "the header `X-API-Key` is missing, or has another token")

    @contextlib.asynccontextmanager
    async def living(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await runtime.close()

    answers = _Answers()
    app = FastAPI(dependencies=[Depends(checked)], lifespan=living, docs_url=None, redoc_url=None, openapi_url=None)

    async def root() -> dict[str, str]:
        return {"message": "hello world"}

    async def is_alive() -> JSONResponse:
        return await answers.once(None, runtime.is_alive)

    async def create_session(request: CreateSessionRequest, request_id: RequestId = None) -> JSONResponse:
        return await answers.once(request_id, lambda: runtime.create_session(request))

    async def run_in_session(action: Action, request_id: RequestId = None) -> JSONResponse:
        return await answers.once(request_id, lambda: runtime.run_in_session(action))

    async def close_session(request: CloseSessionRequest, request_id: RequestId = None) -> JSONResponse:
        return await answers.once(request_id, lambda: runtime.close_session(request))

    async def execute(command: Command, request_id: RequestId = None) -> JSONResponse:
        return await answers.once(request_id, lambda: runtime.execute(command))

    async def read_file(request: ReadFileRequest, request_id: RequestId = None) -> JSONResponse:
        return await answers.once(request_id, lambda: runtime.read_file(request))

    async def write_file(request: WriteFileRequest, request_id: RequestId = None) -> JSONResponse:
        return await answers.once(request_id, lambda: runtime.write_file(request))

    async def upload(
        file: Annotated[UploadFile, File()],
        target_path: Annotated[str, Form()],
        unzip: Annotated[bool, Form()] = False,
    ) -> JSONResponse:
        return await answers.once(None, lambda: _upload(runtime, file, target_path, unzip))

    async def close(request_id: RequestId = None) -> JSONResponse:
        return await answers.once(request_id, runtime.close)

    for method, path, function in (
        ("GET", "/", root),
        ("GET", "/is_alive", is_alive),
        ("POST", "/create_session", create_session),
        ("POST", "/run_in_session", run_in_session),
        ("POST", "/close_session", close_session),
        ("POST", "/execute", execute),
        ("POST", "/read_file", read_file),
        ("POST", "/write_file", write_file),
        ("POST", "/upload", upload),
        ("POST", "/close", close),
    ):
        app.add_api_route(path, function, methods=[method])
    return app


class _Answers:
    """The answers of the last requests, and those that are to come."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, asyncio.Task[JSONResponse]] = OrderedDict()

    async def once(self, request_id: str | None, work: Work) -> JSONResponse:
        """Does something unless a request of this name has begun it; gives the answer of that."""
        task = self._of.get(request_id) if request_id else None
        if task is None:
            task = asyncio.create_task(_answer(work))
            if request_id:
                self._of[request_id] = task
                while len(self._of) > _REMEMBERED:
                    self._of.popitem(last=False)
        # Whoever lost the connection asks again.
        return await asyncio.shield(task)


async def _answer(work: Work) -> JSONResponse:
    try:
        return JSONResponse((await work()).model_dump())
    except Exception as error:
        told: dict[str, Any] = {
            "message": str(error),
            "class_path": f"{type(error).__module__}.{type(error).__name__}",
            "traceback": "",
            "extra_info": getattr(error, "extra_info", {}),
        }
        return JSONResponse({"swerexception": told}, status_code=511)


async def _upload(runtime: AbstractRuntime, file: UploadFile, target_path: str, unzip: bool) -> UploadResponse:
    with tempfile.TemporaryDirectory() as place:
        source = Path(place, "sent")
        if unzip:
            await asyncio.to_thread(_unpack, file, source)
        else:
            with source.open("wb") as written:
                while piece := await file.read(1024 * 1024):
                    await asyncio.to_thread(written.write, piece)
        return await runtime.upload(UploadRequest(source_path=str(source), target_path=target_path))


def _unpack(file: UploadFile, target: Path) -> None:
    target.mkdir()
    with zipfile.ZipFile(file.file) as archive:
        # No more than that comes of it: an entry ends where its head says.
        if sum(entry.file_size for entry in archive.infolist()) > _UNPACKED_BYTES:
            raise ValueError(f"the archive unpacks to more than {_UNPACKED_BYTES} bytes")
        archive.extractall(target)
        for entry in archive.infolist():
            # It makes files without the bit by which they are programs.
            if (entry.external_attr >> 16) & 0o100 and not entry.is_dir():
                made = target / entry.filename
                if made.is_file():
                    made.chmod(0o755)
