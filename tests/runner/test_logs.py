"""What a worker writes is its jobs' business: it stands in their messages, and in no log."""

import io
import json
from collections.abc import Iterator

import pytest
import structlog
import trio

from jqd.domain.log import configure
from jqd.testing.clock import ManualClock
from tests.harness.worker import Reply, Request, Script, answer, open_worker, succeed
from tests.runner.conftest import Eventually, OpenHouse, claims, hold

SECRET = "card-4929"


async def _status_line(request: Request, reply: Reply) -> None:
    await reply.raw(f"{SECRET} 200 OK\r\n\r\n".encode())
    await reply.close()


async def _header(request: Request, reply: Reply) -> None:
    await reply.raw(f"HTTP/1.1 200 OK\r\n{SECRET}\r\n\r\n".encode())
    await reply.close()


ANSWERS: dict[str, tuple[Script, str]] = {
    "a page of an error": (answer(500, SECRET.encode(), kind="text/plain"), "the worker answered 500"),
    "a page of a refusal": (answer(422, SECRET.encode(), kind="text/plain"), "the worker answered 422"),
    "too busy": (answer(503, SECRET.encode(), kind="text/plain"), "the worker answered 503"),
    "garbage": (answer(200, f'"{SECRET}'.encode(), kind="application/json"), "garbled"),
    "another type": (answer(200, b"x", kind=f"text/{SECRET}"), "garbled"),
    "no HTTP": (_status_line, "lost: no HTTP"),
    "a broken header": (_header, "lost: no HTTP"),
}


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """All that is logged."""
    out = io.StringIO()
    configure(level="debug", form="json", stream=out)
    yield out
    structlog.reset_defaults()


@pytest.mark.parametrize("name", ANSWERS)
async def test_no_log_holds_what_a_worker_answered(open_house: OpenHouse, logged: io.StringIO, name: str) -> None:
    script, why = ANSWERS[name]
    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url)
        house.run(hold(2))
        await house.stopped(2)
    assert f'"why": "{why}"' in logged.getvalue()
    assert SECRET not in logged.getvalue()
    if name.startswith("a page"):
        assert all(SECRET in outcome.message for outcome in house.outcomes.values())


async def test_a_worker_that_goes_on_backing_off_is_logged_once_a_minute(
    open_house: OpenHouse, logged: io.StringIO
) -> None:
    """A hook that answered 503 and Retry-After: 2 for half an hour filled the log with 780 lines."""
    clock = ManualClock()
    async with open_worker(answer(503, b"", ("Retry-After", "2"))) as worker, open_house(clock=clock) as house:
        house.register(worker.url)
        for number in range(31):
            house.run(hold(1))
            await house.stopped(number + 1)
            clock.advance(2)
    lines = [line for line in map(json.loads, logged.getvalue().splitlines()) if line["event"] == "runner.back_off"]
    assert len(lines) == 31
    assert [line["failures"] for line in lines if line["level"] == "warning"] == [1, 31]


async def test_no_log_holds_what_a_worker_answered_to_a_cancel(
    open_house: OpenHouse, logged: io.StringIO, eventually: Eventually
) -> None:
    go_on = trio.Event()

    async def script(request: Request, reply: Reply) -> None:
        await go_on.wait()
        await succeed(request, reply)

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url)
        worker.on_cancel = answer(400, SECRET.encode())
        held = hold()
        house.run(held)
        await worker.request(0)
        house.runner.cancel(claims(held))
        await eventually(lambda: "runner.cancel_not_sent" in logged.getvalue())
        go_on.set()
        await house.stopped(1)
    assert '"why": "the worker answered 400"' in logged.getvalue()
    assert SECRET not in logged.getvalue()
