"""Requests lost on a kept connection: sent a second time where the worker may not have seen them, else counted."""

import pytest
import trio

from jqd.testing.worker import Reply, Request, ScriptedWorker, in_turn, open_worker, succeed
from jqd.words.clock import ManualClock
from jqd.words.job import Fate
from tests.runner.conftest import Eventually, OpenHouse, hold, ids


class Killer:
    """A worker's script: it dies, or breaks the connection, some seconds into a job."""

    def __init__(self, clock: ManualClock, after_s: float) -> None:
        self.clock, self.after_s = clock, after_s
        self.worker: ScriptedWorker
        self.sent_at_ms = 0

    async def die(self, request: Request, reply: Reply) -> None:
        self._work()
        self.worker.life.cancel()
        await trio.sleep_forever()

    async def reset(self, request: Request, reply: Reply) -> None:
        self._work()
        await reply.reset()

    def _work(self) -> None:
        self.sent_at_ms = self.sent_at_ms or self.clock.wall_ms()
        self.clock.advance(self.after_s)


@pytest.mark.parametrize("after_s", [0.0, 0.9])
async def test_a_job_that_kills_its_worker_is_counted_on_a_kept_connection_too(
    open_house: OpenHouse, after_s: float
) -> None:
    killer = Killer(clock := ManualClock(), after_s)
    async with open_worker(in_turn(succeed, killer.die)) as worker, open_house(clock=clock) as house:
        killer.worker = worker
        house.register(worker.url)
        await house.run_to_end(hold(1))
        (outcome,) = await house.run_to_end(hold(1, max_retry=0))
        assert (outcome.fate, outcome.status) == (Fate.DEAD, 500)
        assert outcome.message.startswith("CONNECTION_LOST: Server disconnected")
        assert "ECONNREFUSED" in outcome.message
        assert (outcome.started_at_ms, outcome.finished_at_ms) == (killer.sent_at_ms, clock.wall_ms())
        assert [request.connection for request in worker.requests] == [0, 0]
        (row,) = house.runner.stats()["workers"]
        assert row["failures"] == 1, "it is left alone for a while, as any worker that cannot be reached"


async def test_what_breaks_later_breaks_over_its_job(open_house: OpenHouse) -> None:
    killer = Killer(clock := ManualClock(), 1.5)
    async with open_worker(in_turn(succeed, killer.reset, succeed)) as worker, open_house(clock=clock) as house:
        house.register(worker.url)
        await house.run_to_end(hold(1))
        (outcome,) = await house.run_to_end(hold(1))
        assert outcome.fate is Fate.RETRY
        assert outcome.message.startswith("CONNECTION_LOST")
        assert outcome.started_at_ms == killer.sent_at_ms
        assert len(worker.requests) == 2, "the worker had it in hand, and must not get it uncounted"


async def test_a_second_loss_is_counted_from_the_first_time_on(open_house: OpenHouse) -> None:
    killer = Killer(clock := ManualClock(), 0.5)
    async with open_worker(in_turn(succeed, killer.reset)) as worker, open_house(clock=clock) as house:
        house.register(worker.url)
        await house.run_to_end(hold(1))
        (outcome,) = await house.run_to_end(hold(1))
        assert outcome.message.startswith("CONNECTION_LOST")
        assert len(worker.requests) == 3
        assert outcome.started_at_ms == killer.sent_at_ms
        assert outcome.finished_at_ms - outcome.started_at_ms == 1_000


async def test_it_is_counted_too_when_its_worker_is_backed_off_by_then(
    open_house: OpenHouse, eventually: Eventually
) -> None:
    go_on = trio.Event()

    async def script(request: Request, reply: Reply) -> None:
        (job,) = request.jobs()
        match job["argument"]:
            case "killer":
                await go_on.wait()
                await reply.reset()
            case "other":
                await reply.send(503, headers=[("Retry-After", "60")])
            case _:
                await succeed(request, reply)

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url, batch=1)
        await house.run_to_end(hold(1))
        killer, other = hold(1, argument="killer"), hold(1, argument="other")
        house.run(killer)
        await worker.request(1)
        house.run(other)
        await house.stopped(2)
        assert house.returned == ids(other)
        go_on.set()
        await house.stopped(3)
        assert house.outcomes[ids(killer)[0]].message.startswith("CONNECTION_LOST")
        assert len(worker.requests) == 3


async def test_of_several_none_is_blamed_when_they_cannot_be_sent_again(open_house: OpenHouse) -> None:
    """As after any loss: they come again, and the one that is lost alone is counted."""
    killer = Killer(clock := ManualClock(), 0.1)
    async with open_worker(in_turn(succeed, killer.die)) as worker, open_house(clock=clock) as house:
        killer.worker = worker
        house.register(worker.url)
        await house.run_to_end(hold(1))
        held = hold(3)
        house.run(held)
        await house.stopped(4)
        assert house.returned == ids(held)
