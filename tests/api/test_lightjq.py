"""The LightJQ surface: its own statuses, nothing else."""

import msgspec
import pytest
import trio

from jqd.domain.errors import JournalRefused
from jqd.domain.job import Fate, State
from jqd.domain.record import Lane
from jqd.runner import Running
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
    assert (job.max_retry, job.priority, job.timeout, job.keep_result) == (10, 0, 30.0, False)
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


async def test_fields_that_it_does_not_know_are_passed_over(edge):
    told = await edge.call("POST", "/job", {"name": "mail", "argument": 1, "tags": ["a"], "job_id": "x"})
    assert told.status == 201
    (job,) = edge.journal.jobs()
    assert (job.tags, job.name) == ((), "")
    card = {"name": "w", "max_jobs": 1, "url": "http://127.0.0.1:9/", "ttl": 5, "since": "ever"}
    assert (await edge.call("POST", "/worker", card)).status == 201
    (worker,) = edge.workers.list()
    assert worker.ttl_s is None


async def test_a_program_need_not_say_that_its_body_is_messagepack(edge):
    body = pack({"name": "mail", "argument": "x" * 100_000})
    assert (await edge.call("POST", "/job", body, kind=None)).status == 201
    assert (await edge.call("POST", "/job", b"{", kind=None)).status == 400
    assert (await edge.call("POST", "/worker", {"name": "w", "max_jobs": 0}, kind=None)).status == 400
    assert (await edge.call("POST", "/worker", {"name": "", "max_jobs": 1}, kind=None)).status == 400
    for said in ("origin", "sec-fetch-site"):  # of its own site
        value = "http://localhost" if said == "origin" else "same-origin"
        assert (await edge.call("POST", "/job", body, kind=None, headers={said: value})).status == 415
    assert len(edge.journal.jobs()) == 1


BAD_JOBS = [
    {"name": "mail"},
    {"argument": 1},
    {"name": "", "argument": 1},
    {"name": "a", "argument": 1, "priority": 2**31},
    {"name": "a", "argument": 1, "max_retry": -1},
    {"name": "a", "argument": 1, "timeout": 0},
    {"name": "a", "argument": 1, "timeout": "long"},
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
    edge.runner.at_work[job_id] = Running("w2", 1)
    assert (await edge.call("GET", f"/job/{job_id}")).body["worker_id"] == "w2"
    job_id = edge.add(State.FAILED, attempts=1)
    edge.move(job_id, State.FAILED, outcome=outcome(job_id, error=pack([7]), message="no", fate=Fate.FAILED))
    told = await edge.call("GET", f"/job/{job_id}")
    assert (told.body["error"], told.body["message"]) == ([7], "no")


async def test_a_job_just_pushed_is_queued(edge):
    job_id = (await edge.call("POST", "/job", {"name": "a", "argument": 1})).body["job_id"]
    assert (await edge.call("GET", f"/job/{job_id}")).body["status"] == "queued"


async def test_a_job_is_found_by_its_pushers_id_too(edge, autojump_clock):
    job_id = edge.add(State.WAITING, name="order/7")
    edge.store.names["order/7"] = job_id
    assert (await edge.call("GET", "/job/order%2F7")).body["status"] == "queued"
    assert (await edge.call("GET", "/job/order%2F7/polling?timeout=1")).status == 408
    edge.control.on_apply[Lane.CANCELS] = lambda: edge.move(job_id, State.CANCELLED)
    assert (await edge.call("DELETE", "/job/order%2F7")).status == 204
    assert [each.partition("@")[0] for each in edge.journal.cancels()] == [job_id]
    assert (await edge.call("DELETE", "/job/order%2F7")).status == 409


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


@pytest.mark.parametrize(
    ("state", "said"),
    [(State.RUNNING, "started meanwhile; its worker is told to stop"), (State.SUCCEEDED, "ended meanwhile")],
)
async def test_a_job_that_started_meanwhile_is_cancelled_all_the_same_and_its_caller_is_told(edge, state, said):
    job_id = edge.add(State.WAITING)
    edge.control.on_apply[Lane.CANCELS] = lambda: edge.move(job_id, state)
    told = await edge.call("DELETE", f"/job/{job_id}")
    assert (told.status, told.body["detail"]) == (409, f"job {job_id} has {said}")
    assert edge.journal.cancels() == [job_id]


async def test_another_language_and_another_method_are_refused_before_its_own_errors(edge):
    for method, kind, status in (("POST", "text/plain", 415), ("PUT", JSON, 405)):
        told = await edge.call(method, "/job", b"x", kind=kind)
        assert (told.status, told.headers["content-type"]) == (status, "application/problem+json")


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
        edge.services.waiters.ring([job_id])
    assert (told[0].status, told[0].body["status"], told[0].body["message"]) == (200, "error", "no")
    assert trio.current_time() - begun_s == pytest.approx(2.25)


@pytest.mark.parametrize(
    ("query", "waited_s"),
    [
        ("", 5),
        ("?timeout=2", 2),
        ("?timeout=0", 0),
        ("?timeout=900", 900),
        ("?timeout=1e9", 86_400),
        ("?timeout=abc", 5),
        ("?timeout=&x=1", 5),
    ],
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
    left = await edge.call("DELETE", "/worker")
    done = await edge.call("POST", "/done", {"job_id": "x", "type": "success"})
    assert (left.status, done.status) == (404, 400)
    for told in (left, done):
        assert told.body["detail"].startswith("the header worker-id is missing")


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


OK = {"type": "success", "result": [1]}
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
