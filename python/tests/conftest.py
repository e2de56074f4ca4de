"""A real service for the tests: the program in ``FILESECBOX_BINARY``, on a port of its own, in a directory that goes."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from filesecbox import FileSecBox, Workspace
from filesecbox.server import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    built = Path(__file__).parents[2] / "target" / "debug" / "filesecbox"
    binary = os.environ.get("FILESECBOX_BINARY", built)
    with Server(binary=binary, config={"durability": "relaxed", "shares.enabled": True}) as server:
        yield server


@pytest.fixture
def box(server: Server) -> Iterator[FileSecBox]:
    with server.client() as box:
        yield box


@pytest.fixture
def workspace(box: FileSecBox, request: pytest.FixtureRequest) -> Iterator[Workspace]:
    """A workspace that no other test has."""
    workspace = box.workspace("tests", re.sub(r"\W", "-", request.node.name)[:100])
    yield workspace
    workspace.delete(force=True, snapshots=True)
