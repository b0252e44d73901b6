"""One connection of a browser, as hypercorn serves it: whatever is wrong with it ends it alone.

hypercorn runs all connections in one nursery, so an exception of one ended the process: text that is no ASCII, more
streams of HTTP/2 than its tree holds. And in one thread: who is next in a tree of priorities that hang on each other in
a circle was sought for ever.
"""

from typing import ClassVar

import trio
from h2.events import PriorityUpdated
from hypercorn.events import Event, Updated
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.trio import run
from hypercorn.trio.tcp_server import TCPServer

from jqd.domain.descriptors import open_files_max
from jqd.domain.log import get_logger

OPEN_SHARE = 2  # of the files that the process may open half are for browsers, the rest for what their pages ask
HEAD_S = 10.0  # for the first request to come: who only connects holds a connection no longer
GONE_S = 5.0  # for answers under way once the browser sends nothing more; hypercorn waits for reset streams for ever

_log = get_logger("webui")


class Connection(TCPServer):
    """Ends by itself, and says nothing: anybody may send anything. Where there are too many, the one that has been idle
    for longest gives way: a browser opens another when it asks again."""

    most: ClassVar[int]
    present: ClassVar[int] = 0
    idle: ClassVar[dict["Connection", trio.CancelScope]] = {}
    """Those that wait for a request, the longest idle first, and what ends the wait."""

    _has_asked = False

    async def run(self) -> None:
        Connection.present += 1
        if self.present > self.most and self.idle:
            self.idle.pop(next(iter(self.idle))).cancel()
        try:
            with trio.CancelScope() as self._scope:
                await super().run()
        except Exception as error:  # noqa: BLE001 - of what a stranger sent; those of pages are answered before
            _log.debug("webui.connection_failed", error=repr(error))
            with trio.move_on_after(HEAD_S, shield=True):
                await trio.aclose_forcefully(self.stream)
        finally:
            Connection.present -= 1

    async def _read_data(self) -> None:
        await super()._read_data()
        self._scope.deadline = trio.current_time() + GONE_S

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, Updated):
            self._has_asked = True
        await super().protocol_send(event)

    async def _idle_timeout(self) -> None:
        with trio.move_on_after(self.config.keep_alive_timeout if self._has_asked else HEAD_S) as patience:
            self.idle[self] = patience
            try:
                await self.context.terminated.wait()
            finally:
                self.idle.pop(self, None)
        with trio.CancelScope(shield=True):
            await self._initiate_server_close()


async def _leave_priority(protocol: H2Protocol, event: PriorityUpdated) -> None:
    """Let all streams have one priority: RFC 9113 took those of browsers back, and they send none."""


def guard_connections() -> None:
    """Have hypercorn serve each connection so; it takes its classes from nowhere else."""
    Connection.most = open_files_max() // OPEN_SHARE
    run.TCPServer = Connection  # type: ignore[attr-defined]
    H2Protocol._priority_updated = _leave_priority  # type: ignore[method-assign, assignment]
