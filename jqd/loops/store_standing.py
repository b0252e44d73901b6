"""The state of this daemon towards its store: may it claim jobs, and if not, why not? One state of six.

    Out ────looked───▶ Looked ──took_seat──▶ Seated ──mark_through──▶ Through ──▶ claims, as soon as
    Suspect ─looked──▶   │  ▲                  │                         │         the lease is trusted,
     ▲  ▲                │  └─ looked          │                         │         all others are through, and
     │  └─ rolled_back ──┴─────────────────────┴─────────────────────────┤         it is settled, or a lease has passed
    Out ◀─ disturbed, resigned ── from any of them ◀─────────────────────┘    Left ◀── left ── from any, for good

    looked        recovery  it knows which life of the store answers. A settled store, met by a daemon that just
                            started, is calm: the daemon catches up before it joins, and nobody waits for it
    took_seat     recovery  the store gave it an epoch. Until it is through, all daemons wait for it
    mark_through  recovery  the store knows all that its journal knows of ended and changed jobs
    mark_restored recovery  and of ordinary jobs, too: until then nobody is told that there is no such job, unique key
                            or member of a group
    renewed       heartbeat the store confirmed the lease, and who is not through and whether the life is settled
    disturbed     heartbeat, dispatch   another life of the store answers, or the store burnt our epoch
    rolled_back   ingest    the store knows less than it did, in a life that seems the same: that life is ended
    resigned      recovery  our journal cannot be read while others wait, or takes no outcomes: they go on without us
    left          shutdown

A new life is settled only after a lease, for daemons that live and have not looked yet: what they hold they assert
again meanwhile. Once a life is noted as settled, a daemon that joins it waits for nobody. `Membership` has a method for
each event; a test walks all events in all states.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from jqd.store import Owner

NAMED_MAX = 3  # of the daemons that are waited for: an operator looks at one after the other


class Past(Enum):
    """Why this daemon has not come through any life of the store."""

    START = "start"
    RESIGNED = "resigned"


class Known(NamedTuple):
    """What is known of the life of the store that answers now."""

    life: str
    looked_at_s: float
    settled: bool
    """Noted in the store: all daemons came through."""
    waits_for: tuple[str, ...] | None = None
    """Daemons that are not through; None until a renewal answered."""
    behind: tuple[str, ...] = ()
    """Daemons that have ordinary jobs to tell again, which no claim waits for."""


@dataclass(frozen=True, slots=True)
class Out:
    """The store that answers now was not looked at yet."""

    past: Past | str
    """The life that this daemon came through last."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """The store went back within one life, which must be ended, so that all daemons notice what it forgot."""

    past: str


@dataclass(frozen=True, slots=True)
class Looked:
    """The store is known, and we are no member there."""

    back: Out
    """The state that a disturbance leads to."""
    known: Known


@dataclass(frozen=True, slots=True)
class Seated:
    """We are a member, and all daemons wait until our journal's outcomes are applied."""

    back: Out
    known: Known
    owner: Owner


@dataclass(frozen=True, slots=True)
class Through:
    """The store has applied all that recovery needs from our journal."""

    known: Known
    owner: Owner
    restored: bool = False
    """Nor is any ordinary job left, that our journal had when we looked."""


@dataclass(frozen=True, slots=True)
class Left:
    """This daemon stops, and joins no more."""

    past: Past = Past.START


State = Out | Suspect | Looked | Seated | Through | Left


def back(state: State) -> Out | Suspect | Left:
    """Return the state after a disturbance: what we know of the store holds no longer."""
    match state:
        case Looked() | Seated():
            return state.back
        case Through():
            return Out(state.known.life)
    return state


def is_settled(state: State, *, waited: bool) -> bool:
    """Whether all daemons are through, so that nothing old can be applied. `waited`: for a lease since the look."""
    return isinstance(state, Through) and state.known.waits_for == () and (state.known.settled or waited)


def behind_reason(state: State) -> str | None:
    """What waits until daemons have told the store their jobs again, for health; None: nothing."""
    if not isinstance(state, Seated | Through) or not state.known.behind:
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
    """Why no jobs may be claimed, or None. `/readyz` and the log repeat this."""
    match state:
        case Out(Past.START):
            return "this daemon has not looked at the store yet since it started"
        case Out(Past.RESIGNED):
            return (
                "this daemon gave its seat at the store up, because its journal could not be read while all others "
                "waited for it, or took no outcomes: look at its disk and its log. It comes back when it can be read"
            )
        case Out():
            return "the store changed, or took this daemon for dead: this daemon looks at it again before it claims"
        case Suspect():
            return "the store forgot something, as after an old copy was put back: this daemon tells all others so"
        case Looked():
            return "this daemon joins the store as soon as what its journal knows of ended jobs is applied there"
        case Seated():
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
