"""Pushes under an Idempotency-Key."""

import pytest

from tests.api.edge import MSGPACK, Answer
from tests.api.whole import Whole

ONE = {"name": "mail", "argument": 1}
MANY = [{"name": "mail", "argument": n} for n in range(4)]


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


async def push(edge: Whole, body: object, key: str = "k-1", query: str = "", kind: str = MSGPACK) -> Answer:
    answer = await edge.call("POST", f"/v1/jobs{query}", body, kind=kind, headers={"idempotency-key": key})
    await edge.apply()
    return answer


async def arguments(edge: Whole) -> list[int]:
    return sorted(held.job.argument[0] for held in await edge.claim())
