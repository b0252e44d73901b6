"""Workers that are overloaded, away, broken or malicious: no job is lost or blamed for another, memory is bounded."""

import itertools
from collections.abc import Callable

import msgpack
import pytest
import trio
import trio.testing

from jqd.domain.job import Fate
from tests.harness.worker import Reply, Request, Script, answer, in_turn, open_worker, succeed
from tests.runner.conftest import WAIT_S, Eventually, OpenHouse, hold, ids

pytestmark = pytest.mark.usefixtures("unstalled")

# ------------------------------------------------ status of a whole answer


@pytest.mark.parametrize("status", [400, 404, 409, 422, 499])
async def test_4xx_fails_a_job_that_was_alone(open_house: OpenHouse, status: int) -> None:
    async with open_worker(answer(status, b"bad address", kind="text/plain")) as worker, open_house() as house:
        house.register(worker.url)
        (outcome,) = await house.run_to_end(hold(1))
        assert (outcome.fate, outcome.status) == (Fate.FAILED, status)
        assert outcome.message == f"the worker answered {status}: bad address"


@pytest.mark.parametrize("status", [500, 501, 599])
async def test_5xx_is_an_error_of_a_job_that_was_alone(open_house: OpenHouse, status: int) -> None:
    async with open_worker(answer(status)) as worker, open_house() as house:
        house.register(worker.url)
        first, last = hold(1, max_retry=1), hold(1, max_retry=1, attempt=2)
        assert [o.fate for o in [*await house.run_to_end(first), *await house.run_to_end(last)]] == [
            Fate.RETRY,
            Fate.DEAD,
        ]


async def test_redirects_are_not_followed(open_house: OpenHouse) -> None:
    async with open_worker() as other:
        script = answer(302, b"", ("Location", other.url))
        async with open_worker(script) as worker, open_house() as house:
            house.register(worker.url)
            (outcome,) = await house.run_to_end(hold(1))
            assert (outcome.fate, outcome.status) == (Fate.RETRY, 502)
            assert "redirects are not followed" in outcome.message
            assert not other.requests


@pytest.mark.parametrize("status", [422, 500])
async def test_one_poison_job_takes_no_other_along(open_house: OpenHouse, status: int) -> None:
    async def script(request: Request, reply: Reply) -> None:
        if any(job["argument"] == "poison" for job in request.jobs()):
            await reply.send(status)
        else:
            await succeed(request, reply)

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url)
        held = [*hold(21), *hold(1, argument="poison"), *hold(42)]
        outcomes = await house.run_to_end(held)
        fates = [outcome.fate for outcome in outcomes]
        assert fates.pop(21) is (Fate.FAILED if status == 422 else Fate.RETRY)
        assert set(fates) == {Fate.SUCCEEDED}
        assert len(worker.requests) == 13, "64 → 32 → … → 1, and one clean half each time"


@pytest.mark.parametrize("status", [408, 425, 429, 503])
async def test_an_overloaded_worker_costs_no_attempt(
    open_house: OpenHouse, status: int, eventually: Eventually
) -> None:
    async with open_worker(in_turn(answer(status), succeed)) as worker, open_house() as house:
        house.register(worker.url)
        held = hold(10)
        house.run(held)
        await house.stopped(10)
        assert house.returned == house.unsent == ids(held), "it began none of them"
        assert house.runner.offer("mail", 0) is None, "it is backed off"
        await eventually(lambda: house.runner.offer("mail", 0) is not None)
        assert house.runner.offer("mail", 0).jobs_max == 1, "one probe"
        await house.run_to_end(hold(1))
        assert 50 <= house.runner.offer("mail", 0).jobs_max < 100, "halved, and growing"


async def test_retry_after_is_kept_to(open_house: OpenHouse) -> None:
    async with open_worker(answer(503, b"", ("Retry-After", "120"))) as worker, open_house() as house:
        house.register(worker.url)
        house.run(hold(1))
        await house.stopped(1)
        (row,) = house.runner.stats()["workers"]
        assert 119 < row["backed_off_s"] <= 120


async def test_410_unregisters_the_worker(open_house: OpenHouse) -> None:
    async with open_worker(answer(410)) as worker, open_house() as house:
        card = house.register(worker.url)
        held = hold(3)
        house.run(held)
        await house.stopped(3)
        assert house.returned == ids(held)
        assert house.workers.get(card.id) is None


async def test_a_gateway_without_its_worker_is_backed_off(open_house: OpenHouse) -> None:
    async with open_worker(answer(502)) as worker, open_house() as house:
        house.register(worker.url)
        held = hold(4)
        house.run(held)
        await house.stopped(4)
        assert len(house.returned) == 4
        assert house.runner.offer("mail", 0) is None


@pytest.mark.parametrize(("status", "fate"), [(503, None), (422, Fate.FAILED), (500, Fate.DEAD)])
async def test_a_status_decides_although_its_body_never_comes(
    open_house: OpenHouse, status: int, fate: Fate | None
) -> None:
    async def stall(request: Request, reply: Reply) -> None:
        await reply.raw(b"HTTP/1.1 %d No\r\nContent-Length: 50\r\n\r\nno such" % status)
        await trio.sleep_forever()

    async with open_worker(stall) as worker, open_house() as house:
        house.register(worker.url)
        held = hold(1, timeout=60, max_retry=0)
        house.run(held)
        await house.stopped(1)
        assert house.returned == (ids(held) if fate is None else [])
        if fate is not None:
            (outcome,) = house.outcomes.values()
            assert (outcome.fate, outcome.status) == (fate, status)
            assert outcome.message == f"the worker answered {status}: no such"


# ------------------------------------------------ silence


async def test_a_worker_that_never_answers_times_its_jobs_out(open_house: OpenHouse) -> None:
    async def hang(request: Request, reply: Reply) -> None:
        await trio.sleep_forever()

    async with open_worker(hang) as worker, open_house() as house:
        house.register(worker.url)
        held = [*hold(2, timeout=0.1), *hold(1, timeout=0.3, max_retry=0)]
        first, second, third = await house.run_to_end(held)
        assert list(house.outcomes)[2] == held[2].job.id, "each by its own timeout"
        assert (first.fate, first.status, first.reason) == (Fate.RETRY, 504, "timeout")
        assert "no outcome within 0.1 s" in second.message
        assert third.fate is Fate.DEAD
        assert house.runner.stats()["timeouts"] == 3
        assert house.runner.offer("mail", 0) is None, "not a word: it is backed off"


async def test_a_worker_that_reports_is_given_time(open_house: OpenHouse) -> None:
    """Jobs run one after the other in the worker: each outcome is a sign of life for the rest of the batch."""

    async def script(request: Request, reply: Reply) -> None:
        await reply.begin()
        for job_id in request.job_ids():
            await trio.sleep(0.2)
            await reply.outcome(job_id=job_id, type="success")
        await reply.finish()

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url)
        outcomes = await house.run_to_end(hold(4, timeout=0.5))
        assert {outcome.fate for outcome in outcomes} == {Fate.SUCCEEDED}


# ------------------------------------------------ broken connections


async def _reset_before(request: Request, reply: Reply) -> None:
    await reply.reset()


async def _close_before(request: Request, reply: Reply) -> None:
    await reply.close()


async def _close_after_headers(request: Request, reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 200 OK\r\n\r\n")


async def _close_in_body(request: Request, reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n\x83")
    await reply.close()


async def _reset_in_body(request: Request, reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n\x83\xa6j\r\n")
    await trio.sleep(0.02)  # a RST would overtake what has not been read yet
    await reply.reset()


BREAKS: list[Script] = [_reset_before, _close_before, _close_after_headers, _close_in_body, _reset_in_body]


@pytest.mark.parametrize("script", BREAKS)
async def test_a_lost_connection_is_an_attempt_of_a_job_that_was_alone(open_house: OpenHouse, script: Script) -> None:
    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url)
        (outcome,) = await house.run_out(hold(1))
        assert (outcome.fate, outcome.status) == (Fate.RETRY, 500)
        assert outcome.message.startswith("CONNECTION_LOST")
        if script is _reset_in_body:
            assert "ECONNRESET" in outcome.message
        assert len(worker.requests) == 2, "the first may have been another's fault"


async def test_outcomes_heard_before_the_loss_stand(open_house: OpenHouse) -> None:
    heard = trio.Event()

    async def script(request: Request, reply: Reply) -> None:
        await reply.begin()
        await reply.outcome(job_id=request.job_ids()[0], type="success")
        await heard.wait()
        await reply.reset()

    async with open_worker(in_turn(script, succeed)) as worker, open_house() as house:
        house.register(worker.url)
        held = hold(3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.run_out, held)
            with trio.fail_after(WAIT_S):
                while not house.outcomes:
                    await trio.sleep(0.005)
            heard.set()
        assert {outcome.fate for outcome in house.outcomes.values()} == {Fate.SUCCEEDED}
        resent = list(itertools.chain.from_iterable(request.job_ids() for request in worker.requests[1:]))
        assert sorted(resent) == ids(held)[1:]


async def test_a_kept_connection_closed_as_we_write_costs_no_attempt(open_house: OpenHouse) -> None:
    async with open_worker(in_turn(succeed, _close_before, succeed)) as worker, open_house() as house:
        house.register(worker.url)
        await house.run_to_end(hold(1))
        (outcome,) = await house.run_out(hold(1))
        assert outcome.fate is Fate.SUCCEEDED
        assert [request.connection for request in worker.requests] == [0, 0, 1]


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"])
async def test_an_answer_ended_by_the_connection_counts_when_it_names_all(
    open_house: OpenHouse, version: bytes
) -> None:
    def close_after(names: Callable[[list[str]], list[str]]) -> Script:
        async def script(request: Request, reply: Reply) -> None:
            body = b"".join(msgpack.packb({"job_id": name, "status": 200}) for name in names(request.job_ids()))
            await reply.raw(version + b" 200 OK\r\nContent-Type: application/msgpack\r\n\r\n" + body)

        return script

    scripts = in_turn(close_after(lambda names: names), close_after(lambda names: names[:1]), succeed)
    async with open_worker(scripts) as worker, open_house() as house:
        house.register(worker.url)
        assert {o.fate for o in await house.run_out(hold(2))} == {Fate.SUCCEEDED}
        assert {o.fate for o in await house.run_out(hold(2))} == {Fate.SUCCEEDED}
        assert [len(request.jobs()) for request in worker.requests] == [2, 2, 1]
