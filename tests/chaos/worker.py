"""The worker of the chaos runs: notes every start and every end in its own file, before anybody is told.

A job's argument says what it does: `plan` is how it ends (ok, failed, or retry at its first attempt), `ms` how long it
takes. Whoever starts it twice is found by the book, so the book is written first.

A STEP is a job of a flow. Its argument is a map with `n`, too, and what its parents gave it in `in`; or nothing but
that. It gives {of: n, by: the number of this very start}, and makes the jobs that `makes` has. With the plan `late` it
fails until the instant `until`.
"""

import argparse
import hashlib
import itertools
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
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
STEP = "step"
NAMES = (*USUAL, *RATED, *COUNTED, STEP)
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

    def start(self, context: Context, argument: Any, **more: Any) -> str:
        """Note a start; answers what its end names."""
        return self.begin(context.job_id, context.attempt, context.name, argument, daemon=_daemon.get(), **more)

    def begin(self, job_id: str, attempt: int, name: str, argument: Any, **more: Any) -> str:
        """The same; `more`: the daemon or the fence, and what parents gave."""
        told = f"{self._worker}-{os.getpid()}-{next(self._numbers)}"
        start = {"exec": told, "job": job_id, "n": argument["n"], "attempt": attempt, "name": name, **more}
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


def as_told(argument: Mapping[str, Any], attempt: int) -> str:
    """How an attempt ends: ok, failed or retry."""
    plan: str = argument["plan"]
    if plan == "late":
        return "ok" if time.monotonic() >= argument["until"] else "failed"
    return "ok" if plan == "retry" and attempt > 1 else plan


def step_of(argument: Any) -> tuple[dict[str, Any], Any]:
    """What a step is to do, and what its parents gave it."""
    if isinstance(argument, dict) and "n" in argument:
        return argument, argument.get("in")
    return {"n": 0, "plan": "ok", "ms": 0}, argument


@dataclass(frozen=True)
class Made:
    """A job that a step makes."""

    spec: Mapping[str, Any]

    def following(self) -> Mapping[str, Any]:
        """As it is pushed."""
        return self.spec


async def work(argument: Any, /) -> int:
    """Do what the argument says."""
    await _work(argument)
    return int(argument["n"])


async def step(argument: Any, /) -> Any:
    """The same, as part of a flow."""
    argument, got = step_of(argument)
    told = await _work(argument, got=got)
    for spec in argument.get("makes", ()):
        current().push(Made(spec))
    return {"of": argument["n"], "by": told}


async def _work(argument: Any, **more: Any) -> str:
    """Answers the number of the start."""
    context = current()
    book = app_book()
    told, outcome = book.start(context, argument, **more), "gone"  # told to stop, or the daemon hung up
    try:
        await trio.sleep(argument["ms"] / 1000)
        outcome = as_told(argument, context.attempt)
    finally:
        book.end(told, outcome)
    if outcome == "retry":
        raise Retry(after=RETRY_S)
    if outcome == "failed":
        raise Failed("as it was told to")
    return told


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
        app.job(name=name)(step if name == STEP else work)
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
