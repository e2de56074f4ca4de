"""`Server`: a service of one's own for as long as a ``with`` block, such as for tests."""

from __future__ import annotations

import importlib.metadata
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ._async.client import AsyncFileSecBox
from ._sync.client import FileSecBox
from .errors import Unavailable

__all__ = ["Server"]

#: How long a service may take to say that it listens, and to stop, in seconds.
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0


def _installed() -> Path | None:
    """The program that came with this package: a wheel for Linux has it, and its version is that of this client."""
    try:
        files = importlib.metadata.files("filesecbox") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    # Beside it stand the package's directory and its metadata, which have files of other names alone.
    programs = [Path(str(file.locate())) for file in files if file.name == "filesecbox"]
    return next((program for program in programs if program.is_file()), None)


class Server:
    """A service on a free port of this machine, with an admin's token that nothing else knows.

    ``root`` is its data directory: a temporary one that goes with it unless given. ``config`` has settings by their dotted names,
    such as ``{"limits.runs.timeout_ms": 60_000}``. The program is ``binary``, else what ``FILESECBOX_BINARY`` names, else the one that
    was installed with this package, else ``filesecbox`` on the path.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        binary: str | os.PathLike[str] | None = None,
    ) -> None:
        self.token = secrets.token_urlsafe(32)
        self._root = None if root is None else Path(root)
        self._config = dict(config or {})
        self._binary = binary
        self._own: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[str] | None = None
        self._url: str | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url or 'not running'})"

    @property
    def url(self) -> str:
        """Where it listens."""
        if self._url is None:
            raise Unavailable("the service does not run: use `with`")
        return self._url

    @property
    def log(self) -> str:
        """What it has logged."""
        return "" if self._own is None else Path(self._own.name, "log").read_text(encoding="utf-8", errors="replace")

    def client(self) -> FileSecBox:
        """A client with the admin's token."""
        return FileSecBox(self.url, self.token)

    def async_client(self) -> AsyncFileSecBox:
        """An asynchronous client with the admin's token."""
        return AsyncFileSecBox(self.url, self.token)

    def __enter__(self) -> Self:
        program = self._binary or os.environ.get("FILESECBOX_BINARY") or _installed() or shutil.which("filesecbox")
        if not program:
            raise Unavailable(
                "no program `filesecbox`: wheels for Linux alone have it. Put it on the path, or set "
                "FILESECBOX_BINARY to it"
            )
        self._own = tempfile.TemporaryDirectory(prefix="filesecbox-")
        try:
            self._url = self._start(program, Path(self._own.name))
        except BaseException:
            self._stop()
            raise
        return self

    def _start(self, program: str | os.PathLike[str], own: Path) -> str:
        (own / "token").touch(mode=0o600)
        (own / "token").write_text(self.token, encoding="utf-8")
        # The service gets nothing of this process's environment that could be a setting or a secret.
        environment = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
        for name, value in self._config.items():
            variable = "FILESECBOX_" + name.upper().replace(".", "__")
            environment[variable] = value if isinstance(value, str) else json.dumps(value)
        command = [os.fspath(program), "serve", "--listen", "127.0.0.1:0", "--root", str(self._root or own / "data")]
        command += ["--token-file", str(own / "token")]
        with (own / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        return self._said(self._process)

    def _said(self, process: subprocess.Popen[str]) -> str:
        said: list[str] = []
        assert process.stdout is not None
        reader = threading.Thread(target=lambda out: said.append(out.readline()), args=(process.stdout,), daemon=True)
        reader.start()
        reader.join(_START_SECONDS)
        _, found, url = (said[0] if said else "").strip().partition("listening on ")
        if not found:
            raise Unavailable(f"the service did not start: {self.log[-2000:]}")
        return url

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        process, self._process, self._url = self._process, None, None
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        own, self._own = self._own, None
        if own is not None:
            own.cleanup()
