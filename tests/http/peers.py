"""Requests, as far as turns go."""

import trio

from jqd.http.fairness import EACH
from jqd.http.request import Request, RequestHead

FLOOD = 40 * EACH


class Peer(Request):
    """A request, as far as it matters here."""

    def __init__(self, address: str, size: int = 0) -> None:
        super().__init__(RequestHead("POST", "/", "/", b"", {"content-length": str(size)}), address)
        self.left = False

    def while_there(self) -> trio.CancelScope:
        scope = trio.CancelScope()
        if self.left:
            scope.cancel()
        return scope
