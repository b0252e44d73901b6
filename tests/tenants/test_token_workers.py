"""A registration ends with the token that it was made with: jobs are posted while that token is valid."""

import random
from typing import Any

import pytest

from jqd.domain.settings import SettingTable
from jqd.domain.tokens import OVER_S, Tokens
from jqd.runner import Capacity, RunnerConfig, WorkerRegistry
from jqd.runner.registry import DISOWNED_S
from tests.api.tokened import ROOT, call, make
from tests.api.tokened import edge as edge  # the fixture
from tests.api.whole import Whole

CARD = {"name": "mailer", "max_jobs": 8, "url": "http://127.0.0.1:8000/jobs", "jobs": ["mail"]}


async def register(edge: Whole, token: str, **more: Any) -> str:
    told = await call(edge, token, "POST", "/v1/workers", {**CARD, **more})
    assert told.status == 201, told.body
    return str(told.body["worker_id"])


async def row(edge: Whole, by: str = ROOT) -> dict[str, Any]:
    (only,) = (await call(edge, by, "GET", "/v1/workers")).body["workers"]
    found: dict[str, Any] = only
    return found


def posting(edge: Whole) -> list[str]:
    capacity = Capacity(RunnerConfig(), edge.workers, random.Random(1), edge.clock)
    return [worker.id for worker, _ in capacity.posting()]


@pytest.mark.parametrize("how", ["revoked", "over", "the one above"])
async def test_nothing_is_posted_to_a_worker_whose_token_has_ended(edge: Whole, how: str) -> None:
    above = await make(edge, "worker")
    token = (await call(edge, above["token"], "POST", "/v1/tokens/derive", {"ttl": 60})).body
    worker_id = await register(edge, token["token"])
    assert posting(edge) == [worker_id]
    assert ((await row(edge))["state"], (await row(edge))["token_id"]) == ("ok", token["token_id"])
    if how == "over":
        edge.clock.advance(61)
    else:
        gone = token if how == "revoked" else above
        assert (await call(edge, ROOT, "DELETE", f"/v1/tokens/{gone['token_id']}")).status == 200
    assert posting(edge) == []
    told = await row(edge)
    assert (told["state"], told["token_id"]) == ("token_ended", token["token_id"])
    assert "revoked or is over" in told["why"]
    pushed = await call(edge, ROOT, "POST", "/v1/jobs", {"name": "mail"})
    await edge.apply()
    why = (await call(edge, ROOT, "GET", f"/v1/jobs/{pushed.body['job_id']}/why")).body
    assert (why["reason"], why["workers"][0]["state"]) == ("workers_down", "token_ended")
    other = await make(edge, "worker")
    assert await register(edge, other["token"]) == worker_id, "it registers again with another"
    assert posting(edge) == [worker_id]
    assert (await row(edge))["token_id"] == other["token_id"]


async def test_each_daemon_looks_at_the_token_itself_and_posts_to_nobody_of_one_it_does_not_know(edge: Whole) -> None:
    token = await make(edge, "worker")
    worker_id = await register(edge, token["token"])
    there = WorkerRegistry(SettingTable(), clock=edge.clock)
    there.token_ended = Tokens(there.settings, edge.clock).ended
    capacity = Capacity(RunnerConfig(), there, random.Random(1), edge.clock)
    there.settings.take([*edge.workers.settings.all("worker")])
    assert capacity.posting() == []
    there.settings.take([*edge.workers.settings.all("token")])
    assert [worker.id for worker, _ in capacity.posting()] == [worker_id]
    await call(edge, ROOT, "DELETE", f"/v1/tokens/{token['token_id']}")
    there.settings.take([*edge.workers.settings.all("token")])
    assert capacity.posting() == []


async def test_it_is_forgotten_an_hour_later(edge: Whole) -> None:
    token = await make(edge, "worker", expires_in=60)
    await register(edge, token["token"])
    edge.clock.advance(61)
    edge.workers.forget_silent()
    edge.clock.advance(DISOWNED_S)
    edge.workers.forget_silent()
    assert edge.workers.list() != []
    edge.clock.advance(OVER_S)
    edge.workers.forget_silent()
    assert edge.workers.list() == []
    assert list(edge.workers.leaving.values()) == ["its token ended"]


async def test_who_may_not_see_the_token_is_not_told_which_and_who_asks_for_jobs_shows_his_own(edge: Whole) -> None:
    token = await make(edge, "worker")
    worker_id = await register(edge, token["token"])
    viewer = await make(edge, "viewer")
    assert (await row(edge, viewer["token"]))["token_id"] is None
    await call(edge, ROOT, "DELETE", f"/v1/workers/{worker_id}")
    asking = {name: said for name, said in CARD.items() if name != "url"}
    assert (await call(edge, token["token"], "POST", "/v1/workers", asking)).status == 201
    await call(edge, ROOT, "DELETE", f"/v1/tokens/{token['token_id']}")
    assert (await row(edge))["state"] == "ok"
    assert not any(map(edge.workers.is_disowned, edge.workers.list()))


async def test_what_no_token_registered_stays(edge: Whole) -> None:
    worker_id = await register(edge, ROOT)
    assert (posting(edge), (await row(edge))["token_id"]) == ([worker_id], None)
    (worker,) = edge.workers.list()
    assert worker.token == ""
