"""Changes how hypercorn serves a connection, so that an error ends that connection and not the process.

hypercorn runs all connections in one nursery, so an exception in one of them ends the process. A request with bytes
that are not ASCII raises an exception, and so do more HTTP/2 streams than hypercorn's priority tree holds. All
connections also share a thread, and a cycle in the priority tree makes the thread loop for ever.
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

OPEN_SHARE = 2  # 1/2 of the files that the process may open are for browsers, the rest for requests to daemons
HEAD_S = 10.0  # for the first request to come
GONE_S = 5.0  # for answers under way after the browser closed; hypercorn would wait for reset streams for ever

_log = get_logger("webui")


class Connection(TCPServer):
    """A browser's connection. An error in it ends only this connection, and is logged as debug, as anybody may cause it
    by what they send. If there are too many connections, the one idle for longest is closed; its browser opens another
    when it needs one."""

    most: ClassVar[int]
    present: ClassVar[int] = 0
    idle: ClassVar[dict["Connection", trio.CancelScope]] = {}
    """Connections that wait for a request, the longest idle first → cancel scope of that wait."""

    _has_asked = False

    async def run(self) -> None:
        Connection.present += 1
        if self.present > self.most and self.idle:
            self.idle.pop(next(iter(self.idle))).cancel()
        try:
            with trio.CancelScope() as self._scope:
                await super().run()
        except Exception as error:  # noqa: BLE001 - caused by the bytes sent; errors of pages are answered before
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
    """Ignore priorities of streams: RFC 9113 deprecates them, and browsers send none."""


def guard_connections() -> None:
    """Replace parts of hypercorn by `Connection` and `_leave_priority`: it has no settings for them."""
    Connection.most = open_files_max() // OPEN_SHARE
    run.TCPServer = Connection  # type: ignore[attr-defined]
    H2Protocol._priority_updated = _leave_priority  # type: ignore[method-assign, assignment]
