"""Retries count to quotas as pushes do."""

from functools import partial
from typing import Any

import pytest

from jqd.domain.errors import JournalRefused, StoreAway
from jqd.domain.job import Fate
from jqd.tenants.quotas import Quotas
from tests.api.charged import ACME, failed, push, put, retry
from tests.api.edge import JSON
from tests.api.whole import Whole


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"queued": 3}, "queued: 3 jobs"),
        ({"in_flight": 3}, "in_flight: 3 jobs"),
        ({"rate": 1}, "rate: 1 a second"),
        ({"bytes": 40}, "bytes: 40 a second"),
    ],
)
async def test_a_retry_counts_as_a_push_does(edge, limits, told):
    jobs = await failed(edge, 8)
    await put(edge, **limits)
    answers = [await retry(edge, job_id, delay=600) for job_id in jobs]
    taken = sum(answer.status == 200 for answer in answers)
    assert [answer.status for answer in answers] == [200] * taken + [429] * (8 - taken)
    assert 3 <= taken <= 6
    over = answers[-1]
    assert f"the quota of tenant 'acme' is spent, {told}" in over.body["detail"]
    assert over.headers["retry-after"] == (await push(edge)).headers["retry-after"]
    assert (await push(edge)).status == 429, "for pushes, too"
    for _ in range(3):
        edge.clock.advance(2)
        if "queued" in limits or "in_flight" in limits:
            assert (await retry(edge, jobs[-1])).status == 429, "once the store counts them"
    await edge.call("DELETE", "/v1/quotas/acme")
    assert (await retry(edge, jobs[-1])).status == 200


async def test_many_retries_stop_at_the_quota_and_say_how_many_are_left(edge):
    jobs = await failed(edge, 6)
    await put(edge, queued=4)
    many = partial(edge.call, "POST", "/v1/jobs/retry", accept=JSON, headers=ACME)
    over = await many({"state": "failed"})
    assert (over.status, over.headers["retry-after"]) == (429, "6")
    assert over.body["detail"] == (
        "4 jobs were changed before this: 2 of the 6 that were found are left as they are: "
        "the quota of tenant 'acme' is spent, queued: 4 jobs"
    )
    await edge.apply()
    edge.clock.advance(2)
    over = await many({"job_ids": jobs})
    assert (over.status, over.body["detail"][:41]) == (429, "2 of the 2 that were found are left as th")
    assert len(await edge.claim("acme\x1fmail")) == 4
    edge.clock.advance(2)
    rest = await many({"state": "failed"})
    assert (rest.status, rest.body["changed"]) == (200, 2)


@pytest.mark.parametrize("way", ["gone", "disk", "store"])
async def test_a_retry_that_comes_to_nothing_costs_nothing(edge, monkeypatch, way):
    first, second = await failed(edge, 2)
    await put(edge, rate=0.2, queued=1)

    async def fails(*_: object, **__: object) -> Any:
        if way == "gone":
            return await edge.whole.delete_dead([first]) and None
        raise StoreAway("away") if way == "store" else JournalRefused("the disk", full=False)

    with monkeypatch.context() as patch:
        patch.setattr(*((edge.journal, "wsync") if way == "disk" else (edge.whole, "reserve_edit")), fails)
        assert (await retry(edge, first)).status == (409 if way == "gone" else 503)
    assert (await retry(edge, second)).status == 200
    assert (await push(edge)).status == 429


async def test_too_many_dead_jobs_forbid_no_retry_also_while_something_waits_for_there_being_fewer(edge):
    first, second = await failed(edge, 2)
    await put(edge, dead=2)
    assert (await push(edge)).status == 429
    edge.api._parts.services.feature(Quotas).note_put_off("acme")  # a follower that has no room
    assert (await retry(edge, first)).status == 200
    edge.clock.advance(1.5)
    over = await retry(edge, second)
    assert (over.status, "go first" in over.body["detail"]) == (429, True), "as pushes, now that there is room"


async def test_who_is_of_no_tenant_retries_as_he_pushes(edge):
    await put(edge, queued=1)
    job_id = await edge.push()
    (held,) = await edge.claim("mail")
    await edge.end(held, Fate.FAILED)
    assert (await push(edge)).status == 201
    assert (await retry(edge, job_id, who=None)).status == 200
