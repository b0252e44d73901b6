"""Celery: results ignored, late acknowledgement, and the large prefetch that its guide advises for short tasks."""

from celery import Celery

from bench.marks import mark
from bench.peers.programs.drive import URL, drive

app = Celery("bench", broker=URL)
app.conf.update(
    task_ignore_result=True, task_acks_late=True, worker_prefetch_multiplier=128, worker_hijack_root_logger=False
)


@app.task(name="noop")
def noop(argument: str) -> None:
    """The job."""
    mark(argument)


class Pusher:
    """Connections are Celery's own affair: it has a pool."""

    def one(self, argument: str) -> None:
        """One job."""
        noop.delay(argument)

    def many(self, arguments: list[str]) -> None:
        """One after another: there is no call for several."""
        for each in arguments:
            noop.delay(each)


def push() -> None:
    """Obey orders."""
    drive(Pusher)
