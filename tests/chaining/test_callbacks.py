"""Whose end a callback tells: that of the job it came with, also where another job has its pusher's id by then."""

from typing import Any

import msgspec
import pytest

from jqd.domain.flow import CALLBACK
from jqd.domain.job import Fate
from jqd.service import concurrent_pushes
from tests.api.whole import Whole
from tests.chaining.released import edge, settle

__all__ = ["edge"]

MINE = {"name": "made", "job_id": "n", "argument": 1, "callback": "https://one.example.org/"}
OTHERS = {"name": "made", "job_id": "n", "argument": 2, "keep_result": True, "callback": "https://two.example.org/"}


async def ended(edge: Whole) -> list[tuple[str, Any]]:
    """Let the job under the id succeed with 42. Returns the URLs that are told of something, and of what."""
    await settle(edge)
    (held,) = await edge.claim("made")
    assert msgspec.msgpack.decode(held.job.argument) == 2
    await edge.end(held, Fate.SUCCEEDED, keep_result=True, result=msgspec.msgpack.encode(42))
    await settle(edge)
    edge.clock.advance(1)
    await edge.whole.promote(100)
    jobs = [one.job for one in await edge.claim(CALLBACK)]
    told = {job.flow.callback: msgspec.msgpack.decode(job.argument) for job in jobs if job.flow is not None}
    return sorted((url, body["type"]) for url, body in told.items())


async def test_the_callback_of_a_push_that_lost_its_id_tells_of_nobody_elses_job(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the disk stood still its reservation ran out, and somebody else got the id."""
    wsync = edge.journal.wsync

    async def slow(position: int | None = None, **_: bool) -> None:
        monkeypatch.setattr(edge.journal, "wsync", wsync)
        edge.clock.advance(31)
        assert (await edge.call("POST", "/v1/jobs", OTHERS)).status == 201
        await wsync(position)

    monkeypatch.setattr(edge.journal, "wsync", slow)
    monkeypatch.setattr(concurrent_pushes, "WAIT_S", 0.0)  # as if the other came to another daemon
    assert (await edge.call("POST", "/v1/jobs", MINE)).status == 409
    assert await ended(edge) == [("https://two.example.org/", "job.succeeded")], (
        "the callback of what was refused is cancelled"
    )
