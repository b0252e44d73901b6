"""Polls that wait for jobs: who is offered what, and what becomes of jobs on their way to one that has gone."""

import msgspec
import pytest
import trio

from jqd.domain.job import Fate, Wanted
from jqd.runner import Pull, Report
from jqd.runner.demand import Demand
from jqd.runner.handler import Handler, StoredOptions, Version
from jqd.runner.pulls import Pulls
from jqd.runner.registry import HANDLER
from jqd.runner.worker import Worker
from tests.runner.conftest import House, OpenHouse, claims, hold, ids


def worker(*jobs: str, low: int = -9, high: int = 9, name: str = "w") -> Worker:
    return Worker(
        name=name,
        id=name,
        jobs=jobs or None,
        max_jobs=50,
        priority_min=low,
        priority_max=high,
        registered_at_ms=0,
    )


def test_a_worker_that_likes_batches_above_its_slots_gets_them_when_it_asks() -> None:
    likes = msgspec.structs.replace(worker("mail"), batch=200)
    with Pulls().waiting(likes, 100) as some, Pulls().waiting(likes, 500) as more:
        assert (some.jobs_max, more.jobs_max) == (100, 200)


async def test_the_poll_that_waited_longest_is_offered_what_it_takes() -> None:
    maybe_delivered: list[None] = []
    pulls = Pulls(lambda: maybe_delivered.append(None))
    with (
        pulls.waiting(worker("mail", low=0), 10) as urgent,
        pulls.waiting(worker("mail", "bill"), 500) as first,
        pulls.waiting(worker("mail", "bill"), 10) as second,
        pulls.waiting(worker(high=3), 10) as any_type,
    ):
        assert (len(pulls), len(maybe_delivered)) == (4, 4)
        assert first.jobs_max == 50, "no more than it registered"
        asked = [("mail", 0), ("mail", -1), ("bill", 5), ("other", 3), ("other", 4)]
        assert [pulls.best(*each) for each in asked] == [urgent, first, first, any_type, None]
        wishes = Demand()
        pulls.wish(wishes)
        assert wishes.wanted() == [Wanted(None, -9, 3), Wanted("bill", -9, 9), Wanted("mail", -9, 9)]
        with first.promised():
            assert pulls.best("bill", 0) is second, "one job wakes one of them"
        assert pulls.best("bill", 0) is first, "nothing came of that claim"
        with first.promised():
            first.bring(hold(1))
        assert pulls.best("bill", 0) is second
    assert len(pulls) == 0
    wishes = Demand()
    pulls.wish(wishes)
    assert wishes.wanted() == []


async def test_who_closes_waits_for_a_claim_under_way_and_for_nothing_else(autojump_clock: None) -> None:
    pulls = Pulls()
    with pulls.waiting(worker(), 1) as idle, pulls.waiting(worker(), 1) as busy:
        with busy.promised():
            pulls.close()
            await idle.wait()
            with trio.move_on_after(1) as waited:
                await busy.wait()
            assert waited.cancelled_caught
        await busy.wait()
    with pulls.waiting(worker(), 1) as late:
        await late.wait()
        assert pulls.best("mail", 0) is None


@pytest.fixture(
    name="kind", params=["answered", "gone before", "gone meanwhile", "not trusted", "sat anew", "cancelled"]
)
def _kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def promise(house: House) -> Pull:
    """What the dispatcher is offered, and claims for."""
    offer = house.runner.offer("mail", 0)
    assert offer is not None
    assert offer.pull is not None
    return offer.pull


async def test_a_cancel_of_all_that_is_claimed_leaves_the_poll_waiting(open_house: OpenHouse) -> None:
    async with open_house() as house:
        held = hold(1)
        with house.runner._capacity.pulls.waiting(worker("mail"), 10) as poll:
            house.runner.cancel(claims(held))  # it overtakes the answer to the claim
            offer = house.runner.offer("mail", 0)
            assert offer is not None
            with offer.promised():
                house.runner.run_jobs("w", "mail", held, poll)
            await house.stopped(1)
            assert (house.returned, poll.given) == (ids(held), [])
            assert promise(house) is poll, "it waits for the next"


async def test_jobs_are_entrusted_to_who_waits_and_go_back_where_nobody_does(open_house: OpenHouse, kind: str) -> None:
    async with open_house() as house:
        pulls, runner = house.runner._capacity.pulls, house.runner
        held = hold(2, fence=9)
        assert runner.wanted() == []
        if kind == "cancelled":
            runner.cancel(claims(held)[:1])
        with pulls.waiting(worker("mail"), 10, 20.0) as poll:
            assert runner.wanted() == [Wanted("mail", -9, 9)]
            assert promise(house) is poll
            if kind != "gone before":
                runner.run_jobs("w", "mail", held, poll)
        if kind == "gone before":
            runner.run_jobs("w", "mail", held, poll)
            await house.stopped(2)
            assert (house.returned, poll.given) == (ids(held), []), "untried"
            return
        poll.is_over = kind == "gone meanwhile"
        await house.stopped(2)
        entrusted = [house.outcomes[job_id] for job_id in ids(held) if job_id not in house.returned]
        assert {(one.fate, one.worker, one.delay_ms) for one in entrusted} == {(Fate.ENTRUSTED, "w", 20_000)}
        assert (poll.silence_s, poll.given) == (20, []), "not before the store knows"
        house.trusted = kind != "not trusted"
        runner.forget(claims(held), epoch := 10 if kind == "sat anew" else 8)
        assert [given.held for given in runner.given.values()] == poll.given, "until the store knows how they end"
        runner.forget(claims(held), epoch)
        assert not runner.given
        if kind == "gone meanwhile":
            assert runner.get_stopped_jobs(9).undelivered == claims(held)
            return
        await poll.wait()
        if kind in ("not trusted", "sat anew"):
            assert poll.given == [], "others may have them"
            stopped = runner.get_stopped_jobs(9)
            assert (stopped.undelivered, stopped.maybe_delivered) == (claims(held), []), "nobody was told of them"
            runner.release_undelivered(claims(held)[:1], maybe_delivered=True)
            runner.release_undelivered(claims(held)[1:])
            assert runner.get_stopped_jobs(9).maybe_delivered == claims(held)[:1], "the answer was on its way"
        else:
            assert poll.given == held[kind == "cancelled" :]
        assert not runner.done(held[1].job.id, Report(), fence=9), "it is the worker's own"
        assert runner.stats()["entrusted"] == len(entrusted)


async def test_a_warm_poll_comes_before_those_that_waited_longer_for_its_jobtypes_alone() -> None:
    pulls = Pulls()
    with pulls.waiting(worker("mail", "bill"), 10) as first:
        with (
            pulls.waiting(worker("mail", "bill", low=0), 10, warm=("mail", "mail")) as warm,
            pulls.waiting(worker("mail", "bill"), 10, warm=("other",)) as other,
        ):
            assert [pulls.best(name, 0) for name in ("mail", "bill", "other")] == [warm, first, None]
            assert pulls.best("mail", -1) is first, "no job that it does not take"
            with warm.promised():
                assert pulls.best("mail", 0) is first
            assert other.warm == ("other",)
        assert pulls.best("mail", 0) is first, "it waits no longer"


async def test_a_poll_gets_no_more_jobs_of_code_than_one_batch_of_it(open_house: OpenHouse) -> None:
    async with open_house() as house:
        for name, batch in (("one", None), ("ten", 10)):
            options = StoredOptions(batch=batch)
            version = Version(lang="python", body="1", options=options, number=1, set_at_ms=1)
            settings = house.workers.settings
            packed = msgspec.msgpack.encode(Handler(1, (version,)))
            settings.take(settings.make({(HANDLER, name): packed}, now_ms=0, origin=1))
        with house.runner._capacity.pulls.waiting(worker("one", "one@1", "ten", "url"), 40):
            offers = [house.runner.offer(name, 0) for name in ("one", "one@1", "ten", "url")]
            assert [offer.jobs_max for offer in offers] == [1, 1, 10, 40]
