"""Quotas: how much a tenant may push, and how much of that was spent at this daemon. Each is a setting.

Each daemon keeps its share of a rate, the limit divided by the living daemons: all together never take more than the
limit, and take less if a tenant pushes to one of them only. A batch is taken whole or not at all, and may put a rate in
debt, which later pushes wait for. Numbers of jobs are those of the store, read each second, plus what was pushed here
and was not in the store by then: so what other daemons took meanwhile may exceed a limit. A partition that is away
counts with its last numbers.

What cannot be refused (jobs that follow others, dates of schedules) is put off until there is room, and pushes leave
that room free meanwhile (docs/adr/0047).

A push reserves all of its jobs before its first await and gives back what was not taken: so concurrent pushes are
bounded as sequential ones, and only what was taken counts. A retry counts as a push of the same job, but the limit of
dead jobs, of which it leaves fewer, does not forbid it.
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

QUOTA = "quota"  # a kind of setting
BURST_S = 5.0  # of a rate may be saved up, for programs that push in bursts
AGAIN_S = 5  # retry-after where a number of jobs is reached
PUSHED_MAX = 16  # counts of the store whose pushes are kept apart: earlier pushes are merged
STALE_S = 60.0  # without an answer from a partition: then health reports it
OWED_S = 3.0  # longer than the second between two tries of what was put off


Rate = Annotated[float, Meta(ge=0.001, le=1e9, description="a number a second, 0.001 or more")]
Most = Annotated[int, Meta(ge=1, le=10**12, description="a whole number of jobs, 1 or more")]


class Quota(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a tenant may push; what is left out has no limit."""

    rate: Rate | None = None
    """Jobs a second."""
    bytes: Rate | None = None
    """Bytes of pushed jobs a second."""
    queued: Most | None = None
    """Waiting jobs, dated ones too."""
    in_flight: Most | None = None
    """Jobs that have not ended."""
    dead: Most | None = None
    """Failed jobs that are kept: at so many, pushes are refused."""


class Numbers(NamedTuple):
    """How many jobs a tenant has."""

    waiting: int = 0
    alive: int = 0
    """Number of the tenant's jobs that have not ended."""
    dead: int = 0


NO_JOBS = Numbers()


class Bucket:
    """A token bucket, in seconds of its rate."""

    def __init__(self, now_s: float) -> None:
        self._level_s = BURST_S  # in seconds of the rate
        self._at_s = now_s
        self.reserved_s = 0.0
        """Reserved by pushes that are not over; part of it may come back."""

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until the bucket, which a large push overdrew, is filled up to 0 again."""
        self._level_s = min(BURST_S, self._level_s + now_s - self._at_s)
        self._at_s = now_s
        return max(0.0, -self._level_s)

    def spend(self, seconds: float) -> None:
        """Take so much, also more than there is; below 0: give back."""
        self._level_s -= seconds


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Quota)


class PushCharges:
    """Jobs that were journaled before a count of the store, by tenant and partition."""

    def __init__(self) -> None:
        self.end = 0
        """The journal's position behind all charged jobs."""
        self.jobs: dict[str, Counter[int]] = {}

    def add(self, tenant: str, homes: Iterable[int] | Mapping[int, int]) -> None:
        """`homes`: the partition of each job, or how many jobs each partition has."""
        self.jobs.setdefault(tenant, Counter()).update(homes)


class Quotas:
    """Quotas that this daemon knows, and what was spent of them here."""

    def __init__(self, settings: SettingTable, clock: Clock) -> None:
        self.known: dict[str, Quota] = {}
        """Tenant → its quota."""
        self.counts: dict[int, Mapping[str, Numbers]] = {}
        """Partition → tenant → its numbers, as counted last."""
        self.looked_at_s = -math.inf
        self.looking: dict[int, float] = {}
        """Partitions that are being counted → since when."""
        self._missed: dict[int, tuple[float, str]] = {}
        """Partitions that did not answer → since when, and why last."""
        self._clock = clock
        self._pushed = deque([PushCharges()])
        self._reserved: Counter[str] = Counter()
        """Tenant → jobs of pushes under way, which are not journaled yet, so that no count has them."""
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._owes: dict[str, float] = {}
        """Tenants with jobs put off here → until when pushes leave the room to these."""
        settings.read(QUOTA, _read)
        settings.watch(QUOTA, self._ruled)

    def look_begins(self, end: int) -> None:
        """Begin a count: pushes so far lie before `end` of the journal; later ones are kept apart."""
        self._pushed[-1].end = end
        if self._pushed[-1].jobs:
            self._pushed.append(PushCharges())
        if len(self._pushed) > PUSHED_MAX:  # a partition does not answer, or lags
            first = self._pushed.popleft()
            for tenant, homes in first.jobs.items():
                self._pushed[0].add(tenant, homes)

    def counted(self, partition: int, counts: Mapping[str, Numbers], applied: int) -> None:
        """Note a partition's count, with all that the journal has before `applied`."""
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
        """Note that a partition did not answer: its last numbers stay, plus later pushes."""
        since_s, _ = self._missed.get(partition, (self.looking[partition], ""))
        self._missed[partition] = since_s, why
        del self.looking[partition]

    def complaints(self) -> list[str]:
        """Partitions whose numbers are old, for `/readyz`."""
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
        """Return the limit that forbids a push now, and for about how many seconds; None: none does.

        `owed`: they were put off. They need room for one, however many they are: a quota may allow fewer at all, and
        jobs that need more room than there ever is would keep all pushes waiting.
        `retried`: they have ended and run again; too many dead jobs are a reason to retry, not to refuse.
        `changed`: they are counted already.
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
        there = self._numbers_of(tenant)
        new = self._reserved[tenant] + sum(its.jobs[tenant].total() for its in self._pushed if tenant in its.jobs)
        for name, most, has in (("queued", quota.queued, there.waiting), ("in_flight", quota.in_flight, there.alive)):
            if most is not None and has + new + (1 if owed else jobs) > most:
                return f"{name}: {most} jobs", AGAIN_S
        if not retried and self.has_too_many_dead(tenant):
            return f"dead: {quota.dead} jobs that failed and are kept; retry or delete them", AGAIN_S
        return None

    def has_too_many_dead(self, tenant: str) -> bool:
        """Whether dead jobs forbid pushes, until some are retried or deleted."""
        most = self.known[tenant].dead
        return most is not None and self._numbers_of(tenant).dead >= most

    def _numbers_of(self, tenant: str) -> Numbers:
        """Return a tenant's numbers over all partitions, as counted last."""
        counted = [counts[tenant] for counts in self.counts.values() if tenant in counts]
        return Numbers(*map(sum, zip(*counted, strict=True))) if counted else NO_JOBS

    def owe(self, tenant: str) -> None:
        """Note that jobs were put off: for a while pushes leave the room to them."""
        self._owes[tenant] = self._clock.mono_s() + OWED_S

    def owes(self, tenant: str) -> bool:
        """Return whether jobs were put off a moment ago."""
        until_s = self._owes.get(tenant)
        if until_s is not None and until_s <= self._clock.mono_s():
            del self._owes[tenant]
            until_s = None
        return until_s is not None

    def reserve(self, tenant: str, jobs: int, size_bytes: int, daemons: int, *, are_new: bool = True) -> Charge:
        """Reserve for a push, however much room there is. `are_new`: no count of the store has these jobs."""
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

        charge.when_over(settle)  # in this bucket: a quota that is set anew meanwhile gets a full one

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
