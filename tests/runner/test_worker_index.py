"""The workers that hold, in order, and what is counted of them while they come and go."""

import itertools
import random

import pytest

from jqd.runner import presence
from jqd.runner.presence import WorkerIndex
from jqd.runner.worker import Worker


def worker(number: int, at_ms: int, url: str | None = None, names: int = 1) -> Worker:
    jobs = tuple(f"t{each}" for each in range(names))
    tenant = "acme" if number % 5 == 0 and url is None else ""
    return Worker(id=f"{number:03}", name="w", url=url, jobs=jobs, max_jobs=1, registered_at_ms=at_ms, tenant=tenant)


def test_whatever_comes_and_goes_the_roll_is_what_a_count_would_be() -> None:
    source, roll, known = random.Random(7), WorkerIndex(), dict[str, Worker]()
    for _ in range(400):
        number = source.randrange(30)
        if source.random() < 0.3:
            assert roll.pop(f"{number:03}") == known.pop(f"{number:03}", None)
        else:
            one = worker(number, source.randrange(50), source.choice([None, "http://a/", "http://b/"]), number % 4)
            roll.put(one)
            known[one.id] = one
        if source.random() < 0.5:
            ordered = sorted(known.values(), key=lambda one: (one.registered_at_ms, one.id))
            assert [*roll] == ordered
            for url in ("http://a/", "http://b/"):
                assert roll.at(("", url, "w", "native")) == next((one for one in ordered if one.url == url), None)
        assert len(roll) == len(known)
        for tenant in ("", "acme"):
            its = [one for one in known.values() if one.tenant == tenant]
            assert (roll.tenants[tenant], roll.names[tenant]) == (len(its), sum(len(one.jobs or ()) for one in its))


def test_those_that_come_in_their_order_are_never_sorted() -> None:
    roll = WorkerIndex()
    for number in range(100):
        roll.put(worker(number, number))
        assert roll._is_ordered
    assert [one.id for one in itertools.islice(roll, 2)] == ["000", "001"]


def test_what_leaves_or_is_known_already_sorts_no_fleet_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    roll, compared, real = WorkerIndex(), list[Worker](), presence._place
    for number in range(100):
        roll.put(worker(number, number))

    def place(one: Worker) -> tuple[int, str]:
        compared.append(one)
        return real(one)

    monkeypatch.setattr(presence, "_place", place)
    roll.pop("007")
    roll.put(worker(50, 50, names=3))
    assert [one.id for one in roll] == [f"{number:03}" for number in range(100) if number != 7]
    assert len(compared) < 10
