"""Whose schedules a round of the loop fires: those of all tenants in turn, however many dates of one have come."""

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from jqd.cron.loop import AT_ONCE, in_turns
from jqd.cron.schedules import FiredDate, KnownSchedule, Schedule, Template
from jqd.domain.tenant import annotate, tenant_of

SCHEDULE = Schedule(job=Template(name="n"), every=1.0)
CROWDS = st.dictionaries(
    st.integers(0, 150).map(lambda n: f"t{n}" if n else ""), st.integers(1, 3 * AT_ONCE), min_size=1, max_size=151
)


def due_of(crowd: dict[str, int]) -> list[KnownSchedule]:
    """So many schedules of each tenant, which are due again as soon as they were fired: all of one before the next."""
    return [
        KnownSchedule(annotate(tenant, f"s{n}"), SCHEDULE, FiredDate(0))
        for tenant in crowd
        for n in range(crowd[tenant])
    ]


@given(CROWDS, st.sampled_from(["", "t1", "t5", "t99", "zz"]))
def test_each_tenant_gets_its_share_whatever_the_others_have(crowd: dict[str, int], served: str) -> None:
    due, fired = due_of(crowd), dict.fromkeys(crowd, 0)
    rounds = ceil(len(crowd) / AT_ONCE)  # in so many each tenant has a turn
    for _ in range(rounds):
        ours = in_turns(due, served)
        assert len(ours) == min(len(due), AT_ONCE)
        assert len({one.name for one in ours}) == len(ours)
        for one in ours:
            served = tenant_of(one.name)
            fired[served] += 1
    share = rounds * AT_ONCE // len(crowd)
    assert all(fired[tenant] >= min(crowd[tenant], share) for tenant in crowd)


@given(st.lists(st.floats(0, 5), max_size=20))
def test_of_a_tenant_who_failed_comes_last(again: list[float]) -> None:
    due = due_of({"": len(again)})
    for one, again_at_s in zip(due, again, strict=True):
        one.again_at_s = again_at_s
    assert in_turns(due, "") == sorted(due, key=lambda one: one.again_at_s)
