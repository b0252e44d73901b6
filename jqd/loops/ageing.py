"""Whether jobs age alike at all daemons: each has its own order else, and the order of all is none.

Each says its period when it takes its seat, before what comes back from a journal may note dates (docs/adr/0049). Where
jobs age it is asked for now and then, for daemons come with another setting.
"""

from jqd.domain.clock import Clock
from jqd.domain.log import get_logger
from jqd.loops.membership import Membership
from jqd.store import Store

TOLD_S = 10.0  # between two: what differs may be unknown for so long
NAMED_MAX = 3  # daemons in one complaint


class Ageing:
    """Of one partition."""

    def __init__(self, store: Store, membership: Membership, clock: Clock, period_ms: int) -> None:
        """`period_ms`: 0 where jobs do not age: then those say that it differs at whom they do."""
        self.period_ms = period_ms
        self._store = store
        self._membership = membership
        self._clock = clock
        self._at_s = float("-inf")
        self._others: dict[str, int] = {}
        self._log = get_logger("ageing")

    @property
    def complaint(self) -> str | None:
        """What is wrong, in words for people, or None."""
        if not self._others:
            return None
        said = [f"{sysid} ({_period(its)})" for sysid, its in sorted(self._others.items())]
        more = f" and {len(said) - NAMED_MAX} more" if len(said) > NAMED_MAX else ""
        return (
            f"jobs age otherwise here ({_period(self.period_ms)}) than at daemon {', '.join(said[:NAMED_MAX])}{more}:"
            " set scheduler.ageing_s alike at all, or what goes first depends on who takes it"
        )

    async def look(self) -> None:
        """Hear of others, if that was not done for a while. Where jobs do not age nothing is asked."""
        if self.period_ms and not self._membership.sole and self._clock.mono_s() >= self._at_s + TOLD_S:
            await self.tell()

    async def tell(self) -> None:
        """Say it, and hear what others say."""
        self._at_s = self._clock.mono_s()
        before, self._others = self._others, await self._store.tell_ageing(self._membership.sysid, self.period_ms)
        if self._others != before:
            note = self._log.warning if self._others else self._log.info
            note("ageing.differs" if self._others else "ageing.alike", period_ms=self.period_ms, others=self._others)


def _period(period_ms: int) -> str:
    return f"a step in {period_ms / 1000:g} s" if period_ms else "not at all"
