"""Counts failed jobs and reports them to the administrator: one daemon for all, each notice once (docs/adr/0080).

    every LOOK_S   read the state ─▶ read new failures ─▶ rule.py ─▶ write the state ─▶ send the notices that are out

A write succeeds only if nobody else wrote the state since it was read; else the daemon begins again with the new state.
So no failure is counted twice or lost, and a notice is marked in the store ("out") before it is sent. The other daemons
watch: when the state has not changed for HOLD_S on their own clocks, one of them takes over. While a daemon waits for a
slow mail server, it writes the state every BEAT_S, so that nobody takes over.
"""

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

import msgspec
import trio
from msgspec import structs

from jqd.domain.clock import Clock
from jqd.domain.error_pattern import fold
from jqd.domain.errors import StoreAway, StoreChanged, StoreRefused
from jqd.domain.log import get_logger
from jqd.loops.backoff import LoopBackoff
from jqd.notify import rule
from jqd.notify.board import NOWHERE, Board, Channel, Failure, Notice, Place, decode, encode
from jqd.notify.config import NotifyConfig
from jqd.notify.hook import HookSender
from jqd.notify.mail import MailSender
from jqd.notify.render import TROUBLE_LENGTH_MAX
from jqd.notify.rule import Fate, Result
from jqd.service.job_filter import last_line
from jqd.store import JobView, Store

LOOK_S = 2.0  # between rounds: each is a call of the store, and one of each partition
HOLD_S = 60.0  # another daemon takes over when the state was not written for this time
BEAT_S = 15.0  # how often the sending daemon writes the state at least, also while it sends, to show that it lives
PAGES = 10  # pages of a hundred failures that are read in one round: some 50 ms
BUSY_S = 0.1  # between rounds while there are more failures: some 5,000 a second are read
AGAIN_MS = 2_000  # each round reads the last failures again, back to this time before the last round: clocks go back
# The store's clock was set back if it advanced this much less than this daemon's. A slewed clock is nearly as fast.
BACK_MS = 500
# The same after taking over, or when the store is another one: outcomes may have come late.
AGAIN_FIRST_MS = 500_000

_threads = trio.CapacityLimiter(1)


class Sender(Protocol):
    """Sends notices through one channel: mail, or the web hook."""

    async def send(self, notice: Notice) -> Result:
        """Send a notice. Returns within some minutes, whatever the server does."""
        ...


class Reading:
    """This daemon's position in the list of failed jobs of one partition."""

    def __init__(self, counted: Place) -> None:
        self.counted = counted
        """Position up to which all failures are counted. Failures before it that are read again may be known
        already."""
        self.now_ms = counted[0]
        """When the list was last read to its end, by the store's clock."""
        self.now_s: float | None = None
        """The same instant by this daemon's monotonic clock; None: not yet."""
        self.place: Place = max(0, self.now_ms - AGAIN_FIRST_MS), ""
        self.is_behind = True

    def went_back(self, now_ms: int, asked_at_s: float) -> bool:
        """Whether the store's clock was set back since the list was last read. `now_ms`: the store's time;
        `asked_at_s`: when this daemon asked for it, by its monotonic clock."""
        went_ms = now_ms - self.now_ms
        return went_ms < (0 if self.now_s is None else max(0, (asked_at_s - self.now_s) * 1000 - BACK_MS))

    def has(self, at_ms: int, job_id: str) -> bool:
        """Whether a failure, given by its date and job, may have been counted already."""
        return (at_ms, job_id) <= self.counted

    def look_again(self, now_ms: int, now_s: float, from_ms: int) -> None:
        """Note that the list was read to its end at `now_ms`. The next reading begins at failures `from_ms` before
        that."""
        self.now_ms, self.now_s = now_ms, now_s
        self.place = max(0, now_ms - from_ms), ""


class NoticeLoop:
    """Counts failures and sends notices for all daemons, if this daemon is the one to do so."""

    def __init__(
        self,
        config: NotifyConfig,
        *,
        stores: Sequence[Store],
        senders: Mapping[str, Sender],
        sysid: str,
        clock: Clock,
        source: random.Random,
    ) -> None:
        """`stores`: the partitions; the first one has the state. `senders`: channel name ("mail", "hook") → its
        sender."""
        self.backoff = LoopBackoff("notices", source=source)
        self.counts = {name: {fate.name.lower(): 0 for fate in Fate} for name in senders}
        """Channel → fate → number of notices that this daemon sent."""
        self._config, self._stores, self._senders = config, stores, senders
        self._sysid, self._clock, self._source = sysid, clock, source
        self._version, self._packed = 0, b""
        self._stands_since_s = clock.mono_s()  # since when the state has not changed
        self._written_at_s = float("-inf")
        self._acts = False
        self._readings: dict[int, Reading] = {}
        self._results: dict[str, tuple[str, Result]] = {}  # channel → id of the sent notice, and its result
        self._stuck = ""
        self._troubles: list[str] = []
        self._log = get_logger("notices")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            try:
                rest_s = await self.act()
            except StoreChanged as error:  # `recovery` deals with that
                self._readings.clear()
                self._log.debug("notices.store_changed", error=str(error))
                rest_s = LOOK_S
            except (StoreAway, StoreRefused) as error:
                self._readings.clear()  # the state may have been written, though the answer was lost
                self._stuck = str(error) if isinstance(error, StoreRefused) else ""
                await self.backoff.wait_after_failure(error)
                continue
            self.backoff.succeeded()
            await trio.sleep(rest_s)

    def complaints(self) -> list[str]:
        """Return why notices do not arrive; empty: they do. All daemons return the same, from the shared state."""
        return [f"notices: {trouble}" for trouble in ([self._stuck] if self._stuck else self._troubles)]

    async def act(self) -> float:
        """Count new failures, and send the notices that are due. Returns the seconds until the next call. Raises
        StoreAway, StoreChanged, StoreRefused."""
        found = await self._stores[0].swap_notices(self._version)
        if found.state is not None:
            self._take(found.version, found.state)
        try:
            board = decode(self._packed) if self._packed else Board()
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._stuck = f"the state in the store is not understood ({error}); is another daemon newer than this one?"
            return LOOK_S
        self._stuck = ""
        self._troubles = [one.trouble for one in board.channels.values() if one.trouble]
        if not self._may_act(board):
            self._acts = False
            return LOOK_S
        self._hold(board)
        now_ms = found.now_ms
        # Note sent notices before anything slow: another daemon that takes over would send them again.
        is_behind = self._settle(board, now_ms) or await self._count(board, now_ms)
        out = self._take_notices(board, now_ms)
        if not await self._exchange(board):
            return 0.0
        self._results.clear()
        for partition, reading in self._readings.items():
            reading.counted = max(reading.counted, board.counted[partition])
        if out:
            await self._send(board, out)
            return 0.0
        return BUSY_S if is_behind else LOOK_S

    def _take(self, version: int, state: bytes) -> None:
        """Replace this daemon's copy of the state by the one that the store has. It may lack failures that this daemon
        read, so reading starts again from the positions in it."""
        self._readings.clear()
        self._version, self._packed, self._stands_since_s = version, state, self._clock.mono_s()

    def _may_act(self, board: Board) -> bool:
        """Return whether this daemon may send notices for all. It may if it already does so, if no daemon does, or if
        that daemon has written nothing for HOLD_S."""
        is_silent = self._clock.mono_s() - self._stands_since_s > HOLD_S
        return board.holder in ("", self._sysid) or is_silent

    def _hold(self, board: Board) -> None:
        if not self._acts:
            self._log.info("notices.acts", before=board.holder)
            for channel in board.channels.values():
                rule.resume(channel)
        self._acts, board.holder = True, self._sysid
        for name in self._senders:
            board.channels.setdefault(name, Channel())

    def _settle(self, board: Board, now_ms: int) -> bool:
        """Record the results of sent notices in the state. Returns whether any were recorded."""
        for name, (notice_id, result) in [*self._results.items()]:
            notice = board.channels[name].notice
            if notice is not None and notice.id == notice_id:
                rule.settle(board.channels[name], result, now_ms)
            else:
                del self._results[name]  # the store lost the notice, or another daemon dealt with it
        return bool(self._results)

    async def _count(self, board: Board, now_ms: int) -> bool:
        """Read and count new failures. Returns whether more are left to read."""
        is_behind, failures = False, list[Failure]()
        for partition, store in enumerate(self._stores):
            reading = self._readings.get(partition)
            if reading is None:
                reading = self._readings[partition] = Reading(board.counted.get(partition, NOWHERE))
            try:
                failures += await self._read(store, reading)
            except (StoreAway, StoreRefused) as error:  # read it when it is back; go on with the others
                del self._readings[partition]
                self._log.debug("notices.partition_away", partition=partition, error=str(error))
                continue
            # At the end of the list: all failures before this instant are counted, but more may come at it.
            board.counted[partition] = reading.place if reading.is_behind else (reading.now_ms, "")
            is_behind = is_behind or reading.is_behind
        newest_ms = max(now_ms, *(place[0] for place in board.counted.values()))  # each partition has its own clock
        for channel in board.channels.values():  # also for channels that only other daemons can send by
            rule.count(channel, failures, now_ms, newest_ms)
        return is_behind

    async def _read(self, store: Store, reading: Reading) -> list[Failure]:
        failures: list[Failure] = []
        place = reading.place
        for _ in range(PAGES):
            asked_at_s = self._clock.mono_s()
            page = await store.list_failed(*place)
            if reading.went_back(page.now_ms, asked_at_s):  # failures since then come before the place
                reading.look_again(page.now_ms, self._clock.mono_s(), AGAIN_FIRST_MS)
                reading.is_behind = True
                return failures
            views = [one.job for one in page.jobs]
            lines = await trio.to_thread.run_sync(partial(_lines, views), limiter=_threads)
            failures += (
                Failure(one.job.jobtype, pattern, one.at_ms, one.job.id, reading.has(one.at_ms, one.job.id), line)
                for one, (line, pattern) in zip(page.jobs, lines, strict=True)
            )
            if page.last is None:
                reading.look_again(page.now_ms, self._clock.mono_s(), AGAIN_MS)
                reading.is_behind = False
                return failures
            place = page.last
        reading.place, reading.is_behind = place, True
        return failures

    def _take_notices(self, board: Board, now_ms: int) -> dict[str, Notice]:
        """Return channel → the notice to send now, and mark these notices in the state as being sent (`is_out`)."""
        out: dict[str, Notice] = {}
        seen_ms = min(board.counted.get(partition, NOWHERE)[0] for partition in range(len(self._stores)))
        for name in self._senders:
            channel = board.channels[name]
            rule.compose(channel, self._config, self._new_id, now_ms, seen_ms)
            if notice := rule.begin(channel, self._config, now_ms):
                out[name] = notice
        return out

    def _new_id(self) -> str:
        return f"{self._source.getrandbits(96):024x}"

    async def _exchange(self, board: Board) -> bool:
        """Write the state if it changed, or every BEAT_S to show that this daemon lives. Returns False if another
        daemon wrote first."""
        packed, before = encode(board), decode(self._packed) if self._packed else None
        is_news = before is None or packed != encode(structs.replace(before, counted=board.counted))
        if not is_news and self._clock.mono_s() - self._written_at_s < BEAT_S:
            return True
        done = await self._stores[0].swap_notices(self._version, packed)
        if done.state is not None:
            self._take(done.version, done.state)
            return False
        self._version, self._packed = done.version, packed
        self._stands_since_s = self._written_at_s = self._clock.mono_s()
        return True

    async def _send(self, board: Board, out: Mapping[str, Notice]) -> None:
        async def send(name: str, notice: Notice) -> None:
            try:
                result = await self._senders[name].send(notice)
            except Exception as error:  # noqa: BLE001 - text from workers must end no daemon
                self._log.error("notices.broken", channel=name, exc_info=error)
                result = Result(Fate.REFUSED, f"a notice by {name} cannot be written: {error!r}"[:TROUBLE_LENGTH_MAX])
            self._results[name] = notice.id, result
            self.counts[name][result.fate.name.lower()] += 1
            note = self._log.info if result.fate is Fate.SENT else self._log.warning
            fields = {"trouble": result.trouble} if result.trouble else {}
            note("notices.sent", channel=name, fate=result.fate.name.lower(), groups=len(notice.rows), **fields)

        async with trio.open_nursery() as nursery:
            sent = trio.Event()
            nursery.start_soon(self._stay, board, sent)
            async with trio.open_nursery() as sending:
                for name, notice in out.items():
                    sending.start_soon(send, name, notice)
            sent.set()

    async def _stay(self, board: Board, sent: trio.Event) -> None:
        """Write the state every BEAT_S, to show that this daemon lives. Ends when the notices are sent, or when another
        daemon writes the state."""
        is_ours = True
        while is_ours:
            with trio.move_on_after(BEAT_S):
                await sent.wait()
                return
            try:
                is_ours = await self._exchange(board)
            except (StoreAway, StoreChanged, StoreRefused) as error:  # the next round finds out
                self._log.debug("notices.not_shown", error=str(error))


def _lines(views: Sequence[JobView]) -> list[tuple[str, str]]:
    lines = (last_line(view.outcome) if view.outcome else "no reason is known" for view in views)
    each = [line.encode("utf-8", "replace").decode() for line in lines]
    return [(line, fold(line)) for line in each]


def make_notices(
    config: NotifyConfig, *, stores: Sequence[Store], sysid: str, clock: Clock, source: random.Random
) -> NoticeLoop | None:
    """Return the loop that sends notices; None if neither mail nor a web hook is configured."""
    senders: dict[str, Sender] = {}
    if config.smtp_host:
        senders["mail"] = MailSender(config)
    if config.hook_url:
        senders["hook"] = HookSender(config, clock)
    if not senders:
        return None
    return NoticeLoop(config, stores=stores, senders=senders, sysid=sysid, clock=clock, source=source)
