"""Stands between a store and its server, sees every command on its own, and answers some of them itself.

It runs in threads and serves blocking callers, so a test whose clock jumps may call the store in place: while a command
is under way the test's loop stands still, and the commands of a run come in the same order every time.
"""

import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import hiredis

CHUNK_BYTES = 1 << 16
JOIN_S = 10.0  # for a thread whose socket was closed


class Fault(NamedTuple):
    """What becomes of a command instead of its answer."""

    name: str
    answer: bytes = b""
    """Given in place of the server, which never sees the command."""
    reaches: bool = False
    """The server gets the command, its answer is lost and the connection cut."""
    slow: bool = False
    """The answer comes byte by byte."""
    silent: bool = False
    """Nothing is passed on and nothing answered: the other side is gone without a word."""


def error(words: str) -> Fault:
    """An error reply; its first word names it."""
    return Fault(words.split(" ")[0], f"-{words}\r\n".encode())


LOST = Fault("answer lost", reaches=True)
CUT = Fault("connection cut")
TRICKLE = Fault("trickle", slow=True)
SILENT = Fault("half-open", silent=True)

Plan = Callable[[int, list[bytes]], Fault | None]


class Gate:
    """Passes commands on; `plan`, given the number of a command from 1 and its words, may name a fault for it."""

    def __init__(self, directory: Path, target: Path) -> None:
        self.path = directory / "gate.sock"
        self.url = f"unix://{self.path}"
        self.plan: Plan = lambda number, words: None
        self.seen = 0
        self.struck: list[tuple[int, str, bytes]] = []
        """Number, fault and first words of each command that was struck."""
        self._target = target
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Cut all connections and wait until nobody serves them."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(JOIN_S)
        for one in self._open:
            with suppress(OSError):  # it is closed already
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(JOIN_S)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # `close`
            self._open.append(client)
            self._threads.append(threading.Thread(target=self._serve, args=(client,), daemon=True))
            self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        commands = hiredis.Reader()
        with closing(client), socket.socket(socket.AF_UNIX) as server, suppress(ConnectionError):
            server.connect(str(self._target))
            while data := client.recv(CHUNK_BYTES):
                commands.feed(data)
                while (words := commands.gets()) is not False:
                    if not self._command(client, server, words):
                        return

    def _command(self, client: socket.socket, server: socket.socket, words: list[bytes]) -> bool:
        """Whether the connection goes on."""
        self.seen += 1
        fault = self.plan(self.seen, words)
        if fault is not None:
            self.struck.append((self.seen, fault.name, b" ".join(words[:2])))
        if fault is None or fault.reaches or fault.slow:
            server.sendall(_packed(words))
            answer = _answer(server)
            if fault is None:
                client.sendall(answer)
            elif fault.slow:
                for at in range(len(answer)):
                    client.sendall(answer[at : at + 1])
                return True
        elif fault.answer:
            client.sendall(fault.answer)
            return True
        elif fault.silent:
            while client.recv(CHUNK_BYTES):
                continue  # until the caller gives up
        return fault is None


def _packed(words: list[bytes]) -> bytes:
    return b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)])


def _answer(server: socket.socket) -> bytes:
    """One whole answer, as it came."""
    reader, raw = hiredis.Reader(), b""
    found: Any = False
    while found is False:
        data = server.recv(CHUNK_BYTES)
        if not data:
            raise ConnectionResetError("the server went away")
        raw += data
        reader.feed(data)
        found = reader.gets()
    return raw


@contextmanager
def open_gate(target: Path) -> Iterator[Gate]:
    """A gate before the socket `target`."""
    directory = Path(tempfile.mkdtemp(prefix="jqd-"))
    gate = Gate(directory, target)
    try:
        yield gate
    finally:
        gate.close()
        shutil.rmtree(directory)
