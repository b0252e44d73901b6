"""Workers that go down: no job pays for another, what takes a worker down pays each time it does so by itself."""

from collections import Counter
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from jqd.runner import suspects as suspects_module
from jqd.runner.suspects import (
    AGAIN_S,
    ALONE_GROWTH,
    ALONE_S,
    COMPANY_LOSSES,
    EMPTYING_S,
    HELD_S,
    RECESS_S,
    SETTLE_S,
    SUSPECTS_MAX,
    Extent,
    Solitude,
    Stay,
    Suspects,
)
from jqd.testing.worker import Reply, Request, answer, in_turn, open_worker, succeed
from jqd.words.clock import ManualClock
from jqd.words.job import Fate
from tests.runner.conftest import WAIT_S, OpenHouse, claims, hold, ids

SEND_S = 5.0

# ------------------------------------------------ who is remembered


def test_a_group_is_cut_until_each_is_by_itself() -> None:
    suspects = Suspects()
    names = [f"{n}" for n in range(100)]
    suspects.lost(names)
    assert {suspects.of(name) for name in names} == {(1, 12)}
    suspects.lost(names[:12])
    suspects.lost(names[:1])
    assert [suspects.of(name) for name in ("0", "1", "12")] == [(3, 1), (2, 1), (1, 12)]
    suspects.cleared("1")
    assert suspects.of("1") is None


def test_what_breaks_together_is_one_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty requests of one job each are as good as one of forty; what is lost again is cut further all the same."""
    monkeypatch.undo()
    suspects, solitude = Suspects(), Solitude()
    for n in range(40):
        suspects.lost([f"{n}"], solitude.lost(n * SETTLE_S / 40))
    assert {suspects.of(f"{n}") for n in range(40)} == {(1, 5)}
    suspects.lost(["40"], solitude.lost(SETTLE_S))
    assert suspects.of("40") == (1, 1)
    again = solitude.lost(9.0)
    for n in range(40):
        suspects.lost([f"{n}"], again)
    assert {suspects.of(f"{n}") for n in range(40)} == {(2, 1)}


def test_so_many_are_remembered() -> None:
    suspects = Suspects()
    suspects.lost(["first"])
    suspects.lost([f"{n}" for n in range(SUSPECTS_MAX)])
    assert suspects.of("first") is None
    assert suspects.of("0") is not None


# ------------------------------------------------ who has a worker to itself


def test_a_suspect_waits_for_an_empty_worker_and_has_it_for_a_while() -> None:
    solitude = Solitude()
    solitude.entered("other", 2, 0, 0.0)
    solitude.waiting = 1
    assert solitude.turn("one", 1, 1.0, SEND_S) == EMPTYING_S
    assert solitude.is_kept(1.0)
    solitude.at_work -= 2
    assert solitude.turn("one", 1, 2.0, SEND_S) == 0
    solitude.waiting = 0
    assert solitude.turn("other", 0, 2.0, SEND_S) == SEND_S, "until it is sent, or could not be"
    solitude.entered("one", 1, 1, 3.0)
    assert (solitude.turn("other", 0, 3.0, SEND_S), solitude.is_kept(3.0)) == (ALONE_S, True)
    assert solitude.turn("two", 1, 3.5, SEND_S) == ALONE_S / 2
    assert solitude.is_alone("one")
    assert solitude.turn("other", 0, 4.0, SEND_S) == 0
    assert (solitude.is_kept(4.0), solitude.is_alone("one")) == (False, True), "nobody has come yet"
    solitude.entered("other", 1, 0, 4.1)
    assert not solitude.is_alone("one")


def test_each_loss_gives_it_four_times_as_long() -> None:
    solitude = Solitude()
    for losses in (1, 2, 5):
        assert solitude.turn("one", losses, 0.0, SEND_S) == 0
        solitude.entered("one", 1, losses, 0.0)
        assert solitude.turn("other", 0, 0.0, SEND_S) == ALONE_S * ALONE_GROWTH ** (losses - 1)
        solitude.at_work = 0
        solitude.left("one", 0.0)
        assert not solitude.is_kept(0.0)


def test_after_a_loss_no_suspect_is_sent_to_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a kept connection, say, that breaks a moment later."""
    monkeypatch.undo()
    solitude = Solitude()
    solitude.entered("one", 1, 0, 0.0)
    solitude.at_work = 0
    solitude.lost(1.0)
    assert solitude.turn("other", 0, 1.0, SEND_S) == 0
    assert solitude.turn("one", 1, 1.1, SEND_S) == pytest.approx(SETTLE_S - 0.1)
    assert solitude.turn("one", 1, 1.0 + SETTLE_S, SEND_S) == 0


def test_a_worker_that_does_not_become_empty_is_shared() -> None:
    solitude = Solitude()
    solitude.entered("long", 1, 0, 0.0)
    assert solitude.turn("one", 1, 0.0, SEND_S) == EMPTYING_S
    assert solitude.turn("one", 1, EMPTYING_S, SEND_S) == 0
    solitude.entered("one", 1, 1, EMPTYING_S)
    assert not solitude.is_alone("one")
    assert solitude.turn("two", 1, EMPTYING_S + AGAIN_S - 1, SEND_S) == 0, "nothing is waited for again at once"
    assert solitude.turn("two", 1, EMPTYING_S + AGAIN_S, SEND_S) == EMPTYING_S


def test_a_group_over_single_requests_has_the_worker_together() -> None:
    solitude = Solitude()
    for request in ("one", "two", "three"):
        assert solitude.turn(request, 1, 0.0, SEND_S, group=3) == 0
        solitude.entered(request, 1, 1, 0.0)
    assert solitude.turn("four", 1, 0.0, SEND_S, group=3) == ALONE_S
    assert solitude.turn("other", 0, 0.0, SEND_S) == ALONE_S
    assert not any(solitude.is_alone(request) for request in ("one", "two", "three"))
    solitude.at_work -= 1
    solitude.left("one", 0.5)
    assert solitude.turn("four", 1, 0.5, SEND_S, group=3) == 0, "as one ends, the next comes in"


def test_after_a_while_of_suspects_the_worker_is_all_others() -> None:
    solitude = Solitude()
    solitude.waiting = 3
    for n in range(2):
        assert solitude.turn(n, 1, n * HELD_S / 2, SEND_S) == 0
        solitude.left(n, n * HELD_S / 2)
    assert solitude.turn("next", 1, HELD_S, SEND_S) == RECESS_S
    assert (solitude.is_kept(HELD_S), solitude.turn("other", 0, HELD_S, SEND_S)) == (False, 0)
    assert solitude.is_kept(HELD_S + RECESS_S), "they want their turn again"
    assert solitude.turn("next", 1, HELD_S + RECESS_S, SEND_S) == 0


@pytest.mark.parametrize("now_s", [0.0, 0.1, 1e6 + 0.7])
def test_suspects_of_two_workers_that_take_turns_leave_others_one_between_them(now_s: float) -> None:
    """Each waits by itself, and comes again when the other has broken: nobody else would ever get in between."""
    house, waited_s = Solitude(), 0.0
    for turn in range(6):
        house.waiting = 1
        while wait_s := house.turn(turn, 2, now_s, SEND_S):
            now_s, waited_s = now_s + wait_s, waited_s + wait_s
        house.waiting = 0
        house.entered(turn, 1, 2, now_s, "one" if turn % 2 else "two")
        now_s += 3.0  # until it breaks
        house.at_work = 0
        house.lost(now_s, turn)
        house.left(turn, now_s)
        house.waiting = 1
        kept = house.turn("next", 2, now_s + SETTLE_S, SEND_S)
        assert kept == RECESS_S, "the other came at once"
        assert not house.is_kept(now_s + SETTLE_S), "for all others meanwhile"
        now_s += SETTLE_S
    assert waited_s == pytest.approx(5 * RECESS_S), "one each, exactly on time or not"


def two_broken_hooks() -> Solitude:
    """Of two workers behind one gateway, with a healthy one beside them that has nothing to do; `a` has just broken."""
    house = Solitude()
    house.entered("a", 1, 0, 0.0, "A")
    return house


def test_what_was_sent_after_the_first_broke_was_not_in_one_process_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    suspects, house = Suspects(), two_broken_hooks()
    suspects.lost(["a"], house.lost(1.0, "a"))
    house.entered("b", 1, 0, 1.1, "B")
    suspects.lost(["b"], house.lost(1.0 + SETTLE_S / 2, "b"))
    assert suspects.extent("a") is suspects.extent("b") is Extent.OWN
    assert suspects.of("a") == suspects.of("b") == (1, 1)


@pytest.mark.parametrize("sent_later", [True, False])
def test_what_answers_between_two_that_break_lives(monkeypatch: pytest.MonkeyPatch, sent_later: bool) -> None:
    monkeypatch.undo()
    suspects, house = Suspects(), two_broken_hooks()
    house.entered("b", 1, 0, 0.0, "B")
    if not sent_later:
        house.entered("c", 1, 0, 0.0, "C")
    suspects.lost(["a"], house.lost(1.0, "a"))
    if sent_later:
        house.entered("c", 1, 0, 1.1, "C")
    house.answered("c")
    if not sent_later:
        house.lost(1.2, "c")  # its answer was on the way when the process died
    suspects.lost(["b"], house.lost(1.0 + SETTLE_S / 2, "b"))
    assert suspects.extent("a") is suspects.extent("b") is (Extent.OWN if sent_later else Extent.PERHAPS)


def test_two_that_break_in_the_same_moment_hold_up_nobody_and_a_second_time_they_are_one_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What web hooks that are broken both do, behind one door with a healthy one, looks like one death."""
    monkeypatch.undo()
    suspects, house = Suspects(), two_broken_hooks()
    places = {name: Solitude() for name in "ABC"}
    house.entered("b", 1, 0, 0.0, "B")
    suspects.lost(["a"], house.lost(1.0, "a"))
    suspects.lost(["b"], house.lost(1.0, "b"))
    house.at_work = 0
    for request in "ab":
        house.left(request, 1.0)
    assert suspects.extent("a") is suspects.extent("b") is Extent.PERHAPS

    one, two, healthy = (Stay(name, places[name], house) for name in "ABC")
    now_s = 1.0 + SETTLE_S
    perhaps: dict[str, Any] = {"jobs": 1, "group": 1, "extent": Extent.PERHAPS}
    healthy.entered(1, 0, now_s)  # it is at work, for long: nothing is emptied of it
    with one.waiting(1, Extent.PERHAPS), two.waiting(1, Extent.PERHAPS):
        assert one.turn(1, now_s, SEND_S, **perhaps) == 0
        one.entered(1, 1, now_s)
        assert places["B"].is_kept(now_s), "it becomes empty for its suspect"
        assert two.turn(1, now_s, SEND_S, **perhaps) == ALONE_S, "one worker's at a time"
        assert not places["B"].is_kept(now_s), "it need not yet"
        another = Stay("C", places["C"], house)
        assert another.turn(0, now_s, SEND_S, jobs=1, group=1, extent=Extent.OWN) == 0
        assert not any(place.is_kept(now_s) for place in (house, places["C"])), "the healthy one goes on"
    assert (places["A"].waiting, places["B"].waiting) == (0, 0)
    suspects.lost(["a"], one.lost(now_s + 0.5))
    one.left(now_s + 0.5)
    assert suspects.extent("a") is Extent.OWN, "it spared what was at work there"

    now_s += 0.5 + SETTLE_S
    assert two.turn(1, now_s, SEND_S, **perhaps) == 0
    two.entered(1, 1, now_s)
    suspects.lost(["b"], two.lost(now_s))
    suspects.lost(["c"], healthy.lost(now_s))
    assert (suspects.extent("b"), suspects.extent("c")) == (Extent.ALL, Extent.PERHAPS)


def test_suspects_of_one_worker_do_not_keep_those_of_another_away_for_long() -> None:
    house = Solitude()
    stays = {number: Stay("A", Solitude(), house) for number in range(4)}
    for number, stay in stays.items():
        now_s = number * 0.4
        assert (house.others_s("A", now_s) == 0) == (now_s < HELD_S)
        house.bear(stay, "A", now_s, SEND_S)
        house.entered(stay, 1, 1, now_s, "A")
    assert house.others_s("B", 1.2) == pytest.approx(3 * 0.4 + ALONE_S - 1.2)
    assert house.others_s("B", 3 * 0.4 + ALONE_S) == 0, "then others' come in beside them"
    house.bear(stays[0], "A", 5.0, SEND_S)
    house.entered(stays[0], 1, 9, 5.0, "A")
    assert house.others_s("B", 5.0 + EMPTYING_S) == 0, "also beside one that was lost often"
    house.left(stays[0], 8.0)
    house.bear("never sent", "A", 9.0, SEND_S)
    assert house.others_s("B", 9.0) == HELD_S, "asked again"
    house.left("never sent", 9.0)
    assert house.others_s("B", 9.0) == 0


def test_a_suspect_that_was_withdrawn_waits_no_longer_for_an_empty_worker() -> None:
    solitude = Solitude()
    solitude.entered("long", 1, 0, 0.0)
    assert solitude.turn("one", 1, 0.0, SEND_S) == EMPTYING_S
    solitude.left("one", EMPTYING_S)
    assert solitude.turn("two", 1, EMPTYING_S * 2, SEND_S) == EMPTYING_S, "the time of another is not its own"


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.floats(0, 10)), max_size=60),
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_whoever_is_alone_was_so_from_the_beginning(
    moves: list[tuple[int, int, float]], group: int, waiting: int
) -> None:
    solitude, now_s = Solitude(), 0.0
    solitude.waiting = waiting
    out: dict[int, set[int]] = {}  # request → all that were at work beside it
    for request, losses, seconds in moves:
        now_s += seconds
        if request in out:
            assert solitude.is_alone(request) <= (not out[request])
            solitude.at_work -= 1
            del out[request]
            solitude.left(request, now_s)
        elif not solitude.turn(request, losses, now_s, SEND_S, group=group):
            solitude.entered(request, 1, losses, now_s)
            for others in out.values():
                others.add(request)
            out[request] = {*out} - {request}
    assert solitude.at_work == len(out)


# ------------------------------------------------ in a runner


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
        house.runner.out_of_hand([(held.job.id, first.fence)])
        (last,) = await house.run_out([msgspec.structs.replace(held, fence=first.fence + 1, attempt=2)])
        assert (last.fate, len(worker.requests)) == (Fate.DEAD, 3)
        assert house.runner._gates.suspects.of(held.job.id) is None


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
        house_suspects = house.runner._gates.suspects
        house_suspects.lost(ids(held))
        card = house.register(worker.url)
        house.run(held)
        await worker.request(0)
        house.workers.unregister(card.id)
        go_on.set()
        await house.stopped(1)
        assert house.returned == ids(held)
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
        house.runner._gates.suspects.lost(ids(suspect))
        house.run(suspect)
        await worker.request(0)
        assert house.runner.offer("mail", 0) is None
        assert house.runner.wanted() == []
        clock.advance(ALONE_S)
        await house.run_to_end(hold(3))
        hang.set()
        await house.stopped(4)


async def test_what_two_workers_lost_together_twice_was_one_process_and_its_suspects_have_all_of_it(
    open_house: OpenHouse,
) -> None:
    """One that was killed and started again on its port has a new id, and the old one is known for a while."""
    replies: list[Reply] = []

    async def script(request: Request, reply: Reply) -> None:
        replies.append(reply)
        await trio.sleep_forever()

    async with open_worker(script) as worker, open_house() as house:
        old, new = (house.register(worker.url, name=name, batch=1) for name in ("old", "new"))
        known = house.runner._gates.suspects
        first, (suspect,) = hold(1), hold(1)
        for round_, extent in enumerate((Extent.PERHAPS, Extent.ALL)):
            house.runner.run_jobs(old.id, "mail", first)
            house.runner.run_jobs(new.id, "mail", [suspect])
            await worker.request(2 * round_ + 1)
            await trio.testing.wait_all_tasks_blocked()  # both are in `replies`
            for reply in replies:
                await reply.reset()
            replies.clear()
            await house.stopped(2 * round_ + 2)
            assert known.extent(suspect.job.id) is extent
            house.runner.out_of_hand(claims([*first, suspect]))
            first = hold(1)
            await trio.sleep(2 * suspects_module.SETTLE_S)
        house.runner.run_jobs(old.id, "mail", first)
        await worker.request(4)
        house.runner.run_jobs(new.id, "mail", [suspect])
        await trio.testing.wait_all_tasks_blocked()
        assert len(worker.requests) == 5, "it waits for the other to end"
        assert house.runner.offer("mail", 0) is None
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
        house.runner._gates.suspects.lost(ids(suspect))
        (outcome,) = await house.run_out(suspect)
        assert outcome.fate is Fate.SUCCEEDED
        assert house.runner._gates.at(worker.url.split("/")[2])[0].solitude.at_work == 0


async def test_a_suspect_that_waits_is_let_go(open_house: OpenHouse) -> None:
    async def hang(request: Request, reply: Reply) -> None:
        await trio.sleep_forever()

    async with open_worker(hang) as worker, open_house() as house:
        card = house.register(worker.url, batch=1)
        house.run(hold(1))
        await worker.request(0)
        suspects = hold(2)
        house.runner._gates.suspects.lost(ids(suspects))
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
