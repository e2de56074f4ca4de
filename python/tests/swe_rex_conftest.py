"""The fixtures that SWE-ReX's own tests of runtimes want, with a workspace behind them. Copied beside those tests."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator

import pytest
import uvicorn
from swerex.runtime.abstract import (
    AbstractRuntime,
    BashAction,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
)
from swerex.runtime.remote import RemoteRuntime

from filesecbox import AsyncFileSecBox
from filesecbox.integrations.swe_rex import FileSecBoxRuntime
from filesecbox.integrations.swe_rex_server import app_of
from filesecbox.server import Server

#: They look at the runtime's files from this host, and a workspace is not in its temporary directory.
ON_THE_HOST = {"test_read_write_file", "test_read_large_file"}

#: It waits by the clock: a pager that has not begun by then is ended by the interrupt, and nothing tells that it was killed.
BY_THE_CLOCK = {"test_interrupt_pager"}


class _Action(BashAction):  # type: ignore[misc]
    timeout: float | None = 30


class _Command(Command):  # type: ignore[misc]
    timeout: float | None = 30


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    # One of the tests interrupts a pager.
    with Server(config={"durability": "relaxed", "commands.extra": ["less"]}) as server:
        yield server


@contextlib.asynccontextmanager
async def over_http(runtime: FileSecBoxRuntime) -> AsyncIterator[RemoteRuntime]:
    """The framework's own client of a runtime, over its routes."""
    token = "of-the-tests"
    config = uvicorn.Config(app_of(runtime, token), port=0, log_level="error", lifespan="on")
    serving = uvicorn.Server(config)
    task = asyncio.create_task(serving.serve())
    while not serving.started:
        await asyncio.sleep(0.01)
    port = serving.servers[0].sockets[0].getsockname()[1]
    yield RemoteRuntime(host="http://127.0.0.1", port=port, auth_token=token, timeout=60)
    serving.should_exit = True
    await task


@pytest.fixture(params=["directly", "over HTTP"])
async def remote_runtime(server: Server, request: pytest.FixtureRequest) -> AsyncIterator[AbstractRuntime]:
    async with AsyncFileSecBox(server.url, server.token) as box:
        runtime = FileSecBoxRuntime(box.workspace("suite", f"swe-rex-{os.getpid()}"))
        if request.param == "directly":
            yield runtime
        else:
            async with over_http(runtime) as remote:
                yield remote
        await runtime.close()


@pytest.fixture
async def runtime_with_default_session(remote_runtime: AbstractRuntime) -> AsyncIterator[AbstractRuntime]:
    await remote_runtime.create_session(CreateBashSessionRequest())
    yield remote_runtime
    await remote_runtime.close_session(CloseBashSessionRequest())


@pytest.fixture(autouse=True)
def on_the_host(request: pytest.FixtureRequest) -> None:
    if request.node.originalname in ON_THE_HOST:
        request.applymarker(pytest.mark.xfail(strict=True, reason="it looks at the files from this host"))
    if request.node.originalname in BY_THE_CLOCK:
        request.applymarker(pytest.mark.xfail(reason="it waits by the clock"))
