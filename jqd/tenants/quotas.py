"""Quotas: how much each tenant may push, and how much of that this daemon has accepted. Each quota is a setting.

*Rates*: each daemon allows its share of a rate, which is the limit divided by the number of living daemons. So all
daemons together never accept more than the limit, and less if a tenant pushes to one of them only. A batch is accepted
whole or not at all. It may exceed the rate; then later pushes wait until the excess has been made up for.

*Numbers of jobs*: each second the daemon reads how many jobs the store has, and adds those that were pushed here and
were not in the store by then. It does not know what other daemons accepted meanwhile, so a limit may be exceeded a
little. If a partition of the store cannot be reached, its last numbers are used.

Jobs that cannot be refused (followers of other jobs, dates of schedules) are *put off* until there is room; new pushes
are refused meanwhile, so that they do not take this room (docs/adr/0047).

A push reserves room for all of its jobs before its first await, and gives back the room of jobs that were not accepted.
So concurrent pushes are limited like sequential ones. A retry counts as a push of the same job, but the limit of dead
jobs does not forbid it, since it makes them fewer.
"""

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

from jqd.domain.charge import Charge
from jqd.domain.clock import Clock
from jqd.domain.settings import Setting, SettingTable

QUOTA = "quota"  # the kind of these settings
BURST_S = 5.0  # seconds of a rate that can be saved up, for programs that push in bursts
AGAIN_S = 5  # the retry-after of an answer when a number of jobs is reached
PUSHED_MAX = 16  # groups of pushes kept, each made between two counts; older groups are merged
STALE_S = 60.0  # when a partition has not answered for this time, health reports it
OWED_S = 3.0  # how long pushes leave room for jobs that were put off; these are tried again each second


Rate = Annotated[float, Meta(ge=0.001, le=1e9, description="a number a second, 0.001 or more")]
Most = Annotated[int, Meta(ge=1, le=10**12, description="a whole number of jobs, 1 or more")]


class Quota(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a tenant may push; a field that is left out sets no limit."""

    rate: Rate | None = None
    """Jobs a second."""
    bytes: Rate | None = None
    """Bytes of pushed jobs a second."""
    queued: Most | None = None
    """The most jobs that wait, including those for later dates."""
    in_flight: Most | None = None
    """The most jobs that have not ended."""
    dead: Most | None = None
    """The number of failed jobs that are kept at which pushes are refused."""


class Numbers(NamedTuple):
    """How many jobs of a tenant are in the store: those that wait, those that have not ended (`alive`), and those that
    failed (`dead`)."""

    waiting: int = 0
    alive: int = 0
    """Number of jobs that have not ended, including those that wait."""
    dead: int = 0


NO_JOBS = Numbers()


class Bucket:
    """A token bucket, which limits a rate. Its amounts are in seconds: n jobs count as the time in which the rate
    allows n."""

    def __init__(self, now_s: float) -> None:
        self._level_s = BURST_S  # in seconds of the rate
        self._at_s = now_s
        self.reserved_s = 0.0
        """Seconds reserved by pushes that are in progress; part of it may be given back."""

    def wait_s(self, now_s: float) -> float:
        """Return in how many seconds the bucket's level is 0 or more again. A large push may bring it below 0."""
        self._level_s = min(BURST_S, self._level_s + now_s - self._at_s)
        self._at_s = now_s
        return max(0.0, -self._level_s)

    def spend(self, seconds: float) -> None:
        """Take an amount from the bucket, even if it has less. A negative amount is given back."""
        self._level_s -= seconds


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Quota)


class PushCharges:
    """Counts the jobs written to this daemon's journal between two counts of the store, by tenant and partition."""

    def __init__(self) -> None:
        self.end = 0
        """The position in the journal after all these jobs."""
        self.jobs: dict[str, Counter[int]] = {}

    def add(self, tenant: str, homes: Iterable[int] | Mapping[int, int]) -> None:
        """Add jobs. `homes`: the partition of each job, or the number of jobs for each partition."""
        self.jobs.setdefault(tenant, Counter()).update(homes)


class Quotas:
    """The quotas that this daemon knows, and how much of each it has accepted."""

    def __init__(self, settings: SettingTable, clock: Clock) -> None:
        self.known: dict[str, Quota] = {}
        """Tenant → its quota."""
        self.counts: dict[int, Mapping[str, Numbers]] = {}
        """Partition → tenant → its numbers of jobs in that partition at the last count."""
        self.looked_at_s = -math.inf
        self.looking: dict[int, float] = {}
        """Partitions whose jobs are being counted now → when the count began (monotonic clock)."""
        self._missed: dict[int, tuple[float, str]] = {}
        """Partitions that do not answer → since when (monotonic clock), and the last error."""
        self._clock = clock
        self._pushed = deque([PushCharges()])
        self._reserved: Counter[str] = Counter()
        """Tenant → number of jobs in pushes that are not yet in the journal, so that no count of the store includes
        them."""
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._put_off_until_s: dict[str, float] = {}
        """Tenants with jobs that were put off here → until when pushes are refused because of them (monotonic
        clock)."""
        settings.read(QUOTA, _read)
        settings.watch(QUOTA, self._ruled)

    def look_begins(self, end: int) -> None:
        """Note that a count of the jobs in the store begins. `end`: the journal's position after all pushes so far;
        later pushes are added up separately."""
        self._pushed[-1].end = end
        if self._pushed[-1].jobs:
            self._pushed.append(PushCharges())
        if len(self._pushed) > PUSHED_MAX:  # a partition does not answer, or has not got the pushes yet
            first = self._pushed.popleft()
            for tenant, homes in first.jobs.items():
                self._pushed[0].add(tenant, homes)

    def counted(self, partition: int, counts: Mapping[str, Numbers], applied: int) -> None:
        """Remember the numbers of jobs in a partition, as they were just counted. They include all jobs in the journal
        before the position `applied`."""
        self.counts[partition] = counts
        self.looking.pop(partition, None)
        self._missed.pop(partition, None)
        for pushed in [each for each in self._pushed if each.jobs and each is not self._pushed[-1]]:
            if pushed.end <= applied:
                for homes in pushed.jobs.values():
                    homes.pop(partition, None)
                pushed.jobs = {tenant: homes for tenant, homes in pushed.jobs.items() if homes}
        self._pushed = deque(each for each in self._pushed if each.jobs or each is self._pushed[-1])

    def missed(self, partition: int, why: str) -> None:
        """Note that the jobs of a partition could not be counted, and why. The last numbers stay, and later pushes are
        added to them."""
        since_s, _ = self._missed.get(partition, (self.looking[partition], ""))
        self._missed[partition] = since_s, why
        del self.looking[partition]

    def complaints(self) -> list[str]:
        """Return for `/readyz` a sentence about each partition whose last count of jobs is old."""
        now_s = self._clock.mono_s()
        waits = {number: (at_s, "it takes so long to count") for number, at_s in self.looking.items()} | self._missed
        return [
            f"quotas go by what partition {number} of the store told {now_s - at_s:.0f} s ago or earlier, and by what"
            f" was pushed since: {why}"
            for number, (at_s, why) in sorted(waits.items())
            if now_s - at_s >= STALE_S
        ]

    def over(
        self, tenant: str, jobs: int, daemons: int, *, owed: bool = False, retried: bool = False, changed: bool = False
    ) -> tuple[str, float] | None:
        """Return which limit forbids this push now, and after about how many seconds to try again. None if the push is
        allowed.

        `owed`: the jobs cannot be refused. Then room for one job is enough: if the quota can never have room for all
        jobs of the push, the push would wait, and hold up all later ones, for ever. `retried`: the jobs have ended and
        are to run again. Too many dead jobs are no reason to refuse that. `changed`: the jobs are counted already, so
        only the rates are checked.
        """
        quota = self.known[tenant]
        for name, rate in (("rate", quota.rate), ("bytes", quota.bytes)):
            if rate is None:
                continue
            bucket = self._bucket(tenant, name)
            if (wait_s := bucket.wait_s(self._clock.mono_s())) > 0:
                return f"{name}: {rate:g} a second{self._of(daemons)}", max(0.0, wait_s - bucket.reserved_s)
        if changed:
            return None
        counted = self._numbers_of(tenant)
        pushed = sum(charges.jobs[tenant].total() for charges in self._pushed if tenant in charges.jobs)
        more = pushed + self._reserved[tenant] + (1 if owed else jobs)
        limits = (("queued", quota.queued, counted.waiting), ("in_flight", quota.in_flight, counted.alive))
        for name, most, have in limits:
            if most is not None and have + more > most:
                return f"{name}: {most} jobs", AGAIN_S
        if not retried and self.has_too_many_dead(tenant):
            return f"dead: {quota.dead} jobs that failed and are kept; retry or delete them", AGAIN_S
        return None

    def has_too_many_dead(self, tenant: str) -> bool:
        """Return whether a tenant has so many dead (failed) jobs that its pushes are refused until some are retried or
        deleted."""
        most = self.known[tenant].dead
        return most is not None and self._numbers_of(tenant).dead >= most

    def _numbers_of(self, tenant: str) -> Numbers:
        """Return how many jobs a tenant had in all partitions together at the last count."""
        counted = [counts[tenant] for counts in self.counts.values() if tenant in counts]
        return Numbers(*map(sum, zip(*counted, strict=True))) if counted else NO_JOBS

    def note_put_off(self, tenant: str) -> None:
        """Note that jobs of a tenant were put off. For OWED_S seconds new pushes of the tenant are refused, so that
        they do not take the room that the jobs wait for."""
        self._put_off_until_s[tenant] = self._clock.mono_s() + OWED_S

    def has_put_off(self, tenant: str) -> bool:
        """Return whether jobs of a tenant were put off within the last OWED_S seconds."""
        until_s = self._put_off_until_s.get(tenant)
        if until_s is not None and until_s <= self._clock.mono_s():
            del self._put_off_until_s[tenant]
            until_s = None
        return until_s is not None

    def reserve(self, tenant: str, jobs: int, size_bytes: int, daemons: int, *, are_new: bool = True) -> Charge:
        """Reserve room for a push, even if there is not enough. `are_new`: whether the jobs are new, so that they have
        to be added to the last count of the store. `daemons`: how many daemons share the rates."""
        quota, charge = self.known[tenant], Charge(jobs, size_bytes)
        for place, (name, rate) in enumerate((("rate", quota.rate), ("bytes", quota.bytes))):
            if rate is not None:
                self._spend(charge, self._bucket(tenant, name), rate / daemons, place)
        if not are_new:
            return charge
        self._reserved[tenant] += jobs

        def move(homes: Sequence[int]) -> None:
            self._release(tenant, len(homes))
            self._pushed[-1].add(tenant, homes)

        charge.when_taken(move)
        charge.when_over(lambda taken, _: self._release(tenant, jobs - taken))
        return charge

    def _release(self, tenant: str, jobs: int) -> None:
        self._reserved[tenant] -= jobs
        if not self._reserved[tenant]:
            del self._reserved[tenant]

    def _spend(self, charge: Charge, bucket: Bucket, rate: float, place: int) -> None:
        reserved = charge.reserved[place]
        bucket.spend(reserved / rate)
        bucket.reserved_s += reserved / rate

        def settle(*taken: int) -> None:
            bucket.spend((taken[place] - reserved) / rate)
            bucket.reserved_s -= reserved / rate

        charge.when_over(settle)  # in this bucket, even if the quota is set again meanwhile and gets a new one

    def _of(self, daemons: int) -> str:
        return "" if daemons == 1 else f", this daemon's share is one of {daemons}"

    def _bucket(self, tenant: str, name: str) -> Bucket:
        return self._buckets.setdefault((tenant, name), Bucket(self._clock.mono_s()))

    def _ruled(self, setting: Setting) -> None:
        self.known.pop(setting.name, None)
        for name in ("rate", "bytes"):
            self._buckets.pop((setting.name, name), None)
        if not setting.is_deleted:
            self.known[setting.name] = _read(setting)


def _read(setting: Setting) -> Quota:
    return _decoder.decode(setting.body)


def body_of(quota: Quota) -> bytes:
    return _encoder.encode(quota)
