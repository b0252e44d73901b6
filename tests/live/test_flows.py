"""Jobs that have to do with others: what follows a job, and what waits for several."""

from typing import Any

import pytest

from jqd.client import Client, Invalid, JobInfo, PartlyPushed
from tests.live.harness import Daemon, wait_for

WAIT_S = 30.0


pytestmark = pytest.mark.usefixtures("flowing_worker")  # what must wait has a date


def ended(client: Client, job_id: str, state: str = "succeeded") -> JobInfo:
    info = client.get(job_id, wait=WAIT_S)
    assert info.state == state, info
    return info


def follower(client: Client, job_id: str) -> str:
    wait_for(lambda: any(job.job_id == job_id for job in client.jobs(limit=100)), f"{job_id} follows")
    return job_id


def test_a_chain_hands_each_result_to_the_next(shared_daemon: Daemon) -> None:
    with Client(shared_daemon.url) as client:
        last = {"name": "show", "argument": {"by": "chain"}, "result_into": "number"}
        first = client.push("double", {"number": 1}, then={"name": "double", "then": last, "result_into": "number"})
        ended(client, first)
        ended(client, follower(client, f"{first}.0"))
        assert ended(client, _next(client, f"{first}.0")).result == {
            "by": "chain",
            "number": 4,
        }


def _next(client: Client, job_id: str) -> str:
    """The id of what follows a job with an own id: it has the generation in it."""
    stem = client.get(job_id).id or job_id
    found: list[str] = []

    def look() -> bool:
        found[:] = [job.job_id for job in client.jobs(limit=100) if job.job_id.startswith(f"{stem}.")]
        return bool(found)

    wait_for(look, "the next of the chain")
    return found[0]


def test_what_waits_for_several_gets_their_results(shared_daemons: tuple[Daemon, Daemon]) -> None:
    one, two = shared_daemons
    with Client(one.url) as client, Client(two.url) as other:
        parents = [client.push("double", {"number": n}, delay=3_600, keep_result=True) for n in range(1, 6)]
        child = other.push("total", after=parents, keep_result=True)
        wait_for(lambda: client.get(child).state == "blocked", "it is blocked")
        assert [job.job_id for job in client.jobs(state="blocked")] == [child]
        for number, parent in enumerate(parents):
            (client, other)[number % 2].run_now(parent)
        assert ended(client, child).result == 30
        late = client.push("total", after=parents, keep_result=True)
        assert ended(client, late).result == 30, "they had ended before"


def test_a_child_of_one_parent_may_get_its_result_itself(shared_daemon: Daemon) -> None:
    with Client(shared_daemon.url) as client:
        parent = client.push("double", {"number": 1}, keep_result=True)
        child = client.push("double", after=[parent], one_result=True, result_into="number", keep_result=True)
        assert ended(client, child).result == 4
        with pytest.raises(Invalid, match="one_result is for a job that waits for one parent, this one has 2"):
            client.push("double", after=[parent, child], one_result=True)


@pytest.mark.parametrize(
    ("policy", "state"), [("run", "succeeded"), ("cancel", "cancelled"), ("fail", "failed"), (None, "failed")]
)
def test_a_child_says_what_a_parents_failure_means(shared_daemon: Daemon, policy: Any, state: str) -> None:
    with Client(shared_daemon.url) as client:
        parents = [client.push("fragile", {"good": good}, max_retry=0) for good in (True, False)]
        child = client.push("show", after=parents, on_parent_failure=policy)
        info = ended(client, child, state)
        if state == "failed":
            assert (info.message or "").startswith("PARENT_FAILED")
            assert info.attempts == 0
        if state == "succeeded":
            assert info.result == ["well", None]


def test_a_blocked_job_can_be_changed_run_at_once_and_cancelled(shared_daemon: Daemon) -> None:
    with Client(shared_daemon.url) as client:
        parent = client.push("double", {"number": 1}, delay=3_600)
        one, two, three = (client.push("show", after=[parent]) for _ in range(3))
        wait_for(lambda: {client.get(each).state for each in (one, two, three)} == {"blocked"}, "they are blocked")
        assert client.cancel(two)
        assert client.get(two).state == "cancelled"
        client.change(three, argument=7)
        assert client.get(three).state == "blocked"
        client.run_now(one)
        assert ended(client, one).result is None
        client.run_now(parent)
        assert ended(client, three).result == 7
        assert client.get(two).state == "cancelled"


def test_what_failed_for_a_parent_waits_for_it_again_when_it_is_retried(shared_daemon: Daemon) -> None:
    with Client(shared_daemon.url) as client:
        parent = client.push("fragile", {"good": False}, max_retry=0)
        child = client.push("show", after=[parent])
        ended(client, child, "failed")
        client.retry(parent, argument={"good": True})
        client.retry(child)
        assert ended(client, child).result == ["well"]


def test_a_parent_that_nobody_pushed_is_a_slip_and_why_names_what_is_awaited(shared_daemon: Daemon) -> None:
    with Client(shared_daemon.url) as client:
        with pytest.raises(Invalid, match="there is no job 'nobody'"):
            client.push("show", after=["nobody"])
        parent = client.push("double", {"number": 1}, delay=3_600)
        made = client.push_many(
            [{"name": "show", "job_id": "flows-a", "delay": 60}, {"name": "show", "after": ["flows-a", parent]}]
        )
        child = made[1]
        wait_for(lambda: client.get(child).state == "blocked", "it is blocked")
        why = client.why(child)
        assert why["reason"] == "blocked"
        assert why["text"] == f"it waits for its 2 parents: flows-a (scheduled), {parent} (scheduled)"
        for job_id in (parent, child, "flows-a"):
            client.cancel(job_id)


def test_jobs_that_wait_for_each_other_are_refused(shared_daemon: Daemon) -> None:
    with Client(shared_daemon.url) as client:
        circle = [{"name": "show", "job_id": f"circle-{n}", "after": [f"circle-{(n + 1) % 3}"]} for n in range(3)]
        behind = {"name": "show", "job_id": "behind", "after": ["circle-0"]}
        with pytest.raises(PartlyPushed) as caught:
            client.push_many([*circle, behind, {"name": "show", "job_id": "free", "delay": 60}])
        assert [error.pointer for error in caught.value.errors] == ["/after"] * 4
        assert client.cancel("free")


def test_a_child_gets_no_null_for_a_result_that_was_dropped(shared_daemon: Daemon) -> None:
    with Client(shared_daemon.url) as client:
        one, two = (
            client.push("double", {"number": 1}, keep_result=True),
            client.push("double", {"number": 2}, delay=3_600),
        )
        child, brave = (
            client.push("show", after=[one, two]),
            client.push("show", after=[one, two], on_parent_failure="run"),
        )
        ended(client, one)
        assert client.result(one, consume=True) == 2
        client.run_now(two)
        info = ended(client, child, "failed")
        assert (info.message or "").startswith("PARENT_RESULTS_GONE")
        assert info.eligible_at is None
        assert ended(client, brave).result[0] is None


@pytest.mark.parametrize("keep", [True, False])
def test_a_result_that_is_too_large_fails_who_wants_it_and_not_who_made_it(shared_daemon: Daemon, keep: bool) -> None:
    with Client(shared_daemon.url) as client:
        then = [{"name": "show"}, {"name": "show", "argument": "own", "keep_result": True}]
        first = client.push("many", 1_200_000, then=then, keep_result=keep)
        assert "THEN_TOO_LARGE" in str(ended(client, first).message)
        info = ended(client, follower(client, f"{first}.0"), "failed")
        assert (info.message or "").startswith("PARENT_RESULTS_TOO_LARGE")
        assert ended(client, follower(client, f"{first}.1")).result == "own"
