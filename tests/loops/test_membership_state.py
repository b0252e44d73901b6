"""Where a daemon stands with its store: every event in every state that can be reached, and what is said in each."""

from collections.abc import Callable

import pytest

from jqd.domain.lease import LeaseConfig
from jqd.loops import membership_state
from jqd.loops.membership import Membership
from jqd.loops.membership_state import Joined, Left, Looked, Out, Past, State, Suspect, Through
from jqd.store import Member, Owner, Renewed, StoreLook
from jqd.testing.clock import ManualClock

LIVES = ("A", "B")
OWNER = Owner("d1", 7)
SECOND = (False, True)
ILLEGAL = {("begin_sync", Through), ("joined", Through), ("mark_through", Through), ("mark_through", Looked)}
"""What the barrier cannot tell: it looks, sits down and comes through once after each disturbance."""

Event = tuple[str, Callable[[Membership], object]]


def moved(state: State, event: Callable[[Membership], object]) -> State:
    """What becomes of it."""
    membership = Membership("d1", LeaseConfig(), ManualClock(), sole=False)
    membership.state = state
    event(membership)
    return membership.state


def renewed(*waits_for: str, settled: bool) -> Event:
    members = {sysid: Member(1, 1, through=False) for sysid in waits_for}
    return "renewed", lambda here: here.renewed(
        0.0, Renewed({"d1": Member(1, 7, through=False)} | members, settled, [])
    )


def looked(life: str, settled: bool) -> Event:
    return "begin_sync", lambda here: here.begin_sync(StoreLook(life, settled))


EVENTS: tuple[Event, ...] = (
    *(looked(life, settled) for life in LIVES for settled in SECOND),
    *(renewed(*waits_for, settled=settled) for waits_for in ((), ("d2",)) for settled in SECOND),
    ("joined", lambda here: here.joined(OWNER)),
    ("mark_through", Membership.mark_through),
    ("disturbed", Membership.disturbed),
    ("rolled_back", Membership.rolled_back),
    ("resigned", Membership.resigned),
    ("left", Membership.leave),
)
ON = {"begin_sync", "joined", "mark_through", "renewed"}  # what a daemon does when nothing befalls it


def reached(start: State, events: set[str] | None = None) -> dict[State, list[tuple[str, State]]]:
    """All states that these events lead to, and the steps from each."""
    found: dict[State, list[tuple[str, State]]] = {}
    left = [start]
    while left:
        state = left.pop()
        if state in found:
            continue
        found[state] = []
        for name, event in EVENTS:
            if events is not None and name not in events:
                continue
            if (name, type(state)) in ILLEGAL:
                with pytest.raises(AssertionError):
                    moved(state, event)
                continue
            after = moved(state, event)
            found[state].append((name, after))
            left.append(after)
    return found


START = Out(Past.START)
WALK = reached(START)


def said(state: State, *, trusted: bool, waited: bool) -> str | None:
    return membership_state.not_ready_reason(state, trusted=trusted, waited=waited, lease_s=10.0)


def claims(state: State, *, waited: bool = True) -> bool:
    return said(state, trusted=True, waited=waited) is None


def test_who_may_not_claim_says_why_and_only_who_is_through_with_all_others_may() -> None:
    assert {type(state) for state in WALK} == {Out, Suspect, Looked, Joined, Through, Left}
    for state in WALK:
        for trusted in SECOND:
            for waited in SECOND:
                why = said(state, trusted=trusted, waited=waited)
                ready = isinstance(state, Through) and state.known.waits_for == ()
                assert (why is None) == (trusted and ready and (waited or state.known.settled))  # type: ignore[union-attr]
                assert why is None or len(why.split()) > 6
                assert membership_state.is_settled(state, waited=waited) == (
                    said(state, trusted=True, waited=waited) is None
                )


def test_each_state_says_something_else() -> None:
    texts: dict[str | None, set[str]] = {}
    for state in WALK:
        past = getattr(state, "past", "")
        name = f"{type(state).__name__} {past if isinstance(past, Past) else ''}"
        texts.setdefault(said(state, trusted=True, waited=False), set()).add(name)
    assert all(len(names) == 1 for names in texts.values()), texts
    waiting = [text for text, names in texts.items() if text and names == {"Through "}]
    assert len(waiting) == 3, "nobody heard of, another is waited for, a lease is waited for"
    assert any("d2" in text for text in waiting), "by name"


def test_from_every_state_a_daemon_comes_to_claim_unless_it_has_left() -> None:
    for state in WALK:
        if not isinstance(state, Left):
            assert any(claims(each) for each in reached(state, ON)), state
    assert set(reached(Left())) == {Left()}, "nothing brings it back"


def test_whatever_befalls_a_daemon_it_claims_only_after_it_has_come_through_again() -> None:
    for state, steps in WALK.items():
        for name, after in steps:
            if claims(after) and not claims(state):
                assert name in ("renewed", "mark_through"), f"{name} of {state}: the others may not be through"
            if name in ("disturbed", "resigned", "left") or (name == "rolled_back" and after != state):
                assert not isinstance(after, Looked | Joined | Through)


def test_a_life_is_ended_only_by_who_knew_it_and_what_it_forgot_is_no_news_in_another() -> None:
    for state, steps in WALK.items():
        suspects = {after for name, after in steps if name == "rolled_back" and isinstance(after, Suspect)}
        if isinstance(state, Through):
            assert suspects == {Suspect(state.known.life)}
        elif isinstance(state, Looked | Joined):
            past, no_news = state.back.past, state.back.past not in (Past.START, state.known.life)
            assert suspects == ({Suspect(past)} if isinstance(past, str) and not no_news else set())
            assert no_news == any(name == "rolled_back" and after == state for name, after in steps)


def test_the_answer_to_a_look_from_before_a_disturbance_says_nothing() -> None:
    """It would hide that the life has to be ended: the others would never notice what the store forgot."""
    membership = Membership("d1", LeaseConfig(), ManualClock(), sole=False)
    look = StoreLook("A", settled=True)
    disturbance = membership.watch_disturbance()
    membership.begin_sync(look)
    membership.joined(OWNER)
    membership.mark_through()
    assert membership.rolled_back()
    assert disturbance.is_set()
    membership.watch_disturbance()
    assert membership.rolled_back(), "once more, while it is looked at anew"
    membership.begin_sync(look)
    assert membership.life_to_end == "A"


async def test_who_has_left_sits_down_no_more() -> None:
    membership = Membership("d1", LeaseConfig(), ManualClock(), sole=False)
    membership.begin_sync(StoreLook("A", settled=True))
    membership.joined(OWNER)
    assert membership.leave() == OWNER
    membership.joined(Owner("d1", 8))
    membership.disturbed()
    assert (membership.joined_as, membership.has_left, membership.rolled_back()) == (None, True, False)
