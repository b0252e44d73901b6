"""The recovery barrier: nothing is claimed from a store that may have forgotten what our journal knows.

Each life of the store is entered by one pass:

    calm       the store is as everybody left it, only we are new: catch up with our endings, then with our changes
               → take a seat
    disturbed  it is another one, older, or empty, or our seat was taken from us: take a seat (claims of all daemons
               stop) → apply again what it forgot → let it arbitrate what we hold → through; claims begin when all
               members are (`membership`)

Catching up means the lanes of cancels and outcomes, for jobs that ended must not start again, and that of changes, for
an older content must not start when a newer one was acknowledged (docs/adr/0018). Jobs not ingested yet meet what was
noted of them when they come, so nobody waits for them; but none of ours comes before our seat stops the claims of all,
or, in the calm, before our endings and changes. Idea: the protocol model of the design; the variant
without the wait for jobs, and with the note "settled" in the store, was walked in it first (docs/adr/0006).
"""

import random
from collections.abc import Collection, Mapping
from typing import Any

import trio

from jqd.errors import JournalForked, StaleOwner, StoreAway, StoreChanged, StoreRefused, SysidTaken
from jqd.journal import Journal
from jqd.log import get_logger
from jqd.loops.ingest import Ingest
from jqd.loops.membership import Membership
from jqd.loops.pace import Pace
from jqd.loops.reap import Reap
from jqd.loops.reconcile import reconcile
from jqd.record import Lane
from jqd.runner import Runner
from jqd.store import Look, Owner, Store

ENDINGS = (Lane.CANCELS, Lane.OUTCOMES)
WORDS = (*ENDINGS, Lane.CHANGES)  # what must be in the store before anybody may claim a job they are about
NOTICE_S = 1.0  # after which a catching up that has not ended asks whether it still is the same store


class Barrier:
    """Takes the seat at every life of the store, and sees this daemon through."""

    def __init__(
        self,
        *,
        journal: Journal,
        store: Store,
        membership: Membership,
        lanes: Mapping[Lane, Ingest[Any]],
        runner: Runner,
        reap: Reap,
        claims: trio.Lock,
        source: random.Random,
    ) -> None:
        """`claims` is held while a claim is under way: what it brings is in hand before we compare."""
        self.pace = Pace("barrier", source=source)
        self._journal = journal
        self._store = store
        self._membership = membership
        self._lanes = lanes
        self._runner = runner
        self._reap = reap
        self._claims = claims
        for lane in lanes.values():
            lane.hold()  # nothing goes to a store that nobody looked at: it may not be ours
        self._through_in: str | None = None  # the life of the store we last came through in
        self._suspect: str | None = None  # a life in which positions went back
        self._expects_old = False  # positions that went back are no news
        self._seat_is_ours = True  # whoever sits under our name is an earlier life of us: the journal's lock proves it
        self._log = get_logger("barrier")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Come through, and again after every disturbance, until cancelled. Raises JournalForked."""
        task_status.started()
        while True:
            disturbed = self._membership.watch_disturbance()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when, disturbed, nursery.cancel_scope)
                await self._come_through()
                await trio.sleep_forever()

    def rolled_back(self) -> None:
        """A position went back although the store seems the same: it gets a new life, so that everybody notices."""
        if not self._expects_old:
            self._hold()
            self._suspect = self._through_in
            self._membership.disturbed()

    def _hold(self) -> None:
        """Nothing that can be claimed goes to the store until it is known what it lacks."""
        self._lanes[Lane.JOBS].hold()
        self._lanes[Lane.CHANGES].hold()

    async def _come_through(self) -> None:
        while True:
            try:
                await self._pass()
            except StaleOwner as error:
                self._log.warning("barrier.again", error=str(error))
                await self.pace.wait_after(StoreAway(str(error)))
            except (StoreAway, StoreRefused) as error:
                await self.pace.wait_after(error)
            else:
                self.pace.went_well()
                return

    async def _pass(self) -> None:
        self._hold()
        if self._suspect is not None:
            await self._end_life(self._suspect)
            self._suspect = None
        untouched = self._through_in is None and self._journal.opened_at == 0
        look = await self._store.look(fresh=untouched)
        for ending in ENDINGS:
            self._lanes[ending].let_go()
        calm = look.settled and self._through_in is None
        self._membership.looked(look)
        self._expects_old = look.identity != self._through_in is not None
        goal = self._journal.end
        for lane in self._lanes.values():
            lane.recheck()
        if calm:
            await self._catch_up(goal, ENDINGS)
            self._lanes[Lane.CHANGES].let_go()
            await self._catch_up(goal, WORDS)
            await self._take_seat(look, through=True)
            self._lanes[Lane.JOBS].let_go()
        else:
            note = self._log.info if self._through_in is None else self._log.warning
            note("barrier.disturbed", identity=look.identity, settled=look.settled)
            self._reap.store_changed()
            await self._take_seat(look, through=False)
            self._lanes[Lane.CHANGES].let_go()
            self._lanes[Lane.JOBS].let_go()
            await self._catch_up(goal, WORDS)
            await self._arbitrate()
        self._expects_old = False
        self._through_in = look.identity
        self._membership.came_through()
        self._log.info("barrier.through", calm=calm, position=goal)

    async def _end_life(self, identity: str) -> None:
        """Everybody is to notice that this life of the store forgot something."""
        try:
            await self._store.new_life(identity)
        except StoreChanged as error:
            # It is another one already, or answers from another server: whoever looks sees that by itself.
            self._log.info("barrier.life_is_over", error=str(error))

    async def _take_seat(self, look: Look, *, through: bool) -> None:
        """A new epoch, unless the old one is good still. What an earlier epoch of ours holds is made ready first."""
        membership = self._membership
        # In the life of the store that we know, only another copy of this journal can sit under our name: the journal's
        # lock proves that no other process of ours lives. A lost answer may have left us in the seat, too.
        ours = self._seat_is_ours or look.identity != self._through_in
        self._seat_is_ours = True
        try:
            owner = await self._still_good() or await self._store.reserve_sysid(membership.sysid, ours, through=through)
        except SysidTaken as error:
            raise JournalForked(f"{error}: another copy of this directory is in use") from error
        self._seat_is_ours = False
        membership.took_seat(owner)
        self._log.info("barrier.joined", sysid=owner.sysid, epoch=owner.epoch)

    async def _still_good(self) -> Owner | None:
        """The owner we were, if the store says so: then nobody took what we hold."""
        owner = self._membership.owner
        if owner is None:
            return None
        try:
            await self._store.renew_sysid(owner, through=False)
        except StaleOwner:
            return None
        return owner

    async def _catch_up(self, goal: int, lanes: Collection[Lane]) -> None:
        """Return once these lanes have all up to the goal in the store, and it has said where the others stand."""
        for lane, ingest in self._lanes.items():
            caught_up = False
            while not caught_up:
                with trio.move_on_after(NOTICE_S):
                    await ingest.wait_caught_up(goal if lane in lanes else 0)
                    caught_up = True
                if not caught_up:
                    # Lanes only wait when another store answers, and without a seat nobody renews: so it is asked here.
                    await self._store.applied(self._journal.journal_id)

    async def _arbitrate(self) -> None:
        """Ours again, or out of our hand; and what the store holds for us and we do not goes back."""
        owner = self._membership.owner
        assert owner is not None, "the seat was taken above"
        async with self._claims:
            lost = await self._store.reassert(owner, self._runner.get_running_jobs())
            self._runner.lose(lost)
            await reconcile(self._store, self._runner, owner)
        if lost:
            self._log.warning("barrier.lost", count=len(lost))


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
