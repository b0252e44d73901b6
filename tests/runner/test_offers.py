"""Whom jobs are offered to, and until when they are sent: room, workers that left, trust in the lease, newer claims."""

import pytest
import trio
import trio.testing

from jqd.domain.job import PRIORITY_MIN, Wanted
from jqd.domain.pauses import HALT, all_of
from jqd.domain.pauses import body_of as halt_of
from jqd.runner import WorkerSpec
from tests.harness.worker import Reply, Request, in_turn, open_worker, succeed
from tests.runner.conftest import WAIT_S, Eventually, OpenHouse, hold, ids


async def test_offers(open_house: OpenHouse) -> None:
    async with open_house() as house:
        assert house.runner.offer("mail", 0) is None
        assert house.runner.wanted() == []
        puller = house.workers.register(WorkerSpec(name="puller", max_jobs=9))
        assert house.runner.wanted() == [], f"{puller.name} has no URL"
        few = house.register("http://127.0.0.1:1/a", jobs=["mail"], max_jobs=2, priority_max=5)
        assert house.runner.wanted() == [Wanted("mail", PRIORITY_MIN, 5)]
        many = house.register("http://127.0.0.1:1/b", max_jobs=10)
        assert house.runner.wanted() == [Wanted()]
        assert house.runner.offer("mail", 0).worker.id == many.id
        assert house.runner.offer("mail", 9).worker.id == many.id
        assert house.workers.unregister(many.id)
        offer = house.runner.offer("mail", 5)
        assert (offer.worker.id, offer.jobs_max, offer.worker.priority_max) == (few.id, 2, 5)
        assert house.runner.offer("mail", 6) is None
        assert house.runner.offer("bill", 0) is None
        settings = house.workers.settings
        for body, most in ((halt_of(1), None), (b"\xc0", 2)):
            settings.take(settings.make({(HALT, all_of("")): body}, now_ms=0, origin=1))
            offer = house.runner.offer("mail", 5)
            assert (offer and offer.jobs_max, house.runner.wanted() == []) == (most, most is None), "all are paused"
        house.register("http://127.0.0.1:1/c", name="c", priority_min=6, priority_max=9)
        house.register("http://127.0.0.1:1/d", name="d", jobs=["mail", "bill"], priority_max=7)
        assert house.runner.wanted() == [
            Wanted(None, 6, 9),
            Wanted("bill", PRIORITY_MIN, 7),
            Wanted("mail", PRIORITY_MIN, 7),
        ]


async def test_slots_are_not_overdrawn_and_free_again(open_house: OpenHouse) -> None:
    go_on = trio.Event()

    async def script(request: Request, reply: Reply) -> None:
        await go_on.wait()
        await succeed(request, reply)

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url, max_jobs=3, batch=2)
        house.run(hold(3))
        assert house.runner.offer("mail", 0) is None
        assert house.runner.wanted() == []
        sizes = [len((await worker.request(n)).jobs()) for n in range(2)]
        assert sorted(sizes) == [1, 2]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.wait_free)
            await trio.testing.wait_all_tasks_blocked()
            go_on.set()
        await house.stopped(3)
        assert house.runner.offer("mail", 0).jobs_max == 3


async def test_a_registration_rings_too(open_house: OpenHouse) -> None:
    async with open_house() as house, trio.open_nursery() as nursery:
        nursery.start_soon(house.wait_free)
        await trio.testing.wait_all_tasks_blocked()
        house.register("http://127.0.0.1:1/")


async def test_large_arguments_travel_apart(open_house: OpenHouse) -> None:
    async with open_worker() as worker, open_house(batch_bytes_max=1000) as house:
        house.register(worker.url)
        await house.run_to_end([*hold(1, argument="a" * 600), *hold(1, argument="b" * 600), *hold(1, argument="c")])
        assert sorted(len(request.jobs()) for request in worker.requests) == [1, 2]


async def test_a_worker_that_left_gets_nothing(open_house: OpenHouse) -> None:
    async with open_worker() as worker, open_house() as house:
        card = house.register(worker.url)
        house.workers.unregister(card.id)
        held = hold(2)
        house.runner.run_jobs(card.id, "mail", held)
        await house.stopped(2)
        assert house.returned == ids(held)
        assert not worker.requests


async def test_without_trust_nothing_is_sent(open_house: OpenHouse) -> None:
    async with open_worker() as worker, open_house() as house:
        house.register(worker.url)
        held = hold(2)
        house.run(held)
        house.trusted = False  # between claim and send
        await house.stopped(2)
        assert house.returned == ids(held)
        assert not worker.requests


async def test_trust_is_asked_again_once_the_connection_stands(open_house: OpenHouse, eventually: Eventually) -> None:
    async with open_worker() as worker, open_house() as house:
        asked: list[int] = []

        def trusts() -> bool:
            asked.append(1)
            return len(asked) < 2

        house.runner._shared.trusts = trusts
        house.register(worker.url)
        house.run(hold(1))
        await house.stopped(1)
        assert len(asked) == 2
        assert len(house.returned) == 1
        await eventually(lambda: worker.connections == 1)
        assert not worker.requests


async def test_stop_work_ends_requests_and_reports_nothing_of_them(open_house: OpenHouse) -> None:
    ended = trio.Event()

    async def script(request: Request, reply: Reply) -> None:
        await reply.begin()
        await reply.outcome(job_id=request.job_ids()[0], type="success")
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url)
        held = hold(3)
        house.run(held)
        await house.stopped(1)
        house.runner.stop_work()
        await house.stopped(3)
        assert list(house.outcomes) == ids(held)[:1]
        assert house.returned == ids(held)[1:]
        with trio.fail_after(WAIT_S):
            await house.runner.drain()
        house.runner.stop_work()
        worker.script = succeed
        await house.run_to_end(hold(1))
        assert not ended.is_set(), "it was our side that ended the request"


async def test_a_newer_claim_of_a_job_at_work_voids_the_older(open_house: OpenHouse) -> None:
    async def hang(request: Request, reply: Reply) -> None:
        await trio.sleep_forever()

    async with open_worker(in_turn(hang, succeed)) as worker, open_house() as house:
        house.register(worker.url)
        (old,) = hold(1, fence=7)
        house.run([old])
        await worker.request(0)
        house.run([type(old)(old.job, 9, 1)])
        await house.stopped(2)
        assert house.returned == [old.job.id], "counted as stopped; the store does not hold it by that fence any more"
        assert house.outcomes[old.job.id].fence == 9
        assert house.runner.get_running_jobs() == {old.job.id: 9}
        assert house.runner.offer("mail", 0).jobs_max == 100


async def test_the_same_claim_twice_is_a_bug(open_house: OpenHouse) -> None:
    async with open_worker() as worker, open_house() as house:
        card = house.register(worker.url)
        held = hold(1)
        house.run(held)
        with pytest.raises(AssertionError, match="in flight already"):
            house.runner.run_jobs(card.id, "mail", held)
        await house.stopped(1)


async def test_who_stops_in_good_order_tells_what_that_interrupts_and_nothing_of_what_had_not_begun(
    open_house: OpenHouse,
) -> None:
    begun = trio.Event()

    async def script(request: Request, reply: Reply) -> None:
        _, refused, cut = request.job_ids()
        await reply.begin()
        await reply.outcome(job_id=refused, type="refused")
        await reply.outcome(job_id=cut, type="refused", interrupted=True, message="the worker is stopping")
        begun.set()
        await trio.sleep_forever()

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url, batch=3)
        held = hold(3, max_retry=0)
        house.run(held)
        await begun.wait()
        await house.stopped(2)
        house.runner.stop_work("its daemon was stopped")
        await house.stopped(3)
        assert (house.returned, house.unsent) == (ids(held[1:2]), ids(held[1:2]))
        assert {job_id: (one.reason, one.message) for job_id, one in house.outcomes.items()} == {
            held[0].job.id: ("interrupted", "INTERRUPTED: its daemon was stopped"),
            held[2].job.id: ("interrupted", "INTERRUPTED: the worker is stopping"),
        }
        assert house.runner.stats()["interrupted"] == 2


@pytest.mark.parametrize("who", ["daemon", "worker"])
async def test_of_more_jobs_than_a_worker_runs_at_once_only_those_count_as_interrupted_that_it_began(
    open_house: OpenHouse, eventually: Eventually, who: str
) -> None:
    """All others of the request have waited there: counted, a job that never ran could die of it."""
    told, go_on = trio.Event(), trio.Event()

    async def script(request: Request, reply: Reply) -> None:
        await reply.begin()
        await reply.outcome(job_id=request.job_ids()[0], type="started")
        told.set()
        await go_on.wait()
        await reply.close()

    async with open_worker(script) as worker, open_house() as house:
        card = house.register(worker.url, batch=3, max_jobs=2)
        held = hold(3)
        house.runner.run_jobs(card.id, "mail", held)  # as once it was quick
        await told.wait()
        await eventually(lambda: house.runner._shared.deliveries[held[0].job.id]._begun)
        if who == "daemon":
            house.runner.stop_work("its daemon was stopped")
        else:
            house.workers.unregister(card.id)
            go_on.set()
        await house.stopped(3)
        assert (sorted(house.returned), list(house.outcomes)) == (ids(held[1:]), ids(held[:1]))
        assert (house.unsent, house.runner.stats()["interrupted"]) == ([], 1)
