"""Idempotency-Key: a request that counts once, and what becomes of another one under its key."""

import msgspec
import pytest

from jqd.desk import DeskConfig
from jqd.desk.batch import read_array
from jqd.desk.keyed import KEY_LENGTH_MAX, under_key
from tests.api.edge import JSON, MSGPACK, Answer
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


@pytest.mark.parametrize("body", [ONE, [ONE], MANY, MANY[:2]], ids=["one", "an array of one", "many", "two"])
async def test_the_same_request_again_counts_once(edge, body):
    first, again = await push(edge, body), await push(edge, body, '"k-1"', kind=JSON)
    assert (first.status, again.status) == (201, 200), "in quotes or without, in JSON or MessagePack"
    if isinstance(body, dict):
        assert again.body == {"job_id": first.body["job_id"], "duplicate": True}
        assert (await edge.call("GET", f"/v1/jobs/{again.body['job_id']}")).body["state"] == "waiting"
    else:
        assert again.body["job_ids"] == first.body["job_ids"]
        assert sorted(again.body["duplicates"]) == sorted(first.body["job_ids"])
    assert len(await edge.claim()) == (1 if isinstance(body, dict) else len(body))


async def test_another_key_is_another_request(edge):
    ids = {(await push(edge, ONE, key)).body["job_id"] for key in ("a", "b", "A", "a ", "ä", "x" * KEY_LENGTH_MAX)}
    assert len(ids) == 5, "blanks at its ends are none of a header's value"


OTHERS = [
    {"name": "mail", "argument": 2},
    {"name": "bill", "argument": 1},
    {**ONE, "delay": 5},
    [ONE, ONE, {"name": "bill"}],
]


@pytest.mark.parametrize("other", OTHERS, ids=str)
async def test_another_request_under_the_key_is_refused(edge, other):
    assert (await push(edge, ONE)).status == 201
    if isinstance(other, list):
        assert (await push(edge, [ONE, *MANY], "k-2")).status == 201
    frames = len(edge.journal.frames)
    answer = await push(edge, other, "k-2" if isinstance(other, list) else "k-1")
    assert (answer.status, "Idempotency-Key" in answer.body["detail"]) == (422, True)
    assert len(edge.journal.frames) == frames, "nothing of it was taken"


@pytest.mark.parametrize("at", range(4))
async def test_so_is_one_that_differs_anywhere_or_is_longer_or_shorter(edge, at):
    assert (await push(edge, MANY)).status == 201
    changed = [{**job, "priority": 3} if place == at else job for place, job in enumerate(MANY)]
    for other in (changed, MANY[: at or 3], [*MANY, *OTHERS[:3][: at + 1]], MANY[at]):
        if other in (MANY[0], MANY[:1]):
            continue  # of a single job the key's first name is all there is: it is known, and nothing is taken
        assert (await push(edge, other)).status == 422, other
    assert await arguments(edge) == [0, 1, 2, 3]


async def test_what_was_begun_and_not_finished_is_finished_by_the_same_request(edge):
    """A daemon died between two calls of the store: some names are known, the others are not."""
    batch = under_key(read_array(msgspec.msgpack.encode(MANY), False, DeskConfig()), "k-1")
    begun = [{**job, "job_id": named.job_id} for job, named in zip(MANY, batch.jobs, strict=True)][1:]
    assert (await edge.call("POST", "/v1/jobs", begun)).status == 201
    answer = await push(edge, MANY)
    assert (answer.status, len(answer.body["duplicates"]), None in answer.body["job_ids"]) == (201, 3, False)
    assert await arguments(edge) == [0, 1, 2, 3]


async def test_bad_jobs_are_refused_alike_each_time(edge):
    body = [ONE, {"name": ""}, {"name": "mail", "argument": 2}]
    first, again = await push(edge, body), await push(edge, body)
    assert (first.status, again.status) == (207, 207)
    assert first.body["job_ids"] == again.body["job_ids"]
    assert first.body["errors"] == again.body["errors"]
    assert len(await edge.claim()) == 2
    assert (await push(edge, body, "k-2", "?atomic=1")).status == 400


@pytest.mark.parametrize("key", ["", '""', "x" * (KEY_LENGTH_MAX + 1), "a\tb"])
async def test_what_is_no_key(edge, key):
    assert (await push(edge, ONE, key)).status == 422
    assert edge.journal.frames == []


async def test_a_job_with_an_id_of_its_own_needs_no_key(edge):
    answer = await push(edge, [ONE, {**ONE, "job_id": "own"}])
    assert (answer.status, answer.body["errors"][0]["pointer"]) == (422, "/1/job_id")
    assert edge.journal.frames == []


async def test_a_key_is_its_tenants_own(edge):
    ids = set()
    for tenant in ({}, {"jqd-tenant": "acme"}, {"jqd-tenant": "other"}):
        for status in (201, 200):
            told = await edge.call("POST", "/v1/jobs", ONE, headers={"idempotency-key": "k-1", **tenant})
            assert told.status == status
            await edge.apply()
        ids.add((await edge.call("GET", f"/v1/jobs/{told.body['job_id']}", headers=tenant)).body["id"])
    assert len(ids) == 3
