"""What a worker takes with a 202 is its own, and reported later; so may be what was given up."""

import msgspec
import pytest
import trio

from jqd.domain.errors import JournalRefused
from jqd.domain.job import Fate
from jqd.runner import Report
from tests.harness.worker import Reply, Request, answer, open_worker
from tests.runner.conftest import OpenHouse, claims, hold, ids


async def test_what_is_taken_for_later_is_its_workers_own(open_house: OpenHouse) -> None:
    async with open_worker(answer(202)) as worker, open_house() as house:
        card = house.register(worker.url, max_jobs=2)
        held = [*hold(1, timeout=2.0), *hold(1, timeout=7.2)]
        house.run(held)
        await house.stopped(2)
        one, two = (house.outcomes[job_id] for job_id in ids(held))
        assert {one.fate, two.fate} == {Fate.ENTRUSTED}
        assert (one.worker, one.delay_ms, two.delay_ms) == (card.id, 8_000, 8_000), "as long as the longest of them"
        assert not house.runner.done(held[0].job.id, Report(), worker_id=card.id), "the store knows who has it"
        running = house.runner.running(held[0].job.id)
        assert running is not None, "who asks where it is need not wait until the store can say so"
        assert (running.worker, running.jobtype) == (card.id, held[0].job.jobtype)
        house.runner.forget(claims(held))
        assert house.runner.running(held[0].job.id) is None
        assert house.runner.in_flight == 0
        assert house.runner.offer("mail", 0) is None, "its slots are taken all the same"
        house.runner.forget(claims(held[:1]))
        offer = house.runner.offer("mail", 0)
        assert offer is not None, "until it is known how one of them ended"
        assert offer.jobs_max == 1


async def test_a_worker_may_register_how_often_it_is_heard(open_house: OpenHouse) -> None:
    async with open_worker(answer(202)) as worker, open_house() as house:
        house.register(worker.url, heartbeat_s=5.0)
        (outcome,) = await house.run_to_end(hold(1, timeout=86_400.0))
        assert (outcome.fate, outcome.delay_ms) == (Fate.ENTRUSTED, 5_000)


async def test_a_report_may_overtake_the_202(open_house: OpenHouse) -> None:
    go_on = trio.Event()

    async def script(request: Request, reply: Reply) -> None:
        await go_on.wait()
        await reply.send(202)

    async with open_worker(script) as worker, open_house() as house:
        card = house.register(worker.url)
        by_lease, by_worker, late = held = hold(3)
        house.run(held)
        request = await worker.request(0)
        assert request.headers["jqd-lease-id"] == str(late.fence)
        runner, one, two = house.runner, by_lease.job.id, by_worker.job.id
        assert not runner.done("other", Report(), fence=7)
        assert not runner.done(one, Report(), fence=8), "of another lease"
        assert not runner.done(two, Report(), worker_id="somebody")
        assert runner.done(one, Report(status=400, message="no"), fence=7)
        assert runner.done(two, Report(), worker_id=card.id)
        assert not runner.done(two, Report(), worker_id=card.id)
        await house.stopped(2)
        assert (house.outcomes[one].fate, house.outcomes[two].fate) == (Fate.FAILED, Fate.SUCCEEDED)
        assert runner.ended(two) == house.outcomes[two], "until the store knows it"
        go_on.set()
        await house.stopped(3)
        assert house.outcomes[late.job.id].fate is Fate.ENTRUSTED


async def test_a_report_is_not_on_disk_where_its_job_came_here_again(open_house: OpenHouse) -> None:
    """The lease was lost while the disk stood still: the attempt that is in flight now is not the one reported."""

    async def silent(request: Request, reply: Reply) -> None:
        await trio.sleep_forever()

    async with open_worker(silent) as worker, open_house() as house:
        card = house.register(worker.url)
        (first,) = held = hold(1)
        house.run(held)
        await worker.request(0)
        job_id = first.job.id
        assert house.runner.done(job_id, Report(), worker_id=card.id)
        house.run([msgspec.structs.replace(first, fence=first.fence + 1)])
        with pytest.raises(JournalRefused, match="may be sent again"):
            await house.runner.wait_durable(job_id, first.fence)


async def test_a_success_of_an_attempt_that_was_given_up(open_house: OpenHouse) -> None:
    async def silent(request: Request, reply: Reply) -> None:
        await trio.sleep_forever()

    async with open_worker(silent) as worker, open_house() as house:
        house.register(worker.url)
        held = hold(1, timeout=0.1)
        (outcome,) = await house.run_to_end(held)
        assert (outcome.fate, outcome.status, outcome.reason) == (Fate.RETRY, 504, "timeout")
        assert house.runner.ended(held[0].job.id) == outcome, "until the store knows it: it may be reported late"
        late = house.runner.succeed_late(outcome, Report(result=b"\x01"), b"")
        assert late is not None
        assert (late.fate, late.fence, late.attempt) == (Fate.SUCCEEDED, outcome.fence, outcome.attempt)
        kept = msgspec.structs.replace(outcome, keep_result=True)
        late = house.runner.succeed_late(kept, Report(result_bytes=1 << 30), b"")
        assert late is not None
        assert (late.fate, late.message[:14]) == (Fate.SUCCEEDED, "RESULT_DROPPED")
        required = msgspec.structs.replace(outcome, keep_result="required")
        assert house.runner.succeed_late(required, Report(result_bytes=1 << 30), b"") is None
