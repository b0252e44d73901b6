"""Requests, as far as turns go."""

import trio

from jqd.http.fairness import EACH
from jqd.http.request import RequestHead

FLOOD = 40 * EACH


class Peer:
    """A request, as far as it matters here."""

    patient = False

    def __init__(self, address: str, size: int = 0) -> None:
        self.peer = address
        self.heading = RequestHead("POST", "/", "/", b"", {"content-length": str(size)})
        self.left = False

    def while_there(self) -> trio.CancelScope:
        scope = trio.CancelScope()
        if self.left:
            scope.cancel()
        return scope
