"""Daemons and workers that died or left are shown for a day, with what became of their jobs: at real ones."""

from typing import Any

import httpx2
import pytest

from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import LEASE, WAIT_S, Daemon, Worker, pair, wait_for
from tests.live.puller import Puller
from tests.live.test_tokens import jqd
from tests.valkey import valkey


def gone(daemon: Daemon, what: str) -> list[dict[str, Any]]:
    return list(daemon.get(f"/v1/{what}").json().get("gone", ()))


def wait_gone(daemon: Daemon, what: str, count: int = 1) -> list[dict[str, Any]]:
    wait_for(lambda: len(gone(daemon, what)) == count, f"{what}: {gone(daemon, what)}")
    return gone(daemon, what)


def rows_of(daemon: Daemon, name: str) -> list[dict[str, Any]]:
    return [row for row in gone(daemon, "daemons") if row["daemon"] == name]


def is_drained(daemon: Daemon, name: str) -> bool:
    rows = daemon.get("/v1/daemons").json()["daemons"]
    return any(row["daemon"] == name and row.get("drained_at") for row in rows)


def this(daemon: Daemon) -> str:
    def rows() -> list[dict[str, Any]]:
        return list(daemon.get("/v1/daemons").json()["daemons"])

    wait_for(lambda: bool(rows()), "it takes pushes before it joins the store, where it is listed")
    return str(rows()[0]["daemon"])


def test_a_daemon_that_died_is_told_apart_from_one_that_was_stopped() -> None:
    with pair() as (server, one, two, base), Client(two.url) as client:
        names, flags = (this(one), this(two)), ("--store", server.url)
        with Worker(base / "book", two.url):
            assert httpx2.post(f"{one.url}/v1/daemons/{names[0]}/drain", timeout=10).status_code == 200
            wait_for(lambda: all(is_drained(each, names[0]) for each in (one, two)), "the other one alone takes jobs")
            ids = client.push_many([{"name": "slow", "argument": 600, "timeout": 900} for _ in range(4)])

            def held() -> dict[str, int]:
                return {row["daemon"]: row["in_flight"] or 0 for row in one.get("/v1/daemons").json()["daemons"]}

            wait_for(lambda: held()[names[1]] == len(ids), f"they are in flight: {held()}")
            two.kill()
            (row,) = wait_gone(one, "daemons")
            assert (row["daemon"], row["how"], row["jobs"], row["by"]) == (names[1], "died", len(ids), [names[0]])
            assert row["last_seen_at"] < row["at"]
        with Daemon(base / "three", *flags, env=LEASE) as three:
            name = this(three)
            wait_for(lambda: name in held(), "it joins")  # by its name: the dead one may be among them for a while
            assert wait_gone(three, "daemons")[0]["daemon"] == names[1], "it had seen nothing, and says the same"
            assert three.stop() == 0
        left, died = wait_gone(one, "daemons", 2)
        assert (left["daemon"], left["how"], left["jobs"]) == (name, "left", 0)
        assert died == row
        told = jqd("daemons", "--url", one.url)
        assert "Gone within the last day" in told
        assert names[1] in told.partition("Gone")[2]


@pytest.mark.long
def test_a_daemon_that_was_killed_and_started_again_says_so_itself() -> None:
    with valkey() as server, short_directory() as base:
        first = Daemon(base / "one", "--store", server.url, env=LEASE)
        with first:
            name = this(first)
            with Puller(first.url, "other"):
                first.kill()
        with Daemon(base / "one", "--store", server.url, env=LEASE) as again:
            (row,) = wait_gone(again, "daemons")
            assert (row["daemon"], row["how"], row["by"], row["times"]) == (name, "died", [name], 1)
            with Daemon(base / "two", "--store", server.url, env=LEASE) as other:
                wait_for(lambda: rows_of(other, name) == [row], f"the store has it: {rows_of(other, name)}")
                assert other.stop() == 0
            assert again.stop() == 0
        with Daemon(base / "one", "--store", server.url, env=LEASE) as third:
            wait_for(lambda: rows_of(third, name) != [], "it says what it said before")
            assert rows_of(third, name) == [row], "it was stopped in good order; that is no death"
            assert third.stop() == 0


def test_a_worker_that_fell_silent_is_told_apart_from_one_that_left() -> None:
    with (
        pair() as (_, one, two, _),
        Client(one.url) as client,
        Puller(one.url, "night", ttl=2) as silent,
        Puller(two.url, "day") as polite,
    ):
        ids = [client.push("night", max_retry=0) for _ in range(3)]
        got: list[str] = []
        while len(got) < len(ids):
            got += [job["job_id"] for job in silent.lease(heartbeat=1)["jobs"]]
        assert polite.call("DELETE", f"/v1/workers/{polite.worker_id}").status_code == 204
        for daemon in (one, two):
            rows = {row["worker_id"]: row for row in wait_gone(daemon, "workers", 2)}
            assert (rows[polite.worker_id]["how"], rows[polite.worker_id]["jobs"]) == ("left", 0)
            dead = rows[silent.worker_id]
            assert (dead["how"], dead["name"], dead["times"]) == ("died", "puller", 1)
            assert dead["last_seen_at"] < dead["at"]
        wait_for(lambda: all(_jobs_of(each, silent) == 3 for each in (one, two)), "both tell of its jobs")
        assert [client.get(job_id, wait=WAIT_S).state for job_id in ids] == ["failed"] * 3
        told = jqd("workers", "--url", two.url)
        assert silent.worker_id in told.partition("Gone within the last day")[2]
        silent.register(one.url)
        wait_for(lambda: len(gone(two, "workers")) == 1, "it is back")


def _jobs_of(daemon: Daemon, worker: Puller) -> int:
    return next(int(row["jobs"]) for row in gone(daemon, "workers") if row["worker_id"] == worker.worker_id)
