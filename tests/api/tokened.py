"""A surface that asks for tokens, and tokens of it."""

from typing import Any

import pytest

from tests.api.edge import JSON, Answer
from tests.api.whole import Whole

ROOT = "the-daemons-own"


@pytest.fixture
async def edge() -> Whole:
    whole = await Whole().begin()
    parts = whole.api._parts
    parts.auth = parts.auth._replace(required=True, root=ROOT)
    return whole


async def call(edge: Whole, token: str, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    said = {"authorization": f"Bearer {token}"} if token else {}
    return await edge.call(method, path, body, accept=JSON, headers=said | headers)


async def make(edge: Whole, role: str, by: str = ROOT, **said: Any) -> dict[str, Any]:
    told = await call(edge, by, "POST", "/v1/tokens", {"role": role, **said})
    assert told.status == 201, told.body
    row: dict[str, Any] = told.body
    return row
