"""jqd: arrays of jobs, pushed by its own client."""

from bench.peers.programs.drive import URL, drive
from jqd.client import Client

NAME = "bench-marked"  # a job of bench/noop.py


class Pusher:
    """A client with a connection of its own."""

    def __init__(self) -> None:
        self._client = Client(URL)

    def one(self, argument: str) -> None:
        """One job."""
        self._client.push(NAME, argument)

    def many(self, arguments: list[str]) -> None:
        """In one request."""
        self._client.push_many([{"name": NAME, "argument": each} for each in arguments])


def push() -> None:
    """Obey orders."""
    drive(Pusher)
