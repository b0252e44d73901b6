"""A unix-socket proxy that misbehaves on purpose, for calls whose bytes contain a given word."""

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

CHUNK_BYTES = 1 << 16


class Proxy:
    """Passes everything on, until told otherwise."""

    def __init__(self, directory: Path, target: Path) -> None:
        self.path = directory / "proxy.sock"
        self.url = f"unix://{self.path}"
        self.hits = 0
        self._target = target
        self._next: list[Path] = []
        self._lose: bytes | None = None
        self._stall: bytes | None = None

    def lose_answer(self, word: bytes) -> None:
        """The next call that contains `word` reaches the server, its answer does not come back: the line is cut."""
        self._lose = word

    def stall(self, word: bytes) -> None:
        """Calls that contain `word` are never passed on from now, nor answered."""
        self._stall = word

    def lead_to(self, *targets: Path) -> None:
        """New connections lead there, one to each, and all later ones to the last. Those that are open stay."""
        self._next = list(targets)

    async def serve(self, client: trio.SocketStream) -> None:
        """One connection."""
        self._target = self._next.pop(0) if self._next else self._target
        async with client, await trio.open_unix_socket(self._target) as server, trio.open_nursery() as nursery:
            losing = trio.Event()
            nursery.start_soon(self._down, server, client, losing, nursery.cancel_scope)
            try:
                await self._up(client, server, losing)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self.hits += 0  # the other side was cut: so are we
            nursery.cancel_scope.cancel()

    async def _up(self, client: trio.SocketStream, server: trio.SocketStream, losing: trio.Event) -> None:
        while data := await client.receive_some(CHUNK_BYTES):
            if self._stall is not None and self._stall in data:
                self.hits += 1
                await trio.sleep_forever()
            if self._lose is not None and self._lose in data:
                self._lose = None
                self.hits += 1
                losing.set()
            await server.send_all(data)

    async def _down(
        self, server: trio.SocketStream, client: trio.SocketStream, losing: trio.Event, scope: trio.CancelScope
    ) -> None:
        while data := await server.receive_some(CHUNK_BYTES):
            if losing.is_set():
                break
            await client.send_all(data)
        scope.cancel()


@asynccontextmanager
async def open_proxy(target: Path) -> AsyncIterator[Proxy]:
    """A proxy to the socket `target`."""
    directory = Path(tempfile.mkdtemp(prefix="jqd-"))
    proxy = Proxy(directory, target)
    listener = trio.socket.socket(trio.socket.AF_UNIX)
    try:
        await listener.bind(str(proxy.path))
        listener.listen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.serve_listeners, proxy.serve, [trio.SocketListener(listener)]))
            yield proxy
            nursery.cancel_scope.cancel()
    finally:
        listener.close()
        shutil.rmtree(directory)
