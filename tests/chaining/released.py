"""Jobs that are let go on, over the edge with the shipped fake store."""

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from jqd.chaining.flows import REST_S, Flows
from jqd.chaining.release import release
from tests.api.whole import Whole
from tests.chaining.flow_room import one_round


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


def flows(edge: Whole) -> Flows:
    go_on = partial(release, edge.api._parts.services)
    return Flows(0, [edge.whole], lambda _: True, go_on, clock=edge.clock, source=random.Random(1))


async def settle(edge: Whole) -> None:
    """Let go on what waited."""
    loop = flows(edge)
    for _ in range(2):
        await edge.apply()
        while await one_round(loop) == 0.0:
            await edge.apply()
        edge.clock.advance(REST_S)


def after_a_look(edge: Whole, monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[None]]) -> None:
    """Have that done as soon as the blocked job was looked at, before its release is reserved."""
    real = edge.whole.get_job

    async def get_job(job_id: str) -> Any:
        found = await real(job_id)
        if getattr(found, "state", None) == "blocked":
            monkeypatch.setattr(edge.whole, "get_job", real)
            await act()
        return found

    monkeypatch.setattr(edge.whole, "get_job", get_job)
