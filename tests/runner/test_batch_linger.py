"""Small batches that wait for more jobs: up to what their worker asked for, and never longer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.runner.demand import STALE_S, Linger
from jqd.testing.clock import ManualClock
from tests.runner.conftest import OpenHouse, hold

LINGER_S = 0.2


def test_too_few_wait_and_enough_do_not() -> None:
    linger = Linger()
    assert not linger.waits("mail", 5, 5, LINGER_S, 0.0)
    assert not linger.waits("mail", None, 5, LINGER_S, 0.0), "nobody looked"
    assert not linger.waits("mail", 1, 5, 0.0, 0.0), "off"
    assert linger.waits("mail", 1, 5, LINGER_S, 1.0)
    assert linger.waits("mail", 4, 5, LINGER_S, 1.1)
    assert linger.next_s(1.1) == pytest.approx(LINGER_S - 0.1)
    assert not linger.waits("mail", 4, 5, LINGER_S, 1.0 + LINGER_S)
    linger.over("mail")
    assert linger.waits("mail", 1, 5, LINGER_S, 2.0), "the next batch waits anew"
    assert linger.next_s(9.0) == float("inf")


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0.0, 0.3), st.booleans()), max_size=50))
def test_nothing_waits_longer_than_asked(looks: list[tuple[str, float, bool]]) -> None:
    linger, now_s, seen = Linger(), 0.0, dict[str, tuple[float, float]]()
    for jobtype, later_s, claimed in looks:
        now_s += later_s
        first_s, last_s = seen.get(jobtype, (now_s, now_s))
        if now_s - last_s > STALE_S:
            first_s = now_s
        seen[jobtype] = first_s, now_s
        waits = linger.waits(jobtype, 1, 9, LINGER_S, now_s)
        assert waits == (now_s < first_s + LINGER_S)
        assert not waits or 0 < linger.next_s(now_s) <= first_s + LINGER_S - now_s
        if claimed and not waits:
            linger.over(jobtype)
            del seen[jobtype]


async def test_a_worker_is_offered_a_small_batch_when_it_has_waited(open_house: OpenHouse) -> None:
    clock = ManualClock()
    async with open_house(clock=clock) as house:
        house.register("http://127.0.0.1:9/", max_jobs=10, batch=5, batch_linger_ms=200)
        offer = house.runner.offer
        assert offer("mail", 0, 5).jobs_max == 10, "a request is full"
        assert offer("mail", 0, 4) is None
        assert offer("mail", 0).jobs_max == 10
        assert house.runner.linger_s() == pytest.approx(LINGER_S)
        clock.advance(0.1)
        assert offer("mail", 0, 4) is None
        quick = house.register("http://127.0.0.1:10/", name="quick", max_jobs=1)
        assert offer("mail", 0, 4).worker == quick, "another may have them"
        house.workers.unregister(quick.id)
        clock.advance(0.101)
        found = offer("mail", 0, 4)
        assert found.jobs_max == 10
        house.runner.run_jobs(found.worker.id, "mail", hold(4))
        assert offer("mail", 0, 1) is None, "the next ones wait anew"
        assert offer("film", 0, 6).jobs_max == 6, "as many as there is room for now are enough"
