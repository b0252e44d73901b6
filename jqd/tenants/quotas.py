"""How much a tenant may push: rules of a kind of their own, under the tenant's name, and what was spent of them here.

Rates are kept by each daemon for its share, the limit divided by the living daemons: all together never take more than
the limit, and less where a tenant's pushes come to one of them only. A batch is taken whole or not at all, and may take
a rate into debt, which is waited for. Numbers of jobs are those of the store, looked at each second, and what was
pushed here that it did not have yet by then: so a limit may be passed by what other daemons took meanwhile. Each
partition of the store counts by what it told last: one that is away keeps only its own numbers from going on.

What nobody can be refused (jobs that follow others, dates of schedules) is put off until there is room, and pushes
leave that room to it meanwhile (docs/adr/0047).

A push reserves all that it has before anything is waited for, and what was not taken of it is given back: so pushes
beside each other are bounded as those after one another, and only what was taken is paid for. A retry is paid for as a
push of the same job is, only that dead jobs, of which it makes fewer, do not forbid it.
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

QUOTA = "quota"  # a kind of rule
BURST_S = 5.0  # of its rate a tenant may save up: a program that pushes in beats
AGAIN_S = 5  # until numbers of jobs are asked for again
PUSHED_MAX = 16  # looks of which what was pushed is kept apart: what came before them counts together
STALE_S = 60.0  # without a word from a partition: then health says so
OWED_S = 3.0  # what was put off is tried each second by some daemon: longer than until the next time


Rate = Annotated[float, Meta(ge=0.001, le=1e9, description="a number a second, 0.001 or more")]
Most = Annotated[int, Meta(ge=1, le=10**12, description="a whole number of jobs, 1 or more")]


class Quota(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a tenant may push; what is left out has no limit. The body of the setting."""

    rate: Rate | None = None
    """Jobs a second."""
    bytes: Rate | None = None
    """Of jobs as they are pushed, a second."""
    queued: Most | None = None
    """Jobs that wait, those with a date among them."""
    in_flight: Most | None = None
    """Jobs that have not ended."""
    dead: Most | None = None
    """Jobs that failed, and are kept until somebody retries or deletes them: who has so many pushes no more."""


class Numbers(NamedTuple):
    """Of a tenant's jobs."""

    waiting: int = 0
    alive: int = 0
    """That have not ended."""
    dead: int = 0


NO_JOBS = Numbers()


class Bucket:
    """What may be spent of a rate."""

    def __init__(self, now_s: float) -> None:
        self._level_s = BURST_S  # in seconds of the rate
        self._at_s = now_s
        self.reserved_s = 0.0
        """Of what is spent so much may come back: pushes that are not over keep it."""

    def wait_s(self, now_s: float) -> float:
        """How long until something may be spent."""
        self._level_s = min(BURST_S, self._level_s + now_s - self._at_s)
        self._at_s = now_s
        return max(0.0, -self._level_s)

    def spend(self, seconds: float) -> None:
        """So many of the rate, also more than there are; below 0: give back."""
        self._level_s -= seconds


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Quota)


class PushCharges:
    """Jobs that were journaled before a look, by tenant and partition."""

    def __init__(self) -> None:
        self.end = 0
        """A position of the journal behind all of them."""
        self.jobs: dict[str, Counter[int]] = {}

    def add(self, tenant: str, homes: Iterable[int] | Mapping[int, int]) -> None:
        """More of them: the partition of each, or how many of each."""
        self.jobs.setdefault(tenant, Counter()).update(homes)


class Quotas:
    """Those that are known here."""

    def __init__(self, settings: SettingTable, clock: Clock) -> None:
        self.known: dict[str, Quota] = {}
        """By tenant."""
        self.counts: dict[int, Mapping[str, Numbers]] = {}
        """Those of each tenant, as each partition told last."""
        self.looked_at_s = -math.inf
        self.looking: dict[int, float] = {}
        """Partitions that are asked now → since when."""
        self._missed: dict[int, tuple[float, str]] = {}
        """Partitions that did not answer → since when, and why last."""
        self._clock = clock
        self._pushed = deque([PushCharges()])
        self._reserved: Counter[str] = Counter()
        """By pushes, of jobs that are not journaled: however long they wait, no count has them yet."""
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._owes: dict[str, float] = {}
        """Tenants of which something here waits for its quota → until when pushes leave the room to that."""
        settings.read(QUOTA, _read)
        settings.watch(QUOTA, self._ruled)

    def look_begins(self, end: int) -> None:
        """What was pushed so far lies before `end` of the journal, on disk or not: what comes from now on is apart."""
        self._pushed[-1].end = end
        if self._pushed[-1].jobs:
            self._pushed.append(PushCharges())
        if len(self._pushed) > PUSHED_MAX:  # a partition tells nothing, or is far behind
            first = self._pushed.popleft()
            for tenant, homes in first.jobs.items():
                self._pushed[0].add(tenant, homes)

    def counted(self, partition: int, counts: Mapping[str, Numbers], applied: int) -> None:
        """A partition told; what the journal has before `applied` was in it."""
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
        """A partition did not answer: what it told before counts, and what was pushed since."""
        since_s, _ = self._missed.get(partition, (self.looking[partition], ""))
        self._missed[partition] = since_s, why
        del self.looking[partition]

    def complaints(self) -> list[str]:
        """What to say in health."""
        now_s = self._clock.mono_s()
        waits = {number: (at_s, "it takes so long to count") for number, at_s in self.looking.items()} | self._missed
        return [
            f"quotas go by what partition {number} of the store told {now_s - at_s:.0f} s ago or earlier, and by what"
            f" was pushed since: {why}"
            for number, (at_s, why) in sorted(waits.items())
            if now_s - at_s >= STALE_S
        ]

    def over(
        self, tenant: str, jobs: int, daemons: int, *, owed: bool = False, retried: bool = False
    ) -> tuple[str, float] | None:
        """Which limit forbids to push now, and for how many seconds about; None: none does.

        `owed`: they are to come once there is room. They need room for one of them, however many they are: a quota may
        allow fewer at all, and what needs more room than ever is free would keep all pushes waiting meanwhile.
        `retried`: they have ended, and are to begin anew; that there are too many dead ones is why somebody does it.
        """
        quota = self.known[tenant]
        for name, rate in (("rate", quota.rate), ("bytes", quota.bytes)):
            if rate is None:
                continue
            bucket = self._bucket(tenant, name)
            if (wait_s := bucket.wait_s(self._clock.mono_s())) > 0:
                return f"{name}: {rate:g} a second{self._of(daemons)}", max(0.0, wait_s - bucket.reserved_s)
        there = self._told(tenant)
        new = self._reserved[tenant] + sum(its.jobs[tenant].total() for its in self._pushed if tenant in its.jobs)
        for name, most, has in (("queued", quota.queued, there.waiting), ("in_flight", quota.in_flight, there.alive)):
            if most is not None and has + new + (1 if owed else jobs) > most:
                return f"{name}: {most} jobs", AGAIN_S
        if not retried and self.has_too_many_dead(tenant):
            return f"dead: {quota.dead} jobs that failed and are kept; retry or delete them", AGAIN_S
        return None

    def has_too_many_dead(self, tenant: str) -> bool:
        """Whether that forbids to push, until somebody retries or deletes some."""
        most = self.known[tenant].dead
        return most is not None and self._told(tenant).dead >= most

    def _told(self, tenant: str) -> Numbers:
        """What all partitions told of it last."""
        told = [counts[tenant] for counts in self.counts.values() if tenant in counts]
        return Numbers(*map(sum, zip(*told, strict=True))) if told else NO_JOBS

    def owe(self, tenant: str) -> None:
        """What came by itself was put off: for a while pushes leave it the room."""
        self._owes[tenant] = self._clock.mono_s() + OWED_S

    def owes(self, tenant: str) -> bool:
        """Whether something was put off a moment ago."""
        until_s = self._owes.get(tenant)
        if until_s is not None and until_s <= self._clock.mono_s():
            del self._owes[tenant]
            until_s = None
        return until_s is not None

    def reserve(self, tenant: str, jobs: int, size_bytes: int, daemons: int) -> Charge:
        """Keep so much for a push, whatever there is."""
        quota, charge = self.known[tenant], Charge(jobs, size_bytes)
        for place, (name, rate) in enumerate((("rate", quota.rate), ("bytes", quota.bytes))):
            if rate is not None:
                self._spend(charge, self._bucket(tenant, name), rate / daemons, place)
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

        charge.when_over(settle)  # of the same bucket: a quota that is said anew meanwhile has another, all unspent

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
