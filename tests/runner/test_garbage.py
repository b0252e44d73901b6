"""Answers that are none, do not end, or are too large: they spoil what they speak of, and memory is bounded."""

import tracemalloc

import msgpack
import pytest
import trio
import trio.testing

from jqd.domain.job import NIL, Fate
from tests.harness.worker import Reply, Request, Script, answer, in_turn, open_worker, succeed
from tests.runner.conftest import WAIT_S, Eventually, OpenHouse, hold

pytestmark = pytest.mark.usefixtures("unstalled")

NONE = "INVALID_RESPONSE: the worker answered what is no outcome"
GARBAGE: dict[str, tuple[bytes, str, str]] = {
    "no MessagePack": (b"\xc1", "application/msgpack", "the worker's answer is no MessagePack at "),
    "cut MessagePack": (b"\x83\xa6job", "application/msgpack", "stops inside a value"),
    "an array that announces too much": (b"\xdd\xff\xff\xff\xff", "application/msgpack", "has more than 68 values"),
    "an array that announces more": (b"\x95", "application/msgpack", "5 more"),
    "a string that announces too much": (b"\xdb\xff\xff\xff\xffx", "application/msgpack", "stops inside a value"),
    "nesting": (b"\x81\xa1a" + b"\x91" * 100_000, "application/msgpack", "it nests deeper than can be read; mend"),
    "no JSON": (b"<html>", "application/json", "has '<html>' where an outcome, a map, should stand; mend the worker"),
    "arrays": (b"[[[[", "application/json", "has '[[[' where an outcome, a map, should stand; mend the worker"),
    "JSON that is not called so": (b'{"job_id": 1}', "", "it looks like JSON, and is not called so; answer JSON with"),
    "broken JSON": (
        b'{"job_id" 1}',
        "application/json",
        "no outcome: it is no JSON: there should be ':' (byte 10); mend",
    ),
    "cut JSON": (b'[{"job_id": "', "application/json", "before its JSON is complete"),
    "deep JSON": (b'{"a":' + b"[" * 100_000, "application/json", "nested deeper"),
    "a page": (b"<html>ok</html>", "text/html", "'text/html'"),
    "an outcome of nothing": (b"\x80", "application/msgpack", "neither `type` nor `status`"),
    "a number": (b"\x2a", "application/msgpack", "no outcome: a map is wanted, not 42; mend the worker"),
    "gzip": (b"\x1f\x8b\x08\x00", "gzip", "not asked for"),
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_garbage_is_an_error_with_a_reason(open_house: OpenHouse, name: str) -> None:
    body, kind, why = GARBAGE[name]
    extra = (("Content-Encoding", "gzip"),) if kind == "gzip" else ()
    async with open_worker(answer(200, body, *extra, kind=kind)) as worker, open_house() as house:
        house.register(worker.url)
        (outcome,) = await house.run_to_end(hold(1))
        assert (outcome.fate, outcome.status) == (Fate.RETRY, 500)
        assert outcome.message.startswith("INVALID_RESPONSE")
        assert why in outcome.message
        assert not [word for word in ("Expected", "b'", "Error", "malformed") if word in outcome.message]


async def test_garbage_spoils_only_what_follows(open_house: OpenHouse) -> None:
    async def script(request: Request, reply: Reply) -> None:
        first = msgpack.packb({"job_id": request.job_ids()[0], "type": "success"})
        await reply.send(200, first + b"\xc1")

    async with open_worker(in_turn(script, succeed)) as worker, open_house() as house:
        house.register(worker.url)
        outcomes = await house.run_to_end(hold(5))
        assert {outcome.fate for outcome in outcomes} == {Fate.SUCCEEDED}
        assert len(worker.requests) == 3, "the other four in two halves"


async def test_a_wrong_outcome_is_blamed_on_its_job_alone(open_house: OpenHouse) -> None:
    async def script(request: Request, reply: Reply) -> None:
        one, two, three = request.job_ids()
        await reply.outcomes(
            {"job_id": one, "type": "sucess"}, {"job_id": two, "status": "200"}, {"job_id": three, "type": "success"}
        )

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url)
        one, two, three = await house.run_to_end(hold(3))
        assert one.message.startswith(
            f"{NONE}: type must be one of success, failure, snooze, refused, started, not 'sucess'; mend"
        )
        assert two.message.startswith(f"{NONE}: status must be a whole number, not '200'; mend")
        assert three.fate is Fate.SUCCEEDED


async def _headers_bomb(request: Request, reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 200 OK\r\n")
    for number in range(100_000):
        await reply.raw(b"X-Header-%d: %s\r\n" % (number, b"x" * 100))


async def _endless_body(request: Request, reply: Reply) -> None:
    await reply.begin()
    while True:
        await reply.more(msgpack.packb({"job_id": "nobody", "status": 200, "message": "x" * 60_000}))


async def _endless_value(request: Request, reply: Reply) -> None:
    await reply.begin()
    await reply.more(b"\xdb\xff\xff\xff\xff")
    while True:
        await reply.more(b"x" * 65_536)


async def _endless_string(request: Request, reply: Reply) -> None:
    await reply.begin(kind="application/json")
    await reply.more(b'{"message": "')
    while True:
        await reply.more(b"x" * 65_536)


async def _endless_page(request: Request, reply: Reply) -> None:
    await reply.begin(500, kind="text/html")
    while True:
        await reply.more(b"x" * 65_536)


BOMBS: list[Script] = [_headers_bomb, _endless_body, _endless_value, _endless_string, _endless_page]


@pytest.mark.parametrize("script", BOMBS)
async def test_memory_is_bounded(open_house: OpenHouse, script: Script) -> None:
    async with open_worker(script) as worker, open_house(answer_bytes_max=8 << 20, result_bytes_max=1 << 20) as house:
        house.register(worker.url)
        tracemalloc.start()
        try:
            (outcome,) = await house.run_out(hold(1, timeout=20.0))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert (outcome.fate, outcome.status) == (Fate.RETRY, 500)
        # Both sides of the connection live in this process; the limit of one outcome with what follows it is 2,176 KiB.
        assert peak < 12 << 20, f"{peak} bytes"


async def test_an_answer_that_does_not_end_frees_its_jobs_and_its_connection(
    open_house: OpenHouse, eventually: Eventually
) -> None:
    ended = trio.Event()

    async def script(request: Request, reply: Reply) -> None:
        await reply.begin()
        await reply.outcome(job_id=request.job_ids()[0], type="success")
        try:
            while True:
                await reply.more(b"\xc0")
                await trio.sleep(0.01)
        finally:
            ended.set()

    async with open_worker(in_turn(script, succeed)) as worker, open_house() as house:
        house.register(worker.url)
        (outcome,) = await house.run_to_end(hold(1))
        assert outcome.fate is Fate.SUCCEEDED
        with trio.fail_after(WAIT_S):
            await ended.wait()
        await house.run_to_end(hold(1))
        assert [request.connection for request in worker.requests] == [0, 1]


@pytest.mark.parametrize("surplus", [b"HTTP/1.1 204 No Content\r\n\r\n", b"x"])
async def test_an_answer_nobody_asked_for_is_no_answer_to_the_next_request(
    open_house: OpenHouse, surplus: bytes
) -> None:
    async def script(request: Request, reply: Reply) -> None:
        await reply.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + surplus)
        await trio.sleep_forever()

    async def refuse(request: Request, reply: Reply) -> None:
        await reply.send(422)

    async with open_worker(in_turn(script, refuse)) as worker, open_house() as house:
        house.register(worker.url)
        await house.run_to_end(hold(1))
        (outcome,) = await house.run_to_end(hold(1))
        assert outcome.status == 422
        assert [request.connection for request in worker.requests] == [0, 1]


async def test_a_result_too_large_to_keep_is_dropped_and_its_job_says_so(open_house: OpenHouse) -> None:
    async with open_worker() as worker, open_house(result_bytes_max=1 << 20) as house:
        house.register(worker.url)
        kept, dropped = hold(1, argument=b"x" * (1 << 20), keep_result=True), hold(1, argument=b"x" * (1 << 20))
        required = hold(1, argument=b"x" * (1 << 20), keep_result="required")
        one, two, three = await house.run_to_end([*kept, *dropped, *required])
        assert (one.fate, one.status, one.result) == (Fate.SUCCEEDED, 200, NIL)
        assert one.message.startswith("RESULT_DROPPED: the result has 1048581 bytes, 1048576 can be kept")
        assert (two.fate, two.message) == (Fate.SUCCEEDED, "")
        assert (three.fate, three.status) == (Fate.FAILED, 413)
        assert three.message.startswith("RESULT_DROPPED")
