"""Pushes under pushers' own ids, to the end in the store."""

from typing import Any
from urllib.parse import quote

import pytest

from jqd.domain.errors import StoreAway
from jqd.domain.job import Fate, State
from jqd.domain.record import Lane
from tests.api.edge import JSON, MSGPACK
from tests.api.named import JOB, arguments, push
from tests.api.whole import Whole


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


# ------------------------------------------------------------ one


@pytest.mark.parametrize("kind", [MSGPACK, JSON])
@pytest.mark.parametrize("own", ["order/17", "ünï", "a b", "%2F", "x" * 128])
async def test_an_own_id_is_the_jobs_id(edge, own, kind):
    told = await edge.call("POST", "/v1/jobs", {**JOB, "job_id": own}, kind=kind)
    assert (told.status, told.body) == (201, {"job_id": own, "ack": "fsync"})
    assert told.headers["location"] == f"/v1/jobs/{quote(own, safe='')}"
    told = await edge.call("GET", told.headers["location"])
    assert (told.body["job_id"], told.body["state"]) == (own, "waiting"), "from its ack on"
    await edge.apply()
    told = await edge.call("GET", f"/v1/jobs/{quote(own, safe='')}")
    assert (told.body["job_id"], told.body["name"]) == (own, "mail")
    (held,) = await edge.claim()
    assert held.job.id == told.body["id"] != own, "workers know it by ours"


@pytest.mark.parametrize("applied", [True, False])
async def test_the_same_again_counts_once(edge, applied):
    assert (await edge.call("POST", "/v1/jobs", JOB)).status == 201
    if applied:
        await edge.apply()
    status, body = await push(edge, JOB)
    assert (status, body) == (200, {"job_id": "order/17", "duplicate": True})
    assert len(await edge.claim()) == 1


DEFAULTS = {"priority": 0, "max_retry": 5, "timeout": 30, "keep_result": False, "tags": [], "replace": False}


@pytest.mark.parametrize("field", [*DEFAULTS, "argument"])
async def test_an_option_that_is_left_out_is_its_default_said(edge, field):
    plain = {"name": "mail", "job_id": "x"}
    for body in (plain, {**plain, field: DEFAULTS.get(field)}):
        told = await edge.call("POST", "/v1/jobs", body, kind=JSON)
        assert told.body["job_id"] == "x"
        await edge.apply()
    assert (told.status, told.body.get("duplicate")) == (200, True)


async def test_who_keeps_the_result_pushes_the_same_job(edge):
    for kept in (True, False):
        told = await edge.call("POST", "/v1/jobs", {**JOB, "keep_result": kept})
        await edge.apply()
    assert (told.status, told.body["duplicate"]) == (200, True)
    assert (await edge.call("GET", "/v1/jobs/order%2F17")).body["keep_result"] is True, "what was said first stays"


@pytest.mark.parametrize("ack", ["fsync", "memory"])
async def test_a_push_that_is_not_confirmed_to_the_store_is_told_so_and_counts_once(edge, ack, monkeypatch):
    """Its id is given once more to the same push, until the job is applied."""

    async def away(*_: object) -> None:
        raise StoreAway("gone for a moment")

    monkeypatch.setattr(edge.whole, "confirm_names", away)
    for _ in range(2):
        told = await edge.call("POST", f"/v1/jobs?ack={ack}", JOB)
        if ack == "memory":  # it promises nothing that would have to be confirmed
            assert (told.status, told.body) == (201, {"job_id": "order/17", "ack": ack})
        else:
            assert (told.status, told.headers["retry-after"]) == (503, "1")
            assert "push them again" in told.body["detail"]
            assert told.body["type"] == "about:blank", "it may run: without its id it would be two"
    assert (await edge.call("POST", "/v1/jobs", {**JOB, "argument": 2})).status == 409
    await edge.apply()
    assert (await push(edge, JOB))[0] == 200
    assert len(await edge.claim()) == 1


@pytest.mark.parametrize("query", ["?atomic=1", "", "?ack=memory"], ids=["refused", "not confirmed", "memory"])
async def test_of_an_id_that_was_only_reserved_there_is_soon_no_job(edge, query, monkeypatch):
    """It read as waiting for two days. What lies in a journal, and was not confirmed, does wait."""
    confirm = edge.whole.confirm_names

    async def away(*_: object) -> None:
        raise StoreAway("gone for a moment")

    monkeypatch.setattr(edge.whole, "confirm_names", away)
    monkeypatch.setattr(edge.whole, "free_names", away)
    await edge.call("POST", f"/v1/jobs{query}", [JOB, {"name": "mail", "job_id": "b"}, {"name": "mail", "job_id": "b"}])
    monkeypatch.setattr(edge.whole, "confirm_names", confirm)
    assert (await edge.call("GET", "/v1/jobs/order%2F17")).body["state"] == "waiting", "it may come"
    edge.clock.advance(31)
    for path in ("", "/result", "/why"):
        told = await edge.call("GET", f"/v1/jobs/order%2F17{path}")
        assert told.status == (404 if "atomic" in query else 200), told.body
        assert "atomic" not in query or "reserved for a push that was not taken" in told.body["detail"]
    await edge.apply()
    assert (await edge.call("GET", "/v1/jobs/order%2F17")).status == (404 if "atomic" in query else 200)


async def test_what_was_told_before_it_was_on_disk_may_come_also_if_another_was_not_confirmed(edge, monkeypatch):
    confirm = edge.whole.confirm_names

    async def away(*_: object) -> None:
        monkeypatch.setattr(edge.whole, "confirm_names", confirm)
        told = await edge.call("POST", "/v1/jobs?ack=memory", {"name": "mail", "job_id": "b"})
        assert told.status == 201
        raise StoreAway("gone for a moment")

    monkeypatch.setattr(edge.whole, "confirm_names", away)
    assert (await edge.call("POST", "/v1/jobs", JOB)).status == 503
    assert edge.journal.end < edge.journal.written
    edge.journal.read_points[Lane.CHANGES] = edge.journal.end
    edge.clock.advance(31)
    assert (await edge.call("GET", "/v1/jobs/b")).status == 200, "it is on its way"


async def test_only_jobs_are_counted_and_changed_not_ids_that_were_reserved(edge, monkeypatch):
    """A trial said 2, and the cancel that it had cancelled 2. What it records is for those that come after all."""

    async def away(*_: object) -> None:
        raise StoreAway("gone for a moment")

    wrong = {**JOB, "job_id": "c"}
    with monkeypatch.context() as patched:
        patched.setattr(edge.whole, "free_names", away)
        told = await edge.call("POST", "/v1/jobs?atomic=1", [JOB, {**JOB, "job_id": "b"}, wrong, wrong])
        assert told.status == 409, told.body
    assert (await push(edge, {**JOB, "job_id": "taken"}))[0] == 201
    edge.clock.advance(31)
    wanted = {"job_ids": ["order/17", "b", "taken"]}
    for dry_run in (True, False):
        body = (await edge.call("POST", "/v1/jobs/cancel", {**wanted, "dry_run": dry_run})).body
        assert (body["matched"], body["changed"]) == (1, 0 if dry_run else 1)
        assert [(row["job_id"], row["status"]) for row in body["refused"]] == [("order/17", 404), ("b", 404)]
        assert "reserved for a push that was not taken" in body["refused"][0]["detail"]
    assert len(edge.journal.cancels()) == 3, "the push may come with a daemon that died"
    assert (await edge.call("PATCH", "/v1/jobs/b", {"priority": 1})).status == 404, "it said 503 for two days"
    assert (await edge.call("POST", "/v1/jobs/retry", wanted)).body["matched"] == 1
    listed = (await edge.call("GET", "/v1/jobs")).body["jobs"]
    assert [row["job_id"] for row in listed] == ["taken"]
    assert [(row["name"], row["waiting"]) for row in (await edge.call("GET", "/v1/types")).body["types"]] == [
        ("mail", 1)
    ]


async def test_of_a_push_that_is_not_confirmed_nothing_runs_twice(edge, monkeypatch):
    """Also none of its jobs without an id of their own: its pusher is told to push all again."""

    async def away(*_: object) -> None:
        raise StoreAway("away")

    jobs = [{"name": "mail", "argument": 1}, JOB, {"name": "mail", "argument": 2}]
    with monkeypatch.context() as patched:
        patched.setattr(edge.whole, "confirm_names", away)
        assert (await push(edge, jobs))[0] == 503
    status, body = await push(edge, jobs)
    assert (status, body["duplicates"]) == (201, ["order/17"])
    assert sorted(map(str, await arguments(edge))) == ["1", "2", "{'n': 1}"]


async def test_the_same_again_counts_once_when_it_has_ended_too(edge):
    await edge.ended(Fate.SUCCEEDED, **JOB)
    assert (await push(edge, JOB))[0] == 200
    assert await edge.claim() == []


async def test_another_content_is_refused(edge):
    await push(edge, JOB)
    told = await edge.call("POST", "/v1/jobs", {**JOB, "argument": {"n": 2}}, accept=JSON)
    assert told.status == 409
    assert told.body["errors"][0]["pointer"] == "/job_id"
    assert "a push with replace takes its place" in told.body["detail"]
    assert await arguments(edge) == [{"n": 1}]


async def test_replace_takes_the_place_of_what_waits(edge):
    await push(edge, {**JOB, "delay": 3_600})
    assert await push(edge, {**JOB, "argument": 2, "replace": True}) == (201, {"job_id": "order/17", "ack": "fsync"})
    assert await arguments(edge) == [2]


async def test_what_runs_runs_again_with_the_new_content(edge):
    await push(edge, JOB)
    (held,) = await edge.claim()
    await push(edge, {**JOB, "argument": 2, "replace": True})
    await edge.end(held, Fate.SUCCEEDED)
    assert await arguments(edge) == [2]


@pytest.mark.parametrize("fate", [Fate.SUCCEEDED, Fate.FAILED, Fate.DEAD])
async def test_what_has_ended_begins_anew_with_replace(edge, fate):
    await edge.ended(fate, **JOB)
    assert (await push(edge, {**JOB, "argument": 2}))[0] == 409
    assert (await push(edge, {**JOB, "argument": 2, "replace": True}))[0] == 201
    assert await arguments(edge) == [2]


async def test_an_array_of_which_nothing_is_taken_says_so(edge):
    jobs = [{"name": "a", "job_id": "a"}, {"name": "a", "job_id": "b"}]
    await push(edge, jobs)
    taken = len(edge.journal.frames)
    told = await edge.call("POST", "/v1/jobs", [{**job, "argument": 1} for job in jobs] + [{"name": ""}])
    assert (told.status, told.body["detail"]) == (409, "none of the 3 jobs can be taken")
    assert [error["index"] for error in told.body["errors"]] == [0, 1, 2]
    told = await edge.call("POST", "/v1/jobs", [{**jobs[0], "argument": 1}, jobs[1]])
    assert (told.status, told.body["job_ids"], "ack" in told.body) == (207, [None, "b"], False)
    assert len(edge.journal.frames) == taken


@pytest.mark.parametrize("many", [True, False])
async def test_a_job_on_its_way_is_cancelled_whatever_its_generation(edge, many, monkeypatch):
    """It is in the journal still when its cancel is applied: lanes do not wait for each other."""
    assert (await edge.call("POST", "/v1/jobs", JOB)).status == 201
    edge.cancels_first = True
    if many:
        told = await edge.call("POST", "/v1/jobs/cancel", {"job_ids": ["order/17"]})
        assert told.body["changed"] == 1
    else:
        assert (await edge.call("DELETE", "/v1/jobs/order%2F17")).status == 204
    edge.cancels_first = False
    await edge.apply()
    assert await edge.claim() == []
    assert (await edge.call("GET", "/v1/jobs/order%2F17")).body["state"] == "cancelled"


async def test_a_replaced_job_can_be_cancelled(edge):
    await push(edge, JOB)
    await push(edge, {**JOB, "argument": 2, "replace": True})
    assert (await edge.call("DELETE", "/v1/jobs/order%2F17")).status == 204
    assert await edge.claim() == []


# ------------------------------------------------------------ many


async def test_some_of_an_array_are_known_and_some_refused(edge):
    await push(edge, [{**JOB, "job_id": "a"}, {**JOB, "job_id": "b"}])
    jobs = [
        {"name": "plain"},
        {**JOB, "job_id": "a"},
        {**JOB, "job_id": "b", "argument": 9},
        {"name": ""},
        {**JOB, "job_id": "c"},
        {**JOB, "job_id": "c"},
        {**JOB, "job_id": "b", "argument": 7, "replace": True},
    ]
    told = await edge.call("POST", "/v1/jobs", jobs)
    assert told.status == 207
    ours, *rest = told.body["job_ids"]
    assert len(ours) == 26
    assert rest == ["a", None, None, "c", None, None]
    assert told.body["duplicates"] == ["a"]
    assert [(error["index"], error["pointer"]) for error in told.body["errors"]] == [
        (2, "/2/job_id"),
        (3, "/3/name"),
        (5, "/5/job_id"),
        (6, "/6/job_id"),
    ]
    assert "appears twice" in told.body["errors"][2]["detail"]
    lanes = [(lane, records) for lane, records, _ in edge.journal.frames[-2:]]
    assert lanes == [(Lane.CHANGES, 1), (Lane.JOBS, 1)], "each kind has its lane"
    await edge.apply()
    assert len(await edge.claim("plain")) == 1
    assert len(await edge.claim()) == 3


async def test_an_array_of_known_jobs_is_taken_as_known(edge):
    jobs = [{**JOB, "job_id": own} for own in "ab"]
    assert (await push(edge, jobs))[1] == {"job_ids": ["a", "b"], "ack": "fsync"}
    frames = len(edge.journal.frames)
    status, body = await push(edge, jobs)
    assert (status, body) == (200, {"job_ids": ["a", "b"], "duplicates": ["a", "b"]}), "nothing was taken"
    assert len(edge.journal.frames) == frames


async def test_all_of_an_array_or_nothing(edge):
    await push(edge, {**JOB, "job_id": "b"})
    frames = len(edge.journal.frames)
    jobs: list[dict[str, Any]] = [{**JOB, "job_id": "a"}, {**JOB, "job_id": "b", "argument": 9}]
    status, body = await push(edge, jobs, "?atomic=1")
    assert (status, body["errors"][0]["index"]) == (409, 1), "as one that is pushed by itself"
    assert "atomic" not in body["detail"], "those surfaces say it, too, that know no such flag"
    assert len(edge.journal.frames) == frames
    for path in ("", "/why"):
        assert (await edge.call("GET", f"/v1/jobs/a{path}")).status == 404
    assert (await push(edge, {**jobs[0], "argument": "mended"}, "?atomic=1"))[0] == 201, "nothing keeps its id"


async def test_a_refused_array_takes_no_id_from_the_push_that_has_it(edge):
    """It gave back the id of a job that was acknowledged and had not come: another content ran in its place."""
    await push(edge, {**JOB, "job_id": "b"})
    assert (await push(edge, JOB, "?ack=memory"))[0] == 201
    assert (await push(edge, [JOB, {**JOB, "job_id": "b", "argument": 9}], "?atomic=1"))[0] == 409
    assert (await push(edge, {**JOB, "argument": "another"}))[0] == 409
    await edge.apply()
    assert (await push(edge, JOB))[0] == 200, "it stands"


async def test_all_of_an_array_or_nothing_where_the_store_goes_meanwhile(edge, monkeypatch):
    """The names are free by themselves soon. Until then nobody is told to replace what is not there."""

    async def away(*_: object) -> None:
        raise StoreAway("away")

    monkeypatch.setattr(edge.whole, "free_names", away)
    await push(edge, {**JOB, "job_id": "b"})
    jobs: list[dict[str, Any]] = [{**JOB, "job_id": "a"}, {**JOB, "job_id": "b", "argument": 9}]
    assert (await push(edge, jobs, "?atomic=1"))[0] == 409
    status, body = await push(edge, {**jobs[0], "argument": "mended"})
    assert (status, "free again within half a minute" in body["detail"]) == (409, True), body
    assert (await push(edge, jobs[0], "?atomic=1"))[0] == 201, "what was reserved and not taken is its pusher's still"


async def test_names_go_to_the_store_in_calls_it_takes(edge, monkeypatch):
    monkeypatch.setattr("jqd.service.id_reservations.NAMES_PER_CALL", 3)
    status, body = await push(edge, [{**JOB, "job_id": str(n)} for n in range(10)])
    assert (status, body["job_ids"]) == (201, [str(n) for n in range(10)])
    assert len(await edge.claim()) == 10


# ------------------------------------------------------------ refused


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"job_id": ""}, "/job_id"),
        ({"job_id": "x" * 129}, "/job_id"),
        ({"job_id": "a\tb"}, "/job_id"),
        ({"job_id": ".."}, "/job_id"),
        ({"job_id": "01MCC5RM000000000000070001"}, "/job_id"),
        ({"job_id": 7}, "/job_id"),
        ({"replace": True}, "/replace"),
    ],
)
async def test_ids_that_cannot_be_chosen(edge, fields, pointer):
    told = await edge.call("POST", "/v1/jobs", {"name": "mail", **fields})
    assert (told.status, told.body["errors"][0]["pointer"]) == (422, pointer)
    assert edge.journal.frames == []


async def test_without_the_store_only_ids_of_ours_are_given(edge):
    edge.whole.away = "cable pulled"
    told = await edge.call("POST", "/v1/jobs", JOB)
    assert (told.status, told.headers["retry-after"]) == (503, "1")
    assert "pushes without a job_id go on" in told.body["detail"]
    assert (await edge.call("POST", "/v1/jobs", [{"name": "mail"}, JOB])).status == 503
    assert edge.journal.frames == []
    assert (await edge.call("POST", "/v1/jobs", {"name": "mail"})).status == 201
    edge.whole.away = None
    assert (await push(edge, JOB))[0] == 201
    page = await edge.whole.list_jobs(State.WAITING, None, None, 10, "")
    assert sorted(view.name for view in page.jobs) == ["", "order/17"]


async def test_a_cancel_by_the_daemons_id_meets_a_named_job_that_comes_when_the_store_is_back(edge):
    assert (await push(edge, JOB))[0] == 201
    (job,) = edge.journal.jobs()
    edge.whole.away, edge.apply_fails = "cable pulled", True
    told = await edge.call("DELETE", f"/v1/jobs/{job.id}")
    assert (told.status, told.body["cancel"]) == (202, "recorded")
    edge.whole.away, edge.apply_fails = None, False
    await edge.apply()
    assert (await edge.call("GET", "/v1/jobs/order%2F17")).body["state"] == "cancelled"
