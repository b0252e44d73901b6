"""Policies: what goes first of equal priorities, against plain statements of the rules."""

import random
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.domain.tenant import annotate, tenant_of
from jqd.scheduler import Fair, Policy, Random, Scheduler, SchedulerConfig, Strict, make_policy
from jqd.scheduler.policies import REMEMBERED
from tests.scheduler.test_scheduler import Row

BATCH = 50


class Queue:
    """Jobtypes that wait, and their scheduler: each step begins a batch of the first, and looks once more after that at
    what it had seen before, as dispatch does when a slot frees: nothing is claimed then."""

    def __init__(self, policy: Policy) -> None:
        self.scheduler, self.started = Scheduler(policy), Counter[str]()

    def step(self, rows: list[Row], jobs: int) -> Row | None:
        """Which row had its turn."""
        ranked = [self.scheduler.ranked(rows)]
        one = next(self.scheduler.select_rows_to_run(ranked, may_run=lambda row: True), None)
        if one is None:
            return None
        count = min(jobs, one.row.waiting)
        self.scheduler.chosen(one.row)
        self.scheduler.jobs_started(one.row.jobtype, count)
        assert next(self.scheduler.select_rows_to_run(ranked, may_run=lambda row: True)).row == one.row
        self.started[one.row.jobtype] += count
        return one.row

    def of(self, tenant: str) -> int:
        """Jobs of it that began."""
        return sum(count for name, count in self.started.items() if tenant_of(name) == tenant)


def row(name: str, *, age: int = 0, waiting: int = BATCH, priority: int = 0) -> Row:
    """`name`: "tenant/type"."""
    tenant, _, bare = name.rpartition("/")
    return Row(annotate(tenant, bare), priority, f"{1000 - age:05}", waiting)


class Model:
    """The rule of fair shares, said plainly: who was served least by weight, first of tenants, then of its jobtypes.

    Whoever did not wait when somebody was chosen, or was passed over for its priority, is lifted to who was chosen.
    """

    def __init__(self, weights: dict[str, int]) -> None:
        self.weights, self.served, self.least = weights, dict[str, Fraction](), dict[str, Fraction]()

    def at(self, group: str, name: str) -> Fraction:
        return max(self.served.get(name, Fraction(0)), self.least.get(group, Fraction(0)))

    def places(self, jobtype: str) -> tuple[tuple[str, str, int], ...]:
        tenant = tenant_of(jobtype)
        return ("", f"tenant {tenant}", self.weights.get(tenant, 1)), (tenant_of(jobtype) + "/", jobtype, 1)

    def choose(self, rows: list[Row]) -> str:
        best = min(one.priority for one in rows)
        _, _, jobtype = min(
            ([self.at(group, name) for group, name, _ in self.places(one.jobtype)], one.head_id, one.jobtype)
            for one in rows
            if one.priority == best
        )
        for group, name, _ in self.places(jobtype):
            self.least[group] = self.at(group, name)
        return jobtype

    def begin(self, jobtype: str, count: int) -> None:
        for group, name, weight in self.places(jobtype):
            self.served[name] = self.at(group, name) + Fraction(count, weight)


NAMES = ["a", "b", "acme/a", "acme/b", "acme/c", "zoo/a"]
weights_of = st.fixed_dictionaries({tenant: st.sampled_from([1, 2, 4, 8]) for tenant in ("", "acme", "zoo")})
steps_of = st.lists(
    st.tuples(
        st.lists(
            st.builds(
                row,
                st.sampled_from(NAMES),
                age=st.integers(0, 3),
                priority=st.sampled_from([0, 0, 0, 1]),
                waiting=st.just(9),
            ),
            min_size=1,
            unique_by=lambda one: one.jobtype,
        ),
        st.integers(1, 9),
    ),
    max_size=60,
)


@given(weights_of, steps_of)
def test_fair_chooses_as_the_model_does_whoever_comes_and_goes(
    weights: dict[str, int], steps: list[tuple[list[Row], int]]
) -> None:
    queue, model = Queue(Fair(weights)), Model(weights)
    for rows, jobs in steps:
        chosen = queue.step(rows, jobs)
        assert chosen is not None
        assert chosen.jobtype == model.choose(rows)
        model.begin(chosen.jobtype, min(jobs, chosen.waiting))


@given(weights_of, st.lists(st.tuples(st.integers(1, BATCH), st.sets(st.sampled_from(NAMES[:3]))), max_size=200))
def test_who_always_waits_has_its_share_to_within_a_batch_whoever_else_comes_and_goes(
    weights: dict[str, int], steps: list[tuple[int, set[str]]]
) -> None:
    queue, always = Queue(Fair(weights)), ["acme/b", "acme/c", "zoo/a"]
    for jobs, others in steps:
        queue.step([row(name) for name in {*always, *others}], jobs)
        shares = {tenant: queue.of(tenant) / weights[tenant] for tenant in ("acme", "zoo")}
        for tenant, other in (("acme", "zoo"), ("zoo", "acme")):
            assert shares[tenant] - shares[other] <= BATCH / weights[tenant]
        assert abs(queue.started[annotate("acme", "b")] - queue.started[annotate("acme", "c")]) <= BATCH


@pytest.mark.parametrize("idles_at", [0, 10])
def test_who_was_idle_has_nothing_saved_up_and_owes_nothing(idles_at: int) -> None:
    queue = Queue(Fair({"zoo": 2}))
    for turn in range(40):
        queue.step([row("acme/a"), *([row("zoo/a")] if turn < idles_at else [])], 10)
    before = {tenant: queue.of(tenant) for tenant in ("acme", "zoo")}
    for _ in range(30):
        queue.step([row("acme/a"), row("zoo/a")], 10)
    now = {tenant: queue.of(tenant) - before[tenant] for tenant in before}
    assert sum(now.values()) == 300
    assert now["zoo"] in range(180, 221)


@given(st.randoms(use_true_random=False), st.integers(1, BATCH))
def test_nobody_of_equal_priority_starves(source: random.Random, jobs: int) -> None:
    rows = [row(name, age=source.randrange(9)) for name in NAMES]
    queue = Queue(Fair({"acme": 8, "zoo": 1}))
    for _ in range(40):
        queue.step(rows, jobs)
    assert all(queue.started[one.jobtype] for one in rows)


def test_of_one_tenant_the_oldest_goes_first_until_something_began() -> None:
    rows = [row("a", age=1), row("b", age=3), row("c", age=2)]
    queue = Queue(Fair())
    assert [queue.step(rows, 5) for _ in range(6)] == [rows[1], rows[2], rows[0]] * 2


def test_a_share_is_of_equal_priorities_only() -> None:
    """What is better goes first whatever its tenant had, and is no reason to wait afterwards."""
    queue = Queue(Fair())
    for _ in range(100):
        assert queue.step([row("acme/a", priority=-1), row("zoo/a")], 50) == row("acme/a", priority=-1)
    turns = [queue.step([row("acme/a"), row("zoo/a")], 50) for _ in range(11)]
    assert 5 <= turns.count(row("zoo/a")) <= 6


def test_strict_takes_the_oldest_whosever_it_is() -> None:
    queue = Queue(Strict())
    rows = [row("acme/a", age=2), row("zoo/a", age=1)]
    assert {queue.step(rows, 50) for _ in range(20)} == {rows[0]}


def test_random_takes_any_of_the_best_priority_by_chance_and_stays_with_it_until_something_began() -> None:
    queue = Queue(Random(random.Random(1)))
    rows = [*(row(name) for name in NAMES), row("worse", priority=1)]
    turns = Counter(queue.step(rows, 1) for _ in range(600))
    assert sorted(one.jobtype for one in turns if one) == sorted(one.jobtype for one in rows[:-1])
    assert all(60 <= count <= 140 for count in turns.values())
    scheduler = Scheduler(Random(random.Random(2)))
    firsts = {scheduler.ranked(rows)[0] for _ in range(20)}
    assert len(firsts) == 1


def test_what_is_remembered_has_an_end() -> None:
    fair, chance = Fair(), Random(random.Random(1))
    for number in range(2 * REMEMBERED):
        fair.started(annotate(f"t{number}", "a"), 1)
        fair.started(f"type{number}", 1)
        chance.rank(row(f"type{number}"))
    # The tenant "" goes on all the time, so it is known; of its jobtypes the last are.
    assert len(fair._tenants._of) == len(fair._types) == len(fair._types[""]._of) == len(chance._draws) == REMEMBERED
    assert fair.rank(row("type0"))[1] < fair.rank(row(f"type{2 * REMEMBERED - 1}"))[1]


def test_the_policy_that_is_set_is_made() -> None:
    source = random.Random(1)
    kinds = {name: type(make_policy(SchedulerConfig(policy=name), source)) for name in ("fair", "strict", "random")}
    assert kinds == {"fair": Fair, "strict": Strict, "random": Random}
    assert SchedulerConfig(weights=("acme=3", "=1000")).by_tenant == {"acme": 3, "": 1000}
    with pytest.raises(ValueError, match="names a tenant twice"):
        SchedulerConfig(weights=("acme=3", "acme=4"))
