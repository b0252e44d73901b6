"""Groups of jobs, and the flow that a job is part of, at two daemons of one store."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis

from jqd.client import Client, Conflict
from tests.live.harness import LEASE, ROOT, Daemon, Pair, Process, ingested, pair, wait_for

MEMBERS = 30


ONE = pytest.param(1, id="one partition", marks=pytest.mark.long)


@pytest.fixture(scope="module", params=[ONE, pytest.param(2, id="two partitions")])
def daemons(request: pytest.FixtureRequest) -> Iterator[Pair]:
    env = {**LEASE, "JQD_STORE__PARTITIONS": str(request.param)}
    with pair(env) as both:
        args = ["worker", "tests.live.flowing", "--daemon", both.one.url, "--concurrency", "8"]
        with Process(args, both.base / "worker.log", cwd=ROOT):
            for daemon in (both.one, both.two):
                daemon.wait_worker("fragile")  # its options hold for what is pushed from now on
            yield both


def ask(daemon: Daemon, path: str, **said: Any) -> Any:
    """What it answers; a POST where something is said."""
    call = httpx2.post(daemon.url + path, json=said, timeout=30) if said else daemon.get(path)
    assert call.status_code == 200, call.text
    return call.json()


def _met(view: Any) -> dict[str, int]:
    """The states that members are in."""
    return {state: number for state, number in view["counts"].items() if number}


def close(daemon: Daemon, group: str, **said: Any) -> Any:
    return ask(daemon, f"/v1/groups/{group}/close", **{"then": {"name": "total"}, **said})


def test_what_waits_for_a_group_runs_once_all_have_ended(daemons: Pair) -> None:
    one, two = daemons.one, daemons.two
    with Client(one.url) as client, Client(two.url) as other:
        plain = [{"name": "double", "argument": {"number": n}, "keep_result": True, "group": "sum"} for n in range(9)]
        ids = client.push_many([*plain, {**plain[0], "argument": {"number": 50}, "job_id": "named"}])
        assert other.push("double", {"number": 100}, group="sum", keep_result=True)
        assert client.get(ids[0]).group in ("sum", None), "it may be on its way"
        told = close(two, "sum", then={"name": "total", "keep_result": True})
        assert told["then"]["job_id"] == "group.sum"
        assert close(one, "sum", then={"name": "total", "keep_result": True})["then"]["job_id"] == "group.sum"
        assert client.get("group.sum", wait=30).result == sum(2 * n for n in range(9)) + 100 + 200
        view = ask(two, "/v1/groups/sum")
        assert (view["closed"], view["jobs"], _met(view), view["progress"]) == (True, 11, {"succeeded": 11}, 1.0)
        assert view["then"] == {"job_id": "group.sum", "state": "succeeded"}
        assert client.get("group.sum").parents_count == 11
        with pytest.raises(Conflict, match="closed"):
            client.push("double", {"number": 1}, group="sum")
        again = client.push_one({**plain[0], "argument": {"number": 50}, "job_id": "named"})
        assert again.duplicate, "a repeat of a member is one, whatever became of its group"
        other_then = httpx2.post(f"{one.url}/v1/groups/sum/close", json={"then": {"name": "show"}}, timeout=30)
        assert other_then.status_code == 409
        assert one.get("/v1/groups/none").status_code == 404


def test_an_empty_group_waits_for_nothing(daemons: Pair) -> None:
    with Client(daemons.one.url) as client:
        close(daemons.one, "empty", then={"name": "show", "argument": 7, "keep_result": True})
        assert client.get("group.empty", wait=30).result == 7


def test_a_group_is_closed_beside_pushes(daemons: Pair) -> None:
    """Who was told that his job is taken is waited for; who came too late was told so."""
    taken, late = list[str](), list[str]()

    def push(url: str) -> None:
        with Client(url) as client:
            for number in range(MEMBERS):
                try:
                    taken.append(client.push("show", number, group="race"))
                except Conflict:
                    late.append("one")

    threads = [threading.Thread(target=push, args=(url,)) for url in (daemons.one.url, daemons.two.url)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(taken) > MEMBERS // 3, "nothing is pushed")
    close(daemons.two, "race", then={"name": "show", "argument": 1})
    for thread in threads:
        thread.join(60)
    with Client(daemons.one.url) as client:
        assert client.get("group.race", wait=30).parents_count == len(taken)
    assert ask(daemons.one, "/v1/groups/race")["jobs"] == len(taken)
    assert len(taken) + len(late) == 2 * MEMBERS


def test_what_failed_is_tried_anew_and_what_waits_for_it_goes_on(daemons: Pair) -> None:
    one = daemons.one
    with Client(one.url) as client:
        good = client.push("fragile", {"good": True}, group="retried")
        bad = client.push("fragile", {"good": False}, group="retried")
        close(one, "retried", then={"name": "show", "argument": 1, "keep_result": True})
        assert client.get("group.retried", wait=30).state == "failed"
        view = ask(one, "/v1/groups/retried")
        assert _met(view) == {"succeeded": 1, "failed": 1}
        assert [(error["job_id"], error["name"]) for error in view["errors"]] == [(bad, "fragile")]
        assert "told to fail" in view["errors"][0]["message"]
        flow = ask(one, f"/v1/jobs/{good}/flow")
        jobs = {job["job_id"]: job for job in flow["jobs"]}
        assert set(jobs) == {good, bad, "group.retried"}
        assert sorted(jobs["group.retried"]["parents"]) == sorted([good, bad])
        assert jobs[good]["children"] == jobs[bad]["children"] == ["group.retried"]
        assert (flow["cursor"], flow["whole"]) == ("", True)
        first_at = client.get("group.retried").finished_at
        told = httpx2.post(f"{one.url}/v1/jobs/{good}/flow/retry", timeout=30).json()
        assert (told["matched"], told["changed"]) == (2, 2), told

        def failed_anew() -> bool:  # told of the second failure: a retry before that would let it wait on
            info = client.get("group.retried")
            return info.state == "failed" and info.finished_at != first_at

        wait_for(failed_anew, "it did not run again")
        client.retry(bad, argument={"good": True})
        assert client.get(bad, wait=30).state == "succeeded"
        assert client.get("group.retried").state == "failed", "it waited for a parent that failed"
        told = httpx2.post(f"{one.url}/v1/groups/retried/retry", timeout=30).json()
        assert (told["matched"], told["changed"]) == (1, 1), told
        assert client.get("group.retried", wait=30).result == 1


def test_a_group_is_cancelled_with_what_waits_for_it(daemons: Pair) -> None:
    one = daemons.one
    with Client(one.url) as client:
        ids = [client.push("nobody", n, group="gone") for n in range(3)]
        close(one, "gone", then={"name": "show", "on_parent_failure": "run"})
        for job_id in (*ids, "group.gone"):
            ingested(client, job_id)
        flow = ask(one, "/v1/jobs/group.gone/flow")
        waits = next(job for job in flow["jobs"] if job["job_id"] == "group.gone")
        assert (waits["state"], sorted(waits["waits_for"])) == ("blocked", sorted(ids))
        told = httpx2.post(f"{one.url}/v1/groups/gone/cancel", timeout=30).json()
        assert (told["matched"], told["changed"]) == (4, 4)
        assert {client.get(job_id, wait=10).state for job_id in (*ids, "group.gone")} == {"cancelled"}
        assert _met(ask(one, "/v1/groups/gone")) == {"cancelled": 3}


def test_a_wiped_store_and_a_dead_daemon_lose_no_member(tmp_path: Path) -> None:
    with pair({**LEASE, "JQD_STORE__PARTITIONS": "2"}) as both, Client(both.two.url) as two:
        with Client(both.one.url) as one:
            ids = [one.push("nobody", n, group="kept") for n in range(5)]
        ids += two.push_many([{"name": f"other {n}", "group": "kept"} for n in range(5)])
        for job_id in ids:
            ingested(two, job_id)
        both.one.kill()
        with redis.Redis.from_url(both.server.url) as client:
            client.flushall()
        with Daemon(both.base / "one", "--store", both.server.url, env={**LEASE, "JQD_STORE__PARTITIONS": "2"}) as one:
            wait_for(lambda: _size(one) == len(ids), "members are lost")
            told = close(both.two, "kept", then={"name": "nobody"})
            assert told["then"]["job_id"] == "group.kept"
            wait_for(lambda: two.get("group.kept").parents_count == len(ids), "it does not wait for all")
            with redis.Redis.from_url(both.server.url) as client:
                client.flushall()
            wait_for(lambda: _size(one) == len(ids) and _size(both.two) == len(ids), "members are lost again")
            wait_for(lambda: bool(ask(one, "/v1/groups/kept")["closed"]), "it is open again")
            wait_for(lambda: _closed_again(both.two), "the store is not told")
            with pytest.raises(Conflict, match="closed"):
                two.push("nobody", group="kept")
            assert two.get("group.kept").parents_count == len(ids)


def _closed_again(daemon: Daemon) -> bool:
    """Whether the same close counted once; 503 while the store is told what it forgot."""
    told = httpx2.post(f"{daemon.url}/v1/groups/kept/close", json={"then": {"name": "nobody"}}, timeout=30)
    assert told.status_code in (200, 503), told.text
    return told.status_code == 200


def _size(daemon: Daemon) -> int:
    answer = daemon.get("/v1/groups/kept")
    return answer.json()["jobs"] if answer.status_code == 200 else 0


def test_a_job_that_follows_another_joins_the_group_that_it_names(daemons: Pair) -> None:
    one = daemons.one
    with Client(one.url) as client:
        follower = {"name": "show", "group": "after"}
        first = client.push("double", {"number": 4}, then=follower)
        assert list(client.get(first, wait=30).then) == ["show"]
        wait_for(lambda: one.get("/v1/groups/after").status_code == 200, "nobody joined")
        wait_for(lambda: _met(ask(one, "/v1/groups/after")) == {"succeeded": 1}, "it did not run")
        close(one, "after", then={"name": "show", "keep_result": True})
        assert client.get("group.after", wait=30).state == "succeeded"
        late = client.push("double", {"number": 5}, then=follower)
        jobs = lambda: {job["name"]: job for job in ask(one, f"/v1/jobs/{late}/flow")["jobs"]}  # noqa: E731
        wait_for(lambda: "show" in jobs() and jobs()["show"]["state"] == "succeeded", "what follows did not run")
        assert jobs()["show"]["parents"] == [late]
        assert ask(one, "/v1/groups/after")["jobs"] == 1, "the group was closed"
