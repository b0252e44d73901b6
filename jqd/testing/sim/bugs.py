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

from jqd.api.native import jobs as jobs_api
from jqd.loops import barrier as barrier_module
from jqd.loops import dispatch as dispatch_module
from jqd.loops.barrier import Barrier
from jqd.loops.ingest import Flight, Ingest
from jqd.loops.membership import Membership
from jqd.loops.reap import Reap
from jqd.loops.settle import Settle
from jqd.runner.runner import Runner
from jqd.store import Look, Member, Owner, Renewed
from jqd.testing.members import Entry, FakeMembers
from jqd.testing.sim import simulate
from jqd.testing.sim.apart import APART
from jqd.testing.sim.mistake import Mistake, Real, mistake
from jqd.testing.sim.node import WorldClock
from jqd.testing.sim.plan import Plan, make_plan
from jqd.testing.sim.unkept import UNKEPT
from jqd.testing.store import FakeStore
from jqd.words.job import Job, Outcome, State
from jqd.words.record import Lane, encode_cancels


def _advance_first(real: Real) -> Real:
    async def apply(self: Ingest[Any], flight: Flight[Any]) -> None:
        journal_id = self._journal.journal_id
        await self._store.skip(journal_id, self.lane, flight.start, flight.end)
        self._note_applied(flight.end)
        await self._rules.apply(journal_id, flight.end, flight.end, flight.records)

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
    async def go_through(self: Barrier) -> None:
        look: Look = await self._store.look(fresh=False)
        self._membership.looked(look)
        self._reap.store_changed()
        for lane in self._lanes.values():
            lane.recheck()
        await self._take_seat(look, through=True)
        self._lanes[Lane.JOBS].let_go()
        self._lanes[Lane.CHANGES].let_go()
        self._membership.came_through()

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
        now_us, lease_us = self._clock.wall_ms() * 1000, self._membership.config.lease_s * 1_000_000
        for sysid, member in members.items():
            if sysid != self._membership.sysid and (not member.epoch or now_us - member.counter > lease_us):
                self._dead[sysid] = member
                self._found.set()

    return seen


def _promise_at_once(real: Real) -> Real:
    async def cancel(desk: Any, job_id: str) -> State:
        await desk.journal.wsync(desk.journal.write(Lane.CANCELS, 1, encode_cancels([job_id])))
        return State.CANCELLED

    return cancel


def _note_nothing(real: Real) -> Real:
    def note(self: FakeStore, one: Outcome) -> bool:
        return False

    return note


def _cancel_only_what_is_there(real: Real) -> Real:
    def cancel(self: FakeStore, job_id: str, generation: int) -> None:
        if job_id in self._data.entries:
            real(self, job_id, generation)

    return cancel


def _cancel_wins(real: Real) -> Real:
    def placed(self: FakeStore, job: Job) -> Entry:
        if ("c", job.id) in self._data.notes:
            self._data.early.pop(job.id, None)
            for letter in "sdr":
                self._data.notes.pop((letter, job.id), None)
        entry: Entry = real(self, job)
        return entry

    return placed


def _next_number(real: Real) -> Real:
    def next_fence(self: FakeMembers) -> int:
        self._data.fence += 1
        return self._data.fence

    return next_fence


def _same_sequence(real: Real) -> Real:
    def new_life(self: FakeMembers) -> None:
        self._server.lives += 1
        self._data.life, self._data.settled = f"life-{self._server.lives}", ""

    return new_life


def _count_from_one(real: Real) -> Real:
    async def reserve(self: FakeMembers, sysid: str, *args: Any, **named: Any) -> Owner:
        owner: Owner = await real(self, sysid, *args, **named)
        self._data.members[sysid].counter = 1
        return owner

    return reserve


def _count_on(real: Real) -> Real:
    async def renew(self: FakeMembers, owner: Owner, **named: Any) -> Renewed:
        seat = self._data.members.get(owner.sysid)
        counter = seat.counter if seat else 0
        answer: Renewed = await real(self, owner, **named)
        self._data.members[owner.sysid].counter = counter + 1
        return answer

    return renew


def _remember_observations(real: Real) -> Real:
    def store_changed(self: Reap) -> None:
        return

    return store_changed


def _let_go_when_written(real: Real) -> Real:
    async def write(self: Settle, outcomes: Sequence[Outcome]) -> None:
        await real(self, outcomes)
        self._runner.out_of_hand((outcome.job_id, outcome.fence) for outcome in outcomes)

    return write


def _drop_all(real: Real) -> Real:
    def stop_work(self: Runner) -> None:
        real(self)
        self._ledger._entries.clear()

    return stop_work


def _stand_still_too(real: Real) -> Real:
    def boot_s(self: WorldClock) -> float:
        since_boot_s: float = real(self)
        return since_boot_s - self.slept_s

    return boot_s


def _count_what_is_left(real: Real) -> Real:
    def give_back(self: FakeMembers, sysid: str, limit: int | None, *, died: bool = False) -> int:
        self._data.emptying.pop(sysid, None)
        moved: int = real(self, sysid, limit, died=died)
        return moved

    return give_back


def _never_doubt(real: Real) -> Real:
    def init(self: Runner, *args: Any, trusts: Callable[[], bool], **named: Any) -> None:
        real(self, *args, trusts=lambda: True, **named)

    return init


MISTAKES: dict[str, Mistake] = {
    "advance-first": mistake(
        "lost",
        1,
        "lost",
        "the read point moves before the records are applied",
        (Ingest, "_apply", _advance_first),
    ),
    "resend-from-anywhere": mistake(
        "wipe,lag,away",
        12,
        "lost",
        "a chunk whose answer was lost is sent again from wherever the store stands now",
        (Ingest, "_go_to", _resend_from_anywhere),
    ),
    "no-barrier": mistake(
        "wipe",
        5,
        "again",
        "a changed store is used as if it were the same",
        (Barrier, "_pass", _pass_by),
        (Membership, "_waited", _never_wait),
    ),
    "no-reassert": mistake(
        "rollback",
        22,
        "overlap",
        "a store that forgot is not told what is in hand",
        (Barrier, "_arbitrate", _do_not),
    ),
    "reap-by-wall-clock": mistake(
        "clock", 13, "overlap", "a wall clock judges who is dead", (Reap, "seen", _judge_by_wall_clock)
    ),
    "cancel-early": mistake(
        "away",
        0,
        "cancel",
        "204 is said when the cancel is in the journal",
        (jobs_api, "cancel", _promise_at_once),
    ),
    "no-notes": mistake(
        "wipe",
        0,
        "again",
        "what comes before its job is not remembered",
        (FakeStore, "_note", _note_nothing),
        (FakeStore, "_cancel", _cancel_only_what_is_there),
    ),
    "overwrite-notes": mistake(
        "wipe,slow,lag",
        40,
        "lost",
        "a cancel overwrites what else was noted of its job",
        (FakeStore, "_placed", _cancel_wins),
    ),
    "restarting-counters": mistake(
        "wipe",
        4,
        "fence",
        "fences, epochs and heartbeats begin anew with the store",
        (FakeMembers, "_next_fence", _next_number),
        (FakeMembers, "_new_life", _same_sequence),
        (FakeMembers, "reserve_sysid", _count_from_one),
        (FakeMembers, "renew_sysid", _count_on),
        (Reap, "store_changed", _remember_observations),
    ),
    "drop-on-finish": mistake(
        "lost,lag",
        4,
        "again",
        "a job is out of hand when its outcome is in the journal",
        (Settle, "_write", _let_go_when_written),
    ),
    "drop-on-doubt": mistake(
        "lag,lost", 18, "again", "whoever doubts its lease forgets what it holds", (Runner, "stop_work", _drop_all)
    ),
    "no-reconcile": mistake(
        "lost",
        5,
        "stuck",
        "nobody compares what the store takes for held with what is in hand",
        (dispatch_module, "reconcile", _do_not),
        (barrier_module, "reconcile", _do_not),
    ),
    "never-doubt": mistake(
        "pause",
        18,
        "doubt",
        "a daemon that stood still sends what it has in hand",
        (Runner, "__init__", _never_doubt),
    ),
    "never-resigns": mistake(
        "unreadable,wipe",
        20,
        "held up",
        "a daemon that cannot read what it knows of ended jobs keeps its seat",
        (Barrier, "_resign", _do_not),
    ),
    "trusts-asleep": mistake(
        "suspend",
        9,
        "fence",
        "a lease is judged by a clock that stands still while the machine is suspended",
        (WorldClock, "boot_s", _stand_still_too),
    ),
    "hand-per-step": mistake(
        "pause",
        20,
        "innocent",
        "a dead daemon's hand is as large as what its last steps left of it",
        (FakeMembers, "_give_back", _count_what_is_left),
    ),
    **APART,
    **UNKEPT,
}
"""By name."""


SEARCH = 150  # seeds: what another seed finds now, one of so many finds after any change of the code


def hunt(name: str) -> tuple[int, str] | None:
    """Plant it, and give the first seed that finds it, with what it says; None after SEARCH of them."""
    planned = MISTAKES[name]
    with planted(name):
        for seed in range(planned.seed, planned.seed + SEARCH):
            report = simulate(seed, plan=plan_of(name, seed))
            for violation in report.violations:
                if violation.partition(" s: ")[2].startswith(planned.finds + ":"):
                    return seed, violation
    return None


def plan_of(name: str, seed: int) -> Plan:
    """What of that seed shows the mistake."""
    planned = MISTAKES[name]
    return make_plan(seed, planned.kinds, planned.partitions, changes=planned.changes)


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Make this mistake for the time of the block. KeyError when there is none of that name."""
    with ExitStack() as stack:
        for part in MISTAKES[name].parts:
            stack.enter_context(part.planted())
        yield
