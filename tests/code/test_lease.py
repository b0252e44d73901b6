"""What becomes of a lease, whatever the daemon answers."""

from typing import Any

import httpx2
import msgspec
import pytest
import trio

from jqd.code.batch import Batch, failed, succeeded
from jqd.code.output import NO_LOG, JobOutput, Log
from jqd.code.worker import STRUCK_MAX, CodeLease
from jqd.worker.lease import REPORT_BYTES_MAX
from tests.code.conftest import URL, FakeDaemon, handler, job


async def settled(daemon: FakeDaemon, lease: CodeLease) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lease.report)
        nursery.start_soon(lease.beat)
        await lease.wait_taken()
        nursery.cancel_scope.cancel()
    await daemon.http.aclose()


def lease_of(daemon: FakeDaemon, *ids: str) -> CodeLease:
    return CodeLease("7", [job(job_id=one) for one in ids], daemon.http, lambda: URL, 9.0, lambda: None)


def taken(body: Any) -> tuple[int, Any]:
    return 200, {"outcomes": [{"job_id": one["job_id"], "status": 200} for one in body]}


async def test_an_outcome_is_sent_until_it_is_taken(daemon: FakeDaemon, autojump_clock: None) -> None:
    troubles = [(0, {}), (503, {}), (200, {"outcomes": [{"status": 503}]}), (200, "nonsense")]
    daemon.answers["/v1/outcomes"] = lambda body: troubles.pop(0) if troubles else taken(body)
    lease = lease_of(daemon, "a")
    lease.put(succeeded(job(job_id="a"), {"x": 1}, [{"name": "n"}], NO_LOG))
    await settled(daemon, lease)
    assert [one["result"] for one in daemon.reported()] == [{"x": 1}] * 5
    assert daemon.reported()[0] == {
        "job_id": "a",
        "lease_id": "7",
        "status": 200,
        "result": {"x": 1},
        "jobs": [{"name": "n"}],
    }


@pytest.mark.parametrize(
    "refused", [(413, {}), (400, {}), (200, {"outcomes": [{"status": 422, "detail": "jobs: no name"}]})]
)
async def test_an_outcome_that_cannot_be_taken_fails_its_job(
    daemon: FakeDaemon, autojump_clock: None, refused: tuple[int, Any]
) -> None:
    daemon.answers["/v1/outcomes"] = lambda body: refused if body[0]["status"] == 200 else taken(body)
    lease = lease_of(daemon, "a")
    lease.put(succeeded(job(job_id="a"), "much", [], NO_LOG))
    await settled(daemon, lease)
    last = daemon.reported()[-1]
    assert (last["status"], last["message"].split(":")[0]) == (422, "INVALID_RESPONSE")


@pytest.mark.parametrize("status", [400, 413])
async def test_outcomes_that_are_refused_together_are_sent_in_fewer_until_one_is_to_blame(
    daemon: FakeDaemon, autojump_clock: None, status: int
) -> None:
    """As many that have large jobs to follow, or one that no daemon can read: the others are taken, and no slot is held
    up for good."""

    def answered(body: Any) -> tuple[int, Any]:
        return (status, {}) if any(one.get("result") == "bad" for one in body) or len(body) > 3 else taken(body)

    daemon.answers["/v1/outcomes"] = answered
    ids = [f"j{n}" for n in range(9)]
    lease = lease_of(daemon, *ids)
    for name in ids:
        lease.put(succeeded(job(job_id=name), "bad" if name == "j4" else "good", [], NO_LOG))
    with trio.fail_after(600):
        await settled(daemon, lease)
    last = {one["job_id"]: one["status"] for one in daemon.reported()}
    assert last == dict.fromkeys(ids, 200) | {"j4": 422}


@pytest.mark.parametrize(("bad", "kept"), [(1, 3), (STRUCK_MAX + 1, 0)])
async def test_a_line_that_asks_for_no_job_fails_no_success(
    daemon: FakeDaemon, autojump_clock: None, bad: int, kept: int
) -> None:
    """Of many all lines go, so that one outcome is no thousand reports."""

    def answered(body: Any) -> tuple[int, Any]:
        (one,) = body
        wrong = [at for at, each in enumerate(one.get("jobs", ())) if each["name"] == "bad"]
        if not wrong:
            return taken(body)
        why = f"jobs: jobs/{wrong[0]}/name: it is bad; nothing of this outcome was taken"
        return 200, {"outcomes": [{"status": 422, "detail": why}]}

    daemon.answers["/v1/outcomes"] = answered
    lease = lease_of(daemon, "a")
    jobs = [{"name": name} for name in ["good", *["bad"] * bad, "good", "good"]]
    lease.put(succeeded(job(job_id="a"), 1, jobs, Log(0, "printed")))
    began_s = trio.current_time()
    await settled(daemon, lease)
    assert trio.current_time() - began_s < 1, "each report is sent at once"
    last = daemon.reported()[-1]
    assert (last["status"], last["result"], len(last.get("jobs", ()))) == (200, 1, kept)
    said = last["log"].split("\n")
    assert (said[0], len(said)) == ("printed", 1 + min(bad, STRUCK_MAX))
    assert said[1] == "jqd: no job was pushed for 'J: bad': jobs/1/name: it is bad"


async def test_reports_are_bounded_with_all_that_they_have(daemon: FakeDaemon, autojump_clock: None) -> None:
    daemon.answers["/v1/outcomes"] = taken
    ids = [f"j{n}" for n in range(5)]
    lease = lease_of(daemon, *ids)
    for name in ids:
        follows = [{"name": "n", "argument": "x" * (REPORT_BYTES_MAX // 2 - 1000)}]
        lease.put(succeeded(job(job_id=name), None, follows, NO_LOG))
    await settled(daemon, lease)
    assert [len(body) for path, body in daemon.asked if path == "/v1/outcomes"] == [2, 2, 1]


async def test_all_jobs_of_a_large_lease_are_heard_in_time_by_a_slow_daemon(autojump_clock: None) -> None:
    """One after the other, the last of a hundred would be heard after 30 s, and run elsewhere meanwhile."""
    heard = dict.fromkeys([f"j{n}" for n in range(100)], trio.current_time())
    silences: list[float] = []

    async def answer(request: httpx2.Request) -> httpx2.Response:
        await trio.sleep(0.3)
        job_id = request.url.path.split("/")[3]
        silences.append(trio.current_time() - heard[job_id])
        heard[job_id] = trio.current_time()
        return httpx2.Response(200, content=msgspec.msgpack.encode({}), headers={"content-type": "application/msgpack"})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        lease = CodeLease("7", [job(job_id=one) for one in heard], http, lambda: URL, 9.0, lambda: None)
        with trio.move_on_after(60):
            await lease.beat()
    assert len(silences) > len(heard)
    assert max(silences) < 9


async def test_a_job_that_is_not_ours_any_more_is_let_go(daemon: FakeDaemon, autojump_clock: None) -> None:
    """By a heartbeat, or by its report: no more is said of it, and what runs is told."""
    daemon.answers["/v1/jobs/a/heartbeat"] = lambda body: (409, {})
    daemon.answers["/v1/outcomes"] = lambda body: (200, {"outcomes": [{"status": 409, "detail": "late"}]})
    lease = lease_of(daemon, "a", "b")
    batch = Batch(handler("python", ""), lease.jobs, lease.put, lease.unwanted)
    lease.put(failed(job(job_id="b"), "no"))
    await settled(daemon, lease)
    assert lease.unwanted == {"a": True}
    batch.skip_unwanted()
    assert [one.job_id for one in batch.left] == ["b"]
    lease.put(failed(job(job_id="a"), "too late"))
    assert {one["job_id"] for one in daemon.reported()} == {"b"}


async def test_a_cancel_comes_with_a_heartbeat_and_lines_go_with_it(daemon: FakeDaemon, autojump_clock: None) -> None:
    told = [{"log_end": 4}, {"log_end": 4}, {"cancelled": True}]
    daemon.answers["/v1/jobs/a/heartbeat"] = lambda body: (200, told.pop(0) if told else {})
    daemon.answers["/v1/outcomes"] = taken
    lease = lease_of(daemon, "a")
    batch = Batch(handler("python", ""), lease.jobs, lease.put, lease.unwanted)
    lease.stop, lease.printed = batch.stop, lambda job_id, start: Log(start, "line")

    async def skip() -> None:
        while not lease.unwanted:
            await trio.sleep(1)
        batch.skip_unwanted()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(skip)
        await settled(daemon, lease)
    beats = [body for path, body in daemon.asked if path.endswith("heartbeat")]
    assert beats[0] == {"lease_id": "7"}
    assert beats[1] == {"lease_id": "7", "log": "line", "log_from": 4}
    assert [one["status"] for one in daemon.reported()] == [499]


async def test_what_a_followed_job_prints_is_sent_once_a_second(daemon: FakeDaemon, autojump_clock: None) -> None:
    """It came with the signs of life: the first lines after six seconds and more, the others every three."""
    sent: list[tuple[float, str]] = []
    began_s, printed = trio.current_time(), JobOutput(1 << 20)

    def beaten(body: Any) -> tuple[int, Any]:
        sent.append((trio.current_time() - began_s, body.get("log", "")))
        return 200, {"log_end": sum(len(log) + 1 for _, log in sent if log)}

    daemon.answers["/v1/jobs/a/heartbeat"] = beaten
    daemon.answers["/v1/outcomes"] = taken
    lease = lease_of(daemon, "a")
    lease.printed = lambda job_id, start: printed.since(start)

    async def work() -> None:
        await trio.sleep(0.5)
        for second in range(8):
            printed.printed(b"%d\n" % second if second < 6 else b"")
            await trio.sleep(1)
        lease.put(succeeded(job(job_id="a"), 1, (), Log(0, "")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await settled(daemon, lease)
    lines = [(round(at_s), log) for at_s, log in sent if log]
    assert lines == [(4, "0\n1\n2\n3"), (5, "4"), (6, "5")]
    assert len(sent) <= len(lines) + 2, "nothing new, nothing sent but signs of life"
