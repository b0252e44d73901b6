"""The store's methods on permits: starts granted by partitions that count a constraint for all (docs/adr/0048)."""

from collections.abc import Sequence
from typing import NamedTuple

from jqd.store import codec
from jqd.store.keys import Keys
from jqd.store.methods import ScriptMethods, in_rows

WANT_FIELDS = 8


class Report(NamedTuple):
    """What a partition has of a bucket's slots."""

    partition: int
    era: int
    """0: it knows of none."""
    granted: int
    returned: int
    made: int
    """The version of its row: numbers of earlier ones do not count any more."""


class SlotsWanted(NamedTuple):
    """How many more jobs of a bucket could start, if they were granted."""

    bucket: bytes
    home: int
    """The partition that counts."""
    slots: int
    own: Report


class RateWanted(NamedTuple):
    """How many starts of a bucket are lacking."""

    bucket: bytes
    home: int
    starts: int
    least: int
    """Fewer are of no use."""
    at_us: int
    """The time of the store that lacks them."""
    window_us: int
    """Of the rate."""


Lack = SlotsWanted | RateWanted


class SlotsGranted(NamedTuple):
    """The answer of a bucket's home."""

    era: int
    granted: int
    """So far, to the partition that asks; below 0 while others have to report first."""
    made: int
    """Of the row of that partition."""
    concurrency: int
    given: int
    """Of that, now."""
    others: dict[int, tuple[int, int]]
    """Partition → its grant and version of row: those that must report, or may have slots to give back."""


class RateGranted(NamedTuple):
    """Starts that a bucket's home grants, whether a further question may bring more at once, and when there are
    more."""

    starts: int
    more: bool
    wait_us: int


class Permit(NamedTuple):
    """An answer of another partition, as a claim brings it along."""

    kind: str
    bucket: bytes
    numbers: tuple[int, int, int, int]
    """Of slots: era, granted, made, concurrency; of a rate: starts, until when (µs of the store that lacks them), µs
    until there is more, 0."""
    flag: bool
    """Of slots: these were too few; of a rate: there may be more at once."""

    def words(self) -> tuple[object, ...]:
        """Return it as the script takes it."""
        return self.kind, self.bucket, *self.numbers, int(self.flag)


class PermitMethods(ScriptMethods):
    async def grant_slots(
        self, partition: int, wanted: Sequence[SlotsWanted], reports: Sequence[Sequence[Report]]
    ) -> list[SlotsGranted]:
        """Grant that partition slots of buckets whose home this is; `reports`: of all partitions, for each bucket."""
        flat: list[object] = []
        for one, its in zip(wanted, reports, strict=True):
            flat += (one.bucket, one.slots, len(its), *(value for report in its for value in report))
        answer = await self._caller.call("grant_slots", self._caller.identity, partition, *flat)
        return [self._granted(row) for row in self._list("permits", answer)]

    async def tell_slots(
        self, partition: int, told: Sequence[tuple[bytes, int, int, int]], *, keep: bool, give_back: bool
    ) -> list[Report]:
        """Pass this partition its grants of slots (bucket, era, granted, made). Returns its slots, in that order.

        `keep`: the partition wants slots itself. `give_back`: free slots go back to their home. Raises StoreUnsettled
        while jobs may be in flight that are not known here."""
        flat = (value for row in told for value in row)
        answer = await self._caller.call("tell_slots", self._caller.identity, int(keep), int(give_back), *flat)
        numbers = self._wholes("permits", answer)
        return [Report(partition, *row) for row in in_rows(numbers, 4)]

    async def grant_rates(self, wanted: Sequence[tuple[RateWanted, int]]) -> list[RateGranted]:
        """Return grants of rates whose home this is, spent at once; they must be used within those µs after they
        were asked for."""
        flat = (value for one, lasting_us in wanted for value in (one.bucket, one.starts, one.least, lasting_us))
        answer = await self._caller.call("grant_rates", self._caller.identity, *flat)
        rows = zip(*(self._wholes("permits", answer)[at::3] for at in range(3)), strict=True)
        return [RateGranted(starts, more == 1, wait_us) for starts, more, wait_us in rows]

    def _granted(self, row: object) -> SlotsGranted:
        era, granted, made, concurrency, given, *flat = self._wholes("permits", row)
        others = {one: (its, of) for one, its, of in in_rows(flat, 3)}
        return SlotsGranted(era, granted, made, concurrency, given, others)


def lacks_of(keys: Keys, partition: int, flat: Sequence[object]) -> list[Lack]:
    """Return what a claim of that partition lacks, from its script's answer."""
    found: list[Lack] = []
    for at in range(0, len(flat), WANT_FIELDS):
        kind, bucket, *rest = flat[at : at + WANT_FIELDS]
        numbers = [codec.whole(keys, "permits", one) for one in rest if one != b""]
        name = bucket if isinstance(bucket, bytes) else b""
        if kind == b"rate":
            found.append(RateWanted(name, *numbers))
        else:
            home, lacking, *own = numbers
            found.append(SlotsWanted(name, home, lacking, Report(partition, *own)))
    return found
