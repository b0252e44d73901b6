"""RQ: `enqueue_many`, and a pool of SimpleWorkers, which its notes on performance advise for jobs of milliseconds."""

from redis import Redis
from rq import Queue

from bench.marks import mark
from bench.peers.programs.drive import URL, drive

NOOP = "bench.peers.programs.rq.noop"


def noop(argument: str) -> None:
    """The job."""
    mark(argument)


class Pusher:
    """A queue on a connection of its own. No results are kept."""

    def __init__(self) -> None:
        self._queue = Queue(connection=Redis.from_url(URL))

    def one(self, argument: str) -> None:
        """One job."""
        self._queue.enqueue(NOOP, argument, result_ttl=0)

    def many(self, arguments: list[str]) -> None:
        """In one pipeline."""
        self._queue.enqueue_many([Queue.prepare_data(NOOP, (each,), result_ttl=0) for each in arguments])


def push() -> None:
    """Obey orders."""
    drive(Pusher)
