"""The fixtures that SWE-ReX's own tests of runtimes want, with a workspace behind them. Copied beside those tests."""

import os
from collections.abc import AsyncIterator, Iterator

import pytest
from swerex.runtime.abstract import BashAction, CloseBashSessionRequest, Command, CreateBashSessionRequest

from filesecbox import AsyncFileSecBox
from filesecbox.integrations.swe_rex import FileSecBoxRuntime
from filesecbox.server import Server

#: They look at the runtime's files from this host, and a workspace is not in its temporary directory.
ON_THE_HOST = {"test_read_write_file", "test_read_large_file"}


class _Action(BashAction):  # type: ignore[misc]
    timeout: float | None = 30


class _Command(Command):  # type: ignore[misc]
    timeout: float | None = 30


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    # One of the tests interrupts a pager.
    with Server(config={"durability": "relaxed", "commands.extra": ["less"]}) as server:
        yield server


@pytest.fixture
async def remote_runtime(server: Server) -> AsyncIterator[FileSecBoxRuntime]:
    async with AsyncFileSecBox(server.url, server.token) as box:
        runtime = FileSecBoxRuntime(box.workspace("suite", f"swe-rex-{os.getpid()}"))
        yield runtime
        await runtime.close()


@pytest.fixture
async def runtime_with_default_session(remote_runtime: FileSecBoxRuntime) -> AsyncIterator[FileSecBoxRuntime]:
    await remote_runtime.create_session(CreateBashSessionRequest())
    yield remote_runtime
    await remote_runtime.close_session(CloseBashSessionRequest())


@pytest.fixture(autouse=True)
def on_the_host(request: pytest.FixtureRequest) -> None:
    if request.node.name in ON_THE_HOST:
        request.applymarker(pytest.mark.xfail(strict=True, reason="it looks at the files from this host"))
