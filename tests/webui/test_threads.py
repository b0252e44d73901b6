"""Threads of calls to daemons: bounded for all sessions together."""

import threading
from functools import partial

import trio
from trio.testing import wait_all_tasks_blocked

from jqd.webui.threads import BoundedClient
from tests.webui.conftest import NOBODY


async def test_calls_of_all_clients_share_the_threads_and_those_that_were_left_count() -> None:
    threads, may_end, ended = trio.CapacityLimiter(3), threading.Event(), list[str]()
    clients = [BoundedClient([NOBODY], None, threads) for _ in range(2)]

    def start(nursery: trio.Nursery, client: BoundedClient, name: str) -> None:
        nursery.start_soon(partial(client.in_thread, partial(call, name), abandon=True))

    def call(name: str) -> None:
        assert may_end.wait(60)
        ended.append(name)

    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as left:
            for number in range(6):
                start(left, clients[number % 2], "left")
            await wait_all_tasks_blocked()
            assert (threads.borrowed_tokens, threads.statistics().tasks_waiting) == (3, 3)
            left.cancel_scope.cancel()
        for client in clients:
            start(nursery, client, "late")
        await wait_all_tasks_blocked()
        assert (threads.borrowed_tokens, threads.statistics().tasks_waiting) == (3, 2), "their threads go on"
        may_end.set()
    assert ended.count("late") == 2
    assert ended.count("left") <= 3, "what waited for a thread when its task was left is not called"
    for client in clients:
        client.client.close()
