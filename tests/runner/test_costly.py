"""Answers that are much work to read: the loop turns for everybody meanwhile, and what they say counts all the same."""

import json

import pytest

from jqd.domain.job import Fate
from jqd.runner.worker import StyleName
from tests.harness.worker import Reply, Request, open_worker
from tests.runner.conftest import OpenHouse, hold
from tests.stalls import guarded

NUMBERS = b"[" + b",".join([b"1e-300"] * 116_000) + b"]"  # just what a result may have
HELD_S = 0.04  # in one piece they take 0.1 to 0.3


@pytest.mark.parametrize("style", ["native", "webhook"])
async def test_numbers_that_are_dear_to_read_are_read_beside_the_loop(open_house: OpenHouse, style: StyleName) -> None:
    async def script(request: Request, reply: Reply) -> None:
        if style == "webhook":
            await reply.send(200, NUMBERS, kind="application/json")
            return
        told = b",".join(
            b'{"job_id": %b, "type": "success", "result": %b}' % (json.dumps(job["job_id"]).encode(), NUMBERS)
            for job in request.jobs()
        )
        await reply.send(200, b"[%b]" % told, kind="application/json")

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url, style=style)
        with guarded(HELD_S):
            (outcome,) = await house.run_to_end(hold(1, keep_result=True))
        assert outcome.fate is Fate.SUCCEEDED
        assert len(outcome.result) > 9 * 116_000


async def test_what_was_read_before_an_error_stands(open_house: OpenHouse) -> None:
    async def script(request: Request, reply: Reply) -> None:
        first = json.dumps(request.jobs()[0]["job_id"]).encode()
        good = b'{"job_id": %b, "type": "success", "result": %b}' % (first, b'"' + b"x" * 100_000 + b'"')
        await reply.send(200, good + b" garbage", kind="application/json")

    async with open_worker(script) as worker, open_house() as house:
        house.register(worker.url)
        await house.run_to_end(hold(2, keep_result=True))
        assert [len(request.jobs()) for request in worker.requests] == [2, 1], "the other is asked for once more"
