"""Pushes that meet a journal which refuses, a daemon that drains or is too full, or a body that does not come whole."""

import re

import msgspec
import pytest
import trio
import trio.testing

from jqd.domain.errors import JournalRefused, Overloaded
from jqd.domain.record import Lane
from jqd.http import ListenerConfig
from jqd.routes import ROUTES
from tests.api.edge import MSGPACK, Edge

pack = msgspec.msgpack.encode


@pytest.fixture
def edge() -> Edge:
    return Edge()


# ------------------------------------------------------------ not now


@pytest.mark.parametrize(("full", "status"), [(True, 507), (False, 503)])
async def test_a_refusing_journal(edge, full, status):
    edge.journal.refuse = JournalRefused("no space left on /var/lib/jqd", full=full)
    told = await edge.call("POST", "/v1/jobs", {"name": "a"})
    assert told.status == status
    assert told.headers["retry-after"] == "1"
    assert "no space left" in told.body["detail"]


@pytest.mark.parametrize(("full", "status"), [(True, 507), (False, 503)])
async def test_a_sync_that_fails_acknowledges_nothing(edge, full, status):
    edge.journal.hold = trio.Event()
    told = []

    async def push():
        told.append(await edge.call("POST", "/v1/jobs", [{"name": "a"}]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(push)
        await edge.journal.waiting.wait()
        edge.journal.refuse = JournalRefused("the disk did not take it", full=full)
        edge.journal.hold.set()
    assert told[0].status == status
    assert "job_ids" not in told[0].body
    assert edge.control.acknowledged == []


async def test_draining_refuses_before_anything_is_written(edge):
    edge.control.not_pushing = "this daemon is shutting down"
    told = await edge.call("POST", "/v1/jobs", b"whatever")
    assert (told.status, told.headers["retry-after"]) == (503, "1")
    assert told.body["type"] == "urn:jqd:closed", "so that a client knows that nothing was taken"
    assert edge.journal.frames == []


async def test_under_pressure_pushes_are_put_off_and_nothing_else(edge):
    edge.control.pressure = Overloaded("nothing was taken: 100 jobs wait", retry_after_s=7)
    for path in ("/v1/jobs", "/job"):
        told = await edge.call("POST", path, b"whatever")
        assert (told.status, told.headers["retry-after"]) == (429, "7")
        assert "100 jobs wait" in told.body["detail"]
    assert edge.journal.frames == []
    others = [
        (await edge.call(route.method, re.sub("<.*>", "x", route.path), {})).status
        for route in ROUTES
        if route.path not in ("/v1/jobs", "/job", "/v1/events") and not route.path.endswith(("/run-now", "/close"))
    ]
    assert 429 not in others
    assert 400 in others


# ------------------------------------------------------------ clients that go


async def test_a_cut_body_is_never_journaled(edge):
    whole = pack([{"name": "a", "argument": "x" * 40}])
    for cut in range(len(whole) + 1):
        # Every prefix arrives, even the whole body, but the end of the request does not.
        gone = trio.Event()
        gone.set()
        messages = [{"type": "http.request", "body": whole[:cut], "more_body": True}]
        told = await edge.exchange("POST", "/v1/jobs", {"content-type": MSGPACK}, messages, gone)
        assert told.status == 0
    assert edge.journal.frames == []


@pytest.mark.parametrize("said", [-1, 1, 1000])
async def test_a_lie_about_the_length(edge, said):
    body = pack([{"name": "a"}])
    headers = {"content-type": MSGPACK, "content-length": str(len(body) + said)}
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    assert (await edge.exchange("POST", "/v1/jobs", headers, messages, trio.Event())).status == 400
    assert edge.journal.frames == []


async def test_a_stalled_body_ends(edge, autojump_clock):
    messages = [{"type": "http.request", "body": b"\x81", "more_body": True}]
    begun_s = trio.current_time()
    told = await edge.exchange("POST", "/v1/jobs", {"content-type": MSGPACK}, messages, trio.Event())
    assert (told.status, told.headers["connection"]) == (408, "close")
    assert trio.current_time() - begun_s == pytest.approx(ListenerConfig().body_grace_s, abs=0.01)
    assert edge.journal.frames == []


async def test_a_pusher_that_leaves_during_the_sync_changes_nothing(edge):
    edge.journal.hold = trio.Event()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(edge.call, "POST", "/v1/jobs", {"name": "a"})
            await edge.journal.waiting.wait()
            scope.cancel()
            edge.journal.hold.set()
    # Its job was written: it is durable, logged as acknowledged, and known as waiting.
    assert edge.journal.synced == edge.journal.written
    ((ids, _),) = edge.control.acknowledged
    assert (await edge.call("GET", f"/v1/jobs/{ids[0]}")).body["state"] == "waiting"


async def test_the_frames_of_many_pushers_never_mix(edge):
    ids: list[list[str]] = []

    async def push(name: str, number: int) -> None:
        ids.append((await edge.call("POST", "/v1/jobs", [{"name": name}] * number)).body["job_ids"])

    async with trio.open_nursery() as nursery:
        for number in range(1, 30):
            nursery.start_soon(push, f"n{number}", number)
    jobs = edge.journal.jobs()
    assert sorted(job_id for group in ids for job_id in group) == [job.id for job in jobs]
    for group in ids:
        assert {job.jobtype for job in jobs if job.id in group} == {f"n{len(group)}"}
    assert all(lane is Lane.JOBS for lane, _, _ in edge.journal.frames)
