"""The base words: ids, back-off, leases, clocks, records, the job log."""

import contextlib
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.domain.backoff import Backoff
from jqd.domain.carried import carry_jobs
from jqd.domain.clock import SystemClock
from jqd.domain.errors import JournalDamaged
from jqd.domain.job import NIL, Exit, Fate, Job, Outcome, State
from jqd.domain.jobid import (
    HOMES,
    JOURNAL_BITS,
    ORDER_LENGTH,
    SALT_BITS,
    SEQUENCES,
    IdSource,
    home_of,
    homes_of,
    journal_number,
    parse_id,
    partition_of,
)
from jqd.domain.lease import Heartbeats, LeaseConfig, Trust, allowed_silence_s
from jqd.domain.record import (
    Head,
    decode_cancels,
    decode_jobs,
    decode_outcomes,
    encode_cancels,
    encode_jobs,
    encode_outcomes,
)
from jqd.testing.clock import ManualClock

# ---------------------------------------------------------------- ids


@given(st.lists(st.tuples(st.integers(-5_000, 5_000), st.integers(1, 3_000)), max_size=30))
def test_ids_only_grow_whatever_the_clock_does(steps: list[tuple[int, int]]) -> None:
    clock = ManualClock()
    source = IdSource(journal=77, salt=5, clock=clock, after_ms=clock.wall_ms() + 10)
    assert parse_id(source.last_id) == (source.last_ms, SEQUENCES - 1, 2**JOURNAL_BITS - 1, 2**SALT_BITS - 1, HOMES - 1)
    last = ""
    for step_ms, count in steps:
        clock.set_wall_ms(clock.wall_ms() + step_ms)
        ids = source.take(count).ids()
        assert len(ids) == count
        assert [last, *ids] == sorted({last, *ids})
        last = ids[-1]
        assert last <= source.last_id
        assert source.last_id[:ORDER_LENGTH] == last[:ORDER_LENGTH]
        parts = parse_id(last)
        assert parts is not None
        assert (parts.journal, parts.salt) == (77, 5)


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=50), st.integers(1, HOMES))
def test_an_id_says_where_its_job_lives(names: list[str], partitions: int) -> None:
    given = IdSource(journal=77, salt=5, clock=ManualClock()).take(len(names), homes_of(names))
    assert given.fits()
    assert [parse_id(job_id) and job_id[-1] for job_id in given.ids()] == [home_of(name) for name in names]
    where = {name: partition_of(job_id, partitions) for name, job_id in zip(names, given.ids(), strict=True)}
    assert set(where.values()) <= set(range(partitions))
    assert partition_of(f"{given.ids()[0]}@12", partitions) == where[names[0]]  # the record of a cancel


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=9))
def test_a_frame_keeps_the_homes_of_its_jobs(names: list[str]) -> None:
    ids = IdSource(journal=77, salt=5, clock=ManualClock()).take(len(names), homes_of(names))
    body = encode_jobs(Head(ids.first, 1, homes=ids.homes), msgspec.msgpack.encode([{"name": name} for name in names]))
    assert [job.id for job in decode_jobs(body)] == ids.ids()
    kept = set(ids.ids()[::2])
    carried = [job for _, _, part in carry_jobs(body, kept, 0) for job in decode_jobs(part)]
    assert {job.id: job.jobtype for job in carried} == {
        job_id: name for job_id, name in zip(ids.ids(), names, strict=True) if job_id in kept
    }


@pytest.mark.parametrize("homes", ["0", "0u", "é0", "000"])
def test_homes_that_cannot_be_are_damage(homes: str) -> None:
    ids = IdSource(journal=77, salt=5, clock=ManualClock()).take(2)
    body = encode_jobs(Head(ids.first, 1, homes=homes), msgspec.msgpack.encode([{"name": "a"}, {"name": "b"}]))
    with pytest.raises(JournalDamaged, match="ids that cannot be"):
        decode_jobs(body)


def test_a_full_millisecond_borrows_the_next() -> None:
    clock = ManualClock()
    source = IdSource(journal=1, salt=1, clock=clock)
    first = parse_id(source.take(SEQUENCES).first)
    second = parse_id(source.take(1).first)
    assert first is not None
    assert second is not None
    assert (second.at_ms, second.sequence) == (first.at_ms + 1, 0)


@pytest.mark.parametrize("text", ["", "x", "8" * 26, "0" * 25, "0" * 27, "0" * 25 + "u", "0" * 25 + "I"])
def test_what_no_journal_made_is_no_id(text: str) -> None:
    assert parse_id(text) is None


def test_absurd_requests_for_ids_are_bugs() -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match="out of range"):
        IdSource(journal=1 << 40, salt=0, clock=clock)
    source = IdSource(journal=0, salt=0, clock=clock)
    for count in (0, SEQUENCES + 1):
        with pytest.raises(ValueError, match="ids asked for"):
            source.take(count)
    assert journal_number("ff" * 16) == (1 << 40) - 1


# ---------------------------------------------------------------- back-off, lease, clock


@pytest.mark.parametrize(
    ("wished", "allowed"),
    [
        (0.01, 1),
        (1, 1),
        (9.2, 10),
        (60, 60),
        (100, 100),
        (101, 110),
        (120, 120),
        (990.5, 1000),
        (3600, 3600),
        (3601, 3700),
        (86_400, 87_000),
        (1e12, 5_200_000),
    ],
)
def test_silence_is_allowed_in_few_lengths(wished: float, allowed: int) -> None:
    assert allowed_silence_s(wished) == allowed


@given(st.integers(1, 10_000), st.integers())
def test_back_off_grows_to_its_cap_and_stays_jittered(failures: int, seed: int) -> None:
    backoff = Backoff(first_s=1, factor=2, cap_s=100, jitter=0.25)
    delay = backoff.delay_s(failures, random.Random(seed))
    middle = min(100, 2 ** min(failures - 1, 64))
    assert middle * 0.75 <= delay <= middle * 1.25


def test_absurd_back_offs_are_refused() -> None:
    with pytest.raises(ValueError, match="starts at the first"):
        Backoff().delay_s(0, random.Random(1))
    with pytest.raises(ValueError, match="a back-off needs"):
        Backoff(first_s=0)
    with pytest.raises(ValueError, match="lease_s = 1 must be more than renew_s = 1 and margin_s = 2 together"):
        LeaseConfig(lease_s=1, renew_s=1)


def test_a_job_may_ask_for_other_waits_than_the_daemons() -> None:
    plain = Backoff(first_s=1, factor=2, cap_s=100, jitter=0)
    cases: list[tuple[float | tuple[float, ...], list[float]]] = [
        ((), [1, 2, 4, 8, 16]),
        (30, [30, 60, 100, 100, 100]),
        (500.0, [500, 500, 500, 500, 500]),
        ((10, 1, 70), [10, 1, 70, 70, 70]),
    ]
    for asked, waits in cases:
        assert [plain.asked_s(asked, failures, random.Random(1)) for failures in range(1, 6)] == waits


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=1, max_size=20))
def test_an_owner_never_trusts_itself_when_a_watcher_has_given_it_up(steps: list[tuple[float, float]]) -> None:
    config = LeaseConfig(lease_s=10, renew_s=3, margin_s=2)
    trust, heartbeats = Trust(config), Heartbeats(config)
    now, counter = 0.0, 0
    for wait, delay in steps:
        now += wait
        sent, counter = now, counter + 1
        now += delay  # the store has it by now; the watcher sees it now, the owner hears of it now
        heartbeats.observe({"o": (counter, 1)}, now)
        trust.renewed(sent)
        later = now + 20
        step = now
        while step < later:
            if heartbeats.observe({"o": (counter, 1)}, step):
                assert not trust.holds(step)
            step += 0.5
        heartbeats.forget()
    trust.lost()
    assert not trust.holds(now)
    assert trust.until_s == float("-inf")


def test_who_left_is_forgotten() -> None:
    heartbeats = Heartbeats(LeaseConfig())
    assert heartbeats.observe({"a": (1, 1)}, 0) == []
    assert heartbeats.observe({}, 5) == []
    assert heartbeats.observe({"a": (1, 1)}, 50) == []
    assert [heartbeats.observe({"a": (1, 1)}, now_s) for now_s in (53, 56, 59, 62)] == [[], [], [], ["a"]]


@given(st.floats(10, 100_000), st.lists(st.floats(0, 3), min_size=1, max_size=4))
def test_time_without_an_answer_makes_nobody_dead(away_s: float, later_s: list[float]) -> None:
    """All that any daemon could not do meanwhile is renew: whoever is answered first had called all others dead."""
    config = LeaseConfig(lease_s=10, renew_s=3, margin_s=2)
    heartbeats, now_s = Heartbeats(config), 0.0
    assert heartbeats.observe({"a": (1, 1)}, now_s) == []
    since_s = 0.0
    for wait_s in (away_s, *later_s):
        now_s += wait_s
        since_s += min(wait_s, config.renew_s)
        assert heartbeats.observe({"a": (1, 1)}, now_s) == (["a"] if since_s > config.lease_s else [])
    assert heartbeats.age("a", now_s).watched_s == pytest.approx(since_s)
    assert heartbeats.age("a", now_s).all_s == now_s


def test_who_is_dead_is_found_however_seldom_the_store_answers() -> None:
    heartbeats = Heartbeats(LeaseConfig())
    assert [heartbeats.observe({"a": (1, 1)}, 60 * minute) for minute in range(5)] == [[], [], [], [], ["a"]]


def test_clocks_only_pass_forward_by_themselves() -> None:
    clock = ManualClock(wall_ms=5, mono_s=1)
    clock.advance(2)
    assert (clock.wall_ms(), clock.mono_s()) == (2_005, 3)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)
    real = SystemClock()
    assert real.mono_s() <= real.mono_s()
    assert real.wall_ms() > 1_700_000_000_000


# ---------------------------------------------------------------- records

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.lists(st.tuples(st.text(min_size=1), VALUES, st.integers(-(2**31), 2**31 - 1)), min_size=1, max_size=20))
def test_arguments_keep_their_bytes_through_a_frame(jobs: list[tuple[str, object, int]]) -> None:
    source = IdSource(journal=3, salt=9, clock=ManualClock())
    ids = source.take(len(jobs))
    array = msgspec.msgpack.encode([{"name": n, "argument": a, "priority": p} for n, a, p in jobs])
    read = decode_jobs(encode_jobs(Head(ids.first, 1_234, {0: 99}), array))
    assert [job.id for job in read] == ids.ids()
    assert [(job.jobtype, job.argument, job.priority) for job in read] == [
        (n, msgspec.msgpack.encode(a), p) for n, a, p in jobs
    ]
    assert [job.eligible_at_ms for job in read] == [99] + [0] * (len(jobs) - 1)
    assert {job.created_at_ms for job in read} == {1_234}


PUSHED = st.fixed_dictionaries(
    {"name": st.text(min_size=1)},
    optional={
        "argument": VALUES,
        "priority": st.integers(-(2**31), 2**31 - 1),
        "max_retry": st.integers(0, 1_000_000),
        "keep_result": st.booleans(),
        "timeout": st.floats(0.001, 1e6),
        "job_id": st.text(min_size=1),
        "tags": st.lists(st.text(), max_size=4),
    },
)


@given(st.lists(PUSHED, min_size=1, max_size=10))
def test_a_job_is_what_its_pusher_wrote_and_else_the_defaults(pushed: list[dict[str, object]]) -> None:
    ids = IdSource(journal=3, salt=9, clock=ManualClock()).take(len(pushed))
    for told, job in zip(
        pushed, decode_jobs(encode_jobs(Head(ids.first, 1), msgspec.msgpack.encode(pushed))), strict=True
    ):
        default = Job("", "")
        assert job.jobtype == told["name"]
        assert job.argument == msgspec.msgpack.encode(told.get("argument"))
        assert job.priority == told.get("priority", default.priority)
        assert job.max_retry == told.get("max_retry", default.max_retry)
        assert job.keep_result == told.get("keep_result", default.keep_result)
        assert job.timeout == told.get("timeout", default.timeout)
        assert job.name == told.get("job_id", default.name)
        assert list(job.tags) == told.get("tags", [])


@given(st.data())
def test_a_flipped_byte_of_a_job_is_damage_or_another_job_never_a_crash(data: st.DataObject) -> None:
    ids = IdSource(journal=3, salt=9, clock=ManualClock()).take(3)
    jobs = msgspec.msgpack.encode([{"name": "t", "argument": [1, "x"], "tags": ["a"]}] * 3)
    body = bytearray(encode_jobs(Head(ids.first, 1, {1: 5}), jobs))
    body[data.draw(st.integers(len(body) - len(jobs), len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(JournalDamaged):
        assert all(isinstance(job, Job) for job in decode_jobs(bytes(body)))


WHOLE = st.integers(0, 2**63 - 1)
OUTCOMES = st.builds(
    Outcome,
    st.text(),
    fence=WHOLE,
    fate=st.sampled_from(Fate),
    jobtype=st.text(),
    priority=st.integers(-(2**31), 2**31 - 1),
    attempt=WHOLE,
    status=WHOLE,
    delay_ms=WHOLE,
    error=st.binary(),
    message=st.text(),
    result=st.binary(),
    keep_result=st.booleans(),
)


@given(st.lists(OUTCOMES, max_size=5))
def test_any_outcome_comes_back_as_written(outcomes: list[Outcome]) -> None:
    assert decode_outcomes(encode_outcomes(outcomes)) == outcomes


def test_outcomes_and_cancels_come_back_as_written() -> None:
    outcomes = [Outcome("1", 2**60, Fate.RETRY, "t", -5, 3, status=503, delay_ms=7, error=b"\x01", message="ä")]
    assert decode_outcomes(encode_outcomes(outcomes)) == outcomes
    assert decode_cancels(encode_cancels(["a", "b"])) == ["a", "b"]


@given(st.binary(max_size=60))
def test_a_body_that_is_not_ours_is_damage_not_a_crash(body: bytes) -> None:
    for decode in (decode_jobs, decode_outcomes, decode_cancels):
        with contextlib.suppress(JournalDamaged):  # anything else would end the daemon
            decode(body)


def test_the_four_exit_classes() -> None:
    assert [Exit.of_status(s) for s in (100, 204, 404, 503)] == [Exit.RETRY, Exit.OK, Exit.FAILED, Exit.ERROR]
    assert [Exit.of_status(s) for s in (0, 302, 999)] == [Exit.ERROR] * 3
    assert [state for state in State if state.is_final] == [State.SUCCEEDED, State.FAILED, State.CANCELLED]
    assert msgspec.msgpack.encode(None) == NIL


@pytest.mark.parametrize("first", ["", "no id", "0" * 10 + "ZZZZ" + "0" * 12])
def test_ids_that_cannot_be_are_damage_not_a_crash(first: str) -> None:
    array = msgspec.msgpack.encode([{"name": "t"}, {"name": "t"}])
    with pytest.raises(JournalDamaged, match="cannot be" if first else "has no id for a job"):
        decode_jobs(encode_jobs(Head(first, 1), array))
