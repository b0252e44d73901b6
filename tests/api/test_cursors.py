"""Where a list goes on is told in words that the door takes, also where names are of tenants."""

import itertools
from urllib.parse import quote

import pytest
import trio

from jqd.api.kept_types import KEPT_S
from jqd.domain.job import Fate
from jqd.routes import ROUTES
from jqd.store import TypeView
from tests.api.edge import JSON
from tests.api.whole import Whole

TENANTS = ("", "acme", "beta")
LISTS = [
    one.path
    for one in ROUTES
    if one.method == "GET" and "cursor" in one.query.__struct_fields__ and "<" not in one.path
]
"""Those of one job, or one group, are asked in tests of these."""


@pytest.fixture
async def edge() -> Whole:
    edge = await Whole().begin()
    for tenant in TENANTS:
        headers = {"jqd-tenant": tenant} if tenant else None
        for name in ("mail", "sms"):
            told = await edge.call("POST", "/v1/jobs", {"name": name, "max_retry": 0}, headers=headers)
            assert told.status == 201
            plan = {"every": 60, "job": {"name": name}}
            assert (await edge.call("PUT", f"/v1/schedules/{name}", plan, headers=headers)).status == 201
    await edge.apply()
    for tenant in TENANTS:
        (held,) = await edge.claim(f"{tenant}\x1fmail" if tenant else "mail")
        await edge.end(held, Fate.FAILED)
    for tenant, name in itertools.product(TENANTS, ("mail", "sms")):
        headers = {"jqd-tenant": tenant} if tenant else None
        url = f"http://127.0.0.1:9/{name}"
        for method, path, body in (
            ("PUT", f"/v1/handlers/{name}", {"lang": "http", "body": url}),
            ("PUT", f"/v1/constraints/{name}", {"match": "job.name == 'other'", "concurrency": 9}),
            ("POST", "/v1/workers", {"name": name, "max_jobs": 1, "jobs": ["other"]}),
        ):
            assert (await edge.call(method, path, body, headers=headers)).status == 201
    return edge


def test_there_are_such_lists() -> None:
    lists = {one.path for one in ROUTES if one.method == "GET" and one.lists and "<" not in one.path}
    assert lists - {"/v1/history"} == {*LISTS}  # as many steps as its minutes say, so it has no cursor


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("tenant", TENANTS)
async def test_every_list_is_walked_to_its_end(edge: Whole, path: str, tenant: str) -> None:
    headers = {"jqd-tenant": tenant} if tenant and path != "/v1/daemons" else None
    limited = "limit" in next(one.query.__struct_fields__ for one in ROUTES if (one.method, one.path) == ("GET", path))
    seen, cursor = [], ""
    for _ in range(50):
        query = f"?cursor={quote(cursor)}{'&limit=1' if limited else ''}"
        told = await edge.call("GET", path + query, headers=headers, accept=JSON)
        assert told.status == 200, told.body
        (rows,) = [
            value for key, value in told.body.items() if isinstance(value, list) and key not in ("paused", "gone")
        ]
        seen += [str(row) for row in rows]
        if not (cursor := told.body["cursor"]):
            break
    assert (cursor, len(seen)) == ("", len({*seen}))
    if path in ("/v1/types", "/v1/schedules", "/v1/jobs", "/v1/handlers", "/v1/constraints"):
        assert len(seen) == (2 if tenant else 6)
    if path == "/v1/workers":
        assert len(seen) == (4 if tenant else 12), "versions of handlers are some, too"


@pytest.mark.parametrize("path", ["/v1/types", "/v1/schedules", "/v1/workers", "/v1/quotas", "/v1/audit"])
@pytest.mark.parametrize("wrong", ["%00", "a", "====", "_w", "%C3%BC"])
async def test_a_cursor_that_no_answer_gave_is_refused(edge: Whole, path: str, wrong: str) -> None:
    told = await edge.call("GET", f"{path}?cursor={wrong}", accept=JSON)
    assert (told.status, "none that an answer gave" in told.body["detail"]) == (422, True)


async def test_the_pages_of_one_list_of_jobtypes_are_of_one_read(edge: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page read all jobtypes anew: with 12,000 `jqd status` took seventeen seconds."""
    reads, read = 0, edge.store.list_types

    async def counted() -> list[TypeView]:
        nonlocal reads
        reads += 1
        return await read()

    monkeypatch.setattr(edge.store, "list_types", counted)
    first = (await edge.call("GET", "/v1/types?limit=1", accept=JSON)).body
    (await edge.call("POST", "/v1/jobs", {"name": "zebra"}))
    await edge.apply()
    second = (await edge.call("GET", f"/v1/types?limit=9&cursor={quote(first['cursor'])}", accept=JSON)).body
    assert ("zebra" in [row["name"] for row in second["types"]], reads) == (False, 1)
    await trio.sleep(KEPT_S)
    later = (await edge.call("GET", f"/v1/types?limit=9&cursor={quote(first['cursor'])}", accept=JSON)).body
    assert ("zebra" in [row["name"] for row in later["types"]], reads) == (True, 2)
    assert [row["name"] for row in (await edge.call("GET", "/v1/types", accept=JSON)).body["types"]][-1] == "zebra"
