"""The events of one job: what is told, to whom it is told again, and when there is no more."""

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from jqd.api.v1.job_events import _Teller
from jqd.domain.job import Fate, Outcome, State
from jqd.domain.tokens import Role
from jqd.service import job_events
from jqd.service.job_events import START, read_seen
from jqd.service.leases import Progress
from jqd.service.principal import Principal
from jqd.service.waiters import WAKEN, Watched
from jqd.store import NO_LOG, Log
from tests.api.edge import Answer, Edge
from tests.stalls import guarded

Told = list[tuple[str, str, dict[str, Any]]]
Meanwhile = Callable[[], Awaitable[None]]
LOOKED_S = job_events.LOOK_S + 0.01


@pytest.fixture
def edge() -> Edge:
    return Edge()


def read_told(raw: bytes) -> Told:
    """Kind, id and data of each."""
    told = []
    for block in raw.decode().removeprefix("retry: 2000\n\n").split("\n\n")[:-1]:
        fields = dict(line.partition(": ")[::2] for line in block.split("\n"))
        if "data" in fields:
            told.append((fields["event"], fields.get("id", ""), json.loads(fields["data"])))
    return told


async def follow(
    edge: Edge, job_id: str, meanwhile: Meanwhile | None = None, last: str = "", tenant: str = ""
) -> tuple[Answer, Told]:
    """Until the stream ends; `meanwhile` runs beside it, and then the client leaves."""
    headers = {"last-event-id": last} if last else {}
    headers |= {"jqd-tenant": tenant} if tenant else {}
    answers: list[Answer] = []
    gone = trio.Event()

    async def call(done: Callable[[], None]) -> None:
        answers.append(await edge.call("GET", f"/v1/jobs/{job_id}/events", headers=headers, gone=gone))
        done()

    async with trio.open_nursery() as looking:
        await looking.start(edge.api.watch, 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, lambda: None)
            if meanwhile is not None:
                await trio.sleep(LOOKED_S)
                await meanwhile()
                await trio.sleep(LOOKED_S)
                gone.set()
        looking.cancel_scope.cancel()
    assert edge.api._parts.services.watched == {}
    return answers[0], read_told(answers[0].raw)


def failure(job_id: str, attempt: int) -> Outcome:
    return Outcome(job_id, 7, Fate.RETRY, "mail", 0, attempt, 500, message=f"no {attempt}", finished_at_ms=1)


def progress(done: float, at_ms: int) -> bytes:
    return msgspec.msgpack.encode(Progress(done, "on it", at_ms))


async def test_state_progress_and_lines_are_told_until_the_end(edge, autojump_clock):
    job_id = edge.add(State.WAITING)

    async def goes_on() -> None:
        edge.move(job_id, State.RUNNING, attempts=1, progress=progress(0.25, 1_000))
        edge.store.logs[job_id] = Log(9, 0, b"one\ntwo\n")
        await trio.sleep(LOOKED_S)
        edge.store.logs[job_id] = Log(9, 4, b"two\nthree\n")
        await trio.sleep(LOOKED_S)
        edge.move(job_id, State.SUCCEEDED, attempts=1, progress=None)

    answer, told = await follow(edge, job_id, goes_on)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert [kind for kind, *_ in told] == ["state", "state", "progress", "log", "log", "state", "end"]
    assert [data["state"] for kind, _, data in told if kind == "state"] == ["waiting", "running", "succeeded"]
    assert told[2][2] == {"done": 0.25, "message": "on it", "at": "1970-01-01T00:00:01.000Z"}
    lines = [data for kind, _, data in told if kind == "log"]
    assert lines[0] == {"lines": ["one", "two"], "start": 0, "dropped": 0}
    assert lines[1] == {"lines": ["three"], "start": 8, "dropped": 0}
    assert told[-1] == ("end", "end", {"reason": "ended", "state": "succeeded", "reconnect": False})
    again, _ = await follow(edge, job_id, last="end")
    assert again.status == 204, "a browser comes back no more"


async def test_who_comes_back_misses_nothing_that_is_known(edge, autojump_clock):
    job_id = edge.add(State.RUNNING, attempts=1)
    edge.store.logs[job_id] = Log(9, 0, b"one\n")

    async def nothing() -> None:
        return

    _, told = await follow(edge, job_id, nothing)
    assert [kind for kind, *_ in told] == ["state", "log"]
    edge.store.logs[job_id] = Log(9, 0, b"one\ntwo\n")
    _, told = await follow(edge, job_id, nothing, last=told[-1][1])
    assert [data for *_, data in told] == [{"lines": ["two"], "start": 4, "dropped": 0}]
    last = told[-1][1]
    edge.store.logs[job_id] = Log(9, 20, b"later\n")
    _, told = await follow(edge, job_id, nothing, last=last)
    assert [data for *_, data in told] == [{"lines": ["later"], "start": 20, "dropped": 12}]
    edge.move(job_id, State.FAILED, attempts=4, history=[failure(job_id, each) for each in (1, 2, 3, 4)])
    edge.store.logs[job_id] = Log(12, 0, b"another attempt\n")
    _, told = await follow(edge, job_id, last=last)
    states = [(data["state"], data["attempts"], data["message"]) for kind, _, data in told if kind == "state"]
    assert states[:-1] == [("retrying", 1, "no 1"), ("retrying", 2, "no 2"), ("retrying", 3, "no 3")]
    assert states[-1][:2] == ("failed", 4)
    assert told[-2][2]["lines"] == ["another attempt"]
    assert told[-1][2]["reason"] == "ended"
    _, all_told = await follow(edge, job_id, last="nonsense")
    assert [kind for kind, *_ in all_told] == ["state", "log", "end"], "from the beginning"
    assert read_seen("waiting.0.0.0.x") is None


async def test_it_ends_when_the_job_is_deleted_and_when_the_daemon_shuts_down(edge, autojump_clock):
    job_id = edge.add(State.RUNNING, attempts=1)

    async def deleted() -> None:
        edge.store.applied_id = job_id
        del edge.store.views[job_id]

    _, told = await follow(edge, job_id, deleted)
    assert told[-1] == ("end", "end", {"reason": "deleted", "reconnect": False})
    assert (await follow(edge, job_id))[0].status == 404
    job_id = edge.add(State.RUNNING, attempts=1)

    async def drains() -> None:
        edge.api._parts.services.pulls.close()
        edge.api._parts.services.watched[job_id].ring()

    _, told = await follow(edge, job_id, drains)
    assert told[-1] == ("end", "", {"reason": "draining", "reconnect": True})
    assert (await follow(edge, job_id))[0].status == 503


async def test_who_waits_hears_that_the_stream_is_there_and_the_store_may_be_away(edge, autojump_clock):
    job_id = edge.add(State.RUNNING, attempts=1)

    async def away() -> None:
        edge.store.away = True
        await trio.sleep(40)
        edge.store.away = False
        edge.move(job_id, State.SUCCEEDED)

    answer, told = await follow(edge, job_id, away)
    assert answer.raw.count(b": still here\n\n") == 2
    assert [data["state"] for *_, data in told] == ["running", "succeeded", "succeeded"]


async def test_a_tenant_follows_its_own_jobs_and_no_more_than_its_part(edge, autojump_clock, monkeypatch):
    monkeypatch.setattr(job_events, "TENANT_MAX", 1)
    monkeypatch.setattr(job_events, "WATCHERS_MAX", 3)
    monkeypatch.setattr(job_events, "KEPT", 1)
    theirs = edge.add(State.RUNNING, jobtype="acme\x1fmail", attempts=1)
    assert (await follow(edge, theirs, tenant="other"))[0].status == 404
    assert (await edge.call("GET", f"/v1/jobs/{theirs}/log", headers={"jqd-tenant": "other"})).status == 404
    services = edge.api._parts.services
    refused: list[int] = []

    async def more() -> None:
        refused.append((await follow_now(edge, theirs, "acme")).status)
        ours = edge.add(State.RUNNING, jobtype="beta\x1fmail", attempts=1)
        view = edge.store.views[ours]
        beta = services.as_principal(Principal("beta", Role.VIEWER))
        with job_events.watching(beta, ours, view, named=False):
            other = edge.add(State.RUNNING, jobtype="other\x1fmail", attempts=1)
            refused.append((await follow_now(edge, other, "other")).status)
            with job_events.watching(services, ours, view, named=False):
                refused.append((await follow_now(edge, ours, "")).status)

    await follow(edge, theirs, more, tenant="acme")
    assert refused == [429, 503, 503]


async def follow_now(edge: Edge, job_id: str, tenant: str) -> Answer:
    """At once: one that is not refused would go on."""
    with trio.fail_after(LOOKED_S):
        return await edge.call("GET", f"/v1/jobs/{job_id}/events", headers={"jqd-tenant": tenant} if tenant else {})


async def test_the_log_of_a_job(edge, autojump_clock):
    job_id = edge.add(State.RUNNING, attempts=2)
    assert (await edge.call("GET", f"/v1/jobs/{job_id}/log")).body == {
        "job_id": job_id,
        "state": "running",
        "attempts": 2,
        "log": "",
        "dropped": 0,
    }
    edge.store.logs[job_id] = Log(9, 30, "ü\nlast\n".encode())
    told = (await edge.call("GET", f"/v1/jobs/{job_id}/log", accept="application/json")).body
    assert (told["log"], told["dropped"]) == ("ü\nlast", 30)
    assert (await edge.call("GET", "/v1/jobs/nothing/log")).status == 404


async def test_a_thousand_are_woken_a_few_at_a_time_and_asked_for_once(edge, autojump_clock):
    job_id = edge.add(State.RUNNING, attempts=1)
    services = edge.api._parts.services
    view = edge.store.views[job_id]
    heard: Counter[bytes] = Counter()

    async def write(piece: bytes) -> bool:
        heard[piece] += 1
        return True

    async def one(task_status: trio.TaskStatus[None]) -> None:
        with job_events.watching(services, job_id, view, named=False) as (watched, next_bell):
            task_status.started()
            await _Teller(services, watched, START).write_events(write, next_bell)

    with guarded(0.005):
        async with trio.open_nursery() as nursery:
            for _ in range(1_000):
                await nursery.start(one)
            await trio.testing.wait_all_tasks_blocked()
            heard.clear()
            edge.move(job_id, State.SUCCEEDED)
            edge.store.logs[job_id] = Log(9, 0, b"a line of some length\n" * 3_000)
            nursery.start_soon(job_events.look, services, [services.watched[job_id]])
            most, before = 0, 0
            while services.watched:
                await trio.lowlevel.checkpoint()
                most, before = max(most, heard.total() - before), heard.total()
    assert (list(heard.values()), edge.store.briefs) == ([1_000], 1)
    assert most <= 4 * WAKEN, "others have their turns between"


async def test_a_token_hears_no_more_of_a_job_that_became_one_it_may_not_see(edge, autojump_clock):
    job_id = edge.add(State.WAITING)
    services = edge.api._parts.services.as_principal(Principal(role=Role.VIEWER, sees_all=True, scopes=("mail",)))
    read: list[bytes] = []

    async def write(piece: bytes) -> bool:
        read.append(piece)
        return True

    with job_events.watching(services, job_id, edge.store.views[job_id], named=False) as (watched, next_bell):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_Teller(services, watched, START).write_events, write, next_bell)
            await job_events.look(services, [watched])
            await trio.sleep(1)
            edge.move(job_id, State.WAITING, jobtype="secret")
            edge.store.logs[job_id] = Log(9, 0, b"secret\n")
            await job_events.look(services, [watched])
    told = read_told(b"".join(read))
    assert [kind for kind, *_ in told] == ["state", "end"]
    assert told[-1] == ("end", "end", {"reason": "deleted", "reconnect": False})
    assert b"secret" not in b"".join(read)


async def test_who_reads_slowly_is_told_what_is_not_there_any_more(edge, autojump_clock):
    job_id = edge.add(State.RUNNING, attempts=1)
    services = edge.api._parts.services
    read: list[bytes] = []

    async def write_slowly(piece: bytes) -> bool:
        read.append(piece)
        await trio.sleep(2)
        return True

    with job_events.watching(services, job_id, edge.store.views[job_id], named=False) as (watched, next_bell):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_Teller(services, watched, START).write_events, write_slowly, next_bell)
            for number in range(3):  # each pushes out what was before, and takes less time than to read one
                await trio.sleep(0.5)
                edge.store.logs[job_id] = Log(9, number * 70_000, b"%d\n" % number)
                await job_events.look(services, [watched])
            edge.move(job_id, State.SUCCEEDED)
            await job_events.look(services, [watched])
    told = read_told(b"".join(read))
    lines = [data for kind, _, data in told if kind == "log"]
    assert lines == [{"lines": ["2"], "start": 140_000, "dropped": 140_000}]
    assert [data["state"] for kind, _, data in told if kind == "state"] == ["running", "succeeded"]


def test_what_is_missing_in_between_is_known_to_be_missing() -> None:
    watched = Watched("J", None, named=True)
    assert [watched.add(part) for part in (None, NO_LOG, Log(9, 0, b"one\n"))] == [False, False, True]
    assert watched.add(Log(9, 4, b"two\n"))
    assert watched.log == Log(9, 0, b"one\ntwo\n")
    watched.add(Log(9, 8, b"x" * 65_536 + b"\nlast\n"))
    assert watched.log == Log(9, 8 + 65_537, b"last\n"), "whole lines"
    watched.add(Log(9, 99_999, b"far on\n"))
    assert watched.log == Log(9, 99_999, b"far on\n")
    watched.add(Log(12, 0, b"again\n"))
    assert watched.log == Log(12, 0, b"again\n")
    watched.add(Log(12, 6, b"x" * 70_000 + b"\n"))
    assert watched.log == Log(12, 6 + 70_001 - 65_536, b"x" * 65_535 + b"\n"), "the end of a line that is longer"
