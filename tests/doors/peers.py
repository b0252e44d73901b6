"""Requests, as far as turns go."""

import trio

from jqd.doors.asked import Heading
from jqd.doors.turns import EACH

FLOOD = 40 * EACH


class Peer:
    """A request, as far as it matters here."""

    patient = False

    def __init__(self, address: str, size: int = 0) -> None:
        self.peer = address
        self.heading = Heading("POST", "/", "/", b"", {"content-length": str(size)})
        self.left = False

    def while_there(self) -> trio.CancelScope:
        scope = trio.CancelScope()
        if self.left:
            scope.cancel()
        return scope
