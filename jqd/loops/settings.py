"""Rules between daemons: what others said comes here, and what is of no use any more goes.

A rule goes to the store through the journal, in the lane `rules`, and to every partition of it: so any partition that
answers has all of them. It comes back by asking, twice a second, what is new there. The same call tells which workers
were heard of here, whom others heard of, and how this daemon sees the workers (docs/adr/0028).
"""

import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing

import trio

from jqd.domain.clock import Clock
from jqd.domain.errors import JournalDamaged, JournalRefused, JournalStuck, StoreAway, StoreChanged, StoreRefused
from jqd.domain.log import get_logger
from jqd.domain.record import Lane, decode_rules, encode_rules
from jqd.domain.settings import Setting
from jqd.journal import Journal
from jqd.loops.backoff import LoopBackoff
from jqd.loops.membership import Membership
from jqd.loops.settings_gc import useless
from jqd.runner import WorkerRegistry, WorkerViews
from jqd.runner.registry import KIND
from jqd.runner.worker_health import VIEW
from jqd.store import Store

FIRST_S = 0.02  # between two looks whether the first question can be asked: pushes wait for its answer
FOLLOW_S = 0.5  # between two questions what is new: with the way through the journal well below two seconds
SAID_S = 0.25  # between two views that are said: each stops claims of all others until they have heard it
AGAIN_S = 0.1  # between two questions at least, however many want to know: ids that there are not cost no more
SIGNS_PER_CALL = 500  # ids told in one call
TIDY_S = 60.0  # between two looks for what is of no use any more
TIDY_RULES = 500  # dropped in one call
TIDY_CALLS = 20  # in a row: as many as may become useless in TIDY_S, and more
KEPT_RULES = 100  # of others in one frame
KEPT_BYTES = 1 << 20  # and of larger ones so much: a worker that names a thousand jobtypes takes up to 130 kB

Say = Callable[[Callable[[], Mapping[tuple[str, str], bytes]]], Awaitable[None]]
"""Journals the rules that its argument makes, and makes them known here. Raises JournalRefused."""


class SettingsSync:
    """One partition of the store."""

    def __init__(
        self,
        *,
        store: Store,
        membership: Membership,
        workers: WorkerRegistry,
        views: WorkerViews,
        told: Callable[[], bool],
        clock: Clock,
        source: random.Random,
    ) -> None:
        """`told`: whether all rules of ours are in that store: before that it may know no worker of a sign."""
        self.backoff = LoopBackoff("settings", source=source)
        self.unknown: set[str] = set()
        """Workers that we heard of and that no rule in the store knows."""
        self.learned: list[Setting] = []
        """What others said, until it stands in our journal, too."""
        self.told_at_s: float | None = None
        """All that was said before is known here, on the clock since boot. None: nothing was told yet."""
        self._store = store
        self._membership = membership
        self._settings = workers.settings
        self._workers = workers
        self._views = views
        self._viewed = 0  # the revision of our view that this store has
        self._says_at_s = 0.0  # it is told no other before that
        self._told = told
        self._clock = clock
        self._signs = workers.signs()
        self.rules_at = self._signs_at = 0
        """Up to where this store told us rules."""
        self._asking = trio.Lock()
        self._life: str | None = None
        self._answered = 0  # of those who wanted to know
        self._log = get_logger("settings")

    @property
    def life(self) -> str:
        """Of the store, as we know it: what it forgot since we have told it again. Empty without a seat there."""
        return (self._membership.life or "").partition(".")[2]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        self._settings.askers += 1
        await self._settings.loaded.wait()  # what our journal says is no news
        while True:
            try:
                more = await self.hear()
            except StoreChanged as error:
                self._life = None  # the barrier looks who answers there now
                self._log.debug("settings.store_changed", error=str(error))
                await trio.sleep(FOLLOW_S)
            except (StoreAway, StoreRefused) as error:
                await self.backoff.wait_after_failure(error)
            else:
                self.backoff.succeeded()
                if not more:
                    await self._rest()

    async def hear(self) -> bool:
        """Ask at once what is new; whether there is more. Raises StoreAway, StoreRefused, StoreChanged."""
        async with self._asking:
            return self._membership.life is not None and await self._ask()

    async def say_view(self) -> None:
        """How we see the workers now, if the store has not heard it: before jobs go back that a worker wants later.

        Raises StoreAway, StoreRefused. Where the store's life is another, what went back before its end counts no more.
        """
        revision = self._views.look().revision
        if self._has_view(revision):
            return
        await trio.sleep_until(self._says_at_s)
        async with self._asking:
            if self._has_view(revision):
                return
            self._settings.look_again()  # the other partitions are told, too, without anybody waiting for them
            self._says_at_s = 0.0
            try:
                await self._ask()
            except StoreChanged as error:
                self._life = None
                self._log.debug("settings.store_changed", error=str(error))

    def _has_view(self, revision: int) -> bool:
        life = self._membership.life
        return life is None or (self._life == life and self._viewed >= revision)

    async def _rest(self) -> None:
        """Until the next question is due, or somebody wants to know what is new."""
        if not self._settings.told.is_set():
            await trio.sleep(FIRST_S)
            return
        asked = self._settings.asked
        await trio.sleep(AGAIN_S)
        if self._settings.wanted == self._answered:
            with trio.move_on_after(FOLLOW_S - AGAIN_S):
                await asked.wait()

    async def _ask(self) -> bool:
        """One question; whether there is more to be told."""
        if self._life != self._membership.life:
            # Numbers of another life say nothing; nor do we know what it has of us.
            self._life, self.rules_at, self._signs_at, self._viewed = self._membership.life, 0, 0, 0
        wanted = self._settings.asking()
        asked_at_s = self._clock.boot_s()
        # Ours of an earlier life is heard first: a pause outlasts a restart.
        is_due = self._settings.told.is_set() and (not self._viewed or trio.current_time() >= self._says_at_s)
        view = self._views.look() if is_due else None
        said = [view] if view is not None and view.revision != self._viewed else []
        signs = sorted(self._signs)[:SIGNS_PER_CALL] if self._told() else []
        answer = await self._store.follow_settings(self.rules_at, self._signs_at, signs, said)
        self._settings.ahead_ms[self] = answer.now_ms - round(self._clock.boot_s() * 1000)
        if view is not None and said:
            self._viewed, self._says_at_s = view.revision, trio.current_time() + SAID_S
        self._signs.difference_update(signs)
        self.rules_at, self._signs_at = answer.rules_at, answer.signs_at
        news = self._settings.take(answer.settings)
        self.learned += [setting for setting in news if setting.kind != VIEW]
        self._workers.heard_from(answer.alive)
        self.unknown.update(answer.unknown)
        if not answer.more:
            self.told_at_s = asked_at_s
            self._settings.told.set()
            self._answered = wanted
            self._settings.looked(wanted)
        return answer.more or len(signs) == SIGNS_PER_CALL

    async def forget(self, settings: Sequence[Setting]) -> Sequence[Setting]:
        """Drop in this partition what nobody needs any more; those that stay in it, or may."""
        if self._life is None or self._life != self._membership.life:
            return settings  # our number of the last sign is of another life
        try:
            return await self._store.forget_settings(self._signs_at, settings)
        except (StoreAway, StoreRefused) as error:
            self._log.warning("settings.not_forgotten", error=str(error))  # they are looked at again in TIDY_S
            return settings


class SettingsUpkeep:
    """What the rules of this daemon need besides: those in its journal are read at the start, and it says what it found
    out."""

    def __init__(
        self,
        *,
        journal: Journal,
        workers: WorkerRegistry,
        follows: Sequence[SettingsSync],
        views: WorkerViews,
        say: Say,
        unneeded: Callable[[], Mapping[tuple[str, str], bytes]],
        clock: Clock,
        source: random.Random,
    ) -> None:
        """`unneeded`: what is to be said of options that nobody needs."""
        self.backoff = LoopBackoff("settings", source=source)
        self._follows = follows
        self._journal = journal
        self._settings = workers.settings
        self._workers = workers
        self._views = views
        self._say = say
        self._unneeded = unneeded
        self._clock = clock
        self._log = get_logger("settings")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Say until cancelled which workers left, and once more what a store does not know."""
        task_status.started()
        await self._read_own()
        tidy_at_s = self._clock.mono_s() + TIDY_S
        while True:
            try:
                await self._say_news()
            except JournalRefused as error:
                await self.backoff.wait_after_failure(error)
            else:
                self.backoff.succeeded()
                if self._clock.mono_s() >= tidy_at_s:
                    tidy_at_s = self._clock.mono_s() + TIDY_S
                    await self.tidy()
                await trio.sleep(FOLLOW_S)

    async def tidy(self) -> None:
        """Drop what was deleted, or has been silent, for long: everywhere, and here what no partition keeps.

        Raises JournalRefused.
        """
        self._workers.forget_silent()
        await self._say(self._unneeded)
        gone_all = await useless(self._settings, self._workers, self._clock.wall_ms()) + self._views.stale()
        for at in range(0, min(len(gone_all), TIDY_RULES * TIDY_CALLS), TIDY_RULES):
            gone = gone_all[at : at + TIDY_RULES]
            kept = {setting.key for follow in self._follows for setting in await follow.forget(gone)}
            for setting in gone:
                if setting.key not in kept:
                    self._settings.forget(setting)
            self._log.info("settings.forgotten", count=len(gone) - len(kept))

    async def _read_own(self) -> None:
        """What this journal has said so far: what is said from now on must be above it, also while no store answers."""
        try:
            async with aclosing(self._journal.read_range(Lane.RULES, self._journal.start, self._journal.end)) as pieces:
                async for slices in pieces:
                    for piece in slices:
                        self._settings.take(decode_rules(piece.body)[piece.first : piece.stop])
        except (JournalDamaged, JournalStuck) as error:
            # The lane reports it, too, and turns health red. What a store knows of our rules comes from there.
            self._log.error("settings.unreadable", error=str(error))
        self._settings.loaded.set()

    async def _say_news(self) -> None:
        await self._say(self._workers.farewells)
        await self._keep()

    async def _keep(self) -> None:
        """Journal rules as others said them: they hold here from the next start on, and any store gets them again.

        What a store does not know of a worker comes again in the same way: under a new revision it would beat a
        deletion that has not come here yet.
        """
        unknown = {worker_id for follow in self._follows for worker_id in follow.unknown}
        learned = [setting for follow in self._follows for setting in follow.learned if self._settings.holds(setting)]
        kept = [
            *learned,
            *(setting for worker_id in unknown if (setting := self._settings.get(KIND, worker_id)) is not None),
        ]
        counts = [len(follow.learned) for follow in self._follows]
        for piece in _pieces(kept):
            await self._journal.wsync(self._journal.write(Lane.RULES, len(piece), encode_rules(piece)))
        for follow, count in zip(self._follows, counts, strict=True):
            del follow.learned[:count]
            follow.unknown -= unknown


def _pieces(settings: Sequence[Setting]) -> Iterator[list[Setting]]:
    """Such as one frame takes."""
    piece: list[Setting] = []
    size_bytes = 0
    for setting in settings:
        if piece and (len(piece) == KEPT_RULES or size_bytes + setting.size_bytes > KEPT_BYTES):
            yield piece
            piece, size_bytes = [], 0
        piece.append(setting)
        size_bytes += setting.size_bytes
    if piece:
        yield piece
