"""GET /v1/me: what a token is good for."""

from typing import Any

import pytest

from tests.api.edge import JSON
from tests.api.tokened import ROOT, call, make
from tests.api.tokened import edge as edge  # a fixture
from tests.api.whole import Whole


@pytest.mark.parametrize("role", ["push", "worker", "viewer", "operator", "master"])
async def test_everybody_may_ask_who_he_is(edge: Whole, role: str) -> None:
    said: dict[str, Any] = {"scopes": ["mail*"]} if role in ("push", "worker") else {}
    token = (await make(edge, role, tenant="acme", **said))["token"]
    told = await call(edge, token, "GET", "/v1/me")
    assert told.status == 200
    assert (told.body["role"], told.body["tenant"], told.body["scopes"]) == (role, "acme", said.get("scopes", []))


async def test_who_speaks_for_a_tenant_is_told_so_and_nobody_is_refused(edge: Whole) -> None:
    assert (await call(edge, ROOT, "GET", "/v1/me")).body == {
        "role": "master",
        "tenant": "",
        "scopes": [],
        "all_tenants": True,
        "token_id": "root",
        "note": "",
        "expires_at": None,
        "derived_from": None,
        "tokens_required": True,
    }
    assert (await call(edge, ROOT, "GET", "/v1/me", **{"jqd-tenant": "acme"})).body["tenant"] == "acme"
    assert (await call(edge, "", "GET", "/v1/me")).status == 401
    open_to_all = await Whole().begin()
    assert (await open_to_all.call("GET", "/v1/me", accept=JSON)).body["role"] == "master"
