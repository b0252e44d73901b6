"""Workers that go down: no job pays for another, what takes a worker down pays each time it does so by itself."""

from collections import Counter

import msgspec
import pytest
import trio
import trio.testing

from jqd.domain.job import Fate
from jqd.runner import crash_isolation as suspects_module
from jqd.runner.crash_isolation import ALONE_S, COMPANY_LOSSES
from jqd.runner.crash_site import IsolatedRequest
from jqd.testing.clock import ManualClock
from tests.harness.worker import Reply, Request, answer, in_turn, open_worker, succeed
from tests.runner.conftest import WAIT_S, OpenHouse, claims, hold, ids


@pytest.mark.parametrize("poisons", [1, 3])
async def test_a_job_that_kills_its_worker_takes_no_other_along(open_house: OpenHouse, poisons: int) -> None:
    """The worker has several requests at once, on kept connections; with one of them all break."""
    streams: list[Reply] = []
    starts: Counter[str] = Counter()

    async def crash(request: Request, reply: Reply) -> None:
        streams.append(reply)
        starts.update(request.job_ids())
        if any(job["argument"] == "poison" for job in request.jobs()):
            dying, streams[:] = [*streams], []
            for each in dying:
                await each.reset()
        else:
            await trio.sleep(0.002)
            if reply in streams:
                await succeed(request, reply)
                streams[:] = [each for each in streams if each is not reply]  # it may have died meanwhile

    async with open_worker(crash) as worker, open_house() as house:
        house.register(worker.url, max_jobs=30, batch=10)
        poison = hold(poisons, argument="poison", max_retry=0)
        held = [*hold(20, max_retry=0), *poison, *hold(30, max_retry=0)]
        outcomes = {outcome.job_id: outcome for outcome in await house.run_out(held)}
        for job_id in ids(poison):
            assert outcomes[job_id].fate is Fate.DEAD
            assert outcomes[job_id].message.startswith("CONNECTION_LOST")
            assert 2 <= starts[job_id] <= 4
        assert {o.fate for o in outcomes.values() if o.job_id not in ids(poison)} == {Fate.SUCCEEDED}


async def test_a_job_that_kills_its_worker_again_is_counted_each_time(open_house: OpenHouse) -> None:
    async def reset(request: Request, reply: Reply) -> None:
        await reply.reset()

    async with open_worker(reset) as worker, open_house() as house:
        house.register(worker.url)
        (held,) = hold(1, max_retry=1)
        (first,) = await house.run_out([held])
        assert (first.fate, len(worker.requests)) == (Fate.RETRY, 2)
        assert first.message.startswith("CONNECTION_LOST: ECONNRESET")
        house.outcomes.clear()
        house.runner.forget([(held.job.id, first.fence)])
        (last,) = await house.run_out([msgspec.structs.replace(held, fence=first.fence + 1, attempt=2)])
        assert (last.fate, len(worker.requests)) == (Fate.DEAD, 3)
        assert house.runner._capacity.crash_isolation.of(held.job.id) is None


async def test_a_job_that_kills_in_company_pays_at_last(open_house: OpenHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of many processes, one of them with a long job: it never becomes empty."""
    monkeypatch.setattr(suspects_module, "EMPTYING_S", 0.01)
    booms = 0

    async def script(request: Request, reply: Reply) -> None:
        nonlocal booms
        if request.body == b'"long"':
            await trio.sleep_forever()
        booms += 1
        await reply.reset()

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url, style="webhook", max_jobs=10)
        house.run(hold(1, argument="long"))
        await worker.request(0)
        (outcome,) = await house.run_out(hold(1, argument="boom", max_retry=0))
        assert (outcome.fate, booms) == (Fate.DEAD, COMPANY_LOSSES)


async def test_hooks_that_were_lost_together_run_in_groups(
    open_house: OpenHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspects_module, "SETTLE_S", 0.2)  # forty connections do not break at once on a busy machine
    seen: Counter[str] = Counter()
    first: list[Reply] = []
    at_once, most = 0, 0

    async def script(request: Request, reply: Reply) -> None:
        nonlocal at_once, most
        job_id = request.headers["jqd-job-id"]
        seen[job_id] += 1
        if seen[job_id] == 1:
            first.append(reply)
            if len(first) < 40:
                await trio.sleep_forever()
            for each in first:
                await each.reset()
            return
        at_once += 1
        most = max(most, at_once)
        await trio.sleep(0.01)
        at_once -= 1
        await reply.send(200)

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url, style="webhook", max_jobs=40)
        outcomes = await house.run_out(hold(40, max_retry=0))
        assert {outcome.fate for outcome in outcomes} == {Fate.SUCCEEDED}
        assert 1 < most <= 40 // 8


async def test_a_worker_that_left_and_then_ends_costs_no_attempt(open_house: OpenHouse) -> None:
    """As often as it is stopped: also a job that was alone in it, and was lost before."""
    go_on = trio.Event()

    async def cut_off(request: Request, reply: Reply) -> None:
        await go_on.wait()
        await reply.close()

    async with open_worker(cut_off) as worker, open_house() as house:
        held = hold(1, max_retry=0)
        house_suspects = house.runner._capacity.crash_isolation
        house_suspects.lost(ids(held))
        card = house.register(worker.url)
        house.run(held)
        await worker.request(0)
        house.workers.unregister(card.id)
        go_on.set()
        await house.stopped(1)
        (outcome,) = house.outcomes.values()
        assert (outcome.fate, outcome.reason, outcome.interruptions) == (Fate.RETRY, "interrupted", 1)
        assert house_suspects.of(held[0].job.id) == (1, 1)


async def test_others_wait_while_a_suspect_has_the_worker_and_no_longer(open_house: OpenHouse) -> None:
    clock = ManualClock()
    hang = trio.Event()

    async def script(request: Request, reply: Reply) -> None:
        if request.jobs()[0]["argument"] == "suspect":
            await hang.wait()
        await succeed(request, reply)

    async with open_worker(script) as worker, open_house(clock=clock) as house:
        house.register(worker.url, batch=1)
        suspect = hold(1, argument="suspect")
        house.runner._capacity.crash_isolation.lost(ids(suspect))
        house.run(suspect)
        await worker.request(0)
        assert house.runner.offer("mail", 0) is None
        assert house.runner.wanted() == []
        clock.advance(ALONE_S)
        await house.run_to_end(hold(3))
        hang.set()
        await house.stopped(4)


async def test_a_worker_that_was_started_again_is_one_with_what_is_still_registered_of_it(
    open_house: OpenHouse,
) -> None:
    """It has a new id at its URL, and the old one is known for a while: suspects go to neither beside each other."""

    async def hang(request: Request, reply: Reply) -> None:
        await trio.sleep_forever()

    async with open_worker(hang) as worker, open_house() as house:
        old, new = (house.register(worker.url, name=name, batch=1) for name in ("old", "new"))
        first, second = hold(1), hold(1)
        house.runner._capacity.crash_isolation.lost(ids([*first, *second]))
        house.runner.run_jobs(old.id, "mail", first)
        await worker.request(0)
        assert house.runner.offer("mail", 0) is None
        house.runner.run_jobs(new.id, "mail", second)
        await trio.testing.wait_all_tasks_blocked()
        assert len(worker.requests) == 1
        house.runner.stop_work()


@pytest.mark.parametrize("beside", [True, False])
async def test_who_loses_its_own_connections_only_holds_up_nobody_else_there(
    open_house: OpenHouse, beside: bool
) -> None:
    """A broken hook beside healthy ones, behind one gateway: with and without work of theirs while it breaks."""

    async def script(request: Request, reply: Reply) -> None:
        if request.target == "/broken":
            await reply.reset()
        elif request.body == b'"long"':
            await trio.sleep_forever()
        else:
            await reply.send(200)

    async with open_worker(script) as worker, open_house() as house:
        broken = worker.url.replace("/run", "/broken")
        house.register(broken, name="broken", style="webhook", jobs=("bad",))
        good = house.register(worker.url, name="good", style="webhook", jobs=("mail",))
        if beside:
            house.runner.run_jobs(good.id, "mail", hold(1, argument="long"))
            await worker.request(0)
        bad = hold(20, jobtype="bad", max_retry=0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.run_out, bad)
            while not set(ids(bad)) <= house.outcomes.keys():
                assert house.runner.offer("mail", 0) is not None, "the broken one holds it up"
                await trio.sleep(0.001)  # in which the broken one goes on
        assert {house.outcomes[job_id].fate for job_id in ids(bad)} == {Fate.DEAD}
        house.runner.stop_work()


async def test_what_a_worker_keeps_for_itself_is_no_company(open_house: OpenHouse) -> None:
    async with open_worker(in_turn(answer(202), succeed)) as worker, open_house() as house:
        house.register(worker.url, batch=1)
        house.run(hold(1))
        await house.stopped(1)
        suspect = hold(1)
        house.runner._capacity.crash_isolation.lost(ids(suspect))
        (outcome,) = await house.run_out(suspect)
        assert outcome.fate is Fate.SUCCEEDED
        assert house.runner._capacity.isolate(("", worker.url.split("/")[2])).at_work == 0


async def test_a_suspect_that_waits_is_let_go(open_house: OpenHouse) -> None:
    async def hang(request: Request, reply: Reply) -> None:
        await trio.sleep_forever()

    async with open_worker(hang) as worker, open_house() as house:
        card = house.register(worker.url, batch=1)
        house.run(hold(1))
        await worker.request(0)
        suspects = hold(2)
        house.runner._capacity.crash_isolation.lost(ids(suspects))
        house.runner.run_jobs(card.id, "mail", suspects)
        await trio.testing.wait_all_tasks_blocked()
        house.runner.cancel(claims(suspects)[:1])
        await house.stopped(1)
        house.runner.stop_work()
        await house.stopped(3)
        with trio.fail_after(WAIT_S):
            await house.runner.drain()
        assert house.returned[0] == ids(suspects)[0]
        assert len(worker.requests) == 1


@pytest.mark.parametrize("watched", [True, False])
async def test_a_site_is_not_made_by_a_worker_that_registers_meanwhile(
    open_house: OpenHouse, monkeypatch: pytest.MonkeyPatch, watched: bool
) -> None:
    """Nothing was lost. What is sent once more goes by the site of its own host and port, if there is one."""
    async with open_worker() as worker, open_house() as house:

        async def script(request: Request, reply: Reply) -> None:
            if len(request.job_ids()) > 1:
                house.register("http://127.0.0.1:9/" if watched else worker.url, id="w", max_jobs=50)
                assert house.runner.wanted()
                await reply.send(500)
            else:
                await succeed(request, reply)

        worker.script = script
        house.register(worker.url, id="w")
        endpoint, capacity = worker.url.split("/")[2], house.runner._capacity
        if watched:
            capacity.isolate(("", endpoint))
        entered, enter = list[IsolatedRequest](), IsolatedRequest.entered

        def note(stay: IsolatedRequest, jobs: int, losses: int, now_s: float) -> None:
            entered.append(stay)
            enter(stay, jobs, losses, now_s)

        monkeypatch.setattr(IsolatedRequest, "entered", note)
        outcomes = await house.run_to_end(hold(2))
        assert {outcome.fate for outcome in outcomes} == {Fate.SUCCEEDED}
        assert ([*capacity.sites], len(entered)) == (([("", endpoint)], 3) if watched else ([], 0))
