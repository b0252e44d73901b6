"""Idempotency-Key: a request that counts once, and what becomes of another one under its key."""

import msgspec
import pytest
import trio
import trio.testing
from msgspec import Raw, structs

from jqd.desk import DeskConfig
from jqd.desk.batch import read_array
from jqd.desk.keyed import KEY_LENGTH_MAX, named_before, under_key
from jqd.desk.names import agree
from jqd.desk.take import push as desk_push
from jqd.desk.take import take
from jqd.store import StoreConfig
from jqd.words.errors import Fault, JournalRefused, StoreAway
from jqd.words.record import Lane, carry_jobs, decode_jobs
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


OTHERS = [{"name": "mail", "argument": 2}, {"name": "bill", "argument": 1}, {**ONE, "delay": 5}, [ONE], [ONE, ONE]]


@pytest.mark.parametrize("other", OTHERS, ids=str)
async def test_another_request_under_the_key_is_refused(edge, other):
    assert (await push(edge, ONE)).status == 201
    frames = len(edge.journal.frames)
    answer = await push(edge, other)
    assert (answer.status, "Idempotency-Key" in answer.body["detail"]) == (422, True)
    assert len(edge.journal.frames) == frames, "nothing of it was taken"


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
    batches = [under_key(read_array(msgspec.msgpack.encode(body), False, DeskConfig()), "k-1") for body in bodies]
    batches.append(under_key(read_array(msgspec.msgpack.encode([ONE]), True, DeskConfig()), "k-1"))
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
    batch = under_key(read_array(msgspec.msgpack.encode(MANY), False, DeskConfig()), "k-1")
    desk = edge.api._parts.desk
    items = msgspec.msgpack.decode(batch.array, type=list[Raw])
    rest = structs.replace(batch, jobs=batch.jobs[1:], array=msgspec.msgpack.encode(items[1:]))
    agreed = await agree(desk, rest)
    await take(desk, agreed.array, agreed.jobs, changes=agreed.changes, request=agreed.request)
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


@pytest.mark.parametrize(("query", "away"), [("", False), ("", True), ("?atomic=1", False)], ids=["", "away", "atomic"])
async def test_of_a_request_whose_key_was_given_away_while_the_disk_stood_still_nothing_runs(
    edge, query, away, monkeypatch
):
    """Its reservation ran out meanwhile, and another request has the key. `away`: so is the store when it is to
    confirm."""
    sync, confirm = edge.journal.wsync, edge.whole.confirm_names

    async def gone(*_):
        monkeypatch.setattr(edge.whole, "confirm_names", confirm)
        raise StoreAway("gone for a moment")

    async def slow(position, *, shielded=False):
        edge.journal.wsync = sync
        edge.clock.advance(StoreConfig().name_reserve_s + 1)
        assert (await push(edge, [ONE, ONE])).status == 201
        if away:
            monkeypatch.setattr(edge.whole, "confirm_names", gone)
        await sync(position, shielded=shielded)

    edge.journal.wsync = slow
    assert [(await push(edge, MANY, query=query)).status, (await push(edge, MANY)).status] == [503, 422]
    assert (await push(edge, MANY, "k-2")).status == 201, "as it says"
    assert await arguments(edge) == [0, 1, 1, 1, 2, 3], "none of it twice"


@pytest.mark.parametrize("at", ["write", "wsync"])
@pytest.mark.parametrize("query", ["", "?atomic=1"], ids=["", "atomic"])
async def test_who_lost_a_key_and_whose_cancel_the_disk_refuses_is_told_to_take_another(edge, query, at, monkeypatch):
    """He was told to send the same again, and that was a 422 each time: the key is another request's by then."""
    sync, call = edge.journal.wsync, getattr(edge.journal, at)

    def refuse(first, *rest, **how):
        if edge.journal.frames[-1][0] is Lane.CANCELS or first is Lane.CANCELS:
            raise JournalRefused("the disk is full", full=True)
        return call(first, *rest, **how)

    async def slow(position, *, shielded=False):
        edge.journal.wsync = sync
        edge.clock.advance(StoreConfig().name_reserve_s + 1)
        assert (await push(edge, [ONE, ONE])).status == 201
        monkeypatch.setattr(edge.journal, at, refuse)
        await sync(position, shielded=shielded)

    edge.journal.wsync = slow
    told = await push(edge, MANY, query=query)
    monkeypatch.setattr(edge.journal, "wsync", sync)
    monkeypatch.setattr(edge.journal, "write", type(edge.journal).write.__get__(edge.journal))
    why = told.body["detail"]
    assert (told.status, "Send it under a new key" in why, "the same" in why) == (503, True, False)
    assert "could not be taken back (the disk is full) and may run" in why
    assert [(await push(edge, MANY)).status, (await push(edge, MANY, "k-2", query)).status] == [422, 201]
    assert {0, 1, 2, 3} <= {*await arguments(edge)}, "what may run twice is said to"


@pytest.mark.parametrize("refused", [False, True], ids=["", "and the disk refuses the first"])
@pytest.mark.parametrize("key", ["k-1", None], ids=["key", "job_id"])
async def test_the_same_request_many_times_at_once_is_asked_taken_told_and_charged_once(
    edge, key, refused, monkeypatch
):
    """Of an array of 10,000 that is repeated 24 times the store was asked 240,000 times."""
    asked, reserve = [], edge.whole.reserve_names

    async def count(rows):
        asked.extend(rows)
        return await reserve(rows)

    monkeypatch.setattr(edge.whole, "reserve_names", count)
    jobs = [{**job, **({} if key else {"job_id": f"own-{place}"})} for place, job in enumerate(MANY)]
    headers, told = {"jqd-tenant": "acme", **({"idempotency-key": key} if key else {})}, []
    assert (await edge.call("PUT", "/v1/quotas/acme", {"queued": 100})).status == 200

    sync, hold = edge.journal.wsync, trio.Event()

    async def slow(position, *, shielded=False):
        edge.journal.wsync = sync
        await hold.wait()
        if refused:
            raise JournalRefused("the disk failed for a moment", full=False)
        await sync(position, shielded=shielded)

    async def one():
        told.append(await edge.call("POST", "/v1/jobs", jobs, headers=headers))

    edge.journal.wsync = slow
    async with trio.open_nursery() as nursery:
        for _ in range(16):
            nursery.start_soon(one)
        await trio.testing.wait_all_tasks_blocked()
        written = [lane for lane, _, _ in edge.journal.frames].count(Lane.CHANGES)
        hold.set()
    assert written == 1, "the others wait for it"
    assert sorted(answer.status for answer in told) == [200] * (15 - refused) + [201] + [503] * refused
    assert len({tuple(answer.body["job_ids"]) for answer in told if answer.status < 300}) == 1
    left = [await edge.call("POST", "/v1/jobs", [ONE] * jobs, headers={"jqd-tenant": "acme"}) for jobs in (96, 1)]
    assert [answer.status for answer in left] == [201, 429], "four were paid for"
    assert len(asked) == len(MANY) * (1 + refused if key else 16), "of whole requests one stands for all"


async def test_while_the_store_stands_still_one_of_a_key_is_taken_and_others_come_again(
    edge, autojump_clock, monkeypatch
):
    """Each waited 5 s for the one before it and asked beside it then: two were written, paid for and told 201."""
    reserve, told = edge.whole.reserve_names, list[int]()

    async def slow(rows):
        with trio.move_on_after(5):
            await trio.sleep_until(began_s + 8.5)
            return await reserve(rows)
        raise StoreAway("it does not answer")

    async def one(at_s):
        await trio.sleep_until(began_s + at_s)
        told.append((await push(edge, MANY)).status)

    monkeypatch.setattr(edge.whole, "reserve_names", slow)
    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        for at_s in range(6):
            nursery.start_soon(one, at_s)
    assert (len(told), told.count(503), told.count(201), {*told} - {503, 201, 429, 200}) == (6, 1, 1, set())
    assert sum(count for lane, count, _ in edge.journal.frames if lane is Lane.CHANGES) == len(MANY)
    assert (await push(edge, MANY)).status == 200
    assert await arguments(edge) == [0, 1, 2, 3]


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
    batch = under_key(read_array(msgspec.msgpack.encode(bodies[0]), False, DeskConfig()), "k-1")
    some = structs.replace(batch, jobs=batch.jobs[:4], refused=[Fault("/name", "not for it", 4)])
    some = structs.replace(some, array=msgspec.msgpack.encode(msgspec.msgpack.decode(batch.array, type=list[Raw])[:4]))
    desk, told = edge.api._parts.desk, {}

    async def one(which, what):
        told[which] = await desk_push(desk, what)

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


@pytest.mark.parametrize("key", ["k-1", None], ids=["key", "job_id"])
async def test_who_hangs_up_while_names_are_confirmed_has_pushed_all(edge, key, monkeypatch):
    """Over HTTP/2, or at the end of a stop, what answers him is cancelled: between two frames, too."""
    confirm, scope = edge.whole.confirm_names, trio.CancelScope()

    async def slow(*asked):
        scope.cancel()
        await trio.lowlevel.checkpoint()
        return await confirm(*asked)

    body = MANY if key else [{**MANY[0], "job_id": "own"}, *MANY[1:]]
    with monkeypatch.context() as patch, scope:
        patch.setattr(edge.whole, "confirm_names", slow)
        await edge.call("POST", "/v1/jobs", body, headers={"idempotency-key": key} if key else {})
    await edge.apply()
    assert (scope.cancel_called, await arguments(edge)) == (True, [0, 1, 2, 3])


async def test_a_repeat_does_not_wait_for_the_store_with_the_first(edge, autojump_clock):
    """Its names are confirmed when it is on the disk: who repeats it meanwhile is told so, and charged nothing."""
    told = []

    async def behind(lane, position, timeout_s, where):
        await trio.sleep(timeout_s)
        return False

    async def one():
        headers = {"idempotency-key": "k-1", "jqd-tenant": "acme"}
        told.append(await edge.call("POST", "/v1/jobs?ack=store", MANY, headers=headers))

    edge.control.wait_caught_up = behind
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(one)
    assert sorted(answer.status for answer in told) == [200, 200, 200, 201]
    assert sum(count for lane, count, _ in edge.journal.frames if lane is Lane.CHANGES) == len(MANY)


KINDS = {"one": ONE, "an array of one": [ONE], "many": MANY, "with a bad one": [*MANY, {"name": ""}]}


@pytest.mark.parametrize("body", KINDS.values(), ids=KINDS)
async def test_a_request_that_was_taken_before_all_of_it_was_compared_counts_once(edge, body):
    """Daemons of then named its jobs after their place, and compared each by itself."""
    single = isinstance(body, dict)
    data = b"\x91" * single + msgspec.msgpack.encode(body)
    batch = named_before(under_key(read_array(data, single, DeskConfig()), "k-1"))
    first = await desk_push(edge.api._parts.desk, structs.replace(batch, key=""))
    await edge.apply()
    frames, again = len(edge.journal.frames), await push(edge, body)
    assert again.body.get("job_ids", [again.body.get("job_id")]) == list(first.job_ids)
    for other in ([*MANY, ONE], MANY[:3], {**ONE, "delay": 5}):
        assert (await push(edge, other)).status == 422
    assert len(edge.journal.frames) == frames


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
