"""A network in front of a server that can be made to lose everything: connections stand, and nothing comes any more."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

CHUNK_BYTES = 1 << 16
CONNECT_S = 20.0


class Lossy:
    """Passes bytes on while `passes` is set. What is sent meanwhile comes later, as TCP has it sent again."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._target = (place.hostname or "", place.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.passes = threading.Event()
        self.passes.set()
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.passes.set()
        for each in (self._listener, *self._ends):
            with suppress(OSError):  # it was closed by its peer
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the end: `close`, or a server that is gone
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target, timeout=CONNECT_S)
                far.settimeout(None)
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):  # the one or the other is gone
            while data := source.recv(CHUNK_BYTES):
                self.passes.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@contextmanager
def lossy(url: str) -> Iterator[Lossy]:
    network = Lossy(url)
    try:
        yield network
    finally:
        network.close()
