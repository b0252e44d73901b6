"""Syncs settings between daemons, and drops those that nobody needs.

A setting goes to the store through the journal, in the lane `rules`, and to every partition, so any partition that
answers has all settings. Daemons fetch new settings twice a second, a daemon that is alone once a second. The same call
exchanges workers' signs of life, and each daemon's view of the workers (docs/adr/0028)."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing

import trio

from jqd.domain.array_split import in_steps
from jqd.domain.audit import IN_A_ROW, is_old, stale
from jqd.domain.beat import next_beat_s, rest
from jqd.domain.clock import Clock
from jqd.domain.errors import JournalDamaged, JournalStuck, StoreAway, StoreChanged, StoreRefused
from jqd.domain.groups import in_groups
from jqd.domain.log import get_logger
from jqd.domain.record import Lane, decode_rules, encode_rules
from jqd.domain.settings import AUDIT, FIRED, SCHEDULE, Setting, SettingTable
from jqd.domain.tenant import tenant_of
from jqd.domain.tokens import TOKEN, over
from jqd.journal import Journal, Slice
from jqd.loops.backoff import LoopBackoff
from jqd.loops.membership import Membership
from jqd.runner import WorkerRegistry, WorkerViews
from jqd.runner.handler import is_deleted
from jqd.runner.registry import HANDLER, KIND
from jqd.runner.worker_health import SAME_MS, VIEW
from jqd.store import Store

SILENT_S = 3_600.0  # a registration whose ttl ran out is kept so long, for a worker that comes back
# A worker's deletion is kept so long. A daemon that was away longer brings its registration back until the ttl is over
# or its worker was unreachable for 5 minutes.
DELETED_S = 7 * 86_400.0
ENDED_S = 90 * 86_400.0  # other deletions are kept so long: nothing else would remove a handler that was brought back
FIRED_S = 7 * 86_400.0  # the fired dates of a schedule are kept so long after it was deleted
# Kept of one tenant: programs that make up names leave some with each run. Deletions are counted by kind: many deleted
# workers must not displace the deletion of a schedule, and so bring it back.
SILENT_MAX = DELETED_MAX = 10_000
FIRST_S = 0.02  # between tries of the first fetch: pushes wait for its answer
FOLLOW_S = 0.5  # between two fetches: with the way through the journal well below two seconds
PUBLISH_S = 0.25  # between two published views: each stops the claims of all other daemons until they have it
BREAK_S = 5.0  # a longer time between two fetches is a break: several failed, or the machine was suspended
AGAIN_S = 0.1  # between two fetches at least, however many callers wait for one
SIGNS_PER_CALL = 500  # ids of workers
TIDY_S = 60.0  # between looks for settings that nobody needs
TIDY_RULES = 500  # dropped in one call
TIDY_CALLS = 20  # in a row: together more than may be added in TIDY_S
KEPT_RULES = 100  # settings of other daemons in one frame
KEPT_BYTES = 1 << 20  # the same in bytes: a worker that names a thousand jobtypes takes up to 130 kB

Save = Callable[[Callable[[], Mapping[tuple[str, str], bytes]]], Awaitable[None]]
"""Journals the settings that its argument returns, and applies them at this daemon. Raises JournalRefused."""


class SettingsSync:
    """Syncs settings with one partition of the store."""

    def __init__(
        self,
        *,
        store: Store,
        membership: Membership,
        workers: WorkerRegistry,
        views: WorkerViews,
        own_applied: Callable[[], bool],
        clock: Clock,
        source: random.Random,
    ) -> None:
        """`own_applied`: returns whether the store has all settings of our journal; until then it may not know our
        workers."""
        self.backoff = LoopBackoff("settings", source=source)
        self.unknown: set[str] = set()
        """Ids of workers that sent signs of life here but have no registration in the store."""
        self.learned: dict[tuple[str, str], Setting] = {}
        """Settings of other daemons that are not in our journal yet: the latest of each kind and name, as the journal
        may take nothing for long. Views are among them, and never journaled."""
        self.synced_at_s: float | None = None
        """All settings that were saved before this time (s since boot) are known here. None before the first answer."""
        self.steady_since_s: float | None = None
        """Since when (s since boot) settings were synced without a break, in one life of the store."""
        self._store = store
        self._membership = membership
        self._settings = workers.settings
        self._workers = workers
        self._views = views
        self._published = 0  # revision of our view that this store has
        self._publish_at_s = 0.0  # the next view is not published before
        self._own_applied = own_applied
        self._clock = clock
        self._signs = workers.signs()
        self.rules_at = self._signs_at = 0
        """`rules_at`: number of the last change of settings that we got from this store; `_signs_at`: the same of signs
        of life."""
        self._asking = trio.Lock()
        self._life: str | None = None
        self._answered = 0  # the value of `SettingTable.wanted` at the last complete answer
        self._log = get_logger("settings")

    @property
    def life(self) -> str:
        """The life of the store (time without a loss of its data) that we are a member of; empty: we are no member."""
        return (self._membership.life or "").partition(".")[2]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        self._settings.askers += 1
        await self._settings.tried.wait()  # else settings of our own journal would count as new
        while True:
            try:
                more = await self.refresh()
            except StoreChanged as error:
                self._life = None  # `recovery` finds out which life answers now
                self._log.debug("settings.store_changed", error=str(error))
                await trio.sleep(FOLLOW_S)
            except (StoreAway, StoreRefused) as error:
                await self.backoff.wait_after_failure(error)
            else:
                self.backoff.succeeded()
                if not more:
                    await self._rest()

    async def refresh(self) -> bool:
        """Fetch new settings now. Returns whether more are left. Raises StoreAway, StoreRefused, StoreChanged."""
        async with self._asking:
            # `recovery` may wait for the same disk. Before its look (no `seal`) this may be another store.
            is_lacking = not self._settings.loaded.is_set() and self._store.seal != ""
            return (is_lacking or self._membership.life is not None) and await self._ask()

    async def publish_view(self) -> None:
        """Save this daemon's view of the workers in the store, unless the store has it. Called before jobs that a
        worker refused go back, so that no other daemon sends them to that worker.

        Raises StoreAway, StoreRefused. Does not raise, and may save nothing, if another life of the store answers: then
        the jobs do not go back, either."""
        revision = self._views.look().revision
        if self._has_view(revision):
            return
        await trio.sleep_until(self._publish_at_s)
        async with self._asking:
            for _ in range(2):  # the first answer may show that the store's clock was set
                if self._has_view(revision):
                    return
                self._settings.look_again()  # the other partitions get it, too, but are not waited for
                self._publish_at_s = 0.0
                try:
                    await self._ask()
                except StoreChanged as error:
                    self._life = None
                    self._log.debug("settings.store_changed", error=str(error))
                    return

    def _has_view(self, revision: int) -> bool:
        life = self._membership.life
        return life is None or (self._life == life and self._published >= revision)

    async def _rest(self) -> None:
        """Wait until the next fetch is due, or a caller wants one."""
        if not self._settings.synced.is_set() and self.synced_at_s is None:
            await trio.sleep(FIRST_S)
            return
        asked, again_s = self._settings.asked, trio.current_time() + AGAIN_S
        if self._settings.wanted == self._answered:
            # A daemon that is alone fetches half as often.
            with trio.move_on_after(next_beat_s(FOLLOW_S * (2 if self._membership.is_alone else 1))):
                await asked.wait()
        await trio.sleep_until(again_s)

    async def _ask(self) -> bool:
        """Fetch changed settings, and exchange signs of life and views. Returns whether more is left to exchange."""
        if self._life != self._membership.life:
            # Change numbers of another life mean nothing, and it may lack our view.
            self._life, self.rules_at, self._signs_at, self._published = self._membership.life, 0, 0, 0
            self.steady_since_s = None
        wanted = self._settings.asking()
        asked_at_s = self._clock.boot_s()
        # Our view from before a restart is read before a new one is published, so that back-offs outlast the restart.
        is_due = self._settings.synced.is_set() and (not self._published or trio.current_time() >= self._publish_at_s)
        view = self._views.look() if is_due else None
        views = [view] if view is not None and view.revision != self._published else []
        signs = sorted(self._signs)[:SIGNS_PER_CALL] if self._own_applied() else []
        answer = await self._store.follow_settings(self.rules_at, self._signs_at, signs, views)
        received_at_s = self._clock.boot_s()
        moved_ms = self._settings.note_time(self, answer.now_ms, sent_at_s=asked_at_s, received_at_s=received_at_s)
        was_set = abs(moved_ms) >= SAME_MS
        if view is not None and views:
            # The view's times are by the store's clock: if that was set they are wrong, and the view is sent again.
            self._published, self._publish_at_s = 0 if was_set else view.revision, trio.current_time() + PUBLISH_S
        self._signs.difference_update(signs)
        self.unknown.update(answer.unknown)
        # If the asker goes away meanwhile, the next one fetches the same settings again.
        await in_steps(self._settings.take_each(answer.settings, self.learned), trio.lowlevel.checkpoint)
        self.rules_at, self._signs_at = answer.rules_at, answer.signs_at
        self._workers.record_signs(answer.alive)
        if not answer.more:
            if self.steady_since_s is None or asked_at_s - (self.synced_at_s or asked_at_s) > BREAK_S:
                self.steady_since_s = asked_at_s
            self.synced_at_s = asked_at_s
            if answer.settled or self._settings.loaded.is_set():  # else it may lack what our disk does not give
                self._settings.synced.set()
            self._answered = wanted
            self._settings.record_sync(wanted)
        return answer.more or len(signs) == SIGNS_PER_CALL

    async def forget(self, settings: Sequence[Setting]) -> Sequence[Setting]:
        """Drop settings in this partition. Returns settings that it still has, or may have because the call failed."""
        if self._life is None or self._life != self._membership.life:
            return settings  # `_signs_at` is of another life
        try:
            return await self._store.forget_settings(self._signs_at, settings)
        except (StoreAway, StoreRefused) as error:
            self._log.warning("settings.not_forgotten", error=str(error))  # tried again in TIDY_S
            return settings


class SettingsUpkeep:
    """Reads the settings of this daemon's journal at the start, and journals new settings of other daemons."""

    def __init__(
        self,
        *,
        journal: Journal,
        workers: WorkerRegistry,
        follows: Sequence[SettingsSync],
        views: WorkerViews,
        save: Save,
        unneeded: Callable[[], Mapping[tuple[str, str], bytes]],
        clock: Clock,
        source: random.Random,
    ) -> None:
        """`follows`: one for each partition. `save`: journals the settings that its argument returns. `unneeded`:
        returns deletions of jobtype options that nobody needs, as (kind, name) → body."""
        self.backoff = LoopBackoff("settings", source=source)
        self._follows = follows
        self._journal = journal
        self._settings = workers.settings
        self._workers = workers
        self._views = views
        self._save = save
        self._unneeded = unneeded
        self._clock = clock
        self._log = get_logger("settings")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await self._read_own()
        self._tidy_at_s = self._clock.mono_s() + TIDY_S
        while True:
            if await self.backoff.attempt(self._keep_up):
                await rest(FOLLOW_S)

    async def _keep_up(self) -> None:
        await self._save(self._workers.farewells)
        await self._keep()
        if self._clock.mono_s() >= self._tidy_at_s:
            await self.tidy()
            self._tidy_at_s = self._clock.mono_s() + TIDY_S

    async def tidy(self) -> None:
        """Drop unneeded settings and stale views in all partitions. Once no partition has one, this daemon drops it,
        too.

        Raises JournalRefused."""
        self._workers.forget_silent()
        await self._save(self._unneeded)
        gone_all = await find_unneeded(self._settings, self._workers, self._clock.wall_ms()) + self._views.stale()
        for at in range(0, min(len(gone_all), TIDY_RULES * TIDY_CALLS), TIDY_RULES):
            gone = gone_all[at : at + TIDY_RULES]
            kept = {setting.key for follow in self._follows for setting in await follow.forget(gone)}
            for setting in gone:
                if setting.key not in kept:
                    self._settings.forget(setting)
            self._log.info("settings.forgotten", count=len(gone) - len(kept))

    async def _read_own(self) -> None:
        """Read the settings of our own journal, so that new revisions are greater than theirs even while no store
        answers.

        Segments that the disk does not give are read again after all others, in rounds, until `synced` is set at the
        end of a round."""
        settings, left = self._settings, list(self._journal.segments)
        while left := [each for each in left if not await self._was_read(each.first, each.end)]:
            if not settings.tried.is_set():
                self._log.error("settings.unreadable", segments=len(left), waits_for="the disk, or a store")
            settings.tried.set()
            if settings.synced.is_set():
                break
            await rest(FOLLOW_S)
        settings.tried.set()
        settings.loaded.set()

    async def _was_read(self, first: int, end: int) -> bool:
        """Put the settings in a range of the journal into the table. Returns False if the disk does not give all of the
        range."""
        try:
            async with aclosing(self._journal.read_range(Lane.RULES, first, end)) as pieces:
                async for slices in pieces:
                    for piece in slices:
                        await self._take(piece)
        except JournalStuck:
            return False  # the journal has logged it
        return True

    async def _take(self, piece: Slice) -> None:
        try:
            settings = decode_rules(piece.body)[piece.first : piece.stop]
        except JournalDamaged as error:  # the lane stops there, and turns health red
            self._log.error("settings.unreadable", error=str(error))
        else:
            await in_steps(self._settings.take_each(settings, {}), trio.lowlevel.checkpoint)

    async def _keep(self) -> None:
        """Journal settings of other daemons, so that they are in force here after a restart and can be sent to any
        store.

        The registration of a worker that a store does not know is journaled again under its old revision: a new
        revision would undo a deletion that has not arrived here yet."""
        unknown = {worker_id for follow in self._follows for worker_id in follow.unknown}
        learned = [(follow.learned, setting) for follow in self._follows for setting in follow.learned.values()]
        kept = [setting for _, setting in learned if setting.kind != VIEW and self._settings.holds(setting)]
        kept += [setting for worker_id in unknown if (setting := self._settings.get(KIND, worker_id)) is not None]
        for piece in in_groups(kept, lambda setting: setting.size_bytes, KEPT_RULES, KEPT_BYTES):
            await self._journal.wsync(self._journal.write(Lane.RULES, len(piece), encode_rules(piece)))
        for waiting, setting in learned:
            if waiting[setting.key] is setting:  # else a later one has replaced it meanwhile
                del waiting[setting.key]
        for follow in self._follows:
            follow.unknown -= unknown


async def find_unneeded(settings: SettingTable, workers: WorkerRegistry, now_ms: int) -> list[Setting]:
    """Return settings that all daemons are to drop, the oldest of each sort first. Lets other tasks run meanwhile:
    there may be 100,000."""
    silent = sorted(workers.silent(), key=lambda pair: pair[0])
    deleted = sorted(await _filter(settings.every(but=AUDIT), _is_deleted), key=lambda setting: setting.at_ms)
    kept, left, gone = Counter[str](), Counter(map(_kind_and_tenant, deleted)), list[Setting]()
    for since_s, setting in silent:
        kept[tenant_of(setting.name)] += 1
        if since_s > SILENT_S or kept[tenant_of(setting.name)] > SILENT_MAX:
            gone.append(setting)
    gone.reverse()
    # After the deletion of a schedule other daemons may still save its fired dates; the deletion is kept longer.
    ended = {
        setting.name for setting in deleted if setting.kind == SCHEDULE and now_ms - setting.at_ms > FIRED_S * 1000
    }
    gone += [setting for setting in settings.all(FIRED) if setting.name in ended and not setting.is_deleted]
    gone += await stale(settings, now_ms)
    gone += [setting for setting in settings.all(TOKEN) if over(setting, now_ms)]
    for setting in deleted:
        if is_stale(setting, now_ms) or left[_kind_and_tenant(setting)] > DELETED_MAX:
            left[_kind_and_tenant(setting)] -= 1
            gone.append(setting)
    return gone


def carried(settings: SettingTable, frame: Sequence[Setting], now_ms: int) -> list[Setting]:
    """Return the settings of a frame to copy before its segment is deleted: those still in force, and not stale."""
    return [setting for setting in frame if settings.holds(setting) and not is_stale(setting, now_ms)]


def is_stale(setting: Setting, now_ms: int) -> bool:
    """Return whether a setting is an old deletion or audit record, or an expired token."""
    if is_old(setting, now_ms) or over(setting, now_ms):
        return True
    kept_s = DELETED_S if setting.kind == KIND else ENDED_S
    return now_ms - setting.at_ms > kept_s * 1000 and _is_deleted(setting)


async def _filter(settings: Sequence[Setting], is_so: Callable[[Setting], bool]) -> list[Setting]:
    found: list[Setting] = []
    for at in range(0, len(settings), IN_A_ROW):
        if at:
            await trio.lowlevel.checkpoint()
        found += filter(is_so, settings[at : at + IN_A_ROW])
    return found


def _kind_and_tenant(setting: Setting) -> tuple[str, str]:
    return setting.kind, tenant_of(setting.name)


def _is_deleted(setting: Setting) -> bool:
    return setting.is_deleted or (setting.kind == HANDLER and is_deleted(setting.body))
