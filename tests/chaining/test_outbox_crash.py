"""A daemon that dies at any step of its outbox, and what the next one makes of it: each follower is one job."""

import random
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from jqd.chaining.follow import follow
from jqd.chaining.outbox import Outbox
from jqd.domain.followers import encode_as_outbox_entry, follower_id, items_of
from jqd.domain.job import Fate
from tests.api.whole import Whole
from tests.chaining.test_follow import NOW_MS, packed, services

PARENTS = 3
STEPS = ("get_outbox", "reserve_names", "write", "wsync", "confirm_names", "drop_outbox")
RESERVED_S = 31  # longer than a reservation


class Killed(BaseException):
    """As `kill -9`: nothing of ours catches it."""


@pytest.fixture
async def edge(monkeypatch: pytest.MonkeyPatch) -> Whole:
    monkeypatch.setattr("jqd.chaining.outbox.ENTRIES", 1)  # so three entries are three pushes
    return await Whole().begin()


async def followed(edge: Whole) -> list[str]:
    """Return jobs that ended, each with two to follow; the id of one is chosen."""
    parents = [await edge.push() for _ in range(PARENTS)]
    for held in await edge.claim():
        jobs = packed({"name": "next"}, {"name": "next", "job_id": f"own-{held.job.id}"})
        await edge.end(
            held, Fate.SUCCEEDED, follows=encode_as_outbox_entry(items_of(jobs), held.job.id, "mail", 0, NOW_MS)
        )
    return parents


def outbox(edge: Whole) -> Outbox:
    return Outbox(store=edge.whole, push=partial(follow, services(edge)), clock=edge.clock, source=random.Random(1))


async def empty(edge: Whole) -> None:
    """A daemon empties the outbox, until all rests."""
    async with trio.open_nursery() as nursery:
        loop = outbox(edge)
        await nursery.start(loop.run)
        loop.wake()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


def kill_at(edge: Whole, patch: pytest.MonkeyPatch, step: str, number: int, *, late: bool) -> None:
    """The daemon dies before or after that step, of the push of that number."""
    owner: Any = edge.journal if step in ("write", "wsync") else edge.whole
    real, calls = getattr(owner, step), [0]

    def reached() -> None:
        calls[0] += 1
        if calls[0] == number:
            raise Killed

    async def call(*args: Any, **how: Any) -> Any:
        if not late:
            reached()
        answer = await real(*args, **how)
        if late:
            reached()
        return answer

    def write(*args: Any, **how: Any) -> Any:
        if not late:
            reached()
        answer = real(*args, **how)
        if late:
            reached()
        return answer

    patch.setattr(owner, step, write if step == "write" else call)


@pytest.mark.parametrize("then", ["at once", "applied", "lost", "later"])
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("step", STEPS)
async def test_whatever_step_kills_it_each_is_one_job(
    autojump_clock: None, edge: Whole, step: str, number: int, late: bool, then: str
) -> None:
    """`then`: what the store knows when the next daemon comes: all that was written; nothing of it, and it is lost if
    it was not synced; or nothing until the reservations are over, and another daemon has pushed it."""
    parents = await followed(edge)
    written = len(edge.journal.frames)
    with pytest.MonkeyPatch.context() as patch:
        kill_at(edge, patch, step, number, late=late)
        with pytest.raises(BaseExceptionGroup) as died:
            await empty(edge)
        assert died.group_contains(Killed)
    if then == "applied":
        await edge.apply()
    elif then == "lost" and step in ("write", "wsync"):
        del edge.journal.frames[written + number - 1 :]  # it died before it was on disk, with those behind it
    elif then == "later":
        edge.clock.advance(RESERVED_S)
    await empty(edge)
    await edge.apply()
    found = await edge.whole.list_jobs(None, "next", None, 100, "")
    wanted = [name for parent in parents for name in (follower_id(parent, 0, 0), f"own-{parent}")]
    assert sorted(job.name for job in found.jobs) == sorted(wanted)
    assert (await edge.whole.get_outbox(9, 1 << 20)).entries == []
    linked = await edge.whole.list_links(parents, 9)
    assert [one and one.children for one in linked] == [2] * PARENTS, "each parent knows its own"
    assert len(await edge.claim("next")) == len(wanted)
