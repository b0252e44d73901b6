"""Who is a suspect, and when it has a worker to itself. In a runner: test_deaths.py."""

import pytest

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
    Isolation,
)

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
    assert isolation.admit_or_wait_s("other", 0, 4.0, SEND_S) == 0
    assert not isolation.is_kept(4.0)


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


def test_a_worker_that_does_not_become_empty_is_shared() -> None:
    isolation = Isolation()
    isolation.entered("long", 1, 0, 0.0)
    assert isolation.admit_or_wait_s("one", 1, 0.0, SEND_S) == EMPTYING_S
    assert isolation.admit_or_wait_s("one", 1, EMPTYING_S, SEND_S) == 0
    isolation.entered("one", 1, 1, EMPTYING_S)
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
    isolation.at_work -= 1
    isolation.left("one", 0.5)
    assert isolation.admit_or_wait_s("four", 1, 0.5, SEND_S, group=3) == 0, "as one ends, the next comes in"


def test_who_is_to_be_alone_is_not_joined_by_one_of_a_larger_group() -> None:
    isolation = Isolation()
    assert isolation.admit_or_wait_s("alone", 2, 0.0, SEND_S) == 0
    assert isolation.admit_or_wait_s("two", 1, 0.0, SEND_S, group=2) == SEND_S
    isolation.entered("alone", 1, 2, 1.0)
    assert isolation.admit_or_wait_s("two", 1, 1.0, SEND_S, group=2) == ALONE_S * ALONE_GROWTH


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
        house.entered(turn, 1, 2, now_s)
        now_s += 3.0  # until it breaks
        house.at_work = 0
        house.lost(now_s)
        house.left(turn, now_s)
        house.waiting = 1
        kept = house.admit_or_wait_s("next", 2, now_s + SETTLE_S, SEND_S)
        assert kept == RECESS_S, "the other came at once"
        assert not house.is_kept(now_s + SETTLE_S), "for all others meanwhile"
        now_s += SETTLE_S
    assert waited_s == pytest.approx(5 * RECESS_S), "one each, exactly on time or not"


def test_a_suspect_that_was_withdrawn_waits_no_longer_for_an_empty_worker() -> None:
    isolation = Isolation()
    isolation.entered("long", 1, 0, 0.0)
    assert isolation.admit_or_wait_s("one", 1, 0.0, SEND_S) == EMPTYING_S
    isolation.left("one", EMPTYING_S)
    assert isolation.admit_or_wait_s("two", 1, EMPTYING_S * 2, SEND_S) == EMPTYING_S, (
        "the time of another is not its own"
    )
