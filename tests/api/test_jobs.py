"""GET and DELETE of jobs through ASGI."""

import threading
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

import msgspec
import pytest
import trio
import trio.testing

from jqd.api import message
from jqd.api.large import AT_ONCE_BYTES
from jqd.api.native import body
from jqd.api.native.show import ARGUMENT_BYTES_MAX
from jqd.doors import Heading
from jqd.runner import Running
from jqd.store import OnItsWay
from jqd.words import tagged
from jqd.words.errors import JournalRefused, StoreAway, StoreRefused
from jqd.words.job import Fate, State
from jqd.words.jobid import IdSource
from jqd.words.record import Lane
from tests.api.edge import JSON, MSGPACK, Edge
from tests.api.fakes import JOURNAL, outcome

pack = msgspec.msgpack.encode
NEVER = ["nonsense", "01MCC5RM00000000000007000", "\u3042", "a" * 300]


@pytest.fixture
def edge() -> Edge:
    return Edge()


async def pushed(edge: Edge) -> str:
    told = await edge.call("POST", "/v1/jobs", {"name": "mail"})
    assert told.status == 201
    return str(told.body["job_id"])


def foreign_id(edge: Edge) -> str:
    """An id another daemon's journal gave out just now."""
    return IdSource(journal=JOURNAL + 1, salt=3, clock=edge.clock).take(1).first


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
        timeout_s=9.5,
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
    edge.runner.at_work[job_id] = Running("w9", "mailer", 61_000)
    told = await edge.call("GET", f"/v1/jobs/{job_id}")
    assert (told.body["worker"], told.body["started_at"]) == ("w9", "1970-01-01T00:01:01.000Z")
    assert told.body["finished_at"] is None


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
    for edge.store.away, edge.store.knows_journals in [(False, True), (False, False), (True, True)]:
        told = await edge.call("GET", f"/v1/jobs/{job_id}")
        assert (told.status, told.body["state"]) == (200, "waiting")
        assert told.body["created_at"] == "2027-01-15T08:00:00.000Z"


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
    assert (await edge.call("GET", f"/v1/jobs/{job_id}")).status == 404, "given an hour from now"
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


# ------------------------------------------------------------ waiting


async def test_a_wait_ends_with_the_job(edge, autojump_clock):
    job_id = edge.add(State.RUNNING)
    begun_s = trio.current_time()
    told = []

    async def wait():
        told.append(await edge.call("GET", f"/v1/jobs/{job_id}?wait=30"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(0.25)
        edge.move(job_id, State.SUCCEEDED)
        edge.control.endings.ring([job_id])
    assert told[0].body["state"] == "succeeded"
    assert trio.current_time() - begun_s == pytest.approx(0.25)


async def test_an_attempt_that_failed_does_not_end_the_wait(edge, autojump_clock):
    job_id = edge.add(State.RUNNING)
    told = []

    async def wait():
        told.append(await edge.call("GET", f"/v1/jobs/{job_id}?wait=30"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(0.25)
        edge.move(job_id, State.RETRYING)
        edge.control.endings.ring([job_id])
        await trio.sleep(5)
        assert told == []
        edge.move(job_id, State.SUCCEEDED)
        edge.control.endings.ring([job_id])
    assert told[0].body["state"] == "succeeded"


async def test_endings_elsewhere_are_found_by_looking(edge, autojump_clock):
    job_id = edge.add(State.RUNNING)
    begun_s = trio.current_time()
    told = []

    async def wait():
        told.append(await edge.call("GET", f"/v1/jobs/{job_id}?wait=30"))

    async with trio.open_nursery() as watching:
        await watching.start(edge.api.watch, 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(3.5)
            edge.move(job_id, State.CANCELLED)
        watching.cancel_scope.cancel()
    assert told[0].body["state"] == "cancelled"
    assert trio.current_time() - begun_s <= 4.6


async def test_all_polls_together_ask_the_store_a_few_times(autojump_clock):
    """Each second each poll asked for its own job: a thousand that wait were a thousand calls a second."""
    edge = Edge()
    job_ids = [edge.add(State.RUNNING) for _ in range(1_200)]
    told: Counter[str] = Counter()

    async def wait(job_id: str) -> None:
        told[(await edge.call("GET", f"/v1/jobs/{job_id}?wait=20")).body["state"]] += 1

    async with trio.open_nursery() as watching:
        await watching.start(edge.api.watch, 0)
        async with trio.open_nursery() as nursery:
            for job_id in (*job_ids, job_ids[0]):
                nursery.start_soon(wait, job_id)
            await trio.sleep(10.5)
            assert (edge.store.looks, edge.store.pieces) == (1_201, [500, 500, 200] * 10)
            edge.store.away = True
            await trio.sleep(2)
            edge.store.away = False
            for job_id in job_ids:
                edge.move(job_id, State.SUCCEEDED)
        watching.cancel_scope.cancel()
    assert told == {"succeeded": 1_201}
    assert trio.current_time() < 15
    assert edge.api._parts.desk.polls == {0: {}}, "nobody is remembered"


async def test_a_poll_of_a_job_on_its_way_asks_nobody(edge, autojump_clock):
    job_id = (await edge.call("POST", "/v1/jobs", {"name": "a"})).body["job_id"]
    async with trio.open_nursery() as watching:
        await watching.start(edge.api.watch, 0)
        assert (await edge.call("GET", f"/v1/jobs/{job_id}?wait=8")).body["state"] == "waiting"
        watching.cancel_scope.cancel()
    assert (edge.store.looks, edge.store.pieces) == (2, [])


async def test_a_store_that_refuses_ends_the_polls(edge, autojump_clock, monkeypatch):
    job_id = edge.add(State.RUNNING)

    async def refuse(job_id: object) -> None:
        raise StoreRefused("WRONGTYPE")

    async with trio.open_nursery() as watching:
        await watching.start(edge.api.watch, 0)
        watching.start_soon(_later, 2.5, lambda: [monkeypatch.setattr(edge.store, n, refuse) for n in REFUSING])
        assert (await edge.call("GET", f"/v1/jobs/{job_id}?wait=50")).status == 503
        watching.cancel_scope.cancel()
    assert trio.current_time() < 4


REFUSING = ("get_job", "unfinished")


async def _later(seconds: float, call: Callable[[], object]) -> None:
    await trio.sleep(seconds)
    call()


@pytest.mark.parametrize(
    ("wait", "waited_s"),
    [("2.5", 2.5), ("1e9", 60), ("1e99", 60), ("-4", 0), ("", None), ("x", None), ("nan", None), ("inf", None)],
)
async def test_a_wait_is_bounded(edge, autojump_clock, wait, waited_s):
    job_id = edge.add(State.WAITING)
    begun_s = trio.current_time()
    told = await edge.call("GET", f"/v1/jobs/{job_id}?wait={wait}")
    if waited_s is None:
        assert told.status == 422
    else:
        assert (told.status, told.body["state"]) == (200, "waiting")
        assert trio.current_time() - begun_s == pytest.approx(waited_s)
        assert edge.store.looks <= waited_s + 2


async def test_a_client_that_leaves_is_waited_for_no_more(edge, autojump_clock):
    job_id = edge.add(State.RUNNING)
    gone = trio.Event()
    begun_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: edge.call("GET", f"/v1/jobs/{job_id}?wait=50", gone=gone))
        await edge.store.looked.wait()
        gone.set()
    assert trio.current_time() - begun_s < 1


# ------------------------------------------------------------ result


@pytest.mark.parametrize("path", ["/v1/jobs/{}", "/v1/jobs/{}/result", "/job/{}", "/job/{}/polling"])
async def test_a_large_answer_in_json_does_not_hold_up_the_loop(edge, path, monkeypatch):
    threads = []

    def show(value):
        threads.append(threading.current_thread())
        return tagged.show(value)

    monkeypatch.setattr(message, "tagged", SimpleNamespace(show=show))
    for count, aside in ((AT_ONCE_BYTES + 1, True), (1_000, False)):
        result: list[object] = [{}] * count
        job_id = edge.add(State.SUCCEEDED, keep_result=True, result=pack(result))
        told = await edge.call("GET", path.format(job_id), accept=JSON)
        assert told.body["result"] == result
        assert (threads.pop() is not threading.main_thread()) is aside


async def test_a_large_push_in_json_does_not_hold_up_the_loop(edge, monkeypatch):
    threads = []
    real = body._read_json

    def read(*given):
        threads.append(threading.current_thread())
        return real(*given)

    monkeypatch.setattr(body, "_read_json", read)
    for count, aside in ((body.AT_ONCE_BYTES // 10, True), (10, False)):
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
    real = tagged.read

    def read(*given):
        threads.append(threading.current_thread())
        return real(*given)

    monkeypatch.setattr(message, "tagged", SimpleNamespace(read=read, show=tagged.show))
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

    async def drop_result(job_id):
        await drop(job_id)
        asked.left.set()
        await trio.testing.wait_all_tasks_blocked()
        await trio.lowlevel.checkpoint()

    edge.store.drop_result = drop_result
    answer = await edge.api(asked)
    assert msgspec.json.decode(answer.body) == {"result": result}


class Listening:
    """Asked, without a body; its client closes its sending side when `left` is set."""

    peer = None
    whole = True
    patient = False

    def __init__(self, method, path, query, headers):
        self.heading = Heading(method, path, path, query, headers)
        self.left = trio.Event()

    def read_nowait(self):
        return b""

    async def wait_left(self):
        await self.left.wait()


async def test_no_result_yet_is_nil_and_no_such_job_is_404(edge):
    job_id = edge.add(State.RUNNING, keep_result=True)
    assert (await edge.call("GET", f"/v1/jobs/{job_id}/result")).body == {"result": None}
    assert (await edge.call("GET", f"/v1/jobs/{await pushed(edge)}/result")).body == {"result": None}
    assert (await edge.call("GET", f"/v1/jobs/{NEVER[0]}/result")).status == 404
    assert (await edge.call("GET", f"/v1/jobs/{'0' * 26}/result")).status == 404


# ------------------------------------------------------------ cancel


async def test_a_cancel_that_the_store_confirmed(edge):
    job_id = edge.add(State.WAITING)
    edge.control.on_apply[Lane.CANCELS] = lambda: edge.move(job_id, State.CANCELLED)
    told = await edge.call("DELETE", f"/v1/jobs/{job_id}")
    assert (told.status, told.raw) == (204, b"")
    assert edge.journal.cancels() == [job_id]
    assert edge.journal.synced == edge.journal.written
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 204, "asked again, it is still so"
    assert edge.journal.cancels() == [job_id, f"{job_id}@101"], "also of a retry that may be on its way"


async def test_a_running_job_is_asked_to_stop(edge):
    job_id = edge.add(State.RUNNING)
    told = await edge.call("DELETE", f"/v1/jobs/{job_id}", accept=MSGPACK)
    assert (told.status, told.body["state"]) == (202, "running")
    assert edge.journal.cancels() == [job_id]


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED])
async def test_what_has_ended_cannot_be_cancelled(edge, state):
    job_id = edge.add(state)
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 409
    assert edge.journal.frames == []


async def test_what_ended_meanwhile_neither(edge):
    job_id = edge.add(State.RUNNING)
    edge.control.on_apply[Lane.CANCELS] = lambda: edge.move(job_id, State.SUCCEEDED)
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 409


async def test_without_confirmation_it_is_recorded_only(edge):
    job_id = edge.add(State.WAITING)
    edge.control.applies = False
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 202
    edge.store.away = True
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 202
    foreign = foreign_id(edge)
    assert (await edge.call("DELETE", f"/v1/jobs/{foreign}")).status == 202
    now = (edge.clock.wall_ms() + 1) * 1_000
    assert edge.journal.cancels() == [job_id, f"{job_id}@{now}", f"{foreign}@{now}"], "whatever began before now"


async def test_a_cancel_is_not_confirmed_while_daemons_still_tell_the_store_what_it_forgot(edge):
    job_id = edge.add(State.WAITING)
    edge.control.on_apply[Lane.CANCELS] = lambda: edge.move(job_id, State.CANCELLED)
    edge.control.calm = False
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 202
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 202, "a daemon may yet say that it runs it"
    edge.control.calm = True
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 204


async def test_a_job_not_ingested_yet_meets_its_cancel(edge):
    job_id = await pushed(edge)
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 204
    assert edge.journal.cancels() == [f"{job_id}@101"], "whatever life of it the journal holds"


async def test_a_job_that_a_daemon_holds_before_it_came_is_no_job_that_will_not_start(edge, monkeypatch):
    job_id = await pushed(edge)

    async def held(job_id: str) -> OnItsWay:
        return OnItsWay("", held=True)

    monkeypatch.setattr(edge.store, "get_job", held)
    told = await edge.call("DELETE", f"/v1/jobs/{job_id}")
    assert (told.status, told.body["state"]) == (202, "running")


async def test_a_cancel_without_a_number_promises_nothing(edge, monkeypatch):
    """The store goes after the first look, comes back for the rest: nobody knows which life of the job was meant."""
    job_id = await pushed(edge)

    async def away(wanted: str) -> int:
        raise StoreAway("gone for a moment")

    monkeypatch.setattr(edge.store, "reserve_change", away)
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 202
    assert edge.journal.cancels() == [f"{job_id}@{(edge.clock.wall_ms() + 1) * 1_000}"]


@pytest.mark.parametrize(("full", "status"), [(True, 507), (False, 503)])
async def test_a_cancel_that_is_not_on_disk_is_not_promised(edge, full, status):
    job_id = edge.add(State.WAITING)
    edge.journal.refuse = JournalRefused("no space", full=full)
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == status


async def test_a_store_that_goes_while_it_is_asked(edge, autojump_clock):
    job_id = edge.add(State.WAITING)

    def go() -> None:
        edge.store.away = True

    edge.control.on_apply[Lane.CANCELS] = go
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 202


async def test_a_store_that_rolled_back_while_it_is_asked_promises_nothing(edge, monkeypatch):
    """It knows no more that the job is in a hand, and ends it; its daemon goes on with it."""
    job_id = edge.add(State.RUNNING)
    real = edge.store.get_job

    async def look(wanted: str) -> object:
        if edge.journal.cancels():
            edge.move(job_id, State.CANCELLED)
            edge.control.calm = False
        return await real(wanted)

    monkeypatch.setattr(edge.store, "get_job", look)
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 202


@pytest.mark.parametrize("named", [{"generation": 5}, {"name": "mine"}])
async def test_a_cancel_is_meant_for_all_that_was_acknowledged_before_it(edge, named):
    """A job that was changed, or may be by a push: what the store shows of it need not be the last word."""
    job_id = edge.add(State.WAITING, **named)
    edge.control.on_apply[Lane.CANCELS] = lambda: edge.move(job_id, State.CANCELLED)
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 204
    assert edge.journal.cancels() == [f"{job_id}@101"]


async def test_a_job_that_is_replaced_while_it_is_cancelled_is_cancelled_again(edge):
    job_id = edge.add(State.WAITING, generation=5)
    lives = [(State.WAITING, 102), (State.CANCELLED, 102)]

    def replace() -> None:
        state, generation = lives.pop(0)
        edge.move(job_id, state, generation=generation)

    edge.control.on_apply[Lane.CANCELS] = replace
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 204
    assert edge.journal.cancels() == [f"{job_id}@101", f"{job_id}@102"]


async def test_a_job_that_is_replaced_for_ever_is_not_cancelled_for_ever(edge):
    job_id = edge.add(State.WAITING, generation=1)
    edge.control.on_apply[Lane.CANCELS] = lambda: edge.move(job_id, State.WAITING, generation=edge.store.changes + 1)
    told = await edge.call("DELETE", f"/v1/jobs/{job_id}")
    assert (told.status, told.body["state"]) == (202, "waiting")
    assert edge.journal.cancels() == [f"{job_id}@{n}" for n in (101, 102, 103)]


async def test_a_cancel_of_an_id_nobody_gave_is_not_recorded_without_the_store(edge):
    ahead = IdSource(journal=JOURNAL, salt=1, clock=edge.clock, after_ms=edge.clock.wall_ms() + 5).take(1).first
    edge.store.away = True
    assert (await edge.call("DELETE", f"/v1/jobs/{ahead}")).status == 404
    assert edge.journal.frames == []
