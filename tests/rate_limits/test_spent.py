"""What a rate allows, in the store's own functions: never more than its limit in any window. What is spent of it counts
for a 64th of the window too long at most."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from jqd.store.functions import Library, shipped
from jqd.store.keys import Keys
from jqd.testing.keyspace import Keyspace
from jqd.testing.lua import machine

KEYS = Keys("jqd")
BUCKET = b"r\x1d=key"
NOW_US = 1_800_000_000_000_000
PIECES = 64

SPEND = """register('spend_some', {}, function()
  local cost, now_us = tonumber(ARGV[3]), tonumber(ARGV[5])
  local state = Limits.state(ARGV[2], 'r', cost, now_us)
  local allowed, ids = Limits.may(state, cost), {}
  for at = 1, math.min(allowed, tonumber(ARGV[4])) do
    ids[at] = tostring(at)
  end
  if #ids > 0 then
    Spend.spend('q', {state, cost}, ids)
    Spend.write_spent(1, now_us)
  end
  return {allowed, #ids, math.floor(state.due_us or 0)}
end)
"""
SWEEP = """register('sweep_some', {}, function()
  return Limits.sweep(tonumber(ARGV[2]))
end)
"""
LIBRARY = Library({**shipped().files, "spend_some": SPEND, "sweep_some": SWEEP})


class Bucket:
    """One, and all that was ever spent of it."""

    def __init__(self, limit: int, window_us: int, burst: int = 0) -> None:
        self.keyspace = Keyspace()
        self.edit(limit, window_us, burst)
        self.now_us = NOW_US
        self.spent: list[tuple[int, int]] = []

    def edit(self, limit: int, window_us: int, burst: int = 0) -> None:
        """Make it another rate."""
        self.limit, self.window_us, self.burst = limit, window_us, burst
        self.keyspace.hset(KEYS["limits"].encode(), b"r", f"{limit} {window_us} {burst} 0 0 1  7".encode())

    def claim(self, jobs: int, cost: int = 1) -> tuple[int, int]:
        """How many jobs more were allowed, and how many of these were started."""
        allowed, started, self.due_us = self._run("spend_some", BUCKET, cost, jobs, self.now_us)
        if started:
            self.spent.append((self.now_us, started * cost))
        return allowed, started

    def claim_one(self) -> tuple[int, int]:
        return self.claim(1)

    def sweep(self) -> int:
        """How many rows went, where that was half of what was looked at."""
        gone: int = self._run("sweep_some", self.now_us)
        return gone

    def within(self, us: float) -> int:
        """What was spent so lately."""
        return sum(count for at_us, count in self.spent if at_us > self.now_us - us)

    @property
    def rows(self) -> dict[bytes, bytes]:
        """Of this bucket, and of those that a test made like it."""
        found: dict[bytes, bytes] = self.keyspace.keys.setdefault(KEYS["spent"].encode(), {})
        return found

    @property
    def row(self) -> bytes | None:
        return self.rows.get(BUCKET)

    def _run(self, name: str, *words: Any) -> Any:
        return machine().run(LIBRARY, name, self.keyspace, KEYS.stem.encode(), (1, *words))


def arrivals(source: random.Random, window_us: int) -> Callable[[], int]:
    """How long it is until the next claim: of one kind, for a while."""
    pace = window_us / source.choice((3, 50, 1_000, 20_000))
    return lambda: max(1, round(source.choice((source.expovariate(1 / pace), pace, 1.0, source.random() * window_us))))


@pytest.mark.parametrize("seed", range(60))
def test_it_is_never_over_in_any_window_and_spent_at_most_a_64th_too_long(seed: int) -> None:
    source = random.Random(seed)
    limit = source.choice((1, 2, 3, 7, 64, 100, 1_000, 10_000))
    window_us = source.choice((1, 10, 60, 3_600, 86_400)) * 1_000_000
    bucket, wait = Bucket(limit, window_us), arrivals(source, window_us)
    for _ in range(400):
        bucket.now_us += wait()
        cost = source.choice((1, 1, 1, min(limit, 5)))
        before, before_late = bucket.within(window_us), bucket.within(window_us * (1 + 1 / PIECES))
        allowed, _ = bucket.claim(source.choice((1, 3, 100, limit)), cost)
        assert allowed <= (limit - before) // cost, "never over"
        assert allowed >= (limit - before_late) // cost, "a 64th of the window late"
        assert bucket.within(window_us) <= limit
        row = bucket.row
        assert row is None or row.count(b":") <= PIECES, "so many pieces are in a window"
        if source.random() < 0.02:
            bucket.now_us += window_us
            assert bucket.claim(0)[0] == limit, "after a window of nothing all is allowed"


@pytest.mark.parametrize("limit", [1, 2, 3, 10, 63, 64, 65, 1_000])
def test_who_takes_all_he_gets_has_the_rate_but_for_a_65th(limit: int) -> None:
    """Also of a small limit, of which a claim is one piece and none is late."""
    window_us = 60_000_000
    bucket = Bucket(limit, window_us)
    source, windows = random.Random(limit), 20
    end_us = bucket.now_us + windows * window_us
    started = 0
    while bucket.now_us < end_us:
        started += bucket.claim(source.choice((1, 2, 50)))[1]
        bucket.now_us += max(1, round(window_us / limit / 7)) if limit < 100 else 80_000
    assert started >= windows * limit * PIECES / (PIECES + 1) * (1 - 1 / 7 / limit if limit < 100 else 1)


@pytest.mark.parametrize("limit", [1, 3])
def test_a_claim_by_itself_is_spent_for_its_window_and_not_longer(limit: int) -> None:
    window_us = 3_600_000_000
    bucket = Bucket(limit, window_us)
    assert bucket.claim(9) == (limit, limit)
    bucket.now_us = NOW_US + window_us - 1
    assert bucket.claim(1) == (0, 0)
    assert bucket.due_us == NOW_US + window_us
    bucket.now_us += 1
    assert bucket.claim(limit) == (limit, limit)


@pytest.mark.parametrize("seed", range(30))
def test_a_burst_is_on_top_and_comes_back_at_the_rate(seed: int) -> None:
    source = random.Random(seed)
    limit, burst = source.choice((1, 10, 500)), source.choice((1, 20, 300))
    window_us = source.choice((1, 60, 3_600)) * 1_000_000
    bucket, wait = Bucket(limit, window_us, burst), arrivals(source, window_us)
    for _ in range(300):
        bucket.now_us += wait()
        bucket.claim(source.choice((1, 5, limit + burst)))
        assert bucket.within(window_us) <= limit + burst
        spent = sum(count for _, count in bucket.spent)
        passed_us = bucket.now_us - bucket.spent[0][0]
        assert spent <= limit + burst + passed_us * limit / window_us + 1, "what is above the limit comes back slowly"
    bucket.now_us += round(window_us * (1 + burst / limit)) + window_us
    assert bucket.claim(0)[0] == limit + burst


@pytest.mark.parametrize("seed", range(60))
def test_an_edited_rate_owes_no_more_than_its_own_burst(seed: int) -> None:
    """Whatever was spent under which rules: a window later its limit is free, and as much more as it gave back."""
    source = random.Random(seed)

    def rule() -> tuple[int, int, int]:
        limit, burst = source.choice((1, 10, 1_000)), source.choice((0, 0, 1, 50, 4_000_000))
        return limit, source.choice((1_000_000, 86_400_000_000, 31 * 86_400_000_000)), burst

    bucket = Bucket(*rule())
    for _ in range(30):
        for _ in range(source.choice((1, 5))):
            bucket.claim(source.choice((1, 60)), source.choice((1, 1, min(bucket.limit, 5))))
            bucket.now_us += round(source.random() * bucket.window_us / source.choice((1, 1_000)))
        bucket.edit(*rule())
        edited_us, size = bucket.now_us, bucket.limit + bucket.burst
        back = [source.random() for _ in range(2)]
        for part in sorted(back):
            bucket.now_us = edited_us + round(bucket.window_us * (1 + part * bucket.burst / bucket.limit)) + 1
            allowed, _ = bucket.claim(0)
            assert allowed >= bucket.limit + int(part * bucket.burst), "starts again"
            assert allowed <= size


@pytest.mark.parametrize("seed", range(60))
def test_between_two_edits_no_window_has_more_than_the_rate_and_its_burst(seed: int) -> None:
    """Also where rows are swept in between: what is owed begins anew with an edit, at worst."""
    source, widths = random.Random(seed), (1_000_000, 60_000_000, 86_400_000_000)
    bucket = Bucket(1, 86_400_000_000, burst=50)
    for _ in range(20):
        bucket.spent.clear()
        size, wait = bucket.limit + bucket.burst, arrivals(source, bucket.window_us)
        began_us = bucket.now_us
        for _ in range(30):
            bucket.claim(source.choice((1, 5, size)))
            assert bucket.within(bucket.window_us) <= size
            spent = sum(count for _, count in bucket.spent)
            back = (bucket.now_us - began_us) * bucket.limit / bucket.window_us
            assert not bucket.burst or spent <= size + back + 1, "what is above the limit comes back slowly"
            bucket.now_us += wait()
            if source.random() < 0.3:
                bucket.sweep()
        bucket.edit(source.choice((1, 10, 100)), source.choice(widths), source.choice((0, 5, 50)))


@pytest.mark.parametrize(("between", "left"), [(Bucket.sweep, 51), (Bucket.claim_one, 50)], ids=["a sweep", "a start"])
def test_a_faster_rate_gives_back_what_a_slower_one_is_owed(between: Callable[[Bucket], object], left: int) -> None:
    """So docs/use/SCHEDULING.md says; an edit that is taken back at once gives nothing back."""
    bucket = Bucket(1, 86_400_000_000, burst=50)
    assert bucket.claim(51) == (51, 51)
    bucket.edit(100, 1_000_000)
    between(bucket)
    bucket.edit(1, 86_400_000_000, burst=50)
    assert bucket.claim(0) == (0, 0)
    bucket.edit(100, 1_000_000)
    bucket.now_us += 1_000_001
    between(bucket)
    bucket.edit(1, 86_400_000_000, burst=50)
    assert bucket.claim(0) == (left, 0)


def test_a_burst_that_was_taken_away_and_is_given_again_owes_what_was_spent_since() -> None:
    bucket = Bucket(1, 86_400_000_000, burst=50)
    assert bucket.claim(51) == (51, 51)
    bucket.now_us += 86_400_000_000
    bucket.edit(100, 1_000_000)
    assert bucket.claim(30) == (100, 30)
    bucket.edit(100, 1_000_000, burst=10)
    assert bucket.claim(0) == (80, 0), "of 110"


def test_a_burst_that_takes_centuries_to_come_back_is_not_back_at_once() -> None:
    month_us = 31 * 86_400_000_000
    bucket = Bucket(1, month_us, burst=4_000_000)
    assert bucket.claim(10, 400_000) == (10, 10)
    assert bucket.claim(1) == (1, 1)
    bucket.now_us += month_us
    assert bucket.claim(9) == (1, 1), "of a month one came back"


def test_starts_that_take_less_than_a_microsecond_each_are_owed() -> None:
    limit = 1_000_000_000
    bucket = Bucket(limit, 1_000, burst=limit)
    for _ in range(3_333):
        assert bucket.claim(1, 600_000)[1] == 1
    bucket.now_us += 1_000
    assert bucket.claim(0)[0] <= limit + 200_000, "but for what was not claimed"


@pytest.mark.parametrize("seed", range(20))
def test_a_clock_that_is_set_back_gives_nothing_twice_and_takes_no_more_than_a_window(seed: int) -> None:
    source = random.Random(seed)
    limit, window_us = source.choice((1, 5, 200)), 60_000_000
    bucket = Bucket(limit, window_us)
    for _ in range(30):
        bucket.now_us += round(source.random() * window_us / 20)
        bucket.claim(source.choice((1, 2, limit)))
    before = bucket.within(window_us)
    bucket.now_us -= source.choice((1, 1_000, 3_600)) * 1_000_000
    assert bucket.claim(0)[0] <= limit - before
    bucket.now_us += window_us
    assert bucket.claim(0)[0] == limit


def test_a_row_goes_when_it_says_nothing_any_more() -> None:
    bucket = Bucket(2, 10_000_000, burst=4)
    bucket.claim(6)
    bucket.now_us = NOW_US + 29_999_999
    assert bucket.sweep() == 0, "the burst is not back yet"
    bucket.now_us += 1
    assert (bucket.sweep(), bucket.row, bucket.sweep()) == (1, None, 0)


@pytest.mark.parametrize("rule", [{}, {b"r": b"0 0 0 5 0 1  7"}], ids=["none", "concurrency"])
def test_a_row_goes_with_its_constraint_or_its_rate(rule: dict[bytes, bytes]) -> None:
    bucket = Bucket(2, 10_000_000)
    bucket.claim(1)
    bucket.keyspace.keys[KEYS["limits"].encode()] = rule
    assert (bucket.sweep(), bucket.row) == (1, None)


def test_a_look_for_rows_that_say_nothing_is_short_and_not_repeated_where_few_are() -> None:
    bucket = Bucket(2, 10_000_000)
    bucket.claim(1)
    dead, bucket.now_us = bucket.row, NOW_US + 10_000_000
    bucket.claim(1)
    alive, of = bucket.row, bucket.rows
    assert dead is not None
    assert alive is not None
    of |= {b"r\x1d=%d" % at: alive for at in range(900)} | {b"r\x1d=dead%d" % at: dead for at in range(30)}
    looks = 0
    while len(of) > 901:
        assert bucket.sweep() == 0, "who repeats while it finds some stops here"
        looks += 1
    assert 931 / 100 < looks < 931 / 25, "a small page each"
    of |= {b"r\x1d=dead%d" % at: dead for at in range(9_000)}
    while (before := len(of)) and (gone := bucket.sweep()):
        assert before - len(of) == gone < 100
    assert len(of) < 4_000, "where most say nothing it goes on"
