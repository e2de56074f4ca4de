"""Both clients do everything that the service offers, and a new operation without a method is noticed."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from everything import Awaited, Recording, story

from filesecbox import FileSecBox
from filesecbox._calls import NOT_COVERED
from filesecbox.server import Server


def offered(box: FileSecBox) -> set[str]:
    """The operations of the service, those of both kinds of trees once."""
    document = box.request("GET", "/openapi.json").json()
    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    return {name.removesuffix("InWorkspace").removesuffix("InSkill") for name in names}


def test_the_synchronous_client_does_everything(server: Server, tmp_path: Path) -> None:
    with server.client() as box:
        noted = Recording(box)
        asyncio.run(story(Awaited(box), "同步", tmp_path))
        assert noted.operations - {""} == offered(box) - NOT_COVERED.keys()


def test_the_asynchronous_client_does_everything(server: Server, tmp_path: Path) -> None:
    async def told() -> set[str]:
        async with server.async_client() as box:
            noted = Recording(box)
            await story(box, "异步", tmp_path)
            return noted.operations - {""}

    operations = asyncio.run(told())
    with server.client() as box:
        assert operations == offered(box) - NOT_COVERED.keys()
        assert NOT_COVERED.keys() <= offered(box)


def test_the_synchronous_client_is_made_of_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    script = Path(__file__).parents[1] / "scripts" / "unasync.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
