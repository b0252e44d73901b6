"""How often tenants may change what decides about queues: with each change all daemons look at all that waits anew.

Of a constraint that is its expressions, and with a `cost` what one may cost at most; other numbers are changed as often
as one likes (docs/adr/0061).
"""

from jqd.words.clock import Clock
from jqd.words.errors import Pressed
from jqd.words.quotas import Bucket

EACH_S, EACH_MAX = 10.0, 20  # of a tenant one in so many seconds, and so many at once: a deployment changes some
ALL_S, ALL_MAX = 2.0, 100  # of all tenants but "": a change takes daemons that hear of it up to half a second
KEPT = 1_000  # tenants whose changes are remembered, those that changed something last
ALL = ""  # stands for all tenants together


class Turnings:
    """Those of this daemon, which has its share of them: the limits divided by the living daemons."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}

    def spend(self, tenant: str, daemons: int, changes: int = 1) -> None:
        """So many more. Raises Pressed; never for the tenant "", whose operators have to act."""
        if tenant == ALL:
            return
        buckets = self._bucket(ALL, ALL_S * ALL_MAX), self._bucket(tenant, EACH_S * EACH_MAX)
        wait_s = max(bucket.wait_s(self._clock.mono_s()) for bucket in buckets)
        if wait_s > 0:
            raise Pressed(
                "nothing was done: with each change of what constraints match all that waits is looked at anew, and"
                f" there were many of tenant {tenant!r}, or of all tenants together; numbers may be changed meanwhile,"
                " but for limit and burst where there is a cost",
                retry_after_s=int(wait_s) + 1,
            )
        for bucket, seconds in zip(buckets, (ALL_S, EACH_S), strict=True):
            bucket.spend(seconds * daemons * changes)

    def _bucket(self, tenant: str, burst_s: float) -> Bucket:
        bucket = self._buckets.pop(tenant, None) or Bucket(self._clock.mono_s(), burst_s)
        self._buckets[tenant] = bucket
        while len(self._buckets) > KEPT:
            del self._buckets[next(iter(self._buckets))]
        return bucket
