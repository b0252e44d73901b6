"""The way from one daemon to the store, as a proxy that can be told to misbehave."""

import random
from pathlib import Path

import trio

from jqd.store.functions import shipped

CHUNK_BYTES = 65_536
DROP_SHARE = 0.2  # of replies, while replies are dropped


class Edge:
    """Passes bytes both ways. `mode`: what it does instead.

    pass; delay: each piece waits; drop: a reply is thrown away now and then and its connection breaks; hole: everything
    is swallowed, and comes when the hole is mended; mute: a hole for replies only; cut: connections break, and none is
    let in.
    """

    def __init__(self, name: str, store: Path, source: random.Random) -> None:
        self.name = name
        self.url = ""
        self._store = store
        self._source = source
        self._mode = "pass"
        self._delay_s = 0.0
        self._mended = trio.Event()
        self._mended.set()
        self._open: set[trio.CancelScope] = set()
        self._muted_by: tuple[bytes, trio.Event] | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; `url` is set when it has started."""
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.url = f"redis://127.0.0.1:{listener.socket.getsockname()[1]}/0"
        task_status.started()
        await trio.serve_listeners(self._serve, [listener])

    def misbehave(self, mode: str, delay_s: float = 0.0) -> None:
        """From now on."""
        self._mode, self._delay_s = mode, delay_s
        if mode in ("hole", "mute") and self._mended.is_set():
            self._mended = trio.Event()
        if mode == "cut":
            for scope in self._open:
                scope.cancel()

    def mute_at(self, function: str) -> trio.Event:
        """The next call of this function goes to the store, and no reply comes from then on. Set when it has gone."""
        self._muted_by = shipped().function(function).encode(), trio.Event()
        return self._muted_by[1]

    def mend(self) -> None:
        """Pass everything again; what was held up comes now."""
        self._mode = "pass"
        self._mended.set()

    async def _serve(self, client: trio.SocketStream) -> None:
        with trio.CancelScope() as scope:
            self._open.add(scope)
            try:
                if self._mode != "cut":
                    await self._join(client, scope)
            finally:
                self._open.discard(scope)
                with trio.CancelScope(shield=True):
                    await trio.aclose_forcefully(client)

    async def _join(self, client: trio.SocketStream, scope: trio.CancelScope) -> None:
        try:
            server = await trio.open_unix_socket(self._store)
        except OSError:
            return  # the store is away: the client sees a connection that breaks
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pump, client, server, scope, False)
                nursery.start_soon(self._pump, server, client, scope, True)
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(server)

    async def _pump(
        self, source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope, replies: bool
    ) -> None:
        try:
            while data := await source.receive_some(CHUNK_BYTES):
                if self._mode == "delay":
                    await trio.sleep(self._delay_s)
                elif self._mode == "hole" or (self._mode == "mute" and replies):
                    await self._mended.wait()
                elif self._mode == "drop" and replies and self._source.random() < DROP_SHARE:
                    break
                if not replies and self._muted_by is not None and self._muted_by[0] in data:
                    self.misbehave("mute")
                    self._muted_by[1].set()
                    self._muted_by = None
                await sink.send_all(data)
        except trio.BrokenResourceError:
            scope.cancel()  # one side is gone, the other must see it
        scope.cancel()
