"""GET and DELETE of jobs through ASGI."""

import threading
from types import SimpleNamespace

import msgspec
import pytest
import trio
import trio.testing

from jqd.api import message
from jqd.api.large_bodies import AT_ONCE_BYTES
from jqd.api.v1 import push as pushes
from jqd.api.v1.job_views import ARGUMENT_BYTES_MAX
from jqd.domain import json_ext
from jqd.domain.array_split import finish
from jqd.domain.errors import StoreRefused
from jqd.domain.job import Fate, State
from jqd.domain.jobid import IdSource
from jqd.domain.record import Lane
from jqd.http import Request, RequestHead
from jqd.runner import Running
from tests.api.edge import JSON, MSGPACK, Edge
from tests.api.fakes import JOURNAL, outcome
from tests.api.pushed import foreign_id, pushed

pack = msgspec.msgpack.encode


NEVER = ["nonsense", "01MCC5RM00000000000007000", "\u3042", "a" * 300]


@pytest.fixture
def edge() -> Edge:
    return Edge()


# ------------------------------------------------------------ what a job looks like


async def test_all_fields_of_a_job_that_failed(edge):
    job_id = edge.journal.ids.take(1).first
    slow = {"status": 504, "reason": "timeout", "message": "slow", "worker": "w1"}
    wrong = {"status": 400, "error": pack({"code": 7}), "message": "no such address", "worker": "w2", "attempt": 2}
    tries = [
        outcome(job_id, **slow, started_at_ms=1_000, finished_at_ms=2_000),
        outcome(job_id, **wrong, started_at_ms=3_000, finished_at_ms=4_000, fate=Fate.FAILED),
    ]
    edge.add(
        State.FAILED,
        id=job_id,
        attempts=2,
        priority=-3,
        max_retry=1,
        outcome=tries[1],
        history=tries,
        started_at_ms=3_000,
        daemon="",
        tags=("red",),
        argument=pack({"to": "ann"}),
        timeout=9.5,
        keep_result=True,
    )
    told = await edge.call("GET", f"/v1/jobs/{job_id}", accept=JSON)
    assert told.status == 200
    body = told.body
    history = body.pop("history")
    assert body == {
        "job_id": job_id,
        "name": "mail",
        "state": "failed",
        "priority": -3,
        "attempts": 2,
        "max_retry": 1,
        "created_at": "2027-01-15T08:00:00.000Z",
        "eligible_at": None,
        "started_at": "1970-01-01T00:00:03.000Z",
        "finished_at": "1970-01-01T00:00:04.000Z",
        "code": "failed",
        "exitcode": 400,
        "worker": "w2",
        "daemon": None,
        "error": {"code": 7},
        "message": "no such address",
        "tags": ["red"],
        "argument": {"to": "ann"},
        "argument_bytes": 8,
        "timeout": 9.5,
        "keep_result": True,
        "result": None,
    }
    assert [attempt["attempt"] for attempt in history] == [1, 2]
    assert (history[0]["status"], history[0]["reason"], history[0]["error"]) == (504, "timeout", None)


@pytest.mark.parametrize(("more", "shown"), [(0, True), (1, False)])
async def test_a_large_argument_is_shown_to_who_asks_for_it(edge, more, shown):
    packed = pack(b"x" * (ARGUMENT_BYTES_MAX - 3 + more))  # three bytes say what follows, and how long it is
    job_id = edge.add(State.WAITING, argument=packed)
    told = (await edge.call("GET", f"/v1/jobs/{job_id}")).body
    assert (told["argument_bytes"], "argument" in told) == (ARGUMENT_BYTES_MAX + more, shown)
    told = (await edge.call("GET", f"/v1/jobs/{job_id}?whole=1", accept=MSGPACK)).body
    assert pack(told["argument"]) == packed


async def test_what_is_at_work_here_is_known_here(edge):
    job_id = edge.add(State.RUNNING, attempts=1, daemon="d1", started_at_ms=5)
    edge.runner.at_work[job_id] = Running("w9", 61_000)
    told = await edge.call("GET", f"/v1/jobs/{job_id}")
    assert (told.body["worker"], told.body["started_at"]) == ("w9", "1970-01-01T00:01:01.000Z")
    assert told.body["finished_at"] is None


@pytest.mark.parametrize("state", [State.WAITING, State.SCHEDULED, State.RETRYING, State.RUNNING])
async def test_who_had_a_job_before_is_not_told_as_who_has_it(edge, state):
    """It was interrupted, and waits or is in the hand of another daemon, which alone knows its worker."""
    job_id = edge.journal.ids.take(1).first
    last = outcome(job_id, worker="w1", reason="interrupted")
    edge.add(state, id=job_id, daemon="d2" if state is State.RUNNING else "", outcome=last, history=[last])
    told = (await edge.call("GET", f"/v1/jobs/{job_id}")).body
    assert (told["worker"], told["history"][0]["worker"]) == (None, "w1")
    assert (await edge.call("GET", "/v1/jobs")).body["jobs"][0]["worker"] is None
    assert (await edge.call("GET", f"/job/{job_id}")).body["worker_id"] == ""


@pytest.mark.parametrize("keep", [True, False])
async def test_a_result_is_shown_when_it_was_to_be_kept(edge, keep):
    job_id = edge.add(State.SUCCEEDED, keep_result=keep, result=pack({"n": b"\x01"}) if keep else None)
    told = await edge.call("GET", f"/v1/jobs/{job_id}", accept=MSGPACK)
    assert told.body.get("result", "none") == ({"n": b"\x01"} if keep else "none")
    told = await edge.call("GET", f"/v1/jobs/{job_id}", accept=JSON)
    assert told.body.get("result", "none") == ({"n": {"$bytes": "AQ=="}} if keep else "none")


@pytest.mark.parametrize("job_id", NEVER)
async def test_ids_that_never_were(edge, job_id):
    assert (await edge.call("GET", f"/v1/jobs/{job_id}")).status == 404
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 404
    assert edge.store.looks == 0, "no journal made these; at most they are a pusher's own, and nobody's"
    assert edge.journal.frames == []


# ------------------------------------------------------------ before the store has it


async def test_a_job_of_ours_waits_from_its_ack_on(edge):
    job_id = await pushed(edge)
    edge.control.applies = False
    for edge.store.away, edge.store.knows_journals in [(False, True), (False, False), (True, True)]:
        told = await edge.call("GET", f"/v1/jobs/{job_id}")
        assert (told.status, told.body["state"]) == (200, "waiting")
        assert told.body["created_at"] == "2027-01-15T08:00:00.000Z"


async def test_a_store_that_goes_while_a_job_comes_takes_back_no_answer(edge):
    job_id = await pushed(edge)

    def go() -> None:
        edge.store.away = True
        edge.journal.read_points[Lane.JOBS] = edge.journal.end

    edge.control.on_apply[Lane.JOBS] = go
    told = await edge.call("GET", f"/v1/jobs/{job_id}")
    assert (told.status, told.body["state"]) == (200, "waiting")


async def test_a_report_that_is_late_while_a_job_comes_takes_back_no_answer(edge, monkeypatch):
    job_id = await pushed(edge)

    async def is_late(*_: object) -> bool:
        return False

    def end() -> None:
        edge.journal.read_points[Lane.JOBS] = 0
        monkeypatch.setattr("jqd.service.find._wait_shown", is_late)

    edge.control.on_apply[Lane.JOBS] = end
    told = await edge.call("GET", f"/v1/jobs/{job_id}")
    assert (told.status, told.body["state"]) == (200, "waiting")


async def test_once_applied_only_the_store_knows(edge):
    job_id = await pushed(edge)
    edge.journal.read_points[Lane.JOBS] = edge.journal.end
    edge.store.away = True
    told = await edge.call("GET", f"/v1/jobs/{job_id}")
    assert (told.status, told.headers["retry-after"]) == (503, "1")
    edge.store.away, edge.store.applied_id = False, job_id
    assert (await edge.call("GET", f"/v1/jobs/{job_id}")).status == 404, "purged"
    edge.store.applied_id = ""
    told = await edge.call("GET", f"/v1/jobs/{job_id}")
    assert told.body["state"] == "waiting", "the store rolled back; the job will be applied again"


async def test_an_id_of_ours_that_was_not_given_yet(edge):
    await pushed(edge)
    ahead = IdSource(journal=JOURNAL, salt=1, clock=edge.clock, after_ms=edge.clock.wall_ms() + 5).take(1).first
    assert (await edge.call("GET", f"/v1/jobs/{ahead}")).status == 404


async def test_a_job_of_another_daemon_may_be_on_its_way(edge):
    job_id = foreign_id(edge)
    assert (await edge.call("GET", f"/v1/jobs/{job_id}")).body["state"] == "waiting"
    edge.store.applied_id = job_id
    assert (await edge.call("GET", f"/v1/jobs/{job_id}")).status == 404
    edge.clock.set_wall_ms(edge.clock.wall_ms() - 3_600_000)
    edge.store.applied_id = ""
    assert (await edge.call("GET", f"/v1/jobs/{job_id}")).body["state"] == "waiting", "its clock went an hour ahead"
    edge.store.away = True
    edge.clock.set_wall_ms(edge.clock.wall_ms() + 3_600_000)
    assert (await edge.call("GET", f"/v1/jobs/{job_id}")).status == 503


async def test_what_the_store_has_is_there_whatever_the_clocks_say(edge):
    job_id = edge.add(State.WAITING, id=foreign_id(edge))
    edge.clock.set_wall_ms(edge.clock.wall_ms() - 3_600_000)
    assert (await edge.call("GET", f"/v1/jobs/{job_id}")).status == 200


async def test_a_store_that_refuses_is_503_too(edge, monkeypatch):
    async def refuse(job_id: str) -> None:
        raise StoreRefused("WRONGTYPE")

    monkeypatch.setattr(edge.store, "get_job", refuse)
    assert (await edge.call("GET", f"/v1/jobs/{foreign_id(edge)}")).status == 503


# ------------------------------------------------------------ result


@pytest.mark.parametrize("path", ["/v1/jobs/{}", "/v1/jobs/{}/result", "/job/{}", "/job/{}/polling"])
async def test_a_large_answer_in_json_does_not_hold_up_the_loop(edge, path, monkeypatch):
    threads = []

    def show(value):
        threads.append(threading.current_thread())
        return json_ext.show(value)

    monkeypatch.setattr("jqd.http.request.json_ext", SimpleNamespace(show=show))
    for count, aside in ((AT_ONCE_BYTES + 1, True), (1_000, False)):
        result: list[object] = [{}] * count
        job_id = edge.add(State.SUCCEEDED, keep_result=True, result=pack(result))
        told = await edge.call("GET", path.format(job_id), accept=JSON)
        assert told.body["result"] == result
        assert (threads.pop() is not threading.main_thread()) is aside


async def test_a_large_push_in_json_does_not_hold_up_the_loop(edge, monkeypatch):
    threads = []
    real = finish

    def read(*given):
        threads.append(threading.current_thread())
        return real(*given)

    monkeypatch.setattr(pushes, "finish", read)
    for count, aside in ((pushes.LOOP_BYTES // 10, True), (10, False)):
        told = await edge.call("POST", "/v1/jobs", {"name": "mail", "argument": "0123456789" * count}, kind=JSON)
        assert told.status == 201
        assert (threads.pop() is not threading.main_thread()) is aside
    assert [job.jobtype for job in edge.journal.jobs()] == ["mail"] * 2


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PATCH", "/v1/jobs/01K00000000000000000000000", 404),
        ("POST", "/job", 201),
        ("POST", "/v1/workers", 422),
        ("PUT", "/v1/schedules/s", 422),
    ],
)
async def test_no_other_large_body_in_json_does_either(edge, method, path, status, monkeypatch):
    threads = []
    real = json_ext.read

    def read(*given):
        threads.append(threading.current_thread())
        return real(*given)

    monkeypatch.setattr(message, "json_ext", SimpleNamespace(read=read, show=json_ext.show))
    for count, aside in ((AT_ONCE_BYTES, True), (10, False)):
        sent = {"argument": ["0123456789"] * count} if method == "PATCH" else {"name": "a", "argument": ["0"] * count}
        told = await edge.call(method, path, sent, kind=JSON)
        assert told.status == status, told.body
        assert [(one is not threading.main_thread()) for one in threads] == [aside], "once, and not on the loop"
        threads.clear()


async def test_a_result_can_be_taken_once(edge):
    job_id = edge.add(State.SUCCEEDED, keep_result=True, result=pack([1, 2]))
    path = f"/v1/jobs/{job_id}/result"
    assert (await edge.call("GET", path)).body == {"result": [1, 2]}
    assert (await edge.call("GET", f"{path}?consume=0")).body["result"] == [1, 2]
    assert edge.store.dropped == []
    assert (await edge.call("GET", f"{path}?consume=1")).body["result"] == [1, 2]
    assert edge.store.dropped == [job_id]
    assert (await edge.call("GET", path)).body["result"] is None


@pytest.mark.parametrize("size", [1, 2 * AT_ONCE_BYTES])
async def test_a_result_that_is_taken_is_told_also_to_who_only_listens_on(edge, size):
    """A client that closes its sending side has left, or only listens: it must not be told nil of what it took."""
    result = "x" * size
    job_id = edge.add(State.SUCCEEDED, keep_result=True, result=pack(result))
    asked = Listening("GET", f"/v1/jobs/{job_id}/result", b"wait=5&consume=1", {"host": "localhost"})
    drop = edge.store.drop_result

    async def drop_result(job_id, read):
        await drop(job_id, read)
        asked.left.set()
        await trio.testing.wait_all_tasks_blocked()
        await trio.lowlevel.checkpoint()

    edge.store.drop_result = drop_result
    answer = await edge.api(asked)
    assert msgspec.json.decode(answer.body) == {"result": result}


class Listening(Request):
    """Without a body; its client closes its sending side when `left` is set."""

    whole = True

    def __init__(self, method, path, query, headers):
        super().__init__(RequestHead(method, path, path, query, headers))
        self.left = trio.Event()

    def read_nowait(self):
        return b""

    def while_there(self):
        return trio.CancelScope()

    async def wait_left(self):
        await self.left.wait()


async def test_no_result_yet_is_nil_and_no_such_job_is_404(edge):
    job_id = edge.add(State.RUNNING, keep_result=True)
    assert (await edge.call("GET", f"/v1/jobs/{job_id}/result")).body == {"result": None}
    assert (await edge.call("GET", f"/v1/jobs/{await pushed(edge)}/result")).body == {"result": None}
    assert (await edge.call("GET", f"/v1/jobs/{NEVER[0]}/result")).status == 404
    assert (await edge.call("GET", f"/v1/jobs/{'0' * 26}/result")).status == 404
