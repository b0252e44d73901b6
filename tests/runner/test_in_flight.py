"""Each job in flight once, whatever happens in whatever order."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from jqd.domain.errors import JournalRefused
from jqd.domain.job import INTERRUPTED, Fate, Held, Job, Outcome
from jqd.domain.record import encode_outcomes
from jqd.journal import JournalConfig
from jqd.runner.in_flight import TAKE_BYTES_MAX, InFlightJob, InFlightJobs, Phase
from jqd.runner.outcome import MESSAGE_LENGTH_MAX


def held(name: str, fence: int = 1) -> Held:
    return Held(Job(name, "mail"), fence, 1)


def ended(entry: InFlightJob, result: bytes = b"\xc0") -> Outcome:
    return Outcome(entry.held.job.id, entry.held.fence, Fate.SUCCEEDED, "mail", 0, 1, result=result)


def test_a_job_stops_once() -> None:
    in_flight = InFlightJobs()
    (entry,) = in_flight.take("w", [held("A")])
    in_flight.stop([(entry, ended(entry))])
    for again in (
        lambda: in_flight.stop([(entry, ended(entry))]),
        lambda: in_flight.release(entry),
        lambda: in_flight.sent([entry], 0),
        lambda: in_flight.requeue([entry]),
    ):
        with pytest.raises(AssertionError):
            again()


def test_of_what_goes_back_it_tells_which_was_never_sent() -> None:
    in_flight = InFlightJobs()
    never, sent, again = in_flight.take("w", [held("A"), held("B"), held("C")])
    in_flight.sent([sent, again], 5)
    in_flight.requeue([again])
    for entry in (never, sent, again):
        in_flight.release(entry)
    stopped = in_flight.get_stopped(9)
    assert (stopped.returned, stopped.unsent) == ([one.held for one in (never, sent, again)], [never.held])


def test_a_refusal_does_not_undo_that_an_earlier_send_may_have_begun_it() -> None:
    """A batch that failed as a whole was split and sent again, and that was refused."""
    in_flight = InFlightJobs()
    once, anew, packed = in_flight.take("w", [held("A"), held("B"), held("C")])
    in_flight.sent([once, anew], 5)
    in_flight.requeue([anew, packed])
    in_flight.sent([anew, packed], 6)
    for entry in (once, anew, packed):
        in_flight.release(entry, refused=True)
    assert in_flight.get_stopped(9).unsent == [once.held, packed.held]


def test_while_the_journal_refuses_no_outcome_is_given_and_interruptions_go_back() -> None:
    """They promise nobody anything. All others wait for a disk that takes them."""
    in_flight = InFlightJobs()
    taken, done, cut = in_flight.take("w", [held("A"), held("B"), held("C")])
    in_flight.stop([(taken, ended(taken))])
    in_flight.get_stopped(9)
    in_flight.stop([(done, ended(done)), (cut, msgspec.structs.replace(ended(cut), reason=INTERRUPTED))])
    in_flight.refused(JournalRefused("full", full=True))
    assert in_flight.get_stopped(9)[:2] == ([], [cut.held])
    assert (cut.outcome, in_flight.untaken) == (None, 1)
    in_flight.mark_durable()
    assert in_flight.get_stopped(9)[:2] == ([ended(done)], [])
    assert (in_flight.untaken, in_flight.untaken_bytes) == (0, 0)


def test_the_next_attempt_may_come_before_this_one_is_settled() -> None:
    """The store applied a retry at once and gave the job again before the loop heard that it had."""
    in_flight = InFlightJobs()
    (old,) = in_flight.take("w", [held("A", 1)])
    in_flight.stop([(old, ended(old))])
    assert in_flight.get_stopped(9).outcomes == [ended(old)]
    (new,) = in_flight.take("w", [held("A", 2)])
    in_flight.forget([("A", 1)])  # meant for the old one
    assert in_flight.fences() == {"A": 2}
    assert in_flight.find("A") is new
    in_flight.stop([(new, ended(new))])
    assert in_flight.get_stopped(9).outcomes == [ended(new)]
    in_flight.forget([("A", 1)])  # late, and still of the old one: of the new one the store knows nothing yet
    assert in_flight.fences() == {"A": 2}
    in_flight.forget([("A", 2)])
    assert in_flight.fences() == {}


@pytest.mark.parametrize("fence", [1, 2, 3])
def test_a_job_at_work_is_not_taken_again(fence: int) -> None:
    in_flight = InFlightJobs()
    in_flight.take("w", [held("A", 2)])
    with pytest.raises(AssertionError, match="in flight already"):
        in_flight.take("w", [held("A", fence)])


def test_large_outcomes_are_taken_a_few_at_a_time() -> None:
    in_flight = InFlightJobs()
    large = b"x" * (TAKE_BYTES_MAX // 2)
    for entry in in_flight.take("w", [held(name) for name in "ABCDE"]):
        in_flight.stop([(entry, ended(entry, large))])
    assert [len(in_flight.get_stopped(9).outcomes) for _ in range(4)] == [2, 2, 1, 0]
    assert in_flight.untaken_bytes == 0


def test_what_is_taken_at_once_fits_into_a_frame_of_the_journal() -> None:
    """In bytes, not in characters: the daemon that cannot write its frame ends, and again when it has run the jobs."""
    in_flight, message = InFlightJobs(), "\N{MUSICAL SYMBOL G CLEF}" * MESSAGE_LENGTH_MAX
    for entry in in_flight.take("w", [held(f"{n}") for n in range(600)]):
        in_flight.stop([(entry, msgspec.structs.replace(ended(entry), message=message))])
    frame_bytes_max = JournalConfig(Path("x")).frame_bytes_max
    while outcomes := in_flight.get_stopped(1_000).outcomes:
        assert len(encode_outcomes(outcomes)) <= frame_bytes_max
    assert in_flight.untaken_bytes == 0


@pytest.mark.parametrize(
    ("fate", "name"),
    [(Fate.RETRY, "interrupted"), (Fate.DEAD, "dead"), (Fate.FAILED, "failed"), (Fate.ENTRUSTED, "entrusted")],
)
def test_an_interruption_that_was_the_last_counts_as_dead(fate: Fate, name: str) -> None:
    in_flight = InFlightJobs()
    (entry,) = in_flight.take("w", [held("A")])
    in_flight.stop([(entry, msgspec.structs.replace(ended(entry), fate=fate, reason=INTERRUPTED))])
    names = ("interrupted", "dead", "failed", "retried", "entrusted")
    assert [one for one in names if in_flight.stats()[one]] == [name]


class Steps(trio.abc.Instrument):
    """How often each task ran, by its name."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.of[task.name] += 1


async def test_a_sync_wakes_only_who_waits_for_what_it_made_durable() -> None:
    in_flight, steps = InFlightJobs(), Steps()
    trio.lowlevel.add_instrument(steps)
    entries = in_flight.take("w", [held(name) for name in "ABC"])
    refused: list[str] = []

    async def wait(entry: InFlightJob) -> None:
        try:
            await in_flight.wait_durable(entry)
        except JournalRefused:
            refused.append(entry.held.job.id)

    async with trio.open_nursery() as nursery:
        for entry in entries:
            in_flight.stop([(entry, ended(entry))])
            for _ in range(2):
                nursery.start_soon(wait, entry, name=entry.held.job.id)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(2):
            in_flight.get_stopped(1)
            in_flight.mark_durable()
            await trio.testing.wait_all_tasks_blocked()
        assert {name: steps.of[name] for name in "ABC"} == {"A": 4, "B": 4, "C": 2}
        in_flight.refused(JournalRefused("full", full=True))
    assert refused == ["C", "C"], "a refusal is told to all"
    assert not in_flight._waiters
    trio.lowlevel.remove_instrument(steps)


async def test_waiting() -> None:
    in_flight = InFlightJobs()
    await in_flight.wait_idle()
    one, two = in_flight.take("w", [held("A"), held("B")])
    heard: list[str] = []

    async def wait(name: str) -> None:
        await (in_flight.wait_idle() if name == "idle" else in_flight.wait_stopped())
        heard.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "idle")
        nursery.start_soon(wait, "stopped")
        await trio.testing.wait_all_tasks_blocked()
        assert heard == []
        in_flight.release(one)
        await trio.testing.wait_all_tasks_blocked()
        assert heard == ["stopped"]
        in_flight.stop([(two, ended(two))])
    assert heard == ["stopped", "idle"]
    await in_flight.wait_stopped()
    assert len(in_flight.get_stopped(9).outcomes) == 1
    with trio.move_on_after(0) as tried:
        await in_flight.wait_stopped()
    assert tried.cancelled_caught


moves_of = st.lists(st.tuples(st.sampled_from(["take", "sent", "stop", "back", "get", "settle"]), st.integers(0, 5)))


@given(moves_of)
def test_any_walk_keeps_the_sums(moves: list[tuple[str, int]]) -> None:
    in_flight = InFlightJobs()
    known: dict[str, InFlightJob] = {}
    took = stopped = fence = 0
    for move, number in moves:
        name = str(number)
        entry = known.get(name)
        at_work = entry is not None and entry.phase is not Phase.STOPPED
        match move:
            case "take" if not at_work:
                fence += 1
                (known[name],) = in_flight.take("w", [held(name, fence)])
                took += 1
            case "sent" if entry and at_work:
                in_flight.sent([entry], 5)
            case "stop" if entry and at_work:
                in_flight.stop([(entry, ended(entry))])
            case "back" if entry and at_work:
                in_flight.release(entry)
            case "get":
                some = in_flight.get_stopped(number)
                stopped += len(some.outcomes) + len(some.returned)
            case "settle":
                in_flight.forget([(name, entry.held.fence if entry else fence), ("unknown", fence)])
        assert in_flight.at_work == sum(entry.phase is not Phase.STOPPED for entry in known.values())
        assert in_flight.fences().keys() >= {name for name, entry in known.items() if not entry.taken}
    rest = in_flight.get_stopped(10_000)
    assert took == stopped + len(rest.outcomes) + len(rest.returned) + in_flight.at_work
