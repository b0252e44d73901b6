"""Everything a worker can say wrong, byte by byte over TCP: all of it at once, beside a worker that does its work.

Each row is a worker of its own with a jobtype of its own. What becomes of its jobs is in the table. No task of the
daemon's side holds up the others for long, and the good worker's jobs go on. How much is remembered of an answer is
bounded in `test_garbage.py`.
"""

import socket
import struct
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgpack
import trio

from jqd.domain.job import Fate
from jqd.runner.cancel import SENDERS, SENDERS_EACH
from jqd.runner.capacity import FORGET_ABOVE
from tests.harness.worker import Reply, Request, open_worker
from tests.runner.conftest import WAIT_S, House, OpenHouse, claims, hold

JOBS = 2  # in each request: as many as it takes to see whom an answer is about
AT_ONCE = 8  # of these workers: they live in this process, and take more of its time than the daemon's side
TIMEOUT_S = 0.3  # of a job whose worker only time can end
LONG_S = 4.0  # of others: no time ends them
TURN_S_MAX = 0.25  # of CPU between two checkpoints of a task; some 20 ms where nobody else needs the caches
PACE_S = 0.005

Names = Sequence[str]
Say = Callable[["Wire", Names], Awaitable[None]]


class Wire(NamedTuple):
    """The stream to the daemon."""

    stream: trio.SocketStream

    async def say(self, *parts: bytes) -> None:
        """Send, one part after another."""
        for part in parts:
            await self.stream.send_all(part)

    async def drip(self, data: bytes) -> None:
        """Send byte by byte."""
        for at in range(len(data)):
            await self.say(data[at : at + 1])
            await trio.sleep(PACE_S)

    async def flood(self, data: bytes) -> None:
        """Send it for ever."""
        whole = data * (65_536 // len(data) + 1)
        while True:
            await self.say(whole)


def head(*lines: str, status: int = 200, kind: str = "application/msgpack") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} X", f"Content-Type: {kind}", *lines, "", ""]).encode()


CHUNKED = head("Transfer-Encoding: chunked")


def chunk(data: bytes, extension: bytes = b"") -> bytes:
    return b"%x%s\r\n%s\r\n" % (len(data), extension, data)


def good(names: Names, **more: Any) -> bytes:
    return b"".join(msgpack.packb({"job_id": name, "status": 200, **more}) for name in names)


def whole(body: bytes, *lines: str, **named: Any) -> bytes:
    return head(f"Content-Length: {len(body)}", *lines, **named) + body


def says(*parts: bytes | Callable[[Names], bytes], close: bool = False) -> Say:
    async def say(wire: Wire, names: Names) -> None:
        await wire.say(*(part if isinstance(part, bytes) else part(names) for part in parts))
        if close:
            await wire.stream.aclose()

    return say


def floods(data: bytes, first: bytes = b"") -> Say:
    async def say(wire: Wire, names: Names) -> None:
        await wire.say(first)
        await wire.flood(data)

    return say


def drips(data: Callable[[Names], bytes], first: bytes = b"") -> Say:
    async def say(wire: Wire, names: Names) -> None:
        await wire.say(first)
        while True:
            await wire.drip(data(names))

    return say


async def resets(wire: Wire, names: Names) -> None:
    wire.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await wire.stream.aclose()


async def lies_of_keeping(wire: Wire, names: Names) -> None:
    """Says that the connection is kept, and closes it."""
    await wire.say(whole(good(names), "Connection: keep-alive", "Keep-Alive: timeout=600"))
    await wire.stream.aclose()


def named(body: Callable[[str], bytes], **how: Any) -> Say:
    """One value for each job."""
    return says(lambda names: whole(b"".join(map(body, names)), **how))


def fields(**more: Any) -> Say:
    return named(lambda name: msgpack.packb({"job_id": name, "status": 200, **more}))


def json(text: str) -> Say:
    return named(lambda name: text.replace("ID", name).encode("utf-8", "surrogateescape"), kind="application/json")


OK, LOST, TIMED, BAD, NONE = "", "CONNECTION_LOST", "TIMEOUT", "INVALID_RESPONSE", "NO_RESPONSE"
SILENT = "?"
BIG = "9" * 100_000

WRONG: dict[str, tuple[Say, str]] = {
    # heads
    "a head byte by byte": (drips(lambda names: b"x", b"HTTP/1.1 200 OK\r\nX: "), TIMED),
    "an endless line of status": (floods(b"x", b"HTTP/1.1 200 "), LOST),
    "an endless header": (floods(b"x", b"HTTP/1.1 200 OK\r\nX: "), LOST),
    "endless headers": (floods(b"X: y\r\n", b"HTTP/1.1 200 OK\r\n"), LOST),
    "10,000 headers": (says(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000 + b"Content-Length: 0\r\n\r\n"), OK),
    "endless 100": (floods(b"HTTP/1.1 100 Continue\r\n\r\n"), LOST),
    "endless 103 with headers": (floods(b"HTTP/1.1 103 Early\r\n" + b"Link: x\r\n" * 1_000 + b"\r\n"), LOST),
    "103 now and then": (drips(lambda names: b"HTTP/1.1 103 X\r\n\r\n"), TIMED),
    "101": (says(head("Upgrade: x", "Connection: upgrade", status=101)), LOST),
    "no HTTP": (says(b"hello\r\n\r\n"), LOST),
    "another HTTP": (says(b"HTTP/2.0 200 OK\r\n\r\n"), TIMED),
    "two lengths": (says(head("Content-Length: 0", "Content-Length: 5") + b"abcde"), LOST),
    "a length below nothing": (says(head("Content-Length: -1")), LOST),
    "a length beyond reason": (says(head("Content-Length: " + "9" * 30)), LOST),
    "a length and chunks": (says(head("Content-Length: 3", "Transfer-Encoding: chunked") + b"0\r\n\r\n"), LOST),
    "an encoding nobody asked for": (says(whole(b"\x1f\x8b" + bytes(100), "Content-Encoding: gzip")), BAD),
    # bodies
    "a body byte by byte": (drips(lambda names: chunk(b"\xc0"), CHUNKED), TIMED),
    "an outcome byte by byte": (drips(lambda names: good(names) + b"\xdb", head("Content-Length: 9999")), OK),
    "too short a length": (says(lambda names: head("Content-Length: 5") + good(names)), BAD),
    "too long a length": (says(lambda names: head("Content-Length: 5000") + good(names[:1]), close=True), OK),
    "a length that never comes": (says(head("Content-Length: 5000")), TIMED),
    "an endless error page": (floods(b"x", head(status=500)), "the worker answered 500"),
    "an error whose page never comes": (says(head("Content-Length: 5", status=422)), "the worker answered 422"),
    "empty maps for ever": (floods(b"\x80", head("Content-Length: 67108864")), BAD),
    "nothing for ever": (floods(b"\xc0", head("Content-Length: 67108864")), BAD),
    "spaces and no end": (says(head("Content-Length: 67108864", kind="application/json") + b" " * 9_999_999), TIMED),
    "chunks of a byte": (floods(chunk(b" "), head("Transfer-Encoding: chunked", kind="application/json")), BAD),
    "an endless extension": (floods(b"x", CHUNKED + b"1;"), LOST),
    "long extensions": (floods(chunk(b"\xc0", b";" + b"x" * 60_000), CHUNKED), BAD),
    "an endless chunk head": (floods(b"0", CHUNKED), LOST),
    "no chunk": (says(CHUNKED + b"zz\r\n"), LOST),
    "no chunk but the last": (says(CHUNKED + b"0\r\n\r\n"), NONE),
    "no chunk but the last, of JSON": (
        says(head("Transfer-Encoding: chunked", kind="application/x-ndjson") + b"0\r\n\r\n"),
        NONE,
    ),
    "an empty page": (says(head("Transfer-Encoding: chunked", kind="text/html") + b"0\r\n\r\n"), BAD),
    "a length of nothing": (says(head("Content-Length: 0")), OK),
    "endless trailers": (floods(b"X: y\r\n", CHUNKED + b"0\r\n"), LOST),
    "a reset": (resets, LOST),
    # ids
    "foreign ids": (says(lambda names: whole(good(["nobody"] * 20))), NONE),
    "foreign ids at volume": (floods(good(["nobody"] * 100), head("Content-Length: 67108864")), BAD),
    "an id at volume": (says(lambda names: whole(good([names[0]] * 30 + [*names[1:]]))), OK),
    "an id of bytes": (named(lambda name: b"\x82\xa6job_id\xc4\x03abc\xa6status\xcc\xc8"), BAD),
    "an id of no text": (named(lambda name: b"\x82\xa6job_id\xa3\xff\xfe\xfd\xa6status\xcc\xc8"), BAD),
    # values
    "a key of no text": (named(lambda name: b"\x83\xa2\xff\xfe\xc0" + good([name])[1:]), OK),
    "a key of no text in JSON": (json('{"\udcff": 1, "job_id": "ID", "status": 200}'), OK),
    "a lone surrogate": (json('{"job_id": "ID", "status": 200, "message": "\\ud800"}'), BAD),
    "a deep value": (named(lambda name: b"\x82\xa6job_id\xba" + name.encode() + b"\xa6result" + b"\x91" * 9_999), BAD),
    "a status beyond 64 bits": (json('{"job_id": "ID", "status": ' + BIG + "}"), BAD),
    "a status of 64 bits": (fields(status=2**64 - 1), SILENT),
    "a status below nothing": (fields(status=-5), SILENT),
    "no number": (fields(status=float("nan")), BAD),
    "no time": (fields(status=500, retry_after=float("nan")), SILENT),
    "endless time": (fields(status=500, retry_after=float("inf")), SILENT),
    "time long gone": (fields(status=500, retry_after=-1e308), SILENT),
    "a long number as a result": (json('{"job_id": "ID", "status": 200, "result": ' + BIG + "}"), BAD),
    "a long message": (fields(status=422, message="x" * 900_000), "… " + "x" * 16_384),
    "a long error": (fields(status=422, error=["x"] * 200_000), "\n(its error value of 400005 bytes was dropped)"),
    "a key twice": (json('{"job_id": "ID", "status": 500, "status": 200}'), OK),
    # order and connections
    "lies of keeping": (lies_of_keeping, OK),
    "more than its answer": (says(lambda names: whole(good(names)) * 2), OK),
}
EARLY: dict[str, tuple[Say, str]] = {
    "an answer before the request": (says(whole(b"", status=413), close=True), "the worker answered 413"),
    "an answer to what is never read": (says(whole(b"")), TIMED),
    "never reads": (says(), TIMED),
}


async def serve(say: Say, stream: trio.SocketStream, *, reads: bool) -> None:
    """One connection of a worker."""
    async with stream:
        try:
            data = bytearray()
            while True:
                if reads:
                    while (names := _names(data)) is None:
                        data += (got := await stream.receive_some())
                        if not got:
                            return
                else:
                    await stream.receive_some(100)
                    names = []
                await say(Wire(stream), names)
                if not reads:
                    await trio.sleep_forever()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the daemon hung up, as it should


def _names(data: bytearray) -> list[str] | None:
    """The jobs of a request that is whole, which is taken out of `data`."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    length = int(data[:end].lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    body = bytes(data[end + 4 : end + 4 + length])
    if len(body) < length:
        return None
    del data[: end + 4 + length]
    return [job["job_id"] for job in msgpack.unpackb(body)["jobs"]]


class Turns(trio.abc.Instrument):
    """The longest turn of a task: CPU between two checkpoints."""

    def __init__(self) -> None:
        self.longest_s, self.of, self._since_s = 0.0, "", 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._since_s = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        turn_s = time.thread_time() - self._since_s
        if turn_s > self.longest_s and task.name.startswith("jqd.runner"):
            self.longest_s, self.of = turn_s, task.name


async def test_whatever_a_worker_says_wrong_stays_with_its_jobs(open_house: OpenHouse) -> None:
    table, found, turns = {**WRONG, **EARLY}, dict[str, set[str]](), Turns()
    limiter = trio.CapacityLimiter(AT_ONCE)

    async def run(house: House, name: str) -> None:
        timeout_s = TIMEOUT_S if table[name][1] is TIMED else LONG_S
        argument = b"x" * (8 << 20) if name in EARLY else None  # more than the buffers of both sides hold
        held = hold(JOBS if name in WRONG else 1, jobtype=name, timeout=timeout_s, max_retry=0, argument=argument)
        async with limiter:
            outcomes = await house.run_out(held)
        found[name] = {OK if o.fate is Fate.SUCCEEDED else o.message.partition(":")[0] or SILENT for o in outcomes}

    async with open_worker() as good, open_house(connections_max=1000) as house, trio.open_nursery() as workers:
        house.register(good.url, name="good", jobs=["good"])
        for name, (say, _) in table.items():
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            handler = partial(serve, say, reads=name in WRONG)
            await workers.start(trio.serve_listeners, handler, [listener])
            house.register(f"http://127.0.0.1:{listener.socket.getsockname()[1]}/", name=name, jobs=[name])
        trio.lowlevel.add_instrument(turns)
        try:
            async with trio.open_nursery() as nursery:
                for name in table:
                    nursery.start_soon(run, house, name)
                while len(found) < len(table):
                    await house.run_out(hold(5, jobtype="good", timeout=WAIT_S))
        finally:
            trio.lowlevel.remove_instrument(turns)
        workers.cancel_scope.cancel()
        assert {name: what for name, what in found.items() if what != {table[name][1]}} == {}
        assert turns.longest_s < TURN_S_MAX, turns.of
        assert {o.fate for o in house.outcomes.values() if o.jobtype == "good"} == {Fate.SUCCEEDED}


async def test_an_answer_about_the_last_request_is_none_about_this(open_house: OpenHouse) -> None:
    before: list[str] = []

    async def script(request: Request, reply: Reply) -> None:
        names = [*before] or request.job_ids()
        before[:] = request.job_ids()
        await reply.send(200, good(names))

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url)
        await house.run_to_end(hold(1))
        (outcome,) = await house.run_to_end(hold(1))
        assert outcome.message.startswith(NONE)
        assert [request.connection for request in worker.requests] == [0, 0]
        assert house.runner.stats()["unknown_ids"] == 1


async def test_a_worker_that_hears_no_cancels_keeps_none_from_others(open_house: OpenHouse) -> None:
    async def hang(request: Request, reply: Reply) -> None:
        await trio.sleep_forever()

    async with open_worker(hang) as deaf, open_worker(hang) as other, open_house() as house:
        deaf.on_cancel = hang
        house.register(deaf.url, jobs=["deaf"])
        house.register(other.url, name="other", jobs=["other"])
        held = [*hold(SENDERS + 1, jobtype="deaf"), *hold(1, jobtype="other")]
        house.run(held[:-1])
        house.run(held[-1:])
        await deaf.request(0)
        await other.request(0)
        house.runner.cancel(claims(held))
        with trio.fail_after(WAIT_S):
            await other.cancel(0)
        assert len(deaf.cancels) <= SENDERS_EACH


async def test_a_worker_that_comes_and_goes_leaves_nothing_behind(open_house: OpenHouse) -> None:
    async with open_worker() as worker, open_house() as house:
        for number in range(60):
            card = house.register(worker.url, name=f"w{number}")
            await house.run_to_end(hold(1))
            house.workers.unregister(card.id)
            assert house.runner.wanted() == []
        assert len(house.runner._capacity.breakers) <= FORGET_ABOVE + 1
