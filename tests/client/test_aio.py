"""The async client: it has every call of the blocking one, and a wait that is cancelled ends at once."""

from typing import assert_type

import pytest
import trio

from jqd.client import AsyncClient, Client, NotFound
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
