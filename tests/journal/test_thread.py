"""The one thread that writes."""

import threading
from functools import partial

import pytest
import trio

from jqd.journal.thread import WriterThread


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
