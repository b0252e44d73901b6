"""Idempotency-Key: a request that counts once, and what becomes of another one under its key."""

import msgspec
import pytest
import trio
import trio.testing
from msgspec import Raw, structs

from jqd.domain.carried import carry_jobs
from jqd.domain.errors import Fault, JournalRefused
from jqd.domain.record import Lane, decode_jobs
from jqd.service import ServiceConfig
from jqd.service.batch import read_array
from jqd.service.id_reservations import reserve_ids
from jqd.service.idempotency import KEY_LENGTH_MAX, under_key
from jqd.service.push import push as service_push
from jqd.service.push import take
from tests.api.edge import JSON
from tests.api.keyed import MANY, ONE, arguments, push
from tests.api.keyed import edge as edge  # the fixture


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


OTHERS = [{"name": "mail", "argument": 2}, {"name": "bill", "argument": 1}, {**ONE, "delay": 5}, [ONE], [ONE, ONE]]


@pytest.mark.parametrize("other", OTHERS, ids=str)
async def test_another_request_under_the_key_is_refused(edge, other):
    assert (await push(edge, ONE)).status == 201
    frames = len(edge.journal.frames)
    answer = await push(edge, other)
    assert (answer.status, "Idempotency-Key" in answer.body["detail"]) == (422, True)
    assert len(edge.journal.frames) == frames, "nothing of it was taken"


@pytest.mark.parametrize("body", [[{"name": ""}], [ONE, {"name": ""}], ONE], ids=str)
async def test_a_key_that_is_none_is_refused_whatever_comes_with_it(edge, body):
    answer = await push(edge, body, "x" * (KEY_LENGTH_MAX + 1))
    assert (answer.status, "Idempotency-Key has 1 to" in answer.body["detail"]) == (422, True)
    assert edge.journal.frames == []


@pytest.mark.parametrize("at", range(4))
async def test_so_is_one_that_differs_anywhere(edge, at):
    assert (await push(edge, MANY)).status == 201
    changed = [{**job, "priority": 3} if place == at else job for place, job in enumerate(MANY)]
    for other in (changed, MANY[:at] + MANY[at + 1 :], [*MANY[:at], ONE, *MANY[at:]], MANY[at], [MANY[at]]):
        assert (await push(edge, other)).status == 422, other
    assert await arguments(edge) == [0, 1, 2, 3]


@pytest.mark.parametrize("size", [1, 2, 3, 499, 500, 501, 5_000])
async def test_so_is_one_that_begins_as_the_first_did_and_is_longer_or_shorter(edge, size):
    """All jobs alike: no place tells them apart, only how many there are."""

    async def told(jobs: int) -> int:
        answer = await edge.call("POST", "/v1/jobs", [ONE] * jobs, headers={"idempotency-key": "k-1"})
        return int(answer.status)

    assert await told(size) == 201
    for other in sorted({1, 2, size // 2, size - 1, size + 1, size + 500, 2 * size} - {0, size}):
        assert await told(other) == 422, other
    assert await told(size) == 200
    assert len(edge.journal.jobs()) == size


def test_requests_are_told_apart_by_all_that_is_in_them():
    """Of any two only the first job's name is the same, and no digest: whoever has that name has the request."""
    bodies = [[ONE] * size for size in range(1, 40)] + [MANY, MANY[:3], [{"name": ""}, *MANY], [*MANY, {"name": ""}]]
    batches = [under_key(read_array(msgspec.msgpack.encode(body), False, ServiceConfig()), "k-1") for body in bodies]
    batches.append(under_key(read_array(msgspec.msgpack.encode([ONE]), True, ServiceConfig()), "k-1"))
    assert len({batch.request for batch in batches}) == len(batches)
    assert {batch.jobs[0].job_id for batch in batches} == {batches[0].key}
    names = [job.job_id for batch in batches for job in batch.jobs[1:]]
    assert len(set(names)) == len(names)


async def test_a_copy_of_the_journal_has_the_same_names(edge):
    """Retention copies single jobs to the journal's end: what their names are compared by goes along."""
    assert (await push(edge, MANY)).status == 201
    assert [count for _, count, _ in edge.journal.frames] == [1, 3], "the first alone, for it stands for all"
    for _, _, body in edge.journal.frames:
        jobs = {job.id: job for job in decode_jobs(body)}
        for job_id, job in jobs.items():
            ((_, _, copied),) = carry_jobs(body, {job_id}, 0)
            assert [each.change for each in decode_jobs(copied)] == [job.change]


async def test_what_was_begun_and_not_finished_is_finished_by_the_same_request(edge):
    """A daemon died between two calls of the store: some names are known, the others are not."""
    batch = under_key(read_array(msgspec.msgpack.encode(MANY), False, ServiceConfig()), "k-1")
    services = edge.api._parts.services
    items = msgspec.msgpack.decode(batch.array, type=list[Raw])
    rest = structs.replace(batch, jobs=batch.jobs[1:], array=msgspec.msgpack.encode(items[1:]))
    agreed = await reserve_ids(services, rest)
    await take(services, agreed.array, agreed.jobs, changes=agreed.changes, request=agreed.request)
    await edge.apply()
    answer = await push(edge, MANY)
    assert (answer.status, len(answer.body["duplicates"]), None in answer.body["job_ids"]) == (201, 3, False)
    assert await arguments(edge) == [0, 1, 2, 3]


async def test_nothing_goes_where_the_first_job_is_refused_for_what_is_known_here(edge):
    """Else the others would be taken without the name by which another request under the key is known."""
    assert (await edge.call("PUT", "/v1/handlers/bill", {"lang": "http", "body": "http://x.test/"})).status in (
        200,
        201,
    )
    frames = len(edge.journal.frames)
    refused = await push(edge, [{"name": "bill@9"}, *MANY])
    assert (refused.status, refused.body["errors"][0]["pointer"]) == (422, "/0/name")
    assert len(edge.journal.frames) == frames
    taken = await push(edge, [*MANY, {"name": "bill@9"}], "k-2")
    assert (taken.status, (await push(edge, MANY, "k-2")).status) == (207, 422)


async def test_what_is_only_in_memory_stands_for_no_other_push(edge, monkeypatch):
    """Who asked for a disk has it on the disk."""
    reserve, hold, told = edge.whole.reserve_names, trio.Event(), {}

    async def slow(rows):
        await hold.wait()
        return await reserve(rows)

    async def one(ack):
        told[ack] = await edge.call("POST", f"/v1/jobs?ack={ack}", MANY, headers={"idempotency-key": "k-1"})

    monkeypatch.setattr(edge.whole, "reserve_names", slow)
    async with trio.open_nursery() as nursery:
        for ack in ("memory", "fsync"):
            nursery.start_soon(one, ack)
            await trio.testing.wait_all_tasks_blocked()
        hold.set()
    assert {ack: (answer.status, answer.body["ack"]) for ack, answer in told.items()} == {
        "memory": (201, "memory"),
        "fsync": (201, "fsync"),
    }
    assert told["memory"].body["job_ids"] == told["fsync"].body["job_ids"]
    await edge.apply()
    assert await arguments(edge) == [0, 1, 2, 3]


async def test_a_token_for_other_jobs_is_told_of_its_own(edge):
    """The same request under the same key, of which it may push less: nothing is told it that was not asked."""
    bodies = [[*MANY, {"name": "bill", "argument": 9}]]
    batch = under_key(read_array(msgspec.msgpack.encode(bodies[0]), False, ServiceConfig()), "k-1")
    some = structs.replace(batch, jobs=batch.jobs[:4], refused=[Fault("/name", "not for it", 4)])
    some = structs.replace(some, array=msgspec.msgpack.encode(msgspec.msgpack.decode(batch.array, type=list[Raw])[:4]))
    services, told = edge.api._parts.services, {}

    async def one(which, what):
        told[which] = await service_push(services, what)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one, "some", some)
        nursery.start_soon(one, "all", batch)
    await edge.apply()
    assert [job_id is None for job_id in told["some"].job_ids] == [False] * 4 + [True]
    assert None not in told["all"].job_ids
    assert await arguments(edge) == [0, 1, 2, 3]
    assert len(await edge.claim("bill")) == 1


@pytest.mark.parametrize(
    ("query", "told", "runs"), [("?atomic=1", 201, [0, 1, 2, 3]), ("", 507, [0])], ids=["atomic", ""]
)
async def test_all_or_nothing_is_one_frame_and_else_it_is_told_what_runs(edge, query, told, runs, monkeypatch):
    """The disk is full behind the first frame of jobs with ids. Once it has room the same request takes the rest."""
    write, entered = edge.journal.write, list[str]()
    left = iter([True])

    def one_more(lane, *rest, **how):
        if lane is Lane.CHANGES and not next(left, False):
            raise JournalRefused("the disk is full", full=True)
        return write(lane, *rest, **how)

    with monkeypatch.context() as patch:
        patch.setattr(edge.control, "entered", lambda job_ids, jobs, tenant: entered.extend(job_ids))
        patch.setattr(edge.journal, "write", one_more)
        answer = await push(edge, MANY, query=query)
    assert (answer.status, len(entered), await arguments(edge)) == (told, len(runs), runs)
    if told == 507:
        assert "1 of its jobs were written before, and will run" in answer.body["detail"]
    again = await push(edge, MANY, query=query)
    assert (again.status, len(again.body["duplicates"])) == (200 if told == 201 else 201, len(runs))
    assert await arguments(edge) == [0, 1, 2, 3][len(runs) :], "each ran once"


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
