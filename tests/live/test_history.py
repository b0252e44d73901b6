"""Numbers over time of real daemons: two of them add up, and neither a stop nor a new start loses or doubles any."""

import time
from functools import partial
from pathlib import Path

from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import QUICK, Daemon, Process, wait_for
from tests.valkey import valkey

MINUTES = 600  # in steps of ten, with those under way


def demo(daemon: Daemon, log: Path) -> Process:
    return Process(["worker", "jqd.worker.demo:app", "--daemon", daemon.url, "--bind", "127.0.0.1:0"], log)


def counted(client: Client, what: str, name: str | None = None) -> int:
    return sum(step[what] for step in client.history(name, minutes=MINUTES)["steps"])


def has(client: Client, what: str, count: int) -> bool:
    return counted(client, what) == count


def test_what_daemons_counted_is_added_up_and_survives_them() -> None:
    with valkey() as server, short_directory() as base:
        flags = ("--store", server.url)
        with Daemon(base / "two", *flags, env=QUICK) as two, Client(two.url) as client:
            for times in (1, 2):
                with (
                    Daemon(base / "one", *flags, env=QUICK) as one,
                    demo(one, base / f"w{times}.log") as worker,
                    Client(one.url) as its,
                ):
                    ids = [its.push("add", [1, number]) for number in range(5)]
                    assert {info.state for info in its.wait(ids, timeout=30)} == {"succeeded"}
                    assert worker.stop() == 0
                    before_s = time.monotonic()
                    assert one.stop() == 0
                    assert time.monotonic() - before_s < 10
                wait_for(partial(has, client, "pushed", 5 * times), "the numbers of a stopped daemon are missing")
                assert counted(client, "succeeded") == 5 * times
            told = client.history("add", minutes=MINUTES, types=True)
            assert sum(sum(step["run"]) for step in told["steps"]) == 10
            assert [(row["name"], sum(row["pushed"]), sum(row["failed"])) for row in told["types"]] == [("add", 10, 0)]
            assert told["since"] <= told["steps"][-1]["at"]
            assert counted(client, "pushed", "other") == 0
