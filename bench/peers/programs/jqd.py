"""jqd: arrays of jobs with its own client, and its own worker."""

from bench.marks import mark
from bench.peers.programs.drive import URL, drive
from jqd import App
from jqd.client import Client

app = App()


@app.job(name="noop")
def noop(argument: str, /) -> None:
    """The job."""
    mark(argument)


class Pusher:
    """A client with a connection of its own."""

    def __init__(self) -> None:
        self._client = Client(URL)

    def one(self, argument: str) -> None:
        """One job."""
        self._client.push("noop", argument)

    def many(self, arguments: list[str]) -> None:
        """In one request."""
        self._client.push_many([{"name": "noop", "argument": each} for each in arguments])


def push() -> None:
    """Obey orders."""
    drive(Pusher)
