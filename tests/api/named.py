"""Pushes with ids of their own, and what of them runs."""

from typing import Any

import msgspec

from tests.api.whole import Whole

pack = msgspec.msgpack.encode
JOB = {"name": "mail", "argument": {"n": 1}, "job_id": "order/17"}


async def push(edge: Whole, body: object, query: str = "") -> tuple[int, Any]:
    told = await edge.call("POST", f"/v1/jobs{query}", body)
    await edge.apply()
    return told.status, told.body


async def arguments(edge: Whole) -> list[object]:
    return [msgspec.msgpack.decode(held.job.argument) for held in await edge.claim()]
