"""What the API does not read: bodies that are too large, alone or together, targets too long, headers too many."""

import contextlib
import itertools
import json

import msgspec
import pytest
import trio
import trio.testing

from jqd.api import ApiConfig
from jqd.http import SOME_BYTES, BodyBudget, Refused, Request, RequestHead
from jqd.http.large_bodies import COSTLY_S
from tests.api.edge import JSON, MSGPACK, Edge

pack = msgspec.msgpack.encode


@pytest.fixture
def edge() -> Edge:
    return Edge()


async def test_limits_of_bytes_and_number():
    edge = Edge(ApiConfig(job_bytes_max=1_000, array_bytes_max=5_000, array_jobs_max=10))
    big = {"name": "a", "argument": b"x" * 1_000}
    assert (await edge.call("POST", "/v1/jobs", big)).status == 413
    assert (await edge.call("POST", "/v1/jobs", [{"name": "b"}, big])).body["errors"][0]["index"] == 1
    assert (await edge.call("POST", "/v1/jobs", [{"name": "b"}] * 10)).status == 201
    assert (await edge.call("POST", "/v1/jobs", [{"name": "b"}] * 11)).status == 413
    assert (await edge.call("POST", "/v1/jobs", [{"name": "", "argument": 1}] * 11)).status == 413
    small = {"name": "b", "argument": b"x" * 900}
    assert (await edge.call("POST", "/v1/jobs", [small] * 5)).status == 201
    assert (await edge.call("POST", "/v1/jobs", [small] * 6)).status == 413
    assert len(edge.journal.jobs()) == 1 + 10 + 5


async def test_a_job_alone_in_its_array_is_refused_as_if_it_had_come_without_it():
    edge = Edge(ApiConfig(job_bytes_max=1_000, array_bytes_max=5_000))
    size = len(pack({"name": "a", "argument": ""})) + 2  # the text's own head is longer
    fits, big, grows = (
        {"name": "a", "argument": argument} for argument in ("x" * (1_000 - size), "x" * 1_000, [1.5] * 200)
    )
    for head in (b"\x91", b"\xdc\x00\x01", b"\xdd\x00\x00\x00\x01"):
        assert (await edge.call("POST", "/v1/jobs", head + pack(fits))).status == 201
        assert (await edge.call("POST", "/v1/jobs", head + pack(big))).status == 413
    for job in (big, grows):
        for body in (job, [job]):
            assert (await edge.call("POST", "/v1/jobs", body, kind=JSON)).status == 413
    assert (await edge.call("POST", "/v1/jobs", [big, {"name": 7}], kind=JSON)).status == 422
    assert (await edge.call("POST", "/v1/jobs", [{"name": 7}, grows], kind=JSON)).status == 422


async def test_json_that_grows_by_conversion_is_measured_after_it():
    edge = Edge(ApiConfig(job_bytes_max=2_000, array_bytes_max=5_000))
    job = {"name": "a", "argument": [1.5] * 200}  # 4 to 5 bytes each in JSON, 9 in MessagePack
    assert len(json.dumps([job] * 4)) < 5_000 < len(pack([job] * 4))
    assert (await edge.call("POST", "/v1/jobs", [job] * 4, kind=JSON)).status == 413
    assert (await edge.call("POST", "/v1/jobs", [job] * 2, kind=JSON)).status == 201
    text = {"name": "a", "argument": "x" * 2_000}
    assert (await edge.call("POST", "/v1/jobs", [text, job], kind=JSON)).body["errors"][0]["index"] == 0
    assert (await edge.call("POST", "/v1/jobs", text, kind=JSON)).status == 413


async def test_a_declared_length_is_refused_before_reading(edge):
    never = trio.Event()
    headers = {"content-type": MSGPACK, "content-length": str((16 << 20) + 1)}
    told = await edge.exchange("POST", "/v1/jobs", headers, [], never)
    assert (told.status, told.headers["connection"]) == (413, "close")
    headers["content-length"] = "9" * 5_000
    assert (await edge.exchange("POST", "/v1/jobs", headers, [], never)).status == 413


async def test_an_undeclared_length_is_counted():
    edge = Edge(ApiConfig(job_bytes_max=1_000, array_bytes_max=5_000))
    told = await edge.call("POST", "/v1/jobs", chunks=[b"\x00" * 1_000] * 6)
    assert told.status == 413
    told = await edge.call("POST", "/v1/workers", chunks=[b"\x00" * 600] * 2)
    assert told.status == 413


async def test_only_a_call_that_takes_arrays_has_their_limit():
    edge = Edge(ApiConfig(job_bytes_max=1_000, array_bytes_max=5_000))
    for path, status in (("/nothing/add", 413), ("/v1/handlers/add", 413), ("/acme/job/mail/add", 200)):
        told = await edge.call("POST", path, (b"x" * 700 + b"\n") * 2, kind="text/plain" if status == 200 else MSGPACK)
        assert told.status == status, path


async def test_all_bodies_together_are_bounded():
    edge = Edge(ApiConfig(job_bytes_max=1_000, array_bytes_max=1_000, bodies_bytes_max=1_500))
    edge.journal.hold = trio.Event()
    body = pack([{"name": "a", "argument": b"x" * 900}])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(edge.call, "POST", "/v1/jobs", body)
        await edge.journal.waiting.wait()
        told = await edge.call("POST", "/v1/jobs", body)
        assert (told.status, told.headers["retry-after"]) == (503, "1")
        assert (await edge.call("GET", "/livez")).status == 200
        edge.journal.hold.set()
    assert (await edge.call("POST", "/v1/jobs", body)).status == 201, "there is room again"
    assert len(edge.journal.jobs()) == 2


async def test_large_bodies_of_one_leave_the_others_half_of_the_room_and_go_one_after_the_other(autojump_clock):
    """They wait in line, each with its bytes: of 24 connections with 16 MB each nobody else had room for a push."""
    edge = Edge(ApiConfig(job_bytes_max=400_000, array_bytes_max=400_000, bodies_bytes_max=1_600_000))
    edge.journal.hold = trio.Event()
    body, statuses = pack([{"name": "a", "argument": b"x" * 290_000}]), list[int]()

    async def push():
        statuses.append((await edge.call("POST", "/v1/jobs", body)).status)

    for peer in ("192.0.2.2", "192.0.2.1"):
        edge.api.whose(Request(RequestHead("POST", "/v1/jobs", "/v1/jobs", b"", {}), peer))
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(push)
        await edge.journal.waiting.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert (statuses, len(edge.journal.frames)) == ([503, 503], 1)
        assert (await edge.call("POST", "/v1/jobs?ack=memory", {"name": "b"})).status in (201, 202), (
            "small ones do not wait"
        )
        edge.journal.hold.set()
    assert sorted(statuses) == [201, 201, 503, 503]
    assert (edge.api._bodies.bytes, len(edge.api._bodies._owners)) == (0, 0)


def budget(bytes_max: int = 1_600_000, *, shared: bool = True) -> BodyBudget:
    return BodyBudget(bytes_max, lambda request: (request.peer or "", request.path == "/outcomes"), lambda: shared)


def request_of(owner: str, *, report: bool = False) -> Request:
    return Request(RequestHead("POST", "/outcomes" if report else "/jobs", "", b"", {}), owner)


def fill(room: BodyBudget, owner: str, size: int, *, report: bool = False) -> int:
    """How many bodies of so many bytes there is room for."""
    number = 0
    with contextlib.suppress(Refused):
        while True:
            room.take(request_of(owner, report=report), size)
            number += 1
    return number


def test_whoever_waits_in_line_leaves_room_for_small_bodies_and_for_workers():
    """However many there are, and however small what waits: arrays of 250 KB of one filled all the room."""
    room = budget()
    assert [fill(room, owner, 10_000) for owner in "abcd"] == [60, 30, 15, 7], "half of what others leave"
    assert fill(room, "worker", 100_000, report=True) == 1
    assert fill(room, "c", SOME_BYTES) > 100_000 // SOME_BYTES


@pytest.mark.parametrize(("shared", "pushed", "reported"), [(True, 12, 9), (False, 24, 6)], ids=["others", "alone"])
def test_no_push_takes_the_room_of_what_the_workers_of_its_tenant_say(shared, pushed, reported):
    """They had one share of the room, and reports beside large pushes got 503: jobs that had ended ran again."""
    room = budget(shared=shared)
    assert fill(room, "a", 50_000) == pushed, "half, or all but what is kept"
    assert fill(room, "a", 50_000, report=True) == reported, "of what is kept, whatever was pushed"
    assert not shared or fill(room, "b", 50_000) == 1, "and others have one at least"


async def test_reports_have_room_beside_pushes_and_what_is_none_has_not(autojump_clock):
    """Nor what only has the path of one: a stranger's body would be kept a place for."""
    edge = Edge(ApiConfig(job_bytes_max=400_000, array_bytes_max=400_000, bodies_bytes_max=1_600_000))
    edge.journal.hold = trio.Event()
    body, statuses = pack([{"name": "a", "argument": b"x" * 290_000}]), list[int]()

    async def push():
        statuses.append((await edge.call("POST", "/v1/jobs", body)).status)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(push)
        await edge.journal.waiting.wait()
        await trio.testing.wait_all_tasks_blocked()
        meanwhile = [*statuses]
        rest = b" " * 200_000
        told = {path: (await edge.call("POST", path, chunks=[rest])).status for path in ("/v1/outcomes", "/livez")}
        edge.journal.hold.set()
    assert meanwhile == [503], "four of them are three quarters of the room"
    assert told == {"/v1/outcomes": 422, "/livez": 405}, "only the one was read"
    assert sorted(statuses) == [201, 201, 201, 201, 503]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/livez", "/v1/jobs", "/v1/events"])
async def test_what_only_looks_has_no_large_body(edge, method, path):
    """Who has no token filled with bodies of probes what is kept for reports."""
    headers, never = {"content-type": JSON, "content-length": str(SOME_BYTES + 1)}, trio.Event()
    assert (await edge.exchange(method, path, headers, [], never)).status == 413
    told = await edge.call(method, path, chunks=[b" " * SOME_BYTES, b" "])
    assert (told.status, told.headers["connection"]) == (413, "close")
    assert (await edge.call(method, "/livez", chunks=[b" " * SOME_BYTES])).status == 200


def test_no_worker_takes_the_room_of_others():
    room = budget()
    reported = [fill(room, owner, 20_000, report=True) for owner in "abcd"]
    assert reported == [37, 19, 9, 5], "half of what others leave"
    assert fill(room, "b", SOME_BYTES) > 20
    room = budget()
    fill(room, "a", 20_000)
    fill(room, "b", 20_000)
    first = [fill(room, owner, 20_000, report=True) for owner in "abcdefgh"]
    assert first[0] >= first[1] >= first[2] >= 1, "none has all that is kept"
    assert room.bytes <= room.bytes_max * 15 / 16, "small bodies have room, however many workers there are"


def test_what_is_kept_for_reports_comes_back():
    room = budget()
    for _ in range(3):
        push, report = request_of("a"), request_of("a", report=True)
        room.take(push, 800_000)
        room.take(report, 150_000)
        assert room.bytes == 950_000
        room.release(push)
        room.release(report)
    assert (room.bytes, room._owners) == (0, {})


@pytest.mark.parametrize("report", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_one_large_body_that_stops_leaves_its_room_to_reports_and_to_small_ones(shared, report):
    """It filled the last sixteenth, too, where nothing else was there: for 30 s nobody else was heard."""
    room, request = budget(shared=shared), request_of("a", report=report)
    with contextlib.suppress(Refused):
        for _ in range(1_600):
            room.take(request, 1_000)
    assert request.held_bytes == (1_500_000 if report else 1_200_000)
    assert report or fill(room, "a", 50_000, report=True) > 1
    assert fill(room, "b", SOME_BYTES) >= 100_000 // SOME_BYTES


def test_one_body_that_there_is_room_for_is_taken_however_small_the_room():
    """While others ask, too: one above half of the room was refused for ever."""
    largest = 1_000_000
    config = ApiConfig(array_bytes_max=largest, job_bytes_max=1, bodies_bytes_max=1_333_334)
    room, request = budget(config.bodies_bytes_max), request_of("a")
    for _ in range(10):
        room.take(request, 100_000)
    with pytest.raises(Refused):
        room.take(request, 1)
    with pytest.raises(ValueError, match="bodies_bytes_max = 1333333 must be at least 1333334"):
        ApiConfig(array_bytes_max=largest, job_bytes_max=1, bodies_bytes_max=1_333_333)
    room.release(request)
    room.take(request_of("a"), 300_000)
    second = request_of("b")
    room.take(second, 450_000)
    with pytest.raises(Refused):
        room.take(second, 260_000)


async def test_what_watches_the_daemon_is_nobody_whom_others_make_room_for(edge, autojump_clock):
    for _ in range(3):
        for peer, path in (("192.0.2.1", "/v1/jobs"), ("192.0.2.9", "/livez"), ("192.0.2.9", "/metrics")):
            edge.api.whose(Request(RequestHead("GET", path, path, b"", {}), peer))
            await trio.sleep(0.3)
    assert not edge.api._large.owners.are_several()


async def test_bodies_count_as_large_from_the_first_on_that_held_the_loop(edge, monkeypatch):
    monkeypatch.setattr("jqd.api.v1.push.thread_s", itertools.count(step=0.01).__next__)
    wrong = [{"name": 5, "prioritty": 1, "timeout": "x", "tags": 5}] * 2_000
    for kind in (JSON, MSGPACK):
        assert (await edge.call("POST", "/v1/jobs", wrong, kind=kind)).status == 422
        (owner,) = edge.api._large._owners
        assert edge.api._large.counts(owner, 10_000)
        edge.api._large._owners.clear()


@pytest.mark.parametrize("kind", [JSON, MSGPACK])
async def test_bodies_whose_steps_let_others_run_do_not_count_as_large_however_many_steps_they_have(
    edge, monkeypatch, kind
):
    """One array of 5,000 jobs, 10 ms in steps of half a millisecond, made the owner's other bodies wait in line."""
    monkeypatch.setattr("jqd.api.v1.push.thread_s", itertools.count(step=COSTLY_S / 2).__next__)
    assert (await edge.call("POST", "/v1/jobs", [{"name": "a"}] * 5_000, kind=kind)).status == 201
    assert edge.api._large._owners == {}


async def test_long_targets_and_many_headers(edge):
    assert (await edge.call("POST", "/v1/jobs?" + "x" * 17_000, {"name": "a"})).status == 414
    assert (await edge.call("GET", "/v1/jobs/" + "x" * 17_000)).status == 414
    many = {f"x-{n}": "1" for n in range(101)}
    assert (await edge.call("POST", "/v1/jobs", {"name": "a"}, headers=many)).status == 431
    assert (await edge.call("POST", "/v1/jobs?" + "a&" * 100, {"name": "a"})).status == 400
    assert edge.journal.frames == []


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/schedules/s", "/v1/nothing"])
async def test_a_body_goes_with_what_it_has_of_the_budget(path):
    """Its answer may be written for long, and its connection linger: as many as come then would have no bound."""
    edge = Edge()
    job = {"name": "mail", "argument": "x" * 60_000}
    body = json.dumps({"cron": "0 0 29 2 *", "job": job} if path == "/v1/schedules/s" else job).encode()
    headers = {"host": "localhost", "content-type": JSON, "content-length": str(len(body))}
    request = Request(RequestHead("PUT" if path == "/v1/schedules/s" else "POST", path, path, b"", headers))
    pieces = [body]

    async def read():
        request.whole = True
        return pieces.pop()

    request.read = read  # type: ignore[method-assign]
    answer = await edge.api(request)
    assert answer is not None
    assert answer.status == (404 if path == "/v1/nothing" else 201), answer.body
    assert pieces == ([body] if path == "/v1/nothing" else []), "of a path that is none the body is not read"
    assert (request.body, request.packed, edge.api._bodies.bytes) == (b"", None, 0)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/nothing", 404),
        ("PUT", "/v1/jobs", 405),
        ("OPTIONS", "/v1/jobs", 200),
        ("POST", "/v1/jobs", 401),
        ("PUT", "/worker", 405),
    ],
)
async def test_no_body_is_read_for_an_answer_that_needs_none(edge, method, path, status):
    """A megabyte was read, of callers without a token too, before it was said that there is no such path."""
    edge.api._parts.auth = edge.api._parts.auth._replace(required=True)
    headers = {"host": "localhost", "content-type": JSON, "content-length": "60000"}
    request = Request(RequestHead(method, path, path, b"", headers), "127.0.0.1")

    async def read():
        raise AssertionError("the body is read")

    request.read = read  # type: ignore[method-assign]
    answer = await edge.api(request)
    assert answer is not None
    assert answer.status == status
