"""The LightJQ surface: its own statuses, nothing else."""

import msgspec
import pytest
import trio

from jqd.runner import Report, Running
from jqd.words.errors import JournalRefused
from jqd.words.job import Fate, State
from jqd.words.record import Lane, decode_outcomes
from tests.api.edge import JSON, MSGPACK, Edge
from tests.api.fakes import outcome

pack = msgspec.msgpack.encode


@pytest.fixture
def edge() -> Edge:
    return Edge()


# ------------------------------------------------------------ POST /job


async def test_a_job_with_lightjq_defaults(edge):
    told = await edge.call("POST", "/job", {"name": "mail", "argument": {"to": "a"}})
    assert told.status == 201
    assert told.headers["content-type"] == MSGPACK
    (job,) = edge.journal.jobs()
    assert told.body == {"job_id": job.id}
    assert (job.max_retry, job.priority, job.timeout_s, job.keep_result) == (10, 0, 30.0, False)
    assert job.argument == pack({"to": "a"})
    assert edge.journal.synced == edge.journal.written


async def test_an_argument_goes_on_as_it_came(edge):
    odd = b"\xd9\x01a"
    body = b"\x83\xa4name\xa1m\xa8argument" + odd + b"\xa8priority\xd2\xff\xff\xff\xff"
    assert (await edge.call("POST", "/job", body)).status == 201
    assert (edge.journal.jobs()[0].argument, edge.journal.jobs()[0].priority) == (odd, -1)


async def test_json_is_taken_too(edge):
    told = await edge.call("POST", "/job", {"name": "mail", "argument": [1]}, kind=JSON)
    assert told.status == 201
    assert told.headers["content-type"] == JSON


BAD_JOBS = [
    {"name": "mail"},
    {"argument": 1},
    {"name": "", "argument": 1},
    {"name": "a", "argument": 1, "priority": 2**31},
    {"name": "a", "argument": 1, "max_retry": -1},
    {"name": "a", "argument": 1, "timeout": 0},
    {"name": "a", "argument": 1, "timeout": "long"},
    {"name": "a", "argument": 1, "tags": []},
    [],
    None,
    "x",
]


@pytest.mark.parametrize("body", BAD_JOBS, ids=str)
@pytest.mark.parametrize("kind", [MSGPACK, JSON])
async def test_bad_jobs_are_400(edge, body, kind):
    told = await edge.call("POST", "/job", pack(body) if kind == MSGPACK else msgspec.json.encode(body), kind=kind)
    assert told.status == 400
    assert told.body["detail"]
    assert edge.journal.frames == []


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", MSGPACK),
        (b"\xc1", MSGPACK),
        (b"{", JSON),
        (b"\x82\xa4name\xa1a\xa8argument" + b"\x91" * 300 + b"\xc0", MSGPACK),
        (b"\x82\xa4name\xa1a\xa8argument" + b"\x91" * 100_000 + b"\xc0", MSGPACK),
        (b'{"name":"a","argument":' + b"[" * 100_000 + b"]" * 100_000 + b"}", JSON),
        (pack({"name": "a", "argument": 1}), "text/html"),
        (pack({"name": "a", "argument": b"x" * (1 << 20)}), MSGPACK),
    ],
    ids=lambda part: repr(part)[:30],
)
async def test_what_cannot_be_read_is_400(edge, body, kind):
    assert (await edge.call("POST", "/job", body, kind=kind)).status == 400
    assert edge.journal.frames == []


async def test_a_missing_argument_is_named(edge):
    told = await edge.call("POST", "/job", {"name": "mail"})
    assert told.body["errors"] == [{"pointer": "/argument", "detail": "argument is required: any value"}]


async def test_it_says_when_nothing_can_be_taken(edge):
    edge.journal.refuse = JournalRefused("full", full=True)
    assert (await edge.call("POST", "/job", {"name": "a", "argument": 1})).status == 507


# ------------------------------------------------------------ GET /job/{id}


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (State.WAITING, "queued"),
        (State.SCHEDULED, "queued"),
        (State.RUNNING, "running"),
        (State.RETRYING, "retrying"),
        (State.SUCCEEDED, "done"),
        (State.FAILED, "error"),
        (State.CANCELLED, "error"),
    ],
)
async def test_every_state_has_its_word(edge, state, status):
    told = await edge.call("GET", f"/job/{edge.add(state)}")
    assert told.status == 200
    assert told.headers["content-type"] == MSGPACK
    assert set(told.body) == {"status", "worker_id", "result", "error", "message", "retry_count"}
    assert (told.body["status"], told.body["retry_count"], told.body["result"]) == (status, 0, None)
    assert told.body["worker_id"] == "", "a string, as its interface has it"


async def test_what_a_job_tells(edge):
    job_id = edge.add(State.SUCCEEDED, attempts=3, keep_result=True, result=pack({"n": 1}))
    edge.move(job_id, State.SUCCEEDED, outcome=outcome(job_id, worker="w1", fate=Fate.SUCCEEDED, attempt=3))
    told = await edge.call("GET", f"/job/{job_id}")
    assert told.body == {
        "status": "done",
        "worker_id": "w1",
        "result": {"n": 1},
        "error": None,
        "message": "",
        "retry_count": 2,
    }
    job_id = edge.add(State.RUNNING, attempts=1)
    edge.runner.at_work[job_id] = Running("w2", "mailer", 1)
    assert (await edge.call("GET", f"/job/{job_id}")).body["worker_id"] == "w2"
    job_id = edge.add(State.FAILED, attempts=1)
    edge.move(job_id, State.FAILED, outcome=outcome(job_id, error=pack([7]), message="no", fate=Fate.FAILED))
    told = await edge.call("GET", f"/job/{job_id}")
    assert (told.body["error"], told.body["message"]) == ([7], "no")


async def test_a_job_just_pushed_is_queued(edge):
    job_id = (await edge.call("POST", "/job", {"name": "a", "argument": 1})).body["job_id"]
    assert (await edge.call("GET", f"/job/{job_id}")).body["status"] == "queued"


@pytest.mark.parametrize("path", ["/job/x", "/job/" + "0" * 26, "/job/x/polling"])
async def test_unknown_jobs(edge, path):
    told = await edge.call("GET", path)
    assert told.status == 404
    assert told.headers["content-type"] == MSGPACK
    assert (await edge.call("DELETE", path.removesuffix("/polling"))).status == 404


# ------------------------------------------------------------ DELETE /job/{id}


async def test_only_what_has_not_started_can_be_cancelled(edge):
    job_id = edge.add(State.WAITING)
    edge.control.on_apply[Lane.CANCELS] = lambda: edge.move(job_id, State.CANCELLED)
    assert (await edge.call("DELETE", f"/job/{job_id}")).status == 204
    assert edge.journal.cancels() == [job_id]
    for state in (State.RUNNING, State.RETRYING, State.SUCCEEDED, State.FAILED, State.CANCELLED):
        assert (await edge.call("DELETE", f"/job/{edge.add(state)}")).status == 409
    assert edge.journal.cancels() == [job_id]


async def test_a_job_that_started_meanwhile(edge):
    job_id = edge.add(State.WAITING)
    edge.control.on_apply[Lane.CANCELS] = lambda: edge.move(job_id, State.RUNNING)
    assert (await edge.call("DELETE", f"/job/{job_id}")).status == 409


async def test_a_cancel_nobody_confirms_is_no_204(edge):
    job_id = edge.add(State.SCHEDULED)
    edge.control.applies = False
    assert (await edge.call("DELETE", f"/job/{job_id}")).status == 503


# ------------------------------------------------------------ polling


async def test_polling_ends_with_the_job(edge, autojump_clock):
    job_id = edge.add(State.RUNNING)
    told = []

    async def poll():
        told.append(await edge.call("GET", f"/job/{job_id}/polling"))

    begun_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poll)
        await trio.sleep(2.25)
        edge.move(job_id, State.FAILED, outcome=outcome(job_id, message="no", fate=Fate.FAILED))
        edge.control.endings.ring([job_id])
    assert (told[0].status, told[0].body["status"], told[0].body["message"]) == (200, "error", "no")
    assert trio.current_time() - begun_s == pytest.approx(2.25)


@pytest.mark.parametrize(
    ("query", "waited_s"),
    [("", 5), ("?timeout=2", 2), ("?timeout=0", 0), ("?timeout=900", 60), ("?timeout=abc", 5), ("?timeout=&x=1", 5)],
)
async def test_polling_gives_up_with_408(edge, autojump_clock, query, waited_s):
    job_id = edge.add(State.RETRYING)
    begun_s = trio.current_time()
    assert (await edge.call("GET", f"/job/{job_id}/polling{query}")).status == 408
    assert trio.current_time() - begun_s == pytest.approx(waited_s)


async def test_polling_what_is_over_answers_at_once(edge, autojump_clock):
    begun_s = trio.current_time()
    told = await edge.call("GET", f"/job/{edge.add(State.SUCCEEDED)}/polling")
    assert (told.status, told.body["status"]) == (200, "done")
    assert trio.current_time() == begun_s


# ------------------------------------------------------------ workers


async def test_a_worker_comes_and_goes(edge):
    told = await edge.call("POST", "/worker", {"name": "w", "max_jobs": 4, "url": "http://127.0.0.1:9/", "jobs": ["a"]})
    assert told.status == 201
    (worker,) = edge.workers.list()
    assert told.body == {"worker_id": worker.id}
    assert (worker.style, worker.max_jobs, worker.jobs, worker.ttl_s) == ("lightjq", 4, ("a",), None)
    assert (await edge.call("DELETE", "/worker", headers={"worker-id": worker.id})).status == 204
    assert (await edge.call("DELETE", "/worker", headers={"worker-id": worker.id})).status == 404
    assert edge.workers.list() == []


async def test_a_worker_without_url(edge):
    assert (await edge.call("POST", "/worker", {"name": "w", "max_jobs": 1})).status == 201


@pytest.mark.parametrize(
    "body",
    [
        {"name": "w"},
        {"max_jobs": 1},
        {"name": "w", "max_jobs": 0},
        {"name": "w", "max_jobs": 1, "url": "ftp://x"},
        [],
        3,
    ],
    ids=str,
)
async def test_bad_registrations(edge, body):
    assert (await edge.call("POST", "/worker", body)).status == 400
    assert edge.workers.list() == []


async def test_the_header_is_needed(edge):
    """Its interface has no 400 for who leaves: a worker without id is none."""
    assert (await edge.call("DELETE", "/worker")).status == 404
    assert (await edge.call("POST", "/done", {"job_id": "x", "type": "success"})).status == 400


# ------------------------------------------------------------ POST /done


async def test_a_success(edge):
    body = {"job_id": "J", "type": "success", "finished_at": "2030-01-31T08:00:00Z", "result": {"n": 1}}
    assert (await edge.call("POST", "/done", body, headers={"worker-id": "w1"})).status == 204
    ((worker_id, job_id, report),) = edge.runner.reports
    assert (worker_id, job_id, report) == ("w1", "J", Report(status=200, result=pack({"n": 1})))


@pytest.mark.parametrize(("reason", "status"), [("timeout", 504), ("other", 500)])
@pytest.mark.parametrize("kind", [MSGPACK, JSON])
async def test_a_failure(edge, reason, status, kind):
    body = {"job_id": "J", "type": "failure", "reason": reason, "should_retry": False, "message": "m", "error": [1]}
    assert (await edge.call("POST", "/done", body, kind=kind, headers={"worker-id": "w1"})).status == 204
    report = edge.runner.reports[0][2]
    assert (report.status, report.should_retry, report.reason, report.message) == (status, False, reason, "m")
    assert report.error == pack([1])


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"job_id": "J"},
        {"job_id": "J", "type": "maybe"},
        {"type": "success"},
        {"job_id": "J", "type": "failure", "reason": "other", "message": "m"},
        {"job_id": "J", "type": "failure", "reason": "bad", "should_retry": True, "message": "m"},
        {"job_id": "J", "type": "failure", "should_retry": True, "message": "m"},
        {"job_id": 3, "type": "success"},
        [],
    ],
    ids=str,
)
async def test_reports_that_are_not_understood(edge, body):
    assert (await edge.call("POST", "/done", body, headers={"worker-id": "w1"})).status == 400
    assert edge.runner.reports == []


async def test_a_report_of_a_job_not_in_its_hand(edge):
    edge.runner.knows = False
    done = {"type": "success"}
    headers = {"worker-id": "w1"}
    assert (await edge.call("POST", "/done", {"job_id": "nonsense", **done}, headers=headers)).status == 404
    job_id = edge.add(State.SUCCEEDED)
    edge.move(job_id, State.SUCCEEDED, outcome=outcome(job_id, worker="w1", fate=Fate.SUCCEEDED))
    assert (await edge.call("POST", "/done", {"job_id": job_id, **done}, headers=headers)).status == 204, "said twice"
    assert (await edge.call("POST", "/done", {"job_id": job_id, **done}, headers={"worker-id": "w2"})).status == 404


@pytest.mark.parametrize(("full", "status"), [(False, 503), (True, 507)])
@pytest.mark.parametrize("again", [False, True])
async def test_a_report_that_is_not_on_disk_is_not_taken(edge, full, status, again):
    edge.runner.knows = not again
    job_id = edge.add(State.RUNNING)
    edge.runner.untold[job_id] = outcome(job_id, worker="w1", fate=Fate.SUCCEEDED)
    edge.runner.unnoted = JournalRefused("kept in memory", full=full)
    told = await edge.call("POST", "/done", {"job_id": job_id, "type": "success"}, headers={"worker-id": "w1"})
    assert told.status == status
    assert told.body["detail"] == "kept in memory"


async def test_a_late_success_that_is_said_again_is_taken_again(edge):
    edge.runner.knows = False
    job_id = edge.add(State.SUCCEEDED)
    given_up, succeeded = (
        outcome(job_id, worker="w1", **ended) for ended in (GIVEN_UP, {"fate": Fate.SUCCEEDED, "fence": 7})
    )
    edge.move(job_id, State.SUCCEEDED, history=[given_up], outcome=succeeded)
    for known_by_runner in (False, True):
        if known_by_runner:
            edge.runner.untold[job_id] = given_up
        for report, status in ((OK, 204), (NO_ROUTE, 404), (AGAIN, 404)):
            told = await edge.call("POST", "/done", {"job_id": job_id, **report}, headers={"worker-id": "w1"})
            assert told.status == status, told.body
    assert edge.journal.frames == []


GIVEN_UP = {"fate": Fate.RETRY, "fence": 7, "attempt": 2, "message": "TIMEOUT: no outcome", "reason": "timeout"}
FAILED = {"fate": Fate.FAILED, "fence": 7, "message": "no route"}
OK = {"type": "success", "result": [1]}
NO_ROUTE = {"type": "failure", "reason": "other", "should_retry": False, "message": "no route"}
AGAIN = {**NO_ROUTE, "should_retry": True}


@pytest.mark.parametrize(
    ("state", "attempt", "report", "status", "counts"),
    [
        (State.RETRYING, GIVEN_UP, OK, 204, True),
        (State.RUNNING, GIVEN_UP, OK, 204, True),
        (State.RETRYING, {**GIVEN_UP, "keep_result": True}, OK, 204, True),
        (State.RETRYING, {**GIVEN_UP, "keep_result": True}, {**OK, "result": "x" * 99}, 400, False),
        (State.CANCELLED, GIVEN_UP, OK, 204, True),
        (State.FAILED, {**GIVEN_UP, "fate": Fate.DEAD}, OK, 404, False),
        (State.RETRYING, GIVEN_UP, AGAIN, 404, False),
        (State.RETRYING, {**GIVEN_UP, "message": "no route"}, AGAIN, 204, False),
        (State.RETRYING, {**GIVEN_UP, "message": "no route"}, NO_ROUTE, 404, False),
        (State.FAILED, FAILED, NO_ROUTE, 204, False),
        (State.FAILED, FAILED, {**NO_ROUTE, "message": "another"}, 404, False),
        (State.FAILED, FAILED, OK, 404, False),
        (State.SUCCEEDED, {"fate": Fate.SUCCEEDED, "fence": 7}, NO_ROUTE, 404, False),
        (State.WAITING, {**GIVEN_UP, "fence": 3}, OK, 404, False),
    ],
)
@pytest.mark.parametrize("known_by", ["store", "runner"])
async def test_a_report_after_the_end_of_its_attempt(edge, state, attempt, report, status, counts, known_by):
    """A late success of a job that has not ended counts; what contradicts the verdict that stands is refused."""
    edge.runner.knows = False
    job_id = edge.add(state)
    ended = outcome(job_id, worker="w1", **attempt)
    if known_by == "runner":
        edge.runner.untold[job_id] = ended
        status, counts = (204, True) if (attempt["fence"], report) == (3, OK) else (status, counts)
    fields = {"outcome": ended} if state.is_final else {"history": [outcome(job_id, worker="w2", fence=9), ended]}
    edge.move(job_id, state, generation=5, **(fields if known_by == "store" else {}))
    told = await edge.call("POST", "/done", {"job_id": job_id, **report}, headers={"worker-id": "w1"})
    assert told.status == status, told.body
    journaled = [one for lane, _, body in edge.journal.frames if lane is Lane.OUTCOMES for one in decode_outcomes(body)]
    assert len(journaled) == counts
    for one in journaled:
        assert (one.fate, one.fence, one.worker, one.reason, one.message) == (
            Fate.SUCCEEDED, ended.fence, "w1", "", "",
        )  # fmt: skip
        assert one.result == (pack([1]) if ended.keep_result else pack(None))
    assert edge.journal.synced >= edge.journal.written, "and is on disk when it is said to be taken"


# ------------------------------------------------------------ its own document

SPEC = {
    ("POST", "/job"): {201, 400},
    ("GET", "/job/{id}"): {200, 404},
    ("DELETE", "/job/{id}"): {204, 404, 409},
    ("GET", "/job/{id}/polling"): {200, 404, 408},
    ("POST", "/worker"): {201, 400},
    ("DELETE", "/worker"): {204, 404},
    ("POST", "/done"): {204, 400, 404},
}
"""The statuses of its OpenAPI document, all of them."""
DONE_ODDLY: list[object] = [{}, [], None, {"job_id": "J", "type": "refused"}, {"job_id": 1, "type": "success"}, OK]


async def test_each_status_of_its_document_is_given_and_no_other(edge, autojump_clock):
    waits, begun, ended = (edge.add(state) for state in (State.WAITING, State.RUNNING, State.SUCCEEDED))
    cancelled = edge.add(State.WAITING)
    edge.control.on_apply[Lane.CANCELS] = lambda: edge.move(cancelled, State.CANCELLED)
    worker_id = (await edge.call("POST", "/worker", {"name": "w", "max_jobs": 1})).body["worker_id"]
    mine, headers = {"job_id": begun, **OK}, {"worker-id": worker_id}
    given: dict[tuple[str, str], set[int]] = {}

    async def ask(method, path, body=None, *, into="", **named):
        told = await edge.call(method, path.replace("{id}", into), body, **named)
        given.setdefault((method, path.partition("?")[0]), set()).add(told.status)
        if told.status >= 400:
            assert set(told.body) >= {"title", "status", "detail"}
            assert told.headers["content-type"] == MSGPACK

    for body in [*BAD_JOBS, {"name": "a", "argument": {}}, {"name": "a", "argument": {}, "odd": 1}]:
        await ask("POST", "/job", body)
    for body in ({"name": "w"}, {"name": "w", "max_jobs": 1}, {"name": "w", "max_jobs": 1, "url": "x"}, 7):
        await ask("POST", "/worker", body)
    for job_id in (waits, begun, ended, "none", edge.journal.ids.take(1).first[:-1] + "!"):
        await ask("GET", "/job/{id}", into=job_id)
        await ask("GET", "/job/{id}/polling?timeout=1", into=job_id)
    for job_id in (cancelled, begun, ended, "none"):
        await ask("DELETE", "/job/{id}", into=job_id)
    for body in [*DONE_ODDLY, mine]:
        await ask("POST", "/done", body, headers=headers)
    await ask("POST", "/done", mine)
    edge.runner.knows = False
    await ask("POST", "/done", mine, headers=headers)
    for _ in range(2):
        await ask("DELETE", "/worker", headers=headers)
    await ask("DELETE", "/worker")
    assert given == SPEC
