"""A partition that is away, or a job that cannot go on, holds up no jobs but those that have to do with it."""

import random
from typing import Any

import pytest
import trio

from jqd.chaining.flows import GATHER_S, HOLD_S, REST_S, Flows
from jqd.domain.errors import StoreAway
from jqd.domain.flow import BLOCKED_MS, Flow
from jqd.domain.job import Fate, Job
from jqd.domain.jobid import ALPHABET
from jqd.service.services import SHARE
from jqd.store.links import WatchPair
from tests.chaining.flow_room import Room, one_round, room, running
from tests.contract.bench import StoreBench, outcome

__all__ = ["room", "running"]

TIMEOUT_S = 5.0  # of a call


class Away:
    """A partition of the store that does not answer."""

    identity = "away"

    async def watch_parents(self, _: object) -> Any:
        raise StoreAway("it does not answer")

    note_parents = watch_parents


def make(bench: StoreBench, home: int, **fields: Any) -> Job:
    return Job(bench.ids.take(1, ALPHABET[home]).first, "mail", **fields)


async def test_children_here_are_asked_for_and_told_of_ends_while_another_partition_is_away(bench: StoreBench) -> None:
    released: list[str] = []

    async def release(child: str, _: str, __: str) -> bool:
        released.append(child)
        await trio.lowlevel.checkpoint()
        return True

    stores: Any = [bench.store, Away()]
    flows = Flows(0, stores, lambda _: True, release, clock=bench.clock, source=random.Random(1))
    parent, there = make(bench, 0), make(bench, 1)
    children = [make(bench, 0, flow=Flow(after=(of.id,)), eligible_at_ms=BLOCKED_MS) for of in (there, parent)]
    await bench.add(parent, *children)
    await one_round(flows)
    far = make(bench, 1)
    await bench.store.watch_parents([WatchPair(far.id, "", parent.id, "")])
    await bench.cancel(parent.id)
    await one_round(flows)
    assert released == [children[1].id]


async def test_a_partition_that_hangs_holds_up_the_others_for_a_part_of_the_time(
    autojump_clock: None, running: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step of a chain beside it took 5 s."""
    hung, here, hangs = await running.parent(), running.benches[0], list[float]()
    parent = running.make(0)
    await here.add(parent)
    await here.settle(outcome(await here.claim_one(await here.join()), Fate.SUCCEEDED))

    async def hang(_: Any) -> Any:
        hangs.append(trio.current_time())
        await trio.sleep(TIMEOUT_S)
        raise StoreAway("it does not answer")

    monkeypatch.setattr(running.stores[1], "watch_parents", hang)
    waiting = await running.child(hung)
    running.flows.wake()
    await trio.sleep(2 * TIMEOUT_S)
    for number in range(1, 11):
        await running.child(parent)
        running.flows.wake()
        await trio.sleep(2 * GATHER_S)
        assert len(running.released) == number, "at once"
        await trio.sleep(1)
    assert len(hangs) == 1
    assert "does not answer" in (running.flows.complaint or "")
    monkeypatch.undo()
    await running.end()
    await trio.sleep(SHARE * TIMEOUT_S)
    await one_round(running.loop(1))
    assert running.released[-1] == waiting.id


@pytest.mark.parametrize("why", ["another changes it", "it fails"])
async def test_a_release_that_takes_long_holds_up_no_other_job(
    autojump_clock: None, running: Room, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """A round waited two seconds for it, and where it failed all others of the round were told again."""
    parent = await running.parent()
    await running.end()
    over, real = list[str](), running.release

    async def release(job_id: str, failed: str, mark: str) -> bool:
        if job_id == slow.id and why == "it fails":
            raise StoreAway("the results of its parents do not answer")
        if job_id == slow.id:
            await trio.sleep(2)
            return False
        over.append(job_id)
        return await real(job_id, failed, mark)

    monkeypatch.setattr(running.flows, "_release", release)
    slow = await running.child(parent)
    await running.child(parent)
    for number in range(1, 9):
        await running.child(parent)
        running.flows.wake()
        await trio.sleep(2 * HOLD_S)
        assert len(running.released) == number + 1, "at once"
    await trio.sleep(2 * REST_S)
    assert len(over) == len(set(over)) == 9, "each once"
    monkeypatch.setattr(running.flows, "_release", real)
    await trio.sleep(2 * REST_S)
    assert running.released[-1] == slow.id
