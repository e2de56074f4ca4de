r"""A plugin for pytest: a service of the tests' own, and a fresh workspace for each test that asks for one.

    def test_words_are_counted(filesecbox_workspace):
        filesecbox_workspace.write_text("a.txt", "one two")
        assert filesecbox_workspace.run("wc -w < a.txt").stdout == "2\n"

pytest finds it by itself where `filesecbox` is installed. It is a package of its own so that other tests do not wait for the client
to be imported. The program is what ``FILESECBOX_BINARY`` names, else the one that came with this package, else
``filesecbox`` on the path.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from filesecbox import FileSecBox, Workspace
    from filesecbox.server import Server

#: Tiers of isolation, the weakest first.
_TIERS = ("process", "landlock", "namespaces")


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known."""
    config.addinivalue_line(
        "markers", "filesecbox_tier(tier): skip where the host confines commands by a weaker tier than this"
    )


@pytest.fixture(scope="session")
def filesecbox_config() -> Mapping[str, Any]:
    """The settings of the service, by their dotted names: to be overridden in a ``conftest.py``."""
    return {"durability": "relaxed"}


@pytest.fixture(scope="session")
def filesecbox_server(filesecbox_config: Mapping[str, Any]) -> Iterator[Server]:
    """A service for all tests, on a free port, in a temporary directory that goes with it."""
    from filesecbox.server import Server

    with Server(config=filesecbox_config) as server:
        yield server


@pytest.fixture
def filesecbox_client(filesecbox_server: Server, request: pytest.FixtureRequest) -> Iterator[FileSecBox]:
    """A client with the admin's token; for coroutines there is ``filesecbox_server.async_client()``."""
    with filesecbox_server.client() as box:
        marker = request.node.get_closest_marker("filesecbox_tier")
        if marker is not None:
            wanted, tier = _TIERS.index(marker.args[0]), box.info()["host"]["enforcement"]["tier"]
            if tier not in _TIERS[wanted:]:
                pytest.skip(f"commands are confined by tier {tier} here, and {marker.args[0]} is wanted")
        yield box


@pytest.fixture
def filesecbox_workspace(filesecbox_client: FileSecBox) -> Iterator[Workspace]:
    """A workspace that no other test has, and that is removed with everything that runs in it."""
    workspace = filesecbox_client.workspace("pytest", f"test-{uuid.uuid4().hex}")
    yield workspace
    workspace.delete(force=True, snapshots=True)
