"""What a worker is told of its report, by what the journal said: the service, a runner and settle, without a worker."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from jqd.domain.backoff import Backoff
from jqd.domain.errors import JournalRefused, NotFound
from jqd.domain.job import NIL, Fate, Job, Outcome
from jqd.domain.jobid import IdSource
from jqd.domain.record import Lane, decode_outcomes
from jqd.features import HOOKS
from jqd.runner import Capacity, Report, Runner, RunnerConfig, Runners, WorkerRegistry, WorkerSpec, make_pool
from jqd.runner.runner import RECORDED_S
from jqd.service import ServiceConfig, Services, outcomes
from jqd.service.outcome_batch import OutcomeAnswer
from tests.loops.house import House, house

OK, OTHER_RESULT = Report(result=b"\x01"), Report(result=b"\x02")
FAILED = Report(status=500, should_retry=False, message="no route")
AGAIN = Report(status=500, should_retry=True, message="no route")


class Applied:
    """What the daemon says of its lanes: the store has all."""

    async def wait_caught_up(self, *_: object) -> bool:
        await trio.lowlevel.checkpoint()
        return True


@dataclass
class Scene:
    """One job that was posted to a worker. `sync`: set when the disk answers. `refusal`: what it says then."""

    here: House
    services: Services
    runner: Runner
    worker_id: str
    job_id: str
    sync: trio.Event
    refusal: JournalRefused | None = None

    async def report(self, told: Report) -> None:
        """As `POST /done` does: returns for a 204."""
        (error,) = await outcomes.report(self.services, [OutcomeAnswer(self.job_id, told, worker=self.worker_id)])
        if error is not None:
            raise error

    async def journaled(self) -> list[Outcome]:
        """What a daemon that starts anew would find."""
        token = self.here.journal.read_reserve(Lane.OUTCOMES, 10)
        if token is None:
            return []
        return [one for piece in await self.here.journal.read(token) for one in decode_outcomes(piece.body)]


@asynccontextmanager
async def _scene(*, max_retry: int = 5) -> AsyncIterator[Scene]:
    async with house() as here, trio.open_nursery() as nursery:
        clock, journal, source = here.clock, here.journal, random.Random(1)
        workers, config = WorkerRegistry(None, clock=clock), RunnerConfig()
        card = workers.register(WorkerSpec(name="w", url="http://127.0.0.1:9/", max_jobs=9), peer=None)
        capacity = Capacity(config, workers, source, clock)
        runner = Runner(
            config,
            workers=workers,
            clock=clock,
            source=source,
            trusts=lambda: True,
            backoff=Backoff(),
            daemon="d",
            pool=make_pool(config, capacity.connections.most),
            capacity=capacity,
        )
        here.settle._runner = runner
        here.scheduler.jobs_started("a", 1)
        job = Job(IdSource(journal=7, salt=1, clock=clock).take(1).first, "a", NIL, max_retry=max_retry)
        await here.add(job)
        owner = await here.store.reserve_sysid("d1", True, through=True)
        assert owner is not None
        held = await here.store.get_waiting_jobs(owner, "a", 1, priority_min=-9, priority_max=9, bytes_max=1 << 20)
        runner.run_jobs(card.id, "a", held)
        assert runner._shared.deliveries[job.id].sending()
        control: Any = Applied()
        services = Services(
            ServiceConfig(),
            journal,
            here.store,
            Runners([runner]),
            workers,
            control,
            clock,
            HOOKS,
        )
        scene = Scene(here, services, runner, card.id, job.id, trio.Event())
        wsync = journal.wsync

        async def wsync_held(position: int | None = None, **how: Any) -> None:
            await scene.sync.wait()
            if scene.refusal is not None:
                raise scene.refusal
            await wsync(position, **how)

        journal.wsync = wsync_held  # type: ignore[method-assign]
        await nursery.start(here.settle.run)
        yield scene
        nursery.cancel_scope.cancel()


async def test_a_report_is_taken_when_it_is_on_disk_and_not_before(autojump_clock: None) -> None:
    async with _scene() as scene, trio.open_nursery() as nursery:
        answered: list[Report] = []

        async def report(told: Report) -> None:
            await scene.report(told)
            answered.append(told)

        nursery.start_soon(report, OK)
        nursery.start_soon(report, OK)
        await trio.sleep(RECORDED_S / 2)
        assert not answered, "the first, nor the one that repeats it"
        scene.sync.set()
        await trio.sleep(0.1)
        assert answered == [OK, OK]
        (one,) = await scene.journaled()
        assert one.fate is Fate.SUCCEEDED
        with trio.fail_after(0.1):
            await scene.report(OK)


async def test_a_disk_that_hangs_is_not_waited_for_and_a_repeat_is_one(autojump_clock: None) -> None:
    async with _scene() as scene:
        for _ in range(2):
            with pytest.raises(JournalRefused, match="kept in memory and may be sent again") as caught:
                await scene.report(OK)
            assert not caught.value.full
        scene.sync.set()
        await scene.report(OK)
        assert len(await scene.journaled()) == 1


async def test_a_full_disk_is_said_until_there_is_room(autojump_clock: None) -> None:
    async with _scene() as scene:
        scene.refusal = JournalRefused("no space left", full=True)
        scene.sync.set()
        for _ in range(2):
            with pytest.raises(JournalRefused, match="no space left; it is kept in memory") as caught:
                await scene.report(OK)
            assert caught.value.full
        scene.refusal = None
        await trio.sleep(1)
        await scene.report(OK)
        assert (await scene.journaled())[-1].fate is Fate.SUCCEEDED


@pytest.mark.parametrize(
    ("first", "max_retry", "then"),
    [(FAILED, 5, [OK, AGAIN]), (AGAIN, 0, [OK, FAILED]), (OK, 5, [FAILED, AGAIN])],
    ids=["failed", "dead", "succeeded"],
)
@pytest.mark.parametrize("on_disk", [False, True])
async def test_the_first_verdict_wins_while_the_store_does_not_know_it(
    autojump_clock: None, first: Report, max_retry: int, then: list[Report], on_disk: bool
) -> None:
    async with _scene(max_retry=max_retry) as scene, trio.open_nursery() as nursery:
        if on_disk:
            scene.sync.set()
        nursery.start_soon(scene.report, first)
        await trio.sleep(0.1)
        for other in then:
            with pytest.raises(NotFound):
                await scene.report(other)
        scene.sync.set()
        await scene.report(first)
        assert len(await scene.journaled()) == 1


async def test_of_two_successes_the_first_result_stands(autojump_clock: None) -> None:
    async with _scene() as scene:
        scene.sync.set()
        await scene.report(OK)
        await scene.report(OTHER_RESULT)
        assert len(await scene.journaled()) == 1


@pytest.mark.parametrize("told", [OK, FAILED], ids=["success", "failure"])
async def test_from_the_202_on_a_report_counts_wherever_the_hand_over_is(autojump_clock: None, told: Report) -> None:
    """In the runner, in the journal, on disk: the store knows of none of it, and is asked once."""
    end = Fate.SUCCEEDED if told is OK else Fate.FAILED
    async with _scene() as scene, trio.open_nursery() as nursery:
        runner, delivery = scene.runner, scene.runner._shared.deliveries[scene.job_id]
        assert (at := runner.running(scene.job_id)) is not None
        assert not at.lease, "the report is waited for here"
        delivery.entrust()
        (lease,) = runner.get_running_jobs().values()
        assert (at := runner.running(scene.job_id)) is not None
        assert at.lease == lease
        nursery.start_soon(scene.report, told)  # before settle has taken the hand-over
        await trio.sleep(0.1)
        scene.sync.set()
        await trio.sleep(0.1)
        await scene.report(told)
        outcomes = await scene.journaled()
        assert sorted(one.fate for one in outcomes) == sorted([Fate.ENTRUSTED, end]), "it counts once"
        assert {(one.fence, one.worker) for one in outcomes} == {(lease, scene.worker_id)}
