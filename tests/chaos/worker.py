"""The worker of the chaos runs: notes every start and every end in its own file, before anybody is told.

A job's argument says what it does: `plan` is how it ends (ok, failed, or retry at its first attempt), `ms` how long it
takes. Whoever starts it twice is found by the book, so the book is written first.
"""

import argparse
import hashlib
import itertools
import json
import os
import time
from collections.abc import Sequence
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

from jqd import App, Context, Failed, Retry, current
from jqd.worker.serve import serve as serving
from jqd.worker.service import Service

USUAL = ("plain", "other", "slow")  # three jobtypes, so that daemons have something to choose from
RATED, COUNTED = ("call", "fetch"), ("export", "import")  # limited; of two partitions each has one jobtype of each pair
NAMES = (*USUAL, *RATED, *COUNTED)
RETRY_S = 0.2
TTL_S = 6.0

app = App()
_daemon: ContextVar[str] = ContextVar("daemon")


class Book:
    """Lines of one process, each written by one call: whole also when the process is killed in between."""

    def __init__(self, path: Path, worker: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._worker = worker
        self._numbers = itertools.count()

    def start(self, context: Context, argument: Any) -> str:
        """Note a start; answers what its end names."""
        return self.begin(context.job_id, context.attempt, context.name, argument, daemon=_daemon.get())

    def begin(self, job_id: str, attempt: int, name: str, argument: Any, **claim: Any) -> str:
        """The same; `claim`: the daemon, or the fence."""
        told = f"{self._worker}-{os.getpid()}-{next(self._numbers)}"
        start = {"exec": told, "job": job_id, "n": argument["n"], "attempt": attempt, "name": name, **claim}
        self._note("exec_start", sha=digest(argument), worker=self._worker, **start)
        return told

    def end(self, told: str, outcome: str) -> None:
        """Note how it ended."""
        self._note("exec_end", exec=told, outcome=outcome)

    def _note(self, e: str, **fields: Any) -> None:
        line = json.dumps({"e": e, "t": time.monotonic(), **fields}).encode() + b"\n"
        written = os.write(self._fd, line)
        assert written == len(line), "the book cannot be written"


def digest(argument: Any) -> str:
    """What stands for the bytes of an argument."""
    return hashlib.sha256(msgspec.msgpack.encode(argument)).hexdigest()[:16]


async def work(argument: Any, /) -> int:
    """Do what the argument says."""
    context = current()
    book = app_book()
    told, outcome = book.start(context, argument), "gone"  # told to stop, or the daemon hung up
    try:
        await trio.sleep(argument["ms"] / 1000)
        outcome = "retry" if argument["plan"] == "retry" and context.attempt == 1 else argument["plan"]
        outcome = "ok" if outcome == "retry" and context.attempt > 1 else outcome
    finally:
        book.end(told, outcome)
    if outcome == "retry":
        raise Retry(after=RETRY_S)
    if outcome == "failed":
        raise Failed("as it was told to")
    return int(argument["n"])


_books: list[Book] = []


def app_book() -> Book:
    """This process's book."""
    return _books[0]


class Noting(Service):
    """The SDK's service; jobs may know which daemon sent them."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        headers: Sequence[tuple[bytes, bytes]] = scope.get("headers", ())
        _daemon.set(next((value.decode() for name, value in headers if name.lower() == b"jqd-daemon"), ""))
        await super().__call__(scope, receive, send)


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--book", type=Path, required=True)
    parser.add_argument("--daemon", action="append", required=True)
    parser.add_argument("--job", action="append", help="a jobtype it takes; without it the usual three")
    parser.add_argument("--bind", default="127.0.0.1:0")
    parser.add_argument("--concurrency", type=int, default=32)
    told = parser.parse_args()
    _books.append(Book(told.book, told.name))
    for name in told.job or NAMES:
        app.job(name=name)(work)
    serving.__globals__["Service"] = Noting
    trio.run(
        partial(
            serving,
            app,
            bind=told.bind,
            name=told.name,
            daemons=told.daemon,
            concurrency=told.concurrency,
            ttl_s=TTL_S,
            batch=64,
        )
    )


if __name__ == "__main__":
    main()
