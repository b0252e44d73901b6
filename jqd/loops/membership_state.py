"""The six states of this daemon's membership in its store: may it claim jobs, and if not, why not?

    Out ────looked───▶ Looked ──joined─────▶ Joined ──mark_through──▶ Through ──▶ claims, as soon as
    Suspect ─looked──▶   │  ▲                  │                         │         the lease is trusted,
     ▲  ▲                │  └─ looked          │                         │         all others are through, and
     │  └─ rolled_back ──┴─────────────────────┴─────────────────────────┤         it is settled, or a lease has passed
    Out ◀─ disturbed, resigned ── from any of them ◀─────────────────────┘    Left ◀── left ── from any, for good

    looked        recovery  the daemon knows which life of the store answers. A daemon that just started, and finds a
                            settled life, catches up before it joins, so that nobody waits for it
    joined        recovery  the store made it a member, under an epoch. All daemons wait until it is through
    mark_through  recovery  the store has applied all ends and changes of jobs in its journal: it is through recovery
    mark_restored recovery  and all other jobs: until then no daemon answers that a job, unique key or member of a
                            group does not exist
    renewed       heartbeat the store confirmed the lease, and said who is not through and whether the life is settled
    disturbed     heartbeat, dispatch   another life of the store answers, or the store took our epoch away
    rolled_back   ingest    the store has less than before, in a life that seems the same: that life is ended
    resigned      recovery  our journal cannot be read while others wait, or takes no outcomes: others go on without us
    left          shutdown

A new life is settled one lease after it began at the earliest: meanwhile living daemons that have not noticed it yet
claim again the jobs that they hold. A daemon that joins a settled life waits for nobody. `Membership` has a method for
each event; a test tries all events in all states.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from jqd.store import Owner

NAMED_MAX = 3  # of the daemons that are waited for: an operator examines one after the other


class Past(Enum):
    """Why this daemon has not come through recovery in any life of the store (time without a loss of its data)."""

    START = "start"
    RESIGNED = "resigned"


class Known(NamedTuple):
    """What is known of the store's life (the time since it last lost data), by its last answer."""

    life: str
    looked_at_s: float
    settled: bool
    """Whether the store has noted that all daemons came through recovery in this life."""
    waits_for: tuple[str, ...] | None = None
    """Daemons that are not through recovery; None before the first renewal was answered."""
    behind: tuple[str, ...] = ()
    """Daemons that still apply jobs again that the store forgot; claims do not wait for these."""


@dataclass(frozen=True, slots=True)
class Out:
    """State: it is not known which life of the store answers."""

    past: Past | str
    """The life in which this daemon last came through recovery, or why there is none."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """State: the store lost data, but still reports the same life (the time from one loss of its data to the next).
    `recovery` then begins a new life, so that all daemons notice the loss. `past`: the life that it ends."""

    past: str


@dataclass(frozen=True, slots=True)
class Looked:
    """State: the life of the store is known, but this daemon is not a member of it."""

    back: Out
    """The state that follows a disturbance."""
    known: Known


@dataclass(frozen=True, slots=True)
class Joined:
    """State: this daemon is a member, and all daemons wait until its journal's outcomes are applied."""

    back: Out
    known: Known
    owner: Owner


@dataclass(frozen=True, slots=True)
class Through:
    """State: through recovery, as the store has applied all ends and changes of jobs in our journal."""

    known: Known
    owner: Owner
    restored: bool = False
    """Whether it has also applied all other jobs that our journal had when recovery began."""


@dataclass(frozen=True, slots=True)
class Left:
    """State: this daemon stops, and does not join again."""

    past: Past = Past.START


State = Out | Suspect | Looked | Joined | Through | Left


def back(state: State) -> Out | Suspect | Left:
    """Return the state that follows a disturbance, after which nothing is known of the store."""
    match state:
        case Looked() | Joined():
            return state.back
        case Through():
            return Out(state.known.life)
    return state


def is_settled(state: State, *, waited: bool) -> bool:
    """Return whether all daemons are through recovery, so that no old record can be applied. `waited`: whether a lease
    has passed since this life of the store was first seen."""
    return isinstance(state, Through) and state.known.waits_for == () and (state.known.settled or waited)


def behind_reason(state: State) -> str | None:
    """Return a sentence for health: what waits until daemons have applied their jobs again; None: nothing waits."""
    if not isinstance(state, Joined | Through) or not state.known.behind:
        return None
    return (
        f"the store is told again the jobs that it forgot, by {_names(state.known.behind)}: meanwhile pushes with "
        "unique keys and closes of groups are refused, and what waits for a job that is not there goes on waiting. "
        "Look at the health of that daemon"
    )


def _names(daemons: tuple[str, ...]) -> str:
    more = len(daemons) - NAMED_MAX
    return f"{', '.join(daemons[:NAMED_MAX])}{f' and {more} more' if more > 0 else ''}"


def not_ready_reason(state: State, *, trusted: bool, waited: bool, lease_s: float) -> str | None:
    """Return why no jobs may be claimed, for `/readyz` and the log; None: they may."""
    match state:
        case Out(Past.START):
            return "this daemon has not looked at the store yet since it started"
        case Out(Past.RESIGNED):
            return (
                "this daemon gave up its membership in the store, because its journal could not be read while all "
                "others waited for it, or took no outcomes: look at its disk and its log. It comes back when it can be "
                "read"
            )
        case Out():
            return "the store changed, or took this daemon for dead: this daemon looks at it again before it claims"
        case Suspect():
            return "the store forgot something, as after an old copy was put back: this daemon tells all others so"
        case Looked():
            return "this daemon joins the store as soon as what its journal knows of ended jobs is applied there"
        case Joined():
            return "the store may have forgotten how jobs ended: this daemon's journal is applied to it again first"
        case Left():
            return "this daemon has left the store: it shuts down"
    if not trusted:
        return f"the store has not confirmed this daemon's lease ({lease_s:g} s) in time: nothing is started meanwhile"
    if state.known.waits_for is None:
        return "the store has not said yet whether another daemon is to be waited for"
    if state.known.waits_for:
        return (
            "another daemon applies what the store forgot, and claims wait for it: "
            f"{_names(state.known.waits_for)} (`jqd daemons` lists them)"
        )
    if not (state.known.settled or waited):
        return f"the store is back: claims wait one lease ({lease_s:g} s) for daemons that have not noticed it yet"
    return None
