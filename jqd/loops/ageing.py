"""Compares the ageing periods of all daemons of a partition: how long a waiting job takes to gain a step of priority.
If the periods differ, the order of jobs depends on which daemon claims them, and health warns.

Each daemon saves its period in the store when it joins, before the store makes jobs of its journal ready
(docs/adr/0048). The periods are compared again now and then, because a daemon may join with another setting. In the
store the longest period counts."""

from jqd.domain.clock import Clock
from jqd.domain.log import get_logger
from jqd.loops.membership import Membership
from jqd.store import Store

COMPARE_S = 10.0  # between two comparisons: a difference may be unknown for so long
NAMED_MAX = 3  # daemons in one complaint


class Ageing:
    def __init__(self, store: Store, membership: Membership, clock: Clock, period_ms: int) -> None:
        """`period_ms`: this daemon's ageing period; 0: jobs do not age here, and this daemon reports no difference."""
        self.period_ms, self._store, self._membership, self._clock = period_ms, store, membership, clock
        self._at_s = float("-inf")
        self._others: dict[str, int] = {}
        self._log = get_logger("ageing")

    @property
    def complaint(self) -> str | None:
        """How the ageing periods of the daemons differ, as a sentence for health; None: they are equal."""
        if not self._others:
            return None
        names = [f"{sysid} ({_period(period_ms)})" for sysid, period_ms in sorted(self._others.items())]
        more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
        return (
            f"jobs age otherwise here ({_period(self.period_ms)}) than at daemon {', '.join(names[:NAMED_MAX])}{more}:"
            " set scheduler.ageing_s alike at all, or what goes first depends on who takes it"
        )

    async def compare_if_due(self) -> None:
        """Compare ageing periods every COMPARE_S, unless jobs do not age here or there is no other daemon."""
        if self.period_ms and not self._membership.sole and self._clock.mono_s() >= self._at_s + COMPARE_S:
            await self.compare()

    async def compare(self) -> None:
        """Save our ageing period in the store, and note which daemons have a different one, for `complaint`."""
        self._at_s = self._clock.mono_s()
        before, self._others = self._others, await self._store.save_ageing(self._membership.sysid, self.period_ms)
        if self._others != before:
            note = self._log.warning if self._others else self._log.info
            note("ageing.differs" if self._others else "ageing.alike", period_ms=self.period_ms, others=self._others)


def _period(period_ms: int) -> str:
    return f"a step in {period_ms / 1000:g} s" if period_ms else "not at all"
