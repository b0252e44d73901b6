"""The async client: it has every call of the blocking one, and a wait that is cancelled ends at once."""

import threading
from functools import partial
from typing import assert_type

import pytest
import trio

from jqd.client import AsyncClient, Client, NotFound
from jqd.client.connections import CONNECTIONS_MAX
from jqd.client.job_info import JobInfo
from tests.harness.daemon import open_daemon


def test_it_has_every_call_of_the_blocking_client() -> None:
    calls = {name for name in dir(Client) if not name.startswith("_")} - {"close", "url"}
    assert calls <= set(dir(AsyncClient))


async def test_its_calls_answer_what_those_of_the_blocking_client_do() -> None:
    async with open_daemon() as daemon, AsyncClient(daemon.url) as client:
        job_id = assert_type(await client.push("n", 1, keep_result=True, timeout="1m"), str)
        assert daemon.seen[0].body == {"name": "n", "argument": 1, "keep_result": True, "timeout": 60}
        assert assert_type(await client.get(job_id), JobInfo).state == "waiting"
        assert await client.push_many([{"name": "n"}, {"name": "n"}]) == ["job-2", "job-3"]
        with pytest.raises(NotFound):
            await client.get("nobody's")
        with trio.move_on_after(0.05) as scope:
            await client.result(job_id, wait="10m")
        assert scope.cancelled_caught
        assert await client.cancel(job_id)
        daemon.jobs[job_id].end("cancelled")  # what was abandoned ends with its poll


async def test_a_wait_that_nobody_waits_for_asks_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.client.client.WAIT_S_MAX", 0.2)  # of one poll
    async with open_daemon() as daemon, AsyncClient(daemon.url) as client:
        job_id = await client.push("n", keep_result=True)
        waits = (partial(client.result, job_id, wait="10m"), partial(client.wait, [job_id]))
        async with trio.open_nursery() as nursery:
            for wait in waits:
                nursery.start_soon(wait)
            while daemon.counted("GET", f"/v1/jobs/{job_id}") < len(waits):
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        with trio.fail_after(30):
            while any(thread.name.startswith("jqd-wait") for thread in threading.enumerate()):
                await trio.sleep(0.01)  # until the poll under way has ended
        asked = daemon.counted("GET", f"/v1/jobs/{job_id}")
        await trio.sleep(1)  # five more polls, if there were any
        assert daemon.counted("GET", f"/v1/jobs/{job_id}") == asked


async def test_any_number_of_waits_keeps_no_push_from_being_sent() -> None:
    async with open_daemon() as daemon, AsyncClient(daemon.url) as client:
        job_id = await client.push("n")
        async with trio.open_nursery() as nursery:
            for _ in range(CONNECTIONS_MAX):
                nursery.start_soon(partial(client.get, job_id, wait="10m"))
            with trio.fail_after(30):
                while daemon.counted("GET", f"/v1/jobs/{job_id}") < CONNECTIONS_MAX:
                    await trio.sleep(0.01)
                await client.push("n")
            daemon.jobs[job_id].end("succeeded")
