"""A service of one's own, from its start to its end."""

import os
from pathlib import Path

import pytest

from filesecbox import FileSecBox, Unauthenticated, Unavailable
from filesecbox.server import Server

BINARY = os.environ.get("FILESECBOX_BINARY", Path(__file__).parents[2] / "target" / "debug" / "filesecbox")


def test_a_server_has_the_settings_that_were_given_and_keeps_what_lies_in_its_root(tmp_path: Path) -> None:
    config = {"limits.runs.timeout_ms": 1000, "commands.network": "none"}
    with Server(tmp_path / "data", config=config, binary=BINARY) as server:
        with server.client() as box:
            info = box.info()
            assert (info["limits"]["runs"]["timeout_ms"], info["network"]) == (1000, "none")
            box.workspace("alice", "demo").write_text("kept.txt", "kept")
        with FileSecBox(server.url) as box, pytest.raises(Unauthenticated):
            box.info()
        assert server.token not in repr(server) and server.token not in server.log
    with pytest.raises(Unavailable):
        _ = server.url
    with Server(tmp_path / "data", binary=BINARY) as server, server.client() as box:
        assert box.workspace("alice", "demo").read_text("kept.txt").text == "kept"


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no directory")
    with pytest.raises(Unavailable, match="data"), Server(tmp_path / "data", binary=BINARY):
        pass
    with pytest.raises(FileNotFoundError), Server(binary=tmp_path / "none"):
        pass
