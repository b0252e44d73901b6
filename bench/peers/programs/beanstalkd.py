"""beanstalkd: a connection a thread, since a reservation holds its connection; two processes of workers."""

import os
import threading

import greenstalk

from bench.marks import mark
from bench.peers.programs.drive import URL, drive

PROCESSES, THREADS = 2, 8


def client() -> greenstalk.Client:
    """A connection."""
    host, _, port = URL.rpartition(":")
    return greenstalk.Client((host, int(port)))


class Pusher:
    """A connection."""

    def __init__(self) -> None:
        self._client = client()

    def one(self, argument: str) -> None:
        """One job."""
        self._client.put(argument)

    def many(self, arguments: list[str]) -> None:
        """One after another: there is no call for several."""
        for each in arguments:
            self._client.put(each)


def _run() -> None:
    connection = client()
    while True:
        job = connection.reserve()
        mark(job.body)
        connection.delete(job)


def push() -> None:
    """Obey orders."""
    drive(Pusher)


def work() -> None:
    """Never returns."""
    for _ in range(PROCESSES - 1):
        if not os.fork():
            break
    for _ in range(THREADS - 1):
        threading.Thread(target=_run, daemon=True).start()
    _run()
