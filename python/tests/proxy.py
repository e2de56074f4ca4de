"""A way to the service that breaks: answers that are lost, and answers that are cut."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit


class Proxy:
    """Passes connections on. The next ``lost`` answers are thrown away; every answer ends after ``cut`` bytes, if that is not 0."""

    def __init__(self, url: str) -> None:
        at = urlsplit(url)
        self._to = (at.hostname or "", at.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.lost = 0
        self.cut = 0
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._pass_on, args=(caller,), daemon=True).start()

    def _pass_on(self, caller: socket.socket) -> None:
        with caller, socket.create_connection(self._to) as service, contextlib.suppress(OSError):
            threading.Thread(target=self._copy, args=(caller, service), daemon=True).start()
            # Closed alone, it would stay open for the other thread that reads from it.
            ended = contextlib.ExitStack()
            ended.callback(caller.shutdown, socket.SHUT_RDWR)
            with ended:
                self._answer(caller, service)

    def _answer(self, caller: socket.socket, service: socket.socket) -> None:
        passed = 0
        while piece := service.recv(65_536):
            if self.lost > 0:
                self.lost -= 1
                return
            if self.cut and passed + len(piece) > self.cut:
                caller.sendall(piece[: self.cut - passed])
                return
            caller.sendall(piece)
            passed += len(piece)

    @staticmethod
    def _copy(caller: socket.socket, service: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := caller.recv(65_536):
                service.sendall(piece)
            service.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def between(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
