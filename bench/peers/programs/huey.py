"""Huey: blocking reads, no results, several consumers."""

from huey import RedisHuey

from bench.marks import mark
from bench.peers.programs.drive import URL, drive

huey = RedisHuey("bench", url=URL, results=False)


@huey.task(name="noop")
def noop(argument: str) -> None:
    """The job."""
    mark(argument)


class Pusher:
    """Connections are Huey's own affair: it has a pool."""

    def one(self, argument: str) -> None:
        """One job."""
        noop(argument)

    def many(self, arguments: list[str]) -> None:
        """One after another: there is no call for several."""
        for each in arguments:
            noop(each)


def push() -> None:
    """Obey orders."""
    drive(Pusher)
