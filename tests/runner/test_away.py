"""Workers that cannot be reached, connections that are not to be had: nobody is blamed, the others get their part."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio
import trio.testing

from jqd.domain.clock import StoreClock, SystemClock
from jqd.domain.flow import CALLBACK, Flow
from jqd.domain.job import Fate
from jqd.runner import Report, RunnerConfig
from jqd.runner import runner as runner_module
from jqd.runner.callbacks import callback_worker
from jqd.runner.delivery import Delivery
from jqd.runner.failures import DOUBT_WAIT_S
from jqd.runner.protocols.protocol import JobReport, Judgement, Sending
from jqd.runner.transport import Connections, End, Ending
from tests.harness.worker import Reply, Request, open_worker, succeed
from tests.loops.house import TrioClock
from tests.runner.conftest import Eventually, OpenHouse, hold, ids
from tests.runner.test_hooks import SECRET

# ------------------------------------------------ no connection to be had


async def test_no_more_is_claimed_than_there_are_connections_for(open_house: OpenHouse, eventually: Eventually) -> None:
    go_on = trio.Event()

    async def wait(request: Request, reply: Reply) -> None:
        await go_on.wait()
        await succeed(request, reply)

    async with open_worker(wait) as worker, open_house(connections_max=2) as house:
        house.register(worker.url, max_jobs=50, batch=3)
        assert house.runner.offer("mail", 0).jobs_max == 6
        house.run(hold(6))
        await worker.request(1)
        assert house.runner.offer("mail", 0) is None
        assert house.runner.wanted() == []
        go_on.set()
        await house.stopped(6)
        await eventually(lambda: house.runner.offer("mail", 0) is not None)


async def test_waiting_for_a_connection_is_nobodys_fault(open_house: OpenHouse) -> None:
    async def hang(request: Request, reply: Reply) -> None:
        await trio.sleep_forever()

    async with open_worker(hang) as worker, open_house(connections_max=1, connect_timeout_s=0.05) as house:
        card = house.register(worker.url, max_jobs=50, batch=1)
        house.runner.run_jobs(card.id, "mail", hold(1))
        await worker.request(0)
        held = hold(2)
        house.runner.run_jobs(card.id, "mail", held)  # as when a batch is cut in halves: more than was offered
        await house.stopped(2)
        assert sorted(house.returned) == ids(held)
        (row,) = house.runner.stats()["workers"]
        assert (row["failures"], house.runner.stats()["unreachable"], house.runner.stats()["crowded"]) == (0, 0, 2)
        assert house.runner.offer("mail", 0) is None, "not claimed again at once, only to come back again"


@contextmanager
def no_more_files() -> Iterator[None]:
    """This process can open none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "no-such-host.invalid"])
async def test_a_process_without_sockets_blames_no_worker(
    open_house: OpenHouse, host: str, eventually: Eventually
) -> None:
    """By the limit of the kernel: also where it shows in the look-up of a name, which says something else."""
    async with open_worker() as worker, open_house() as house:
        house.register(worker.url.replace("127.0.0.1", host))
        held = hold(2)
        with no_more_files():
            house.run(held)
            await house.stopped(2)
        assert house.returned == ids(held)
        (row,) = house.runner.stats()["workers"]
        assert (row["failures"], house.runner.stats()["unreachable"], house.runner.stats()["crowded"]) == (0, 0, 1)
        await eventually(lambda: house.runner.offer("mail", 0) is not None)


# ------------------------------------------------ away


async def test_a_refused_connection_costs_no_attempt(open_house: OpenHouse, eventually: Eventually) -> None:
    async with open_worker() as gone:
        url = gone.url
    async with open_house() as house:
        house.register(url)
        held = hold(5)
        house.run(held)
        await house.stopped(5)
        assert house.returned == ids(held)
        for failures in range(2, 5):
            await eventually(lambda: house.runner.offer("mail", 0) is not None)
            house.run(hold(1))
            await house.stopped(4 + failures)
            (row,) = house.runner.stats()["workers"]
            assert row["failures"] == failures
        assert not house.outcomes


async def test_what_cannot_be_reached_at_once_is_one_failure_of_all_who_are_there(open_house: OpenHouse) -> None:
    async with open_worker() as gone:
        url = gone.url
    async with open_house() as house:
        house.register(url, batch=1)
        house.register(url + "/other", name="other", batch=1)
        house.run(hold(50))
        await house.stopped(50)
        assert [row["failures"] for row in house.runner.stats()["workers"]] == [1, 1]


async def test_a_name_nobody_knows_costs_no_attempt(open_house: OpenHouse) -> None:
    async with open_house() as house:
        house.register("http://no-such-host.invalid:7/")
        house.run(hold(1))
        await house.stopped(1)
        assert len(house.returned) == 1


async def test_tls_with_a_plain_worker_costs_no_attempt(open_house: OpenHouse) -> None:
    async with open_worker() as worker, open_house() as house:
        house.register(worker.url.replace("http:", "https:"))
        house.run(hold(1))
        await house.stopped(1)
        assert len(house.returned) == 1


class Beside:
    """A carrier to workers that end a job in a fifth of a second each, but for one that never answers."""

    def __init__(self, pool: object, connections: Connections, config: RunnerConfig, is_full: object) -> None:
        self._connections = connections

    async def carry(self, sending: Sending, delivery: Delivery) -> Ending:
        place = sending.worker.tenant, sending.worker.endpoint
        self._connections.begin(place)
        try:
            assert delivery.sending()
            if sending.worker.name == "hole":
                await trio.sleep_forever()
            await trio.sleep(0.2)
            self._connections.unanswered.pop(place, None)
            delivery.answered(Judgement.READ)
            delivery.receive(JobReport(held.job.id, Report()) for held in sending.held)
        finally:
            self._connections.end(place)
        return Ending(End.COMPLETE)


@pytest.mark.parametrize(("connections", "slots"), [(30, 100), (1_000, 8)])
async def test_a_black_hole_leaves_the_others_their_part(
    open_house: OpenHouse, autojump_clock: None, monkeypatch: pytest.MonkeyPatch, connections: int, slots: int
) -> None:
    """What two of three workers end in five seconds, the third, which is given jobs first, being well or a hole."""
    monkeypatch.setattr(runner_module, "Post", Beside)

    async def ended(third: str) -> int:
        clock = TrioClock()
        async with open_house(clock=clock, connections_max=connections) as house:
            names = third, "one", "two"
            for name in names:
                house.register(f"http://{name}/", name=name, jobs=(name,), max_jobs=slots, batch=1)
            over_s = trio.current_time() + 5
            while trio.current_time() < over_s:
                offers = [(name, offer) for name in names if (offer := house.runner.offer(name, 0)) is not None]
                for name, offer in offers[:1]:
                    house.runner.run_jobs(offer.worker.id, name, hold(offer.jobs_max, jobtype=name, timeout=2.0))
                if offers:
                    await trio.sleep(0.001)  # what was handed over sets out
                else:
                    with trio.move_on_after(0.05):
                        await house.runner.wait_free()
                house.take()
            return sum(o.fate is Fate.SUCCEEDED and o.jobtype != third for o in house.outcomes.values())

    whole = await ended("three")
    assert whole > 200
    assert await ended("hole") >= 0.9 * whole


async def test_a_worker_that_answers_may_have_more_than_its_part(open_house: OpenHouse) -> None:
    go_on = trio.Event()

    async def script(request: Request, reply: Reply) -> None:
        if len(worker.requests) > 1:
            await go_on.wait()
        await succeed(request, reply)

    async with open_worker(script) as worker, open_worker() as idle, open_house(connections_max=32) as house:
        house.register(idle.url, name="idle", jobs=["idle"])
        house.register(worker.url, max_jobs=100, batch=1, jobs=["mail"])
        given = 0
        while (offer := house.runner.offer("mail", 0)) is not None:
            given += offer.jobs_max
            house.run(hold(offer.jobs_max))
            await trio.testing.wait_all_tasks_blocked()
        assert given > 16
        go_on.set()
        await house.stopped(given)


# ------------------------------------------------ a date that is not believed


def apart(by_s: int) -> StoreClock:
    """Of a store whose clock is so many seconds ahead of ours."""
    own = SystemClock()
    return StoreClock({"a store": own.wall_ms() - round(own.boot_s() * 1000) + by_s * 1000}, own)


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_a_signature_that_is_refused_while_clocks_are_apart_costs_no_attempt(
    open_house: OpenHouse, status: int
) -> None:
    """A store whose clock was six minutes off had all daemons' jobs fail for good at each receiver of web hooks."""

    async def refuse(request: Request, reply: Reply) -> None:
        await reply.send(status)

    for secrets, by_s in ([SECRET], -360), ([SECRET], 360), ([], 360), ([SECRET], 100):
        async with open_worker(refuse) as worker, open_house(clock=apart(by_s)) as house:
            house.register(worker.url, secrets=secrets)
            (outcome,) = await house.run_to_end(hold())
            if secrets and abs(by_s) > 300:
                assert (outcome.fate, outcome.snoozes, outcome.delay_ms) == (Fate.RETRY, 1, DOUBT_WAIT_S * 1000)
                assert f"answered {status}" in outcome.message
                assert "it may be the date that is refused" in outcome.message
            else:
                assert (outcome.fate, outcome.snoozes) == (Fate.FAILED, 0)


@pytest.mark.parametrize("batch", [1, 8])
async def test_a_job_that_is_rightly_refused_meanwhile_holds_no_other_up(open_house: OpenHouse, batch: int) -> None:
    """Its worker was backed off, and it went back to its place: the first, so that it was the next one for ever."""

    async def refuse_one(request: Request, reply: Reply) -> None:
        if any(job["argument"] == "bad" for job in request.jobs()):
            await reply.send(400)
        else:
            await succeed(request, reply)

    async with open_worker(refuse_one) as worker, open_house(clock=apart(360)) as house:
        card = house.register(worker.url, max_jobs=batch, batch=batch, secrets=[SECRET])
        outcomes = await house.run_out([*hold(argument="bad"), *hold(7)])
        assert [one.fate for one in outcomes] == [Fate.RETRY, *[Fate.SUCCEEDED] * 7]
        assert house.runner._capacity.breaker(card).is_closed
        (outcome,) = await house.run_to_end(hold(argument="bad"))
        assert (outcome.fate, outcome.snoozes) == (Fate.FAILED, 0), "the worker accepts our date"


async def test_a_worker_that_accepts_no_date_gets_no_more_than_probes(open_house: OpenHouse) -> None:
    """Each of its jobs was sent, refused and put off every minute: of a batch of 8 that took 15 requests."""

    async def refuse(request: Request, reply: Reply) -> None:
        await reply.send(401)

    async with open_worker(refuse) as worker, open_house(clock=apart(360), backoff_cap_s=60.0) as house:
        card = house.register(worker.url, max_jobs=8, batch=8, secrets=[SECRET])
        breaker = house.runner._capacity.breaker(card)
        held = hold(8)
        house.run(held)
        await house.stopped(8)
        assert (house.returned, len(worker.requests), breaker.failures) == (ids(held), 1, 1)
        outcomes = await house.run_out(hold(2))
        assert [(one.fate, one.snoozes) for one in outcomes] == [(Fate.RETRY, 1)] * 2
        assert (len(worker.requests), breaker.failures) == (3, 3), "each pause is longer than the one before"


async def test_a_date_that_was_accepted_before_the_clock_was_set_is_no_sign(open_house: OpenHouse) -> None:
    async def script(request: Request, reply: Reply) -> None:
        if request.jobs()[0]["argument"] == "bad":
            await reply.send(401)
        else:
            await succeed(request, reply)

    clock = apart(0)
    async with open_worker(script) as worker, open_house(clock=clock) as house:
        house.register(worker.url, secrets=[SECRET])
        fates: list[tuple[Fate, int]] = []
        for argument, by_s in ("good", 0), ("bad", 360), ("good", 0), ("bad", 2):
            clock._ahead_ms = apart(360 + by_s if fates[1:] else by_s)._ahead_ms
            (outcome,) = await house.run_out(hold(argument=argument))
            fates.append((outcome.fate, outcome.snoozes))
        assert fates == [(Fate.SUCCEEDED, 0), (Fate.RETRY, 1), (Fate.SUCCEEDED, 0), (Fate.FAILED, 0)]


async def test_a_callback_that_may_be_refused_by_its_date_costs_no_attempt(open_house: OpenHouse) -> None:
    async def refuse(request: Request, reply: Reply) -> None:
        await reply.send(401)

    networks = {"callback_networks": ("127.0.0.0/8",)}
    async with open_worker(refuse) as worker, open_house(clock=apart(360), **networks) as house:
        house.workers.own[CALLBACK] = callback_worker("", SECRET)
        (outcome,) = await house.run_to_end(hold(jobtype=CALLBACK, flow=Flow(callback=worker.url)))
        assert (outcome.fate, outcome.snoozes, outcome.delay_ms) == (Fate.RETRY, 1, DOUBT_WAIT_S * 1000)
        (other,) = await house.run_to_end(hold(jobtype=CALLBACK, flow=Flow(callback=f"{worker.url}/other")))
        assert (other.fate, other.snoozes, len(worker.requests)) == (Fate.RETRY, 1, 1), "its receiver has a pause"
