"""A real service for the tests: the program in ``FILESECBOX_BINARY``, on a port of its own, in a directory that goes."""

import hashlib
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from filesecbox import FileSecBox, Workspace

ADMIN = "an-admin-token-of-the-tests-of-python"
ALICE = "a-user-token-of-the-tests-of-python-1"


@dataclass(frozen=True)
class Service:
    url: str
    root: Path


def binary() -> str:
    built = Path(__file__).parents[2] / "target" / "debug" / "filesecbox"
    return os.environ.get("FILESECBOX_BINARY") or str(built)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    base = tmp_path_factory.mktemp("service")
    settings = ""
    for token, role in ((ADMIN, 'role = "admin"'), (ALICE, 'role = "user"\nuser = "alice"')):
        settings += f'[[tokens]]\nsha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n{role}\n'
    (base / "config.toml").write_text(settings)
    log = (base / "log").open("w")
    command = [binary(), "serve", "--listen", "127.0.0.1:0", "--root", str(base / "data")]
    command += ["--config", str(base / "config.toml"), "--durability", "relaxed"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, (base / "log").read_text()
        yield Service(found[0], base)
        process.terminate()
    log.close()


@pytest.fixture
def box(service: Service) -> Iterator[FileSecBox]:
    with FileSecBox(service.url, ADMIN) as box:
        yield box


@pytest.fixture
def workspace(box: FileSecBox, request: pytest.FixtureRequest) -> Iterator[Workspace]:
    """A workspace that no other test has."""
    workspace = box.workspace("tests", re.sub(r"\W", "-", request.node.name)[:100])
    yield workspace
    workspace.delete(force=True, snapshots=True)
