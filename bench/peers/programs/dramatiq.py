"""Dramatiq: its defaults, two processes of eight threads."""

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.marks import mark
from bench.peers.programs.drive import URL, drive

dramatiq.set_broker(RedisBroker(url=URL))


@dramatiq.actor(actor_name="noop")
def noop(argument: str) -> None:
    """The job."""
    mark(argument)


class Pusher:
    """Connections are the broker's own affair: it has a pool."""

    def one(self, argument: str) -> None:
        """One job."""
        noop.send(argument)

    def many(self, arguments: list[str]) -> None:
        """One after another: there is no call for several."""
        for each in arguments:
            noop.send(each)


def push() -> None:
    """Obey orders."""
    drive(Pusher)
