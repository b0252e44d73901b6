"""GET /v1/tenants: each tenant's jobs in one row; and jobtypes found by a part of their names."""

from jqd.service.rates import Rates
from tests.api.tokened import ROOT, call, make
from tests.api.tokened import edge as edge  # the fixture
from tests.api.whole import Whole


async def push(edge: Whole, tenant: str, name: str, count: int = 1) -> None:
    for _ in range(count):
        told = await call(edge, ROOT, "POST", "/v1/jobs", {"name": name}, **{"jqd-tenant": tenant})
        assert told.status == 201, told.body
    await edge.apply()


async def test_each_tenant_has_a_row_with_what_is_its_own(edge: Whole) -> None:
    edge.api._parts.services.feature(Rates).note(await edge.store.stats(), [])
    await push(edge, "acme", "mail", 2)
    await push(edge, "acme", "bill")
    await push(edge, "", "mail", 3)
    assert (await call(edge, ROOT, "PUT", "/v1/quotas/quiet", {"queued": 5})).status == 200
    acme = {"jqd-tenant": "acme"}
    assert (await call(edge, ROOT, "POST", "/v1/types/mail/pause", **acme)).status == 200
    edge.control.shelves["acme"] = 3
    rows = (await call(edge, ROOT, "GET", "/v1/tenants")).body["tenants"]
    assert [(row["tenant"], row["types"], row["waiting"]) for row in rows] == [
        ("", 1, 3),
        ("acme", 2, 3),
        ("quiet", 0, 0),
    ]
    assert (rows[1]["paused_types"], rows[1]["put_off"], rows[1]["quota"]) == (1, 3, None)
    assert rows[1]["per_minute"]["pushed"] == 3
    assert rows[1]["oldest_at"]
    assert (rows[2]["quota"]["queued"], rows[2]["oldest_at"], rows[2]["paused_at"]) == (5, None, None)
    assert (await call(edge, ROOT, "POST", "/v1/types/pause", **acme)).status == 200
    token = (await make(edge, "viewer", tenant="acme"))["token"]
    (row,) = (await call(edge, token, "GET", "/v1/tenants")).body["tenants"]
    assert (row["tenant"], row["paused_at"] is None) == ("acme", False)
    first = (await call(edge, ROOT, "GET", "/v1/tenants?limit=1")).body
    rest = (await call(edge, ROOT, "GET", f"/v1/tenants?cursor={first['cursor']}")).body
    assert [row["tenant"] for row in (*first["tenants"], *rest["tenants"])] == ["", "acme", "quiet"]
    assert (await call(edge, (await make(edge, "push"))["token"], "GET", "/v1/tenants")).status == 403


async def test_a_token_of_a_tenant_that_has_done_nothing_sees_its_row(edge: Whole) -> None:
    await push(edge, "acme", "mail")
    token = (await make(edge, "viewer", tenant="new"))["token"]
    (row,) = (await call(edge, token, "GET", "/v1/tenants")).body["tenants"]
    assert (row["tenant"], row["types"], row["quota"]) == ("new", 0, None)
    assert [one["tenant"] for one in (await call(edge, ROOT, "GET", "/v1/tenants")).body["tenants"]] == ["acme"]


async def test_jobtypes_are_found_by_a_part_of_their_names(edge: Whole) -> None:
    for name in ("mail.send", "Mail.read", "bill.mail"):
        await push(edge, "", name)
    await push(edge, "acme", "mail.own")

    async def found(query: str) -> list[str]:
        told = await call(edge, ROOT, "GET", f"/v1/types?{query}")
        assert told.status == 200, told.body
        return [row["name"] for row in told.body["types"]]

    assert len(await found("name=")) == 4
    assert sorted(await found("name=mail")) == ["Mail.read", "bill.mail", "mail.own", "mail.send"]
    assert sorted(await found("name=MAIL*")) == ["Mail.read", "mail.own", "mail.send"]
    assert await found("name=acme") == [], "tenants are no part of names"
    assert await found("name=none") == []
