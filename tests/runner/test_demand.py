"""What is asked of the store is what somebody takes, no more and no less, and said shortly."""

from hypothesis import given
from hypothesis import strategies as st

from jqd.domain.job import Wanted
from jqd.domain.pauses import all_of
from jqd.domain.tenant import annotate, tenant_of
from jqd.runner.demand import Demand

spans = st.tuples(st.integers(0, 9), st.integers(0, 4)).map(lambda span: (span[0], sum(span)))
takers = st.tuples(st.sampled_from(["a", "b", None]), spans, st.frozensets(st.sampled_from("ab")))


@given(st.lists(takers, max_size=6), st.frozensets(st.sampled_from("abc"), max_size=2))
def test_what_is_asked_for_is_what_somebody_takes(
    workers: list[tuple[str | None, tuple[int, int], frozenset[str]]], paused: frozenset[str]
) -> None:
    wishes = Demand(paused, frozenset({all_of("acme")}))
    wishes.any_type((0, 9), frozenset(), "acme")
    wishes.named(annotate("acme", "a"), (0, 9))
    for jobtype, span, besides in workers:
        if jobtype is None:
            wishes.any_type(span, besides)
        else:
            wishes.named(jobtype, span)
    wanted = wishes.wanted()
    assert {(wish.tenant, tenant_of(wish.jobtype or "")) for wish in wanted} <= {("", "")}, "nothing of who is paused"
    for jobtype in "abc":
        for priority in range(15):
            taken = jobtype not in paused and any(
                low <= priority <= high and (name == jobtype or (name is None and jobtype not in besides))
                for name, (low, high), besides in workers
            )
            asked = any(
                wish.priority_min <= priority <= wish.priority_max
                and (wish.jobtype == jobtype or (wish.jobtype is None and jobtype not in wish.besides))
                for wish in wanted
            )
            assert taken == asked, (jobtype, priority)


def test_ranges_that_touch_are_one_and_any_type_says_it_for_all() -> None:
    wishes = Demand()
    for span in ((0, 9), (20, 30), (5, 12), (13, 13)):
        wishes.any_type(span, frozenset())
    wishes.any_type((0, 40), frozenset("a"))
    wishes.any_type((0, 40), frozenset("ab"))
    wishes.any_type((1, 2), frozenset("b"))
    wishes.named("mail", (2, 13))
    wishes.named("bill", (2, 14))
    assert wishes.wanted() == [
        Wanted(None, 0, 13),
        Wanted(None, 20, 30),
        Wanted(None, 0, 40, frozenset("a")),
        Wanted("bill", 2, 14),
    ]
