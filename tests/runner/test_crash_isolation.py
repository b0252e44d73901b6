"""Who is a suspect, and when it has a worker to itself. In a runner: test_deaths.py."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.runner.crash_isolation import (
    AGAIN_S,
    ALONE_GROWTH,
    ALONE_S,
    EMPTYING_S,
    HELD_S,
    RECESS_S,
    SETTLE_S,
    SUSPECTS_MAX,
    CrashIsolation,
    Extent,
    Isolation,
)
from jqd.runner.crash_site import IsolatedRequest

SEND_S = 5.0

# ------------------------------------------------ who is remembered


def test_a_group_is_cut_until_each_is_by_itself() -> None:
    suspects = CrashIsolation()
    names = [f"{n}" for n in range(100)]
    suspects.lost(names)
    assert {suspects.of(name) for name in names} == {(1, 12)}
    suspects.lost(names[:12])
    suspects.lost(names[:1])
    assert [suspects.of(name) for name in ("0", "1", "12")] == [(3, 1), (2, 1), (1, 12)]
    suspects.cleared(["1"])
    assert suspects.of("1") is None


def test_what_breaks_together_is_one_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty requests of one job each are as good as one of forty; what is lost again is cut further all the same."""
    monkeypatch.undo()
    suspects, isolation = CrashIsolation(), Isolation()
    for n in range(40):
        suspects.lost([f"{n}"], isolation.lost(n * SETTLE_S / 40))
    assert {suspects.of(f"{n}") for n in range(40)} == {(1, 5)}
    suspects.lost(["40"], isolation.lost(SETTLE_S))
    assert suspects.of("40") == (1, 1)
    again = isolation.lost(9.0)
    for n in range(40):
        suspects.lost([f"{n}"], again)
    assert {suspects.of(f"{n}") for n in range(40)} == {(2, 1)}


def test_so_many_are_remembered() -> None:
    suspects = CrashIsolation()
    suspects.lost(["first"])
    suspects.lost([f"{n}" for n in range(SUSPECTS_MAX)])
    assert suspects.of("first") is None
    assert suspects.of("0") is not None


# ------------------------------------------------ who has a worker to itself


def test_a_suspect_waits_for_an_empty_worker_and_has_it_for_a_while() -> None:
    isolation = Isolation()
    isolation.entered("other", 2, 0, 0.0)
    isolation.waiting = 1
    assert isolation.admit_or_wait_s("one", 1, 1.0, SEND_S) == EMPTYING_S
    assert isolation.is_kept(1.0)
    isolation.at_work -= 2
    assert isolation.admit_or_wait_s("one", 1, 2.0, SEND_S) == 0
    isolation.waiting = 0
    assert isolation.admit_or_wait_s("other", 0, 2.0, SEND_S) == SEND_S, "until it is sent, or could not be"
    isolation.entered("one", 1, 1, 3.0)
    assert (isolation.admit_or_wait_s("other", 0, 3.0, SEND_S), isolation.is_kept(3.0)) == (ALONE_S, True)
    assert isolation.admit_or_wait_s("two", 1, 3.5, SEND_S) == ALONE_S / 2
    assert isolation.is_alone("one")
    assert isolation.admit_or_wait_s("other", 0, 4.0, SEND_S) == 0
    assert (isolation.is_kept(4.0), isolation.is_alone("one")) == (False, True), "nobody has come yet"
    isolation.entered("other", 1, 0, 4.1)
    assert not isolation.is_alone("one")


def test_each_loss_gives_it_four_times_as_long() -> None:
    isolation = Isolation()
    for losses in (1, 2, 5):
        assert isolation.admit_or_wait_s("one", losses, 0.0, SEND_S) == 0
        isolation.entered("one", 1, losses, 0.0)
        assert isolation.admit_or_wait_s("other", 0, 0.0, SEND_S) == ALONE_S * ALONE_GROWTH ** (losses - 1)
        isolation.at_work = 0
        isolation.left("one", 0.0)
        assert not isolation.is_kept(0.0)


def test_after_a_loss_no_suspect_is_sent_to_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a kept connection, say, that breaks a moment later."""
    monkeypatch.undo()
    isolation = Isolation()
    isolation.entered("one", 1, 0, 0.0)
    isolation.at_work = 0
    isolation.lost(1.0)
    assert isolation.admit_or_wait_s("other", 0, 1.0, SEND_S) == 0
    assert isolation.admit_or_wait_s("one", 1, 1.1, SEND_S) == pytest.approx(SETTLE_S - 0.1)
    assert isolation.admit_or_wait_s("one", 1, 1.0 + SETTLE_S, SEND_S) == 0


def test_who_is_sent_to_a_process_that_is_dying_does_not_pay_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suspect of another path of it, that waited while one had all of it to itself."""
    monkeypatch.undo()
    house = Isolation()
    poison, other = (IsolatedRequest(path, Isolation(), house) for path in "AB")
    assert poison.admit_or_wait_s(2, 0.0, SEND_S, jobs=1, group=1, extent=Extent.ALL) == 0
    poison.entered(1, 2, 0.0)
    assert other.admit_or_wait_s(1, 0.1, SEND_S, jobs=1, group=1, extent=Extent.OWN) > 0
    poison.lost(0.1)
    poison.fewer(1)
    poison.left(0.1)
    assert other.admit_or_wait_s(1, 0.1, SEND_S, jobs=1, group=1, extent=Extent.OWN) == 0
    other.entered(1, 1, 0.1)
    assert not other.is_alone()


def test_a_worker_that_does_not_become_empty_is_shared() -> None:
    isolation = Isolation()
    isolation.entered("long", 1, 0, 0.0)
    assert isolation.admit_or_wait_s("one", 1, 0.0, SEND_S) == EMPTYING_S
    assert isolation.admit_or_wait_s("one", 1, EMPTYING_S, SEND_S) == 0
    isolation.entered("one", 1, 1, EMPTYING_S)
    assert not isolation.is_alone("one")
    assert isolation.admit_or_wait_s("two", 1, EMPTYING_S + AGAIN_S - 1, SEND_S) == 0, (
        "nothing is waited for again at once"
    )
    assert isolation.admit_or_wait_s("two", 1, EMPTYING_S + AGAIN_S, SEND_S) == EMPTYING_S


def test_a_group_over_single_requests_has_the_worker_together() -> None:
    isolation = Isolation()
    for request in ("one", "two", "three"):
        assert isolation.admit_or_wait_s(request, 1, 0.0, SEND_S, group=3) == 0
        isolation.entered(request, 1, 1, 0.0)
    assert isolation.admit_or_wait_s("four", 1, 0.0, SEND_S, group=3) == ALONE_S
    assert isolation.admit_or_wait_s("other", 0, 0.0, SEND_S) == ALONE_S
    assert not any(isolation.is_alone(request) for request in ("one", "two", "three"))
    isolation.at_work -= 1
    isolation.left("one", 0.5)
    assert isolation.admit_or_wait_s("four", 1, 0.5, SEND_S, group=3) == 0, "as one ends, the next comes in"


def test_who_is_to_be_alone_is_not_joined_by_one_of_a_larger_group() -> None:
    isolation = Isolation()
    assert isolation.admit_or_wait_s("alone", 2, 0.0, SEND_S) == 0
    assert isolation.admit_or_wait_s("two", 1, 0.0, SEND_S, group=2) == SEND_S
    isolation.entered("alone", 1, 2, 1.0)
    assert isolation.admit_or_wait_s("two", 1, 1.0, SEND_S, group=2) == ALONE_S * ALONE_GROWTH
    assert isolation.is_alone("alone")


def test_a_suspect_waits_for_who_connects_already() -> None:
    own, house = Isolation(), Isolation()
    other, suspect = (IsolatedRequest("A", own, house) for _ in range(2))
    assert other.admit_or_wait_s(0, 0.0, SEND_S, jobs=9, group=1, extent=Extent.OWN) == 0
    assert suspect.admit_or_wait_s(1, 0.0, SEND_S, jobs=1, group=1, extent=Extent.OWN) == EMPTYING_S
    other.entered(9, 0, 1.0)
    other.fewer(9)
    other.left(1.0)
    assert suspect.admit_or_wait_s(1, 1.0, SEND_S, jobs=1, group=1, extent=Extent.OWN) == 0
    suspect.left(1.0)
    assert other.admit_or_wait_s(0, 2.0, SEND_S, jobs=9, group=1, extent=Extent.OWN) == 0
    other.left(2.0)  # it could not connect
    assert suspect.admit_or_wait_s(1, 2.0, SEND_S, jobs=1, group=1, extent=Extent.OWN) == 0


def test_after_a_while_of_suspects_the_worker_is_all_others() -> None:
    isolation = Isolation()
    isolation.waiting = 3
    for n in range(2):
        assert isolation.admit_or_wait_s(n, 1, n * HELD_S / 2, SEND_S) == 0
        isolation.left(n, n * HELD_S / 2)
    assert isolation.admit_or_wait_s("next", 1, HELD_S, SEND_S) == RECESS_S
    assert (isolation.is_kept(HELD_S), isolation.admit_or_wait_s("other", 0, HELD_S, SEND_S)) == (False, 0)
    assert isolation.is_kept(HELD_S + RECESS_S), "they want their turn again"
    assert isolation.admit_or_wait_s("next", 1, HELD_S + RECESS_S, SEND_S) == 0


@pytest.mark.parametrize("now_s", [0.0, 0.1, 1e6 + 0.7])
def test_suspects_of_two_workers_that_take_turns_leave_others_one_between_them(now_s: float) -> None:
    """Each waits by itself, and comes again when the other has broken: nobody else would ever get in between."""
    house, waited_s = Isolation(), 0.0
    for turn in range(6):
        house.waiting = 1
        while wait_s := house.admit_or_wait_s(turn, 2, now_s, SEND_S):
            now_s, waited_s = now_s + wait_s, waited_s + wait_s
        house.waiting = 0
        house.entered(turn, 1, 2, now_s, "one" if turn % 2 else "two")
        now_s += 3.0  # until it breaks
        house.at_work = 0
        house.lost(now_s, turn)
        house.left(turn, now_s)
        house.waiting = 1
        kept = house.admit_or_wait_s("next", 2, now_s + SETTLE_S, SEND_S)
        assert kept == RECESS_S, "the other came at once"
        assert not house.is_kept(now_s + SETTLE_S), "for all others meanwhile"
        now_s += SETTLE_S
    assert waited_s == pytest.approx(5 * RECESS_S), "one each, exactly on time or not"


def two_broken_hooks() -> Isolation:
    """Of two workers behind one gateway, with a healthy one beside them that has nothing to do; `a` has just broken."""
    house = Isolation()
    house.entered("a", 1, 0, 0.0, "A")
    return house


def test_what_was_sent_after_the_first_broke_was_not_in_one_process_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    suspects, house = CrashIsolation(), two_broken_hooks()
    suspects.lost(["a"], house.lost(1.0, "a"))
    house.entered("b", 1, 0, 1.1, "B")
    suspects.lost(["b"], house.lost(1.0 + SETTLE_S / 2, "b"))
    assert suspects.extent(["a"]) is suspects.extent(["b"]) is Extent.OWN
    assert suspects.of("a") == suspects.of("b") == (1, 1)


@pytest.mark.parametrize("sent_later", [True, False])
def test_what_answers_between_two_that_break_lives(monkeypatch: pytest.MonkeyPatch, sent_later: bool) -> None:
    monkeypatch.undo()
    suspects, house = CrashIsolation(), two_broken_hooks()
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
    assert suspects.extent(["a"]) is suspects.extent(["b"]) is (Extent.OWN if sent_later else Extent.PERHAPS)


def test_two_that_break_in_the_same_moment_hold_up_nobody_and_a_second_time_they_are_one_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What web hooks that are broken both do, behind one door with a healthy one, looks like one death."""
    monkeypatch.undo()
    suspects, house = CrashIsolation(), two_broken_hooks()
    places = {name: Isolation() for name in "ABC"}
    house.entered("b", 1, 0, 0.0, "B")
    suspects.lost(["a"], house.lost(1.0, "a"))
    suspects.lost(["b"], house.lost(1.0, "b"))
    house.at_work = 0
    for request in "ab":
        house.left(request, 1.0)
    assert suspects.extent(["a"]) is suspects.extent(["b"]) is Extent.PERHAPS

    one, two, healthy = (IsolatedRequest(name, places[name], house) for name in "ABC")
    now_s = 1.0 + SETTLE_S
    perhaps: dict[str, Any] = {"jobs": 1, "group": 1, "extent": Extent.PERHAPS}
    healthy.entered(1, 0, now_s)  # it is at work, for long: nothing is emptied of it
    places["B"].entered("beside", 1, 0, now_s)
    assert two.admit_or_wait_s(1, now_s, SEND_S, **perhaps) == EMPTYING_S
    assert places["B"].is_kept(now_s), "it becomes empty for its suspect"
    assert one.admit_or_wait_s(1, now_s, SEND_S, **perhaps) == 0
    one.entered(1, 1, now_s)
    assert two.admit_or_wait_s(1, now_s, SEND_S, **perhaps) == ALONE_S, "one worker's at a time"
    assert not places["B"].is_kept(now_s), "it need not yet"
    another = IsolatedRequest("C", places["C"], house)
    assert another.admit_or_wait_s(0, now_s, SEND_S, jobs=1, group=1, extent=Extent.OWN) == 0
    assert not any(place.is_kept(now_s) for place in (house, places["C"])), "the healthy one goes on"
    places["B"].at_work = 0
    places["B"].left("beside", now_s)
    assert (places["A"].waiting, places["B"].waiting) == (0, 0)
    suspects.lost(["a"], one.lost(now_s + 0.5))
    one.left(now_s + 0.5)
    assert suspects.extent(["a"]) is Extent.OWN, "it spared what was at work there"

    now_s += 0.5 + SETTLE_S
    assert two.admit_or_wait_s(1, now_s, SEND_S, **perhaps) == 0
    two.entered(1, 1, now_s)
    suspects.lost(["b"], two.lost(now_s))
    suspects.lost(["c"], healthy.lost(now_s))
    assert (suspects.extent(["b"]), suspects.extent(["c"])) == (Extent.ALL, Extent.PERHAPS)


def test_suspects_of_one_worker_do_not_keep_those_of_another_away_for_long() -> None:
    house = Isolation()
    stays = {number: IsolatedRequest("A", Isolation(), house) for number in range(4)}
    for number, stay in stays.items():
        now_s = number * 0.4
        assert (house.others_s("A", now_s) == 0) == (now_s < HELD_S)
        house.hold_others(stay, "A", now_s, SEND_S)
        house.entered(stay, 1, 1, now_s, "A")
    assert house.others_s("B", 1.2) == pytest.approx(3 * 0.4 + ALONE_S - 1.2)
    assert house.others_s("B", 3 * 0.4 + ALONE_S) == 0, "then others' come in beside them"
    house.hold_others(stays[0], "A", 5.0, SEND_S)
    house.entered(stays[0], 1, 9, 5.0, "A")
    assert house.others_s("B", 5.0 + EMPTYING_S) == 0, "also beside one that was lost often"
    house.left(stays[0], 8.0)
    house.hold_others("never sent", "A", 9.0, SEND_S)
    assert house.others_s("B", 9.0) == HELD_S, "asked again"
    house.left("never sent", 9.0)
    assert house.others_s("B", 9.0) == 0


def test_a_suspect_that_was_withdrawn_waits_no_longer_for_an_empty_worker() -> None:
    isolation = Isolation()
    isolation.entered("long", 1, 0, 0.0)
    assert isolation.admit_or_wait_s("one", 1, 0.0, SEND_S) == EMPTYING_S
    isolation.left("one", EMPTYING_S)
    assert isolation.admit_or_wait_s("two", 1, EMPTYING_S * 2, SEND_S) == EMPTYING_S, (
        "the time of another is not its own"
    )


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.floats(0, 10)), max_size=60),
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_whoever_is_alone_was_so_from_the_beginning(
    moves: list[tuple[int, int, float]], group: int, waiting: int
) -> None:
    isolation, now_s = Isolation(), 0.0
    isolation.waiting = waiting
    out: dict[int, set[int]] = {}  # request → all that were at work beside it
    for request, losses, seconds in moves:
        now_s += seconds
        if request in out:
            assert isolation.is_alone(request) <= (not out[request])
            isolation.at_work -= 1
            del out[request]
            isolation.left(request, now_s)
        elif not isolation.admit_or_wait_s(request, losses, now_s, SEND_S, group=group):
            isolation.entered(request, 1, losses, now_s)
            for others in out.values():
                others.add(request)
            out[request] = {*out} - {request}
    assert isolation.at_work == len(out)
