"""Gets what a claim lacks of constraints that are counted in other partitions of the store (docs/adr/0048).

    claim ──lacks──▶ home of the bucket: a rate is spent there, slots are granted there
                        │ the first time, or when there are too few: what do the others have?
                        ▼
                     all partitions ──▶ home ──▶ the claim again, with what was granted

Daemons only carry numbers. Whatever of this is lost, late or repeated, no partition assumes more than the bucket's home
granted.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import trio

from jqd.domain.clock import Clock
from jqd.domain.errors import StoreError, StoreRefused, StoreUnsettled
from jqd.domain.log import get_logger
from jqd.store import Lack, Permit, RateGranted, RateWanted, Report, SlotsGranted, SlotsWanted, Store

GIVEN_S = 0.25  # for each question to a partition: one that does not answer must not hold up what others count
SILENT_S = 2.0  # a partition that did not answer is not asked again for so long
# How long a granted rate may be used; windows are longer by that. It is LASTING_ROUNDS times what it took the last
# time, or one part in WINDOWS of the window: the only start of a day must not be lost by a slow answer.
LASTING_MIN_S, LASTING_MAX_S = 0.05, 2.0
LASTING_ROUNDS = 4
WINDOWS = 50
WAIT_US = 1_000_000  # until it is tried again, where nobody answered
STEPS = 3  # partitions report what they have, then give back, then the home grants

T = TypeVar("T")


class Permits:
    """Asks other partitions for grants to this one."""

    def __init__(self, number: int, stores: Sequence[Store], clock: Clock) -> None:
        """`stores`: of all partitions, in their order; `number`: ours."""
        self.silent: dict[int, str] = {}
        """Partitions that did not answer the last question, and why."""
        self._number = number
        self._stores = stores
        self._clock = clock
        self._silent_until_s: dict[int, float] = {}
        self._lasting_s = LASTING_MIN_S
        self._late: dict[bytes, tuple[float, Permit]] = {}
        """Rates granted after the claim gave up waiting, and until when they may be used: they are spent already."""
        self._nursery: trio.Nursery | None = None
        self._log = get_logger("permits")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold calls that nobody waits for any more: a call that was sent is not cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def took(self, seconds: float) -> None:
        """Note how long it took from the lack to the claim with permits: rates are asked for with that in mind."""
        least_s = max(LASTING_MIN_S, 0.9 * self._lasting_s)
        self._lasting_s = min(LASTING_MAX_S, max(least_s, LASTING_ROUNDS * seconds))

    async def get(self, lacking: Sequence[Lack]) -> list[Permit]:
        """Return the grants; a partition that does not answer in time grants nothing."""
        fields: dict[bytes, Permit] = {}
        homes = {one.home for one in lacking}
        async with trio.open_nursery() as nursery:
            for home in homes:
                slots = [one for one in lacking if isinstance(one, SlotsWanted) and one.home == home]
                rates = [one for one in lacking if isinstance(one, RateWanted) and one.home == home]
                if slots:
                    nursery.start_soon(self._slots, home, slots, fields)
                if rates:
                    nursery.start_soon(self._rates, home, rates, fields)
        return [fields.get(one.bucket) or _refused(one) for one in lacking]

    async def _rates(self, home: int, wanted: Sequence[RateWanted], told: dict[bytes, Permit]) -> None:
        now_s = self._clock.mono_s()
        self._late = {bucket: late for bucket, late in self._late.items() if late[0] > now_s}
        told |= {one.bucket: self._late.pop(one.bucket)[1] for one in wanted if one.bucket in self._late}
        asked = [(one, self._lasting_us(one)) for one in wanted if one.bucket not in told]

        def permits(granted: Sequence[RateGranted]) -> Iterator[Permit]:
            for (one, lasting_us), its in zip(asked, granted, strict=True):
                numbers = (its.starts, one.at_us + lasting_us, its.wait_us, 0)
                yield Permit("rate", one.bucket, numbers, its.more)

        def note_late(granted: Sequence[RateGranted]) -> None:
            for (_, lasting_us), one in zip(asked, permits(granted), strict=True):
                self._late[one.bucket] = now_s + lasting_us / 1_000_000, one

        if asked:
            granted = await self._ask(home, lambda store: store.grant_rates(asked), note_late)
            told |= {one.bucket: one for one in permits(granted)} if granted else {}

    def _lasting_us(self, one: RateWanted) -> int:
        """Return for how long a rate's permit may be used.

        The window is longer by that, so slow rates get more time.
        """
        return max(round(self._lasting_s * 1_000_000), min(round(LASTING_MAX_S * 1_000_000), one.window_us // WINDOWS))

    async def _slots(self, home: int, wanted: Sequence[SlotsWanted], told: dict[bytes, Permit]) -> None:
        left = [_PermitRequest(one) for one in wanted]
        for step in range(STEPS):
            its = left
            granted = await self._ask(home, partial(_grant, self._number, its))
            for one, answer in zip(its, granted or (), strict=False):
                one.take(answer)
                told[one.wanted.bucket] = one.permit()
            left = [one for one in its if one.lacks and one.answer.others] if granted else []
            if not left or step == STEPS - 1:
                return
            async with trio.open_nursery() as nursery:
                for number in sorted({number for one in left for number in one.answer.others}):
                    nursery.start_soon(self._collect, number, left)

    async def _collect(self, number: int, asked: Sequence["_PermitRequest"]) -> None:
        """Ask a partition for its slots; once all have answered, the others give back the slots that are free."""
        for give_back in (False, True) if number != self._number else (False,):
            its = [one for one in asked if number in one.answer.others and one.is_known == give_back]
            rows = [(one.wanted.bucket, one.answer.era, *one.answer.others[number]) for one in its]
            if rows:
                call = partial(_report, number, rows, number == self._number, give_back)
                reports = await self._ask(number, call)
                for one, report in zip(its, reports or (), strict=False):
                    one.reports.append(report)

    async def _ask(
        self, number: int, call: Callable[[Store], Awaitable[T]], late: Callable[[T], None] | None = None
    ) -> T | None:
        """A partition's answer; None when there is none, or was none a moment ago. `late`: called with a late one."""
        if self._nursery is None or self._silent_until_s.get(number, 0.0) > self._clock.mono_s():
            return None
        answers: list[T] = []
        over, given_up = trio.Event(), trio.Event()

        async def ask() -> None:
            try:
                answers.append(await call(self._stores[number]))
            except (StoreUnsettled, StoreRefused) as error:
                self._note(number, str(error))  # an answer: other buckets it may grant
            except StoreError as error:
                self._fell_silent(number, str(error))
            if given_up.is_set() and answers and late is not None:
                late(answers[0])
            over.set()

        self._nursery.start_soon(ask)
        with trio.move_on_after(GIVEN_S) as patience:
            await over.wait()
        if patience.cancelled_caught:
            self._fell_silent(number, f"no answer within {GIVEN_S} s")
        if not answers:
            given_up.set()
            return None
        self.silent.pop(number, None)
        return answers[0]

    def _note(self, number: int, why: str) -> None:
        if number not in self.silent:
            self._log.warning("permits.silent", partition=number, error=why)
        self.silent[number] = why

    def _fell_silent(self, number: int, why: str) -> None:
        self._note(number, why)
        self._silent_until_s[number] = self._clock.mono_s() + SILENT_S


async def _grant(number: int, asked: Sequence["_PermitRequest"], store: Store) -> list[SlotsGranted]:
    return await store.grant_slots(number, [one.rest() for one in asked], [one.reports for one in asked])


async def _report(
    number: int, told: Sequence[tuple[bytes, int, int, int]], keep: bool, give_back: bool, store: Store
) -> list[Report]:
    return await store.tell_slots(number, told, keep=keep, give_back=give_back)


class _PermitRequest:
    def __init__(self, wanted: SlotsWanted) -> None:
        self.wanted = wanted
        self.reports: list[Report] = [wanted.own]
        self.given = 0
        self.answer = SlotsGranted(0, 0, 0, 0, 0, {})

    @property
    def lacks(self) -> int:
        return self.wanted.slots - self.given

    @property
    def is_known(self) -> bool:
        """Whether all partitions have reported what they have."""
        return self.answer.granted >= 0

    def rest(self) -> SlotsWanted:
        return self.wanted._replace(slots=self.lacks)

    def take(self, answer: SlotsGranted) -> None:
        self.answer = answer
        self.given += answer.given

    def permit(self) -> Permit:
        if not self.is_known:
            return _refused(self.wanted)
        return Permit("slots", self.wanted.bucket, self.answer[:4], self.lacks > 0)


def _refused(lack: Lack) -> Permit:
    """Return the grant for when no counting partition could be asked."""
    if isinstance(lack, RateWanted):
        return Permit("rate", lack.bucket, (0, lack.at_us + round(LASTING_MAX_S * 1_000_000), WAIT_US, 0), False)
    return Permit("slots", lack.bucket, (0, 0, 0, 0), True)
