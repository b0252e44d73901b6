"""Mistakes of the protocol, planted in the real code by name for the time of a block: the simulation must find each.

    with planted("no-barrier"):
        simulate(seed).violations

Eleven of them are those that the model of the protocol was checked with. Each says under which faults it shows, and a
seed from which on it is found soon.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import trio

from jqd.api.v1 import jobs as jobs_api
from jqd.domain.job import Outcome, State
from jqd.domain.record import Lane, encode_cancels
from jqd.loops import claims as claims_module
from jqd.loops.ingest import Flight, Ingest
from jqd.loops.membership import Membership
from jqd.loops.outcomes import OutcomesLoop
from jqd.loops.reap import Reap
from jqd.recovery import recovery as barrier_module
from jqd.recovery.recovery import Recovery
from jqd.runner.runner import Runner
from jqd.store import Member, StoreLook
from tests.simulation import simulate
from tests.simulation.aged import AGED
from tests.simulation.apart import APART
from tests.simulation.followed import FOLLOWED
from tests.simulation.lent import LENT
from tests.simulation.mistake import Mistake, Real, in_scripts, mistake
from tests.simulation.node import WorldClock
from tests.simulation.plan import Plan, make_plan
from tests.simulation.uncounted import UNCOUNTED
from tests.simulation.undue import UNDUE
from tests.simulation.unflowed import UNFLOWED
from tests.simulation.unkept import UNKEPT
from tests.simulation.unreleased import UNRELEASED
from tests.simulation.unsaid import UNSAID


def _advance_first(real: Real) -> Real:
    async def apply(self: Ingest[Any], flight: Flight[Any]) -> bool:
        journal_id = self._journal.journal_id
        await self._store.skip(journal_id, self.lane, flight.start, flight.end)
        self._advance(flight.end)
        await self._settings.apply(journal_id, flight.end, flight.end, flight.records)
        return True

    return apply


def _resend_from_anywhere(real: Real) -> Real:
    def go_to(self: Ingest[Any], position: int) -> None:
        unanswered = [flight for flight in self._flights if flight.end > position]
        real(self, position)
        if unanswered and not self._flights:
            unanswered[0].start = position
            self._flights.extend(unanswered)

    return go_to


def _pass_by(real: Real) -> Real:
    async def go_through(self: Recovery) -> None:
        look: StoreLook = await self._store.look(fresh=False)
        self._membership.begin_sync(look)
        self._reap.store_changed()
        for lane in self._lanes.values():
            lane.recheck()
        await self._join(look, through=True)
        self._lanes[Lane.JOBS].resume()
        self._lanes[Lane.CHANGES].resume()
        self._membership.mark_through()

    return go_through


def _never_wait(real: Real) -> Real:
    def waited(self: Membership) -> bool:
        return True

    return waited


def _do_not(real: Real) -> Real:
    async def nothing(*args: Any, **named: Any) -> None:
        await trio.lowlevel.checkpoint()

    return nothing


def _judge_by_wall_clock(real: Real) -> Real:
    def seen(self: Reap, members: Mapping[str, Member]) -> None:
        clock: Any = self._clock  # by the store's time, and nobody would be wrong
        now_us, lease_us = clock._clock.wall_ms() * 1000, self._membership.config.lease_s * 1_000_000
        for sysid, member in members.items():
            if sysid != self._membership.sysid and (not member.epoch or now_us - member.counter > lease_us):
                self._dead[sysid] = member
                self._found.set()

    return seen


def _promise_at_once(real: Real) -> Real:
    async def cancel(services: Any, job_id: str) -> State:
        await services.journal.wsync(services.journal.write(Lane.CANCELS, 1, encode_cancels([job_id])))
        return State.CANCELLED

    return cancel


def _remember_observations(real: Real) -> Real:
    def store_changed(self: Reap) -> None:
        return

    return store_changed


def _let_go_when_written(real: Real) -> Real:
    async def write(self: OutcomesLoop, outcomes: Sequence[Outcome]) -> None:
        await real(self, outcomes)
        self._runner.forget((outcome.job_id, outcome.fence) for outcome in outcomes)

    return write


def _drop_all(real: Real) -> Real:
    def stop_work(self: Runner) -> None:
        real(self)
        self._in_flight._entries.clear()

    return stop_work


def _stand_still_too(real: Real) -> Real:
    def boot_s(self: WorldClock) -> float:
        since_boot_s: float = real(self)
        return since_boot_s - self.slept_s

    return boot_s


def _never_doubt(real: Real) -> Real:
    def init(self: Runner, *args: Any, trusts: Callable[[], bool], **named: Any) -> None:
        real(self, *args, trusts=lambda: True, **named)

    return init


MISTAKES: dict[str, Mistake] = {
    "advance-first": mistake(
        "lost",
        15,
        "lost",
        "the read point moves before the records are applied",
        (Ingest, "_apply", _advance_first),
    ),
    "resend-from-anywhere": mistake(
        "wipe,lag,away",
        16,
        "lost",
        "a chunk whose answer was lost is sent again from wherever the store stands now",
        (Ingest, "_go_to", _resend_from_anywhere),
    ),
    "no-barrier": mistake(
        "wipe",
        5,
        "again",
        "a changed store is used as if it were the same",
        (Recovery, "_pass", _pass_by),
        (Membership, "_waited", _never_wait),
    ),
    "older-life-goes-on": mistake(
        "swap",
        105,
        "twice,again,number",
        "an older life that comes back goes on as it was",
        in_scripts("if is_other or Forgotten.went_back(reported, before) then", "if is_other then"),
        in_scripts("elseif fence > known then", "elseif false then"),
    ),
    "clock-behind": mistake(
        "clock,rollback",
        717,
        "again",
        "claims above the clock of the server that goes on were not forgotten",
        in_scripts("  Forgotten.tell_of(outcomes, holds)\n", ""),
    ),
    "no-reassert": mistake(
        "rollback",
        75,
        "overlap",
        "a store that forgot is not told what is in flight",
        (Recovery, "_arbitrate", _do_not),
    ),
    "reap-by-wall-clock": mistake(
        "clock", 72, "overlap", "a wall clock judges who is dead", (Reap, "note_members", _judge_by_wall_clock)
    ),
    "cancel-early": mistake(
        "away",
        5,
        "cancel",
        "204 is said when the cancel is in the journal",
        (jobs_api, "cancel", _promise_at_once),
    ),
    "no-notes": mistake(
        "wipe",
        1,
        "again",
        "what comes before its job is not remembered",
        in_scripts("  function note(outcome)\n", "  function note(outcome)\n  do return false end\n"),
        in_scripts(
            "    Change.note_cancel(id, to)\n    local hold = holds[id]\n",
            "    if redis.call('HEXISTS', K.jobs, id) == 0 then return 0 end\n    local hold = holds[id]\n",
        ),
    ),
    "overwrite-notes": mistake(
        "wipe,slow,lag",
        88,
        "lost",
        "a cancel overwrites what else was noted of its job",
        in_scripts(
            "local is_over, is_noted = meet_end(change, now_ms)",
            "local is_over, is_noted = not cancelled and meet_end(change, now_ms)",
        ),
    ),
    "restarting-counters": mistake(
        "wipe",
        12,
        "fence",
        "fences, epochs and heartbeats begin anew with the store",
        in_scripts("fence = math.max(tonumber(fence) + 1, now_us)", "fence = tonumber(fence) + 1"),
        in_scripts("local high = digits(math.max(known, now_us, reported))", "local high = digits(known)"),
        in_scripts("  if fence > known then\n    redis.call('SET'", "  if false then\n    redis.call('SET'"),
        in_scripts("set_member(sysid, math.max((counter or 0) + 1, now_us), epoch", "set_member(sysid, 1, epoch"),
        in_scripts("set_member(sysid, math.max(counter + 1, now_us), epoch", "set_member(sysid, counter + 1, epoch"),
        (Reap, "store_changed", _remember_observations),
    ),
    "drop-on-finish": mistake(
        "lost,lag",
        14,
        "again",
        "a job is out of hand when its outcome is in the journal",
        (OutcomesLoop, "_write", _let_go_when_written),
    ),
    "drop-on-doubt": mistake(
        "lag,lost", 505, "again", "whoever doubts its lease forgets what it holds", (Runner, "stop_work", _drop_all)
    ),
    "no-reconcile": mistake(
        "lost",
        17,
        "stuck",
        "nobody compares what the store takes for held with what is in flight",
        (claims_module, "reconcile", _do_not),
        (barrier_module, "reconcile", _do_not),
    ),
    "never-doubt": mistake(
        "pause",
        215,
        "doubt",
        "a daemon that stood still sends what it has in flight",
        (Runner, "__init__", _never_doubt),
    ),
    "never-resigns": mistake(
        "unreadable,wipe",
        147,
        "held up",
        "a daemon that cannot read what it knows of ended jobs keeps its seat",
        (Recovery, "_resign", _do_not),
    ),
    "trusts-asleep": mistake(
        "suspend,lag",
        389,
        "fence,overlap",
        "a lease is judged by a clock that stands still while the machine is suspended",
        (WorldClock, "boot_s", _stand_still_too),
        dense=6,
    ),
    "hand-per-step": mistake(
        "pause",
        62,
        "innocent",
        "a dead daemon's hand is as large as what its last steps left of it",
        in_scripts("\n    and redis.call('ZCOUNT', held, '(' .. above, '+inf') == 1", ""),
    ),
    **AGED,
    **APART,
    **FOLLOWED,
    **LENT,
    **UNCOUNTED,
    **UNDUE,
    **UNKEPT,
    **UNRELEASED,
    **UNFLOWED,
    **UNSAID,
}
"""By name."""


SEARCH = 150  # seeds: what another seed finds now, one of so many finds after any change of the code


def hunt(name: str) -> tuple[int, str] | None:
    """Plant it, and give the first seed that finds it, with what it says; None after SEARCH of them.

    TypeError: a daemon broke on what was planted, which no seed would ever find, for the code around it is another now.
    """
    planned = MISTAKES[name]

    def is_enough(violation: str) -> bool:
        return _kind_of(violation) in (*planned.finds, "crash")

    with planted(name):
        for seed in range(planned.seed, planned.seed + SEARCH):
            report = simulate(seed, plan=plan_of(name, seed), is_enough=is_enough)
            for violation in report.violations:
                found = _kind_of(violation)
                if found in planned.finds:
                    return seed, violation
                if found == "crash":
                    raise TypeError(f"{name} is planted wrong: with it seed {seed} says: {violation}")
    return None


def _kind_of(violation: str) -> str:
    return violation.partition(" s: ")[2].partition(":")[0]


def plan_of(name: str, seed: int) -> Plan:
    """What of that seed shows the mistake."""
    planned = MISTAKES[name]
    given = {"quotas": False, "hasty": False, "awaits": False, "flows": False} | dict(
        planned.given
    )  # else each would be looked for with fewer of its moments
    return make_plan(seed, planned.kinds, planned.partitions, dense=planned.dense, **given)


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Make this mistake for the time of the block. KeyError when there is none of that name."""
    with ExitStack() as stack:
        for part in MISTAKES[name].parts:
            stack.enter_context(part.planted())
        yield
