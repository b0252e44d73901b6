"""`search`: what is found of a job by its words, and how far is looked for one answer."""

import threading
from urllib.parse import quote

import msgspec
import pytest

from jqd.domain import json_ext
from jqd.domain.dates import iso
from jqd.domain.job import State
from jqd.service import bulk
from jqd.service.job_filter import SEARCHED_BYTES_MAX, SEARCHED_JOBS
from jqd.service.listing import READ_MAX
from jqd.store import Page
from jqd.store.counts import Counts
from tests.api.edge import Edge
from tests.api.fakes import outcome

pack = msgspec.msgpack.encode
ARGUMENT = {"to": "Ann@Example.org", "order": 4711, "deep": [{"straße": "Größe"}, -7, 5, 2.5, True], b"\xff": 1}


@pytest.fixture
def edge() -> Edge:
    return Edge()


async def found(edge: Edge, search: str, more: str = "") -> list[str]:
    told = await edge.call("GET", f"/v1/jobs?search={quote(search)}{more}")
    assert told.status == 200, told.body
    return [job["job_id"] for job in told.body["jobs"]]


def add(edge: Edge) -> str:
    last = outcome("J", message="no such mailbox", error=pack({"code": 550}))
    named = {"jobtype": "mail:send", "name": "order/17", "tags": ("red", "Blue")}
    edge.add(State.FAILED, outcome=last, argument=pack(ARGUMENT), **named)
    return "order/17"


FOUND = [
    *("mail:send", "MAIL", "order/17", "red", "blue", "mailbox", "550", "ann@example", "4711", "STRASSE"),
    *("größe", "GRÖSSE", "-7", "5", "order", "to"),
]
MISSED = ["bill", "471", "47110", "2.5", "true", "sendred", "orderann", "Example.orgorder", "é", "\ufffd", "8"]


@pytest.mark.parametrize("search", FOUND)
async def test_it_stands_in_name_id_tags_argument_or_error_in_capitals_or_not(edge, search):
    job_id = add(edge)
    edge.add(State.WAITING, jobtype="another", argument=pack(None))
    assert await found(edge, search) == [job_id]


@pytest.mark.parametrize("search", MISSED)
async def test_it_does_not_stand_across_two_values_and_numbers_are_whole(edge, search):
    add(edge)
    assert await found(edge, search) == []


async def test_it_goes_with_all_other_filters(edge):
    add(edge)
    other = edge.add(State.FAILED, argument=pack(["ann@example.org"]))
    assert await found(edge, "ann@", "&name=mail") == [other]
    assert await found(edge, "ann@", "&state=waiting") == []
    assert await found(edge, "ann@", "&error=mailbox") == ["order/17"]
    told = await edge.call("GET", "/v1/errors?search=ann%40")
    assert sum(row["count"] for row in told.body["errors"]) == 1, "of the other nobody knows why"
    assert told.body["looked"] == 2
    body = {"search": "ann@", "dry_run": True}
    told = await edge.call("POST", "/v1/jobs/retry", body)
    assert told.body == {"matched": 2, "changed": 0, "cursor": "", "at": iso(edge.clock.wall_ms())}


async def test_arguments_are_asked_for_only_where_they_are_looked_at(edge, monkeypatch):
    asked: list[tuple[int, int, bool]] = []
    listed = edge.store.list_jobs

    async def list_jobs(*given, row_bytes, tried):
        asked.append((given[3], row_bytes, tried))
        return await listed(*given, row_bytes=row_bytes, tried=tried)

    monkeypatch.setattr(edge.store, "list_jobs", list_jobs)
    await edge.call("GET", "/v1/jobs?error=x&limit=1000")
    await edge.call("GET", "/v1/jobs?search=x&limit=1000")
    assert asked == [(1_000, 0, True), (SEARCHED_JOBS, SEARCHED_BYTES_MAX, False)]


async def test_one_answer_looks_at_so_many_jobs_and_says_where_to_go_on(edge, monkeypatch, mock_clock):
    add(edge)
    (view,) = edge.store.views.values()
    pages: list[str] = []

    async def endless(*given, **more):
        pages.append(given[4])
        return Page([view] * given[3], edge.journal.ids.take(1).first)

    monkeypatch.setattr(edge.store, "list_jobs", endless)
    told = await edge.call("GET", "/v1/jobs?search=nowhere&limit=1000")
    assert (told.status, told.body["jobs"], told.body["cursor"] > pages[-1]) == (200, [], True)
    assert len(pages) == READ_MAX // SEARCHED_JOBS


async def test_no_job_is_passed_over_where_more_fit_than_a_page_may_have(edge):
    ids = [edge.add(State.FAILED, outcome=outcome("K", message="full" if at % 3 else "")) for at in range(60)]
    told, cursor = [], ""
    while True:
        page = (await edge.call("GET", f"/v1/jobs?error=full&limit=7&cursor={cursor}")).body
        told.append([job["job_id"] for job in page["jobs"]])
        if not (cursor := page["cursor"]):
            break
    assert [job_id for page in told for job_id in page] == [ids[at] for at in range(59, -1, -1) if at % 3]
    assert {len(page) for page in told[:-1]} == {7}


@pytest.mark.parametrize(("tenant", "of"), [("*", 9), ("acme", None)])
async def test_a_list_that_is_not_over_says_how_far_it_looked(edge, tenant, of):
    for _ in range(9):
        edge.add(State.FAILED, jobtype="acme\x1fmail", outcome=outcome("K", message="full"))
    edge.store.counts = Counts(failed=9, succeeded=70)
    for more in ("", "&error=full"):
        path = f"/v1/jobs?state=failed{more}"
        told = (await edge.call("GET", f"{path}&limit=4", headers={"jqd-tenant": tenant})).body
        assert (len(told["jobs"]), told.get("looked", 0) >= 4, told.get("of")) == (4, of is not None, of)
        assert ("looked" in told) is (of is not None), "what was looked at are others' jobs, too"
        whole = (await edge.call("GET", path, headers={"jqd-tenant": tenant})).body
        assert (len(whole["jobs"]), whole["cursor"], "of" in whole) == (9, "", False)


async def test_a_count_that_is_not_over_says_how_far_it_looked(edge, monkeypatch):
    monkeypatch.setattr(bulk, "STEP_JOBS", 4)
    monkeypatch.setattr(bulk, "STEPS_MAX", 1)
    for _ in range(6):
        edge.add(State.FAILED)
    edge.store.counts = Counts(failed=6)
    body = {"state": "failed", "dry_run": True}
    told = (await edge.call("POST", "/v1/jobs/delete", body)).body
    assert (told["matched"], told["looked"], told["of"]) == (4, 4, 6)
    rest = (await edge.call("POST", "/v1/jobs/delete", body | {"cursor": told["cursor"]})).body
    assert rest == {"matched": 2, "changed": 0, "cursor": "", "at": iso(edge.clock.wall_ms())}


@pytest.mark.parametrize("search", ["", "x" * 1_001])
async def test_what_is_no_search(edge, search):
    assert (await edge.call("GET", f"/v1/jobs?search={search}")).status == 422
    assert (await edge.call("POST", "/v1/jobs/cancel", {"search": search})).status == 422


@pytest.mark.parametrize("path", ["errors?", "jobs?error=1", "jobs?error_is=x", "jobs?search=1"])
async def test_what_workers_wrote_is_never_looked_through_on_the_loop(edge, monkeypatch, path):
    """200 errors of 63 KB took 24 s, and a lease is 10 s."""
    add(edge)
    edge.add(State.FAILED, outcome=outcome("K", error=pack([{1: 1}] * 21_000)))
    looked: list[tuple[int, int]] = []
    real = json_ext.show_packed

    def show(packed: bytes) -> object:
        looked.append((threading.get_ident(), len(packed)))
        return real(packed)

    monkeypatch.setattr(json_ext, "show_packed", show)
    told = await edge.call("GET", f"/v1/{path}")
    assert told.status == 200, told.body
    assert looked
    assert threading.get_ident() not in [thread for thread, _ in looked]
    assert max(size for _, size in looked) < 4_097, "a large one takes 120 ms so"


@pytest.mark.parametrize("error", [["x" * 5_000, {"why": "no such mailbox"}], "x" * 5_000 + "\nno such mailbox"])
async def test_a_large_error_is_found_by_its_words(edge, error):
    job_id = edge.add(State.FAILED, outcome=outcome("J", error=pack(error)))
    assert await found(edge, "such mailbox") == [job_id]


STATUSES = {"retry": 102, "ok": 204, "failed": 409, "error": 503}


@pytest.mark.parametrize("code", STATUSES)
async def test_jobs_are_found_by_how_their_last_attempt_stopped(edge, code):
    fates = {"ok": State.SUCCEEDED, "failed": State.FAILED, "error": State.FAILED, "retry": State.RETRYING}
    ids = {each: edge.add(fates[each], outcome=outcome("J", status=status)) for each, status in STATUSES.items()}
    edge.add(State.WAITING)
    for asked in (f"code={code}", f"exitcode={STATUSES[code]}", f"code={code}&exitcode={STATUSES[code]}"):
        (job,) = (await edge.call("GET", f"/v1/jobs?{asked}")).body["jobs"]
        assert (job["job_id"], job["code"], job["exitcode"]) == (ids[code], code, STATUSES[code])
    assert (await edge.call("GET", f"/v1/jobs?code={code}&exitcode=599")).body["jobs"] == []


@pytest.mark.parametrize("asked", ["code=done", "exitcode=99", "exitcode=600", "exitcode=many"])
async def test_what_is_no_exit_code(edge, asked):
    assert (await edge.call("GET", f"/v1/jobs?{asked}")).status == 422
