"""The examples of the README, run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from filesecbox.server import Server

BINARY = os.environ.get("FILESECBOX_BINARY", Path(__file__).parents[2] / "target" / "debug" / "filesecbox")
README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_of_the_readme_runs(server: Server, number: int) -> None:
    environment = {"FILESECBOX_URL": server.url, "FILESECBOX_TOKEN": server.token, "PATH": "/usr/bin:/bin"}
    environment["FILESECBOX_BINARY"] = str(BINARY)
    environment["PYTHONPATH"] = str(Path(__file__).parents[1] / "src")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", EXAMPLES[number]],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 6
