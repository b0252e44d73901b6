"""Brings this daemon through recovery in each life of the store, so that nothing is claimed from a store that lacks
records of our journal. A *life* is a time in which the store forgets nothing; after a loss a new one begins.

One pass for each life of the store:

    calm       the store is as all daemons left it, and this one just started: it applies its *endings* (outcomes and
               cancels), then its changes, and joins
    disturbed  the store is another one, older, or empty, or ended our membership: join (the claims of all daemons stop)
               → apply again what the store forgot → let the store decide which jobs in flight stay ours → be through;
               claims begin when all members are through (`membership_state.py`)

    resigned   catching up made no progress for a minute while all others wait, or we died at it again and again, or
               our journal took no outcomes for a minute: leave, so that others go on, also with our jobs in flight, and
               come back as after a start, when our endings can be read (docs/adr/0006)

Catching up applies four lanes of the journal: cancels and outcomes, so that jobs that ended do not start again;
changes, so that no older content starts (docs/adr/0010); and settings. Claims do not wait for the lane of ordinary
jobs. Only questions whether a job, a unique key or a member of a group exists wait until all daemons have applied that
lane, too (`restored`). Our own jobs are applied only after joining has stopped the claims of all daemons or, when calm,
after our endings and changes.

A job that ended here, and whose outcome is not on our disk yet, stays in flight for up to a minute, in which nobody
claims it. If the store gives it to another daemon, its outcome is waited for, unless we left the job to the others. The
protocol was verified in a model first (docs/adr/0006).
"""

import random
from collections.abc import Callable, Collection, Mapping
from typing import Any

import trio

from jqd.domain.errors import (
    JournalForked,
    JournalRefused,
    JournalStuck,
    StaleOwner,
    StoreAway,
    StoreChanged,
    StoreError,
    StoreRefused,
    SysidRefused,
    SysidTaken,
)
from jqd.domain.log import get_logger
from jqd.domain.record import ENDINGS, WITH_JOBS, Lane
from jqd.journal import Journal
from jqd.loops.backoff import LoopBackoff
from jqd.loops.ingest import Ingest
from jqd.loops.lane_records import brings_again, read_unapplied
from jqd.loops.membership import Membership
from jqd.loops.membership_state import Past
from jqd.loops.outcomes import OutcomesLoop
from jqd.loops.reap import Reap, reconcile
from jqd.runner import Runner
from jqd.store import Owner, Store, StoreLook

WORDS = (*ENDINGS, Lane.CHANGES, Lane.RULES)  # lanes that must be applied before anybody may claim a job
RESIGN_S = 60.0  # how long one bad disk may stop the claims of all daemons, or hold its jobs; a good disk takes less
PROBATION_S = 300.0  # how long the journal must refuse nothing, after jobs were left to others, before any is started
LEAVE_S = 5.0  # for the call to leave; if it fails, the others find us dead after a lease
NOTICE_S = 1.0  # between checks that the store is still the same, while lanes are waited for


class Recovery:
    """The loop that makes this daemon a member of the store and brings it through recovery, in each life of the
    store."""

    def __init__(
        self,
        *,
        journal: Journal,
        store: Store,
        membership: Membership,
        lanes: Mapping[Lane, Ingest[Any]],
        runner: Runner,
        reap: Reap,
        outcomes: OutcomesLoop,
        claims: trio.Lock,
        source: random.Random,
        starts: Callable[[str], bool],
        period_ms: int = 0,
    ) -> None:
        """`claims`: a lock held during a claim, so that claimed jobs are in flight before they are compared with the
        store.

        `starts`: returns whether another daemon, named by its sysid, is known to start jobs now. `period_ms`: in this
        time a waiting job gains one step of priority.
        """
        self.backoff = LoopBackoff("recovery", source=source)
        self._journal, self._store, self._membership, self._lanes = journal, store, membership, lanes
        self._runner, self._reap, self._claims, self._period_ms = runner, reap, claims, period_ms
        self._outcomes, self._starts = outcomes, starts
        self._left_to_others: dict[str, int] = {}  # id → fence, as the journal took no outcomes
        for lane in lanes.values():
            lane.pause()  # nothing is sent to a store before its life is known: it may be the wrong one
        self._joined_in = ""  # the life of the store that this daemon joined last
        self._since = 0  # when the life began that it looked at last, in fences
        self._goal = 0  # the end of the journal when the store was looked at
        self._answer_lost = False  # the answer to a call to join never came: we may be a member
        self._log = get_logger("recovery")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Go through recovery at the start and after every disturbance of the store. Raises JournalForked."""
        task_status.started()
        while not self._membership.has_left:
            disturbed = self._membership.watch_disturbance()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when, disturbed, nursery.cancel_scope)
                while True:
                    await self._come_through()
                    async with trio.open_nursery() as member:
                        member.start_soon(self._restore)
                        await self._leave_stuck()
                        member.cancel_scope.cancel()

    def rolled_back(self) -> None:
        """Note that the store reports an earlier position of a lane than before, although it seems the same. The next
        pass begins a new life of the store, so that all daemons notice the loss. Until then no lane sends anything, as
        a claim that the store forgot would look like a released one."""
        if self._membership.rolled_back():
            for lane in self._lanes.values():
                lane.pause()

    async def _come_through(self) -> None:
        while True:
            try:
                await self._pass()
            except StaleOwner as error:
                self._log.warning("recovery.again", error=str(error))
                await self.backoff.wait_after_failure(StoreAway(str(error)))
            except (JournalStuck, SysidRefused) as error:
                await self._resign(error)
                await self.backoff.wait_after_failure(error)
            except (StoreAway, StoreRefused) as error:
                await self.backoff.wait_after_failure(error)
            else:
                self.backoff.succeeded()
                return

    async def _pass(self) -> None:
        membership = self._membership
        for lane in WITH_JOBS:
            self._lanes[lane].pause()  # no job is applied until it is known what the store lacks
        if membership.life_to_end is not None:
            await self._end_life(membership.life_to_end)
        past = membership.past
        is_new = not isinstance(past, str)  # after a start, or since we resigned
        reapply = reapply_jobs = False
        is_first = past is Past.START and self._journal.is_new
        look = await self._store.look(fresh=is_first, before=0 if is_new else self._since)
        if look.identity == self._joined_in:  # the store has all that we sent, also if we resigned since
            self._lanes[Lane.OUTCOMES].resume()
        if is_new:  # read first: a daemon whose records cannot be read must not make the others wait
            applied = await self._store.applied(self._journal.journal_id)
            highest = await read_unapplied(self._journal, WORDS, applied, self._lanes[Lane.OUTCOMES].mine)
            reapply = await brings_again(self._journal, applied)
            # Retired jobs were in the store once. Copies of them that follow may be older than other daemons' changes.
            reapply_jobs = applied[Lane.JOBS] < self._journal.oldest(Lane.JOBS)
            if highest > look.fence:  # a fence that this store never gave: an old copy of it was put back
                look = await self._store.look(fresh=False, highest=highest)
        self._since = look.since
        for lane in (Lane.CANCELS, Lane.RULES):
            self._lanes[lane].resume()
        membership.begin_sync(look)
        calm = look.settled and is_new and not reapply
        self._goal = goal = self._journal.end
        for ingest in self._lanes.values():
            ingest.recheck()
        if calm:
            self._lanes[Lane.OUTCOMES].resume()
            await self._catch_up(goal, ENDINGS, others_wait=False)
            self._lanes[Lane.CHANGES].resume()
            await self._catch_up(goal, WORDS, others_wait=False)
            await self._join(look, through=True, reapply=reapply_jobs)
            self._lanes[Lane.JOBS].resume()
        else:
            note = self._log.info if is_new else self._log.warning
            note("recovery.disturbed", identity=look.identity, settled=look.settled)
            self._reap.store_changed()
            await self._join(look, through=False)
            for lane in WITH_JOBS:  # only now: until they know this new member, other daemons claim jobs that come
                self._lanes[lane].resume()
            await self._catch_up(goal, WORDS, others_wait=True)
            await self._arbitrate(waits=not is_new)  # a daemon that had resigned makes nobody wait again
        membership.mark_through()
        self._log.info("recovery.through", calm=calm, position=goal)

    async def _end_life(self, identity: str) -> None:
        """Begin a new life of the store (a new identity, which marks that it lost data), so that all daemons notice.
        Does nothing if another life began already. `identity`: the life that ends."""
        try:
            await self._store.new_life(identity)
        except StoreChanged as error:
            # Another life began already, or another server answers: every daemon that looks sees that.
            self._log.info("recovery.life_is_over", error=str(error))

    async def _join(self, look: StoreLook, *, through: bool, reapply: bool = False) -> None:
        """Join as a member with a new epoch, unless the store still knows our old one. When joining, the store makes
        jobs of our earlier epoch ready. `look`: what the store showed when this pass began. `through`: whether this
        daemon is through recovery. `reapply`: whether it has to apply jobs of our journal again all the same."""
        membership = self._membership
        # A member under our name is an earlier process of ours, as the journal's lock proves, or this one if an answer
        # was lost. In the life of the store that we came through it is another copy of this journal.
        ours = self._answer_lost or look.identity != membership.past
        # If an answer was lost, or this process was a member before, the member under our name did not die.
        may_have_died = membership.owner is None and not self._answer_lost
        self._answer_lost = True
        try:
            owner = await self._still_good() or await self._store.reserve_sysid(
                membership.sysid,
                ours,
                through=through,
                seen=look.fence,
                period_ms=self._period_ms,
                reapply=reapply,
                died=self._note_died if may_have_died else lambda jobs: None,
            )
        except SysidTaken as error:
            raise JournalForked(f"{error}: another copy of this directory is in use") from error
        self._answer_lost, self._joined_in = False, look.identity
        membership.joined(owner)
        self._log.info("recovery.joined", sysid=owner.sysid, epoch=owner.epoch)

    def _note_died(self, jobs: int) -> None:
        """Note that an earlier process of this daemon died. `jobs`: how many it had in flight."""
        self._reap.departures.note("daemon", self._membership.sysid, died=True, jobs=jobs)

    async def _still_good(self) -> Owner | None:
        """Renew our last membership. Return our owner (sysid and epoch) if the store still knows it, so that nobody
        took our jobs; else None."""
        owner = self._membership.owner
        if owner is None:
            return None
        try:
            answer = await self._store.renew_sysid(owner, through=False)
        except StaleOwner:
            return None
        self._runner.cancel(answer.cancels)  # the store reports each only once
        return owner

    async def _catch_up(self, goal: int, lanes: Collection[Lane], *, others_wait: bool) -> None:
        """Wait until the store has all records of these lanes up to the position `goal`, and its positions in all other
        lanes are known. Raises JournalStuck if other daemons wait and nothing has moved for RESIGN_S."""
        left, since_s = self._left(goal, lanes), trio.current_time()
        for lane, ingest in self._lanes.items():
            caught_up = False
            while not caught_up:
                with trio.move_on_after(NOTICE_S):
                    await ingest.wait_caught_up(goal if lane in lanes else 0)
                    caught_up = True
                if not caught_up:
                    # Raises if another store answers: the lane only waits then, and no renewal notices it yet.
                    await self._store.applied(self._journal.journal_id)
                    if left != (now_left := self._left(goal, lanes)):
                        left, since_s = now_left, trio.current_time()
                    elif others_wait and trio.current_time() - since_s >= RESIGN_S:
                        raise JournalStuck(
                            f"lane {lane.name.lower()} of the journal has not got on for {RESIGN_S:g} s, while all "
                            "daemons of the store wait for what it says of ended jobs: this one gives up its "
                            "membership, and comes back when it can be read. Look at its disk and its log; jobs that "
                            "ended here may run once more"
                        )

    def _left(self, goal: int, lanes: Collection[Lane]) -> list[tuple[Lane, int | None, int]]:
        """Return the lanes of the journal that the store has not applied up to `goal`, as (lane, position in the store
        or None, read point)."""
        positions = [
            (lane, each.position, self._journal.read_point(lane, each.reader)) for lane, each in self._lanes.items()
        ]
        return [
            (lane, position, read)
            for lane, position, read in positions
            if position is None or (lane in lanes and max(position, read) < goal)
        ]

    async def _restore(self) -> None:
        """Wait until the store has all jobs (lane JOBS) that our journal had when this pass began; tell
        the membership."""
        await self._lanes[Lane.JOBS].wait_caught_up(self._goal)
        self._membership.mark_restored()

    async def _leave_stuck(self) -> None:
        """Wait until the journal has refused outcomes for RESIGN_S. Then leave our jobs in flight to the other daemons,
        if any of them starts jobs.

        Jobs that ended run once more. If their outcomes are written after all, successes still count.
        """
        outcomes = self._outcomes
        while outcomes.on_probation:
            await trio.sleep(NOTICE_S)
            if self._journal.steady_s >= PROBATION_S or not self._others_start():
                outcomes.on_probation = None
        await outcomes.wait_stuck(RESIGN_S)
        while not (self._not_left() and self._others_start()):
            await trio.sleep(NOTICE_S)
            await outcomes.wait_stuck(RESIGN_S)
        error = JournalStuck(
            f"the journal has taken no outcomes for {RESIGN_S:g} s: this daemon leaves its jobs to the others, and "
            f"starts none before it does. Jobs that ended here run once more. Look at its disk: {outcomes.reason}"
        )
        if await self._resign(error):
            self._left_to_others = self._runner.get_running_jobs()
            outcomes.on_probation = (
                f"no job is started, as other daemons start them: the journal took no outcomes for {RESIGN_S:g} s, and "
                f"must refuse nothing for {PROBATION_S:g} s first"
            )

    def _others_start(self) -> bool:
        """Return whether another daemon is known to start jobs. A daemon that is drained, or whose journal takes no
        outcomes, starts none, even while jobs still run there."""
        return any(map(self._starts, self._membership.others))

    def _not_left(self) -> dict[str, int]:
        """Return id → fence of the jobs in flight, without those that we left to others: the outcomes of these are
        still written, but we no longer claim them as ours."""
        held = self._runner.get_running_jobs()
        return {job_id: fence for job_id, fence in held.items() if self._left_to_others.get(job_id) != fence}

    async def _resign(self, error: JournalStuck | SysidRefused) -> bool:
        """Stop the jobs in flight and leave the store, so that no daemon waits for us. Returns whether the store
        confirmed that."""
        owner = self._membership.owner
        self._runner.stop_work()
        self._membership.resigned()
        self._log.error("recovery.resigned", error=str(error))
        if owner is not None:
            with trio.CancelScope(shield=True), trio.move_on_after(LEAVE_S):
                try:
                    await self._store.release_sysid(owner)
                    return True
                except StoreError as error:
                    self._log.warning("recovery.not_left", error=str(error))
        return False

    async def _arbitrate(self, *, waits: bool) -> None:
        """Let the store decide which jobs in flight are still ours, drop the others, and release claims in the store
        for jobs that we do not have.

        `waits`: whether to wait until the store has the outcomes of jobs that it gave to others. Raises JournalStuck.
        """
        owner = self._membership.owner
        assert owner is not None, "it joined above"
        async with self._claims:
            lost = await self._store.reassert(owner, self._not_left(), self._runner.get_generations())
            self._runner.drop_lost(lost)
            given_back = await reconcile(self._store, self._not_left, owner)
            self._reap.departures.lost("daemon", owner.sysid, given_back)
        if lost:
            self._log.warning("recovery.lost", count=len(lost))
        if waits:
            ended = (self._runner.ended(job_id) for job_id in lost)
            await self._wait_ended([(outcome.job_id, outcome.fence) for outcome in ended if outcome is not None])

    async def _wait_ended(self, claims: Collection[tuple[str, int]]) -> None:
        """Wait until the store has the outcomes of these claims (job id, fence), whose jobs other daemons may have got.
        Raises JournalStuck if the journal takes no outcomes for RESIGN_S."""
        begun_s = trio.current_time()
        for claim in claims:
            is_saved = False
            while not is_saved:
                try:
                    await self._runner.wait_durable(*claim)
                    is_saved = True
                except JournalRefused as error:
                    if trio.current_time() - begun_s >= RESIGN_S:
                        raise JournalStuck(
                            f"the journal has taken no ending for {RESIGN_S:g} s, while all daemons of the store wait "
                            f"for those of {len(claims)} jobs, which ended here, and which it takes to be in other "
                            "hands: this one gives up its membership, and they may run once more. Look at its disk: "
                            f"{error}"
                        ) from error
                    await trio.sleep(NOTICE_S)
        if claims:
            await self._catch_up(self._journal.end, ENDINGS, others_wait=True)


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def pass_on_positions(journal: Journal, store: Store, lanes: Mapping[Lane, Ingest[Any]], journal_id: str) -> None:
    """Copy the store's positions for `journal` to the new `journal_id`. May be repeated after a first try failed.
    Raises StoreError."""
    stored = await store.applied(journal.journal_id)
    done = await store.applied(journal_id)  # the other copy may have moved on since a first try
    for lane, ingest in lanes.items():
        position = ingest.last_position
        if position is None:
            position = min(stored[lane], journal.opened_at)
        if position > done[lane]:
            # The store lacks the same records under the new id. `gone` says so; else a copied job would be lost.
            await store.skip(journal_id, lane, done[lane], position, gone=lane in WITH_JOBS)
