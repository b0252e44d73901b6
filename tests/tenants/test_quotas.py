"""What counts of a tenant's jobs: never fewer than there are, and each once as soon as its partition has told of it."""

import random

import pytest

from jqd.domain.settings import SettingTable
from jqd.tenants.quotas import PUSHED_MAX, Numbers, Quota, Quotas
from jqd.testing.clock import ManualClock

PARTITIONS = 3
AWAY = 2  # for the whole of a walk
HERE, THERE = "here", "there"  # tenants: all jobs of the one lie in partitions that answer


class Walk:
    """One daemon's journal, the stores behind it, and what its quotas make of them. No job ends."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.quotas = Quotas(SettingTable(), ManualClock())
        self.jobs: list[tuple[str, int]] = []
        """Tenant and partition; their places are positions of the journal."""
        self.synced = 0
        self.applied = [0] * PARTITIONS
        self.asked: dict[int, int] = {}
        """Partitions that are asked → what they had by then."""

    def push(self) -> None:
        tenant = self.source.choice((HERE, THERE))
        home = self.source.randrange(PARTITIONS if tenant == THERE else AWAY)
        self.quotas.known[tenant] = Quota(queued=1_000_000)
        with self.quotas.reserve(tenant, 1, 10, 1) as charge:
            self.jobs.append((tenant, home))
            charge.taken([home], 10)

    def sync(self) -> None:
        self.synced = len(self.jobs)

    def apply(self) -> None:
        for number in self.source.sample(range(AWAY), self.source.randint(1, AWAY)):
            self.applied[number] = self.synced

    def begins(self) -> int:
        """What lies behind it is kept apart from what was pushed before the look."""
        return len(self.jobs)

    def look(self) -> None:
        self.quotas.look_begins(self.begins())
        for number in range(PARTITIONS):
            if number not in self.asked:
                self.asked[number], self.quotas.looking[number] = self.applied[number], 0.0

    def answer(self) -> None:
        for number in self.source.sample(sorted(self.asked), self.source.randint(0, len(self.asked))):
            before = self.asked.pop(number)
            if number == AWAY:
                self.quotas.missed(number, "it is away")
                continue
            there = [tenant for tenant, home in self.jobs[: self.applied[number]] if home == number]
            counts = {tenant: Numbers(there.count(tenant), there.count(tenant)) for tenant in there}
            self.quotas.counted(number, counts, before)

    def has_room(self, tenant: str, queued: int) -> bool:
        """Whether one more may be pushed under such a limit."""
        self.quotas.known[tenant] = Quota(queued=queued)
        return self.quotas.over(tenant, 1, 1) is None


class Hasty(Walk):
    """Takes what is on disk for all that was pushed, though pushes are told before it."""

    def begins(self) -> int:
        return self.synced


class Forgetful(Walk):
    """Takes what a partition has when it answers for what it had when it was asked."""

    def answer(self) -> None:
        self.asked.update((number, len(self.jobs)) for number in self.asked)
        super().answer()


def go(walk: Walk) -> None:
    for _ in range(1_000):
        walk.source.choice([walk.push, walk.push, walk.sync, walk.apply, walk.look, walk.answer])()
        for tenant in (HERE, THERE):
            number = [each for each, _ in walk.jobs].count(tenant)
            assert not walk.has_room(tenant, number), f"{number} jobs of {tenant} are journaled, and fewer count"
    for _ in range(PUSHED_MAX + 2):
        walk.sync()
        walk.applied[:AWAY] = [walk.synced] * AWAY
        walk.look()
        while set(walk.asked) - {AWAY}:
            walk.answer()
    number = [each for each, _ in walk.jobs].count(HERE)
    assert walk.has_room(HERE, number + 1), "each partition has told of all its jobs since, but one that has none"


@pytest.mark.parametrize("seed", range(20))
def test_no_job_is_forgotten_and_none_counts_twice_for_long(seed: int) -> None:
    go(Walk(random.Random(seed)))


@pytest.mark.parametrize("planted", [Hasty, Forgetful])
def test_such_walks_find_mistakes(planted: type[Walk]) -> None:
    with pytest.raises(AssertionError, match="are journaled, and fewer count"):
        go(planted(random.Random(1)))
