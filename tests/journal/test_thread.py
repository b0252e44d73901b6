"""The one thread that writes."""

import threading
from contextlib import suppress
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from jqd.domain.errors import JournalRefused
from jqd.domain.record import Lane
from jqd.journal import Journal
from jqd.journal.thread import WriterThread
from tests.harness.files import MemoryFiles
from tests.journal.conftest import opened, push


class Steps(trio.abc.Instrument):
    """How many steps all tasks took."""

    taken = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.taken += 1


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "jqd-journal"]


async def test_calls_are_made_one_after_another_in_a_thread_that_ends_with_the_block() -> None:
    made: list[int] = []
    before, thread = len(_threads()), WriterThread()
    with thread:
        for _ in range(3):
            await thread.run(lambda: made.append(threading.get_ident()))
        (ours,) = _threads()[before:]
    assert made == [ours.ident] * 3
    ours.join(10)
    assert not ours.is_alive()


async def test_an_error_is_raised_where_the_call_is_waited_for_and_the_next_call_is_made() -> None:
    thread = WriterThread()
    made: list[int] = []
    with thread:
        with pytest.raises(OSError, match="broken"):
            await thread.run(partial(_fail, OSError("broken")))
        await thread.run(partial(made.append, 1))
    assert made == [1]


def _fail(error: Exception) -> None:
    raise error


async def test_a_call_under_way_is_waited_for_by_a_cancelled_caller() -> None:
    thread, begun, goes_on = WriterThread(), threading.Event(), threading.Event()
    made: list[int] = []

    def call() -> None:
        begun.set()
        assert goes_on.wait(10)
        made.append(1)

    with thread:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(thread.run, call)
            await trio.to_thread.run_sync(begun.wait, 10)
            nursery.cancel_scope.cancel()
            goes_on.set()
    assert made == [1]


async def test_a_commit_takes_two_steps_of_its_task_and_one_of_who_waits() -> None:
    """Each is a turn of the loop for who pushes alone."""
    steps = Steps()
    async with opened(MemoryFiles()) as journal:
        await push(journal, b"the first")
        await wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(steps)
        await journal.wsync(journal.write(Lane.JOBS, 1, b"alone"), shielded=True)
        trio.lowlevel.remove_instrument(steps)
    assert steps.taken == 3


async def test_what_a_bug_took_out_of_a_commit_is_durable_for_nobody() -> None:
    """The commits that wait behind it would go well, and end beyond it."""
    files, durable, bugs = MemoryFiles(), list[int](), [MemoryError("a bug")]

    def broken(call: str, number: int) -> None:
        if call == "sync" and bugs:
            raise bugs.pop()

    async def one(journal: Journal, number: int) -> None:
        with suppress(JournalRefused):
            await journal.wsync(journal.write(Lane.JOBS, 1, b"%d" % number), shielded=True)
            durable.append(number)

    with pytest.raises(BaseExceptionGroup) as caught:  # noqa: PT012
        async with opened(files, commit_bytes_max=50) as journal, trio.open_nursery() as nursery:
            files.fail = broken
            for number in range(3):  # each has a commit of its own
                nursery.start_soon(one, journal, number)
    assert caught.group_contains(MemoryError)
    assert durable == []
