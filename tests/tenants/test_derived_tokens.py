"""Derived tokens: never more rights than above them, no longer, not many; and gone with the one above."""

import random
from itertools import product
from typing import Any

import msgspec
import pytest
import trio

from jqd.domain.errors import Denied
from jqd.domain.settings import ORIGINS, Setting
from jqd.domain.tenant import in_scope
from jqd.domain.tokens import DEPTH_MAX, MAY, OVER_S, TOKEN, Role, Token, body_of, draw, hash_of
from jqd.loops.settings import carried, find_unneeded
from jqd.service.principal import Principal, is_within
from jqd.tenants.tokens import DERIVED, SCOPED, SLOTS, TTL_S, TTL_S_MAX, _expect_no_more
from tests.api.edge import Answer
from tests.api.tokened import ROOT, call, make
from tests.api.tokened import edge as edge  # the fixture
from tests.api.whole import Whole

NAMES = ["", *("".join(word) for length in (1, 2, 3, 4) for word in product("ab@3", repeat=length))]


async def ask(edge: Whole, token: str, **said: Any) -> Answer:
    return await call(edge, token, "POST", "/v1/tokens/derive", said)


async def derive(edge: Whole, token: str, **said: Any) -> dict[str, Any]:
    told = await ask(edge, token, **said)
    assert told.status == 201, told.body
    row: dict[str, Any] = told.body
    return row


async def status(edge: Whole, token: str) -> int:
    return (await call(edge, token, "GET", "/v1/me")).status


def test_no_pair_of_rights_lets_a_derived_token_do_what_the_one_above_may_not() -> None:
    """All pairs of roles, and random pairs of scopes, over all short names that look like versions of handlers."""
    source = random.Random(7)
    scopes = [(), *(tuple(_scope(source) for _ in range(source.randint(1, 2))) for _ in range(60))]
    allowed = 0
    for role, wanted in product(Role, Role):
        for above, below in product(scopes if role in SCOPED else [()], scopes if wanted in SCOPED else [()]):
            try:
                _expect_no_more(role, above, wanted, below)
            except Denied:
                continue
            allowed += 1
            assert MAY[wanted] <= MAY[role]
            assert wanted in SCOPED or not above
    assert allowed > 500, "it refuses what it should allow"
    for above, below in product(scopes, scopes):
        if is_within(below, above):
            hers = Principal(scopes=above, sees_all=True)
            his = Principal(scopes=below, sees_all=True)
            assert all(hers.can_access(name) for name in NAMES if his.can_access(name)), (above, below)
    assert is_within(("mail", "mail.a*"), ("mail*",))
    assert not is_within((), ("mail*",)), "none: all"
    assert in_scope(("mail",), "mail@3")


def _scope(source: random.Random) -> str:
    return "".join(source.choices("ab@3", k=source.randint(1, 3))) + source.choice(["", "*"])


async def test_a_derived_token_has_the_rights_of_its_parent_or_fewer_and_ends_sooner(edge: Whole) -> None:
    parent = await make(edge, "operator", tenant="acme", note="Ann", expires_in=86_400 * 365)
    made = await derive(edge, parent["token"], note="ui")
    assert (made["role"], made["tenant"], made["note"]) == ("operator", "acme", "ui")
    assert (made["derived_from"], made["made_by"]) == (parent["token_id"], parent["token_id"])
    me = (await call(edge, made["token"], "GET", "/v1/me")).body
    assert (me["token_id"], me["derived_from"], me["note"]) == (made["token_id"], parent["token_id"], "ui")
    assert me["expires_at"] == made["expires_at"]
    (noted,) = (await call(edge, ROOT, "GET", "/v1/audit?act=token%20derive")).body["notes"]
    assert (noted["token"], noted["what"], noted["tenant"]) == (parent["token_id"], made["token_id"], "acme")
    fewer = await derive(edge, parent["token"], role="push", scopes=["mail*"], ttl=60)
    assert (await call(edge, fewer["token"], "GET", "/v1/types")).status == 403
    assert (await derive(edge, fewer["token"], scopes=["mail.a"]))["scopes"] == ["mail.a"]
    assert (await derive(edge, fewer["token"]))["scopes"] == ["mail*"]
    for token, more in ((parent, {"role": "master"}), (fewer, {"role": "worker"}), (fewer, {"scopes": ["bill"]})):
        assert (await ask(edge, token["token"], **more)).status == 403, more
    edge.clock.advance(61)
    assert [await status(edge, one["token"]) for one in (made, fewer)] == [200, 401]
    edge.clock.advance(TTL_S)
    assert await status(edge, made["token"]) == 401
    assert (await ask(edge, made["token"])).status == 401, "one that is over derives none"
    short = await make(edge, "push", expires_in=60)
    assert (await derive(edge, short["token"]))["expires_at"] == short["expires_at"]


async def test_who_speaks_for_a_tenant_derives_a_token_of_that_tenant(edge: Whole) -> None:
    parent = await make(edge, "operator")
    told = await call(edge, parent["token"], "POST", "/v1/tokens/derive", {}, **{"jqd-tenant": "acme"})
    assert told.body["tenant"] == "acme"
    assert (await call(edge, told.body["token"], "GET", "/v1/me")).body["all_tenants"] is False
    assert (await call(edge, parent["token"], "GET", "/v1/me")).body["all_tenants"] is True


async def test_who_revokes_a_token_revokes_all_that_was_derived_from_it(edge: Whole) -> None:
    parent = await make(edge, "operator")
    line = [parent]
    for _ in range(DEPTH_MAX):
        line.append(await derive(edge, line[-1]["token"]))
    assert (await ask(edge, line[-1]["token"])).status == 403, "so many in a row"
    assert (await call(edge, ROOT, "DELETE", f"/v1/tokens/{line[1]['token_id']}")).status == 200
    assert [await status(edge, one["token"]) for one in line] == [200, 401, 401, 401]
    rows = (await call(edge, ROOT, "GET", "/v1/tokens")).body["tokens"]
    assert [row["token_id"] for row in rows] == [parent["token_id"]]
    assert (await ask(edge, line[2]["token"])).status == 401


async def test_a_derived_token_lets_nobody_in_where_its_parent_is_not_known(edge: Whole) -> None:
    parent = await make(edge, "operator")
    made = await derive(edge, parent["token"])
    known: dict[str, Token] = edge.api._parts.auth.tokens._known
    del known[parent["token_id"]]
    assert await status(edge, made["token"]) == 401


async def test_everybody_lists_and_revokes_his_own_and_nobody_elses(edge: Whole) -> None:
    ann, bob = await make(edge, "push", tenant="acme"), await make(edge, "viewer", tenant="acme")
    made = await derive(edge, ann["token"])
    rows = (await call(edge, made["token"], "GET", "/v1/tokens")).body["tokens"]
    assert [row["token_id"] for row in rows] == [made["token_id"]]
    rows = (await call(edge, ann["token"], "GET", "/v1/tokens")).body["tokens"]
    assert {row["token_id"] for row in rows} == {ann["token_id"], made["token_id"]}
    for token_id in (ann["token_id"], made["token_id"]):
        assert (await call(edge, bob["token"], "DELETE", f"/v1/tokens/{token_id}")).status == 404
    assert (await call(edge, made["token"], "DELETE", f"/v1/tokens/{ann['token_id']}")).status == 404
    assert (await call(edge, made["token"], "DELETE", f"/v1/tokens/{made['token_id']}")).status == 200, "who leaves"
    assert await status(edge, made["token"]) == 401


async def test_so_many_are_valid_at_once_and_whoever_leaves_makes_room(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SLOTS >= 100
    monkeypatch.setattr("jqd.tenants.tokens.SLOTS", 3)
    ann, bob = await make(edge, "push"), await make(edge, "push")
    made = [await derive(edge, ann["token"], ttl=ttl) for ttl in (60, 3_600, 3_600)]
    told = await ask(edge, ann["token"])
    assert (told.status, ann["token_id"] in told.body["detail"]) == (409, True)
    await derive(edge, bob["token"])
    for _ in range(5):  # somebody logs in and out
        assert (await call(edge, ann["token"], "DELETE", f"/v1/tokens/{made[-1]['token_id']}")).status == 200
        made.append(await derive(edge, ann["token"]))
    assert (await ask(edge, ann["token"])).status == 409
    edge.clock.advance(61)
    made.append(await derive(edge, ann["token"]))
    valid = {row["token_id"] for row in (await call(edge, ann["token"], "GET", "/v1/tokens")).body["tokens"]}
    assert valid == {one["token_id"] for one in (ann, made[1], *made[-2:])}
    assert [await status(edge, one["token"]) for one in made[-3:]] == [401, 200, 200]
    kept = [setting for setting in edge.workers.settings.all("token") if setting.name.startswith(ann["token_id"])]
    assert len(kept) == 1 + 3, "the settings do not grow by it"


async def test_daemons_that_choose_at_one_moment_have_all_slots_that_are_free_to_choose_from(edge: Whole) -> None:
    ann = await make(edge, "push")
    for _ in range(20):
        made = await derive(edge, ann["token"])
        assert (await call(edge, ann["token"], "DELETE", f"/v1/tokens/{made['token_id']}")).status == 200
    kept = [setting for setting in edge.workers.settings.all(TOKEN) if setting.name.startswith(f"{ann['token_id']}-")]
    assert len(kept) > 5, "the one that ended last is chosen no sooner than others"


async def test_who_revokes_where_a_slot_s_new_owner_is_not_known_yet_leaves_it_alone(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jqd.tenants.tokens.SLOTS", 1)
    ann, settings = await make(edge, "push"), edge.workers.settings
    old = await derive(edge, ann["token"])
    (setting,) = (one for one in settings.all(TOKEN) if one.name != ann["token_id"])
    token_id, secret, text = draw()
    before = edge.api._parts.auth.tokens.get(old["token_id"])
    assert before is not None
    body = body_of(msgspec.structs.replace(before, token_id=token_id, hash=hash_of(secret)))
    theirs = Setting(TOKEN, setting.name, setting.revision + ORIGINS, setting.at_ms, msgspec.Raw(body))
    settings.askers, asked, answers = 1, settings.asked, []  # a store is there, which has it

    async def revoke() -> None:
        answers.append(await call(edge, ann["token"], "DELETE", f"/v1/tokens/{old['token_id']}"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(revoke)
        with trio.move_on_after(1):
            await asked.wait()
        settings.take([theirs])
        settings.record_sync(settings.asking())
    assert [answer.status for answer in answers] == [200]
    assert [await status(edge, one) for one in (old["token"], text)] == [401, 200]


async def test_none_comes_back_by_a_daemon_that_was_away_while_others_had_its_slot(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jqd.tenants.tokens.SLOTS", 1)
    ann, settings = await make(edge, "push"), edge.workers.settings
    long = await derive(edge, ann["token"], ttl=TTL_S_MAX)
    (old,) = (setting for setting in settings.all("token") if setting.name != ann["token_id"])
    assert (await call(edge, ann["token"], "DELETE", f"/v1/tokens/{long['token_id']}")).status == 200
    for _ in range(2):
        short = await derive(edge, ann["token"], ttl=1)
        edge.clock.advance(OVER_S + 2)
        assert await find_unneeded(settings, edge.workers, edge.clock.wall_ms()) == []
        settings.take([old])
        assert [await status(edge, one["token"]) for one in (long, short)] == [401, 401]
    edge.clock.advance(TTL_S_MAX)
    over = [setting for setting in settings.all("token") if setting.name != ann["token_id"]]
    assert await find_unneeded(settings, edge.workers, edge.clock.wall_ms()) == over
    assert carried(settings, over, edge.clock.wall_ms()) == []


async def test_who_asks_for_it_replaces_the_oldest_of_the_same_note_and_no_other(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jqd.tenants.tokens.SLOTS", 3)
    ann = await make(edge, "push")
    made = []
    for note in ("for Bob", "ui", "ui"):
        made.append(await derive(edge, ann["token"], note=note))
        edge.clock.advance(1)
    assert (await ask(edge, ann["token"], note="other", replace_oldest=True)).status == 409
    for _ in range(2):
        made.append(await derive(edge, ann["token"], note="ui", replace_oldest=True))
        edge.clock.advance(1)
    assert [await status(edge, one["token"]) for one in made] == [200, 401, 401, 200, 200]
    assert (await call(edge, ROOT, "DELETE", f"/v1/tokens/{made[1]['token_id']}")).status == 404
    assert await status(edge, made[-1]["token"]) == 200


async def test_a_child_takes_its_parent_no_room_and_has_little_itself(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jqd.tenants.tokens.SLOTS", 5)
    monkeypatch.setattr("jqd.tenants.tokens.BELOW_MAX", 2)
    ann = await make(edge, "operator")
    weak, other = [await derive(edge, ann["token"], role=role) for role in ("push", "viewer")]
    below = await derive(edge, weak["token"])
    await derive(edge, below["token"])
    for token in (weak, below):
        told = await ask(edge, token["token"])
        assert (told.status, weak["token_id"] in told.body["detail"]) == (409, True)
    await derive(edge, other["token"])
    for _ in range(3):
        await derive(edge, ann["token"])


async def test_pushers_that_derive_take_their_master_no_room_and_nobody_the_first(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jqd.tenants.tokens.DERIVED", DERIVED._replace(most=40))
    boss = await make(edge, "master", tenant="acme")
    pusher, ann = [await make(edge, role, by=boss["token"]) for role in ("push", "operator")]
    for _ in range(4):
        await derive(edge, pusher["token"])
    assert (await ask(edge, pusher["token"])).status == 409
    first = await derive(edge, ann["token"], note="ui")
    assert (await ask(edge, ann["token"], note="ui")).status == 409
    await derive(edge, ann["token"], note="ui", replace_oldest=True)
    assert await status(edge, first["token"]) == 401
    for _ in range(4):
        await make(edge, "viewer", by=boss["token"])
    await call(edge, boss["token"], "DELETE", f"/v1/tokens/{pusher['token_id']}")
    assert (await ask(edge, ann["token"])).status == 201


async def test_the_daemons_own_token_derives_and_a_key_of_the_configuration_only_if_it_makes_any(edge: Whole) -> None:
    made = await derive(edge, ROOT, ttl=TTL_S_MAX)
    assert (made["role"], made["derived_from"], made["made_by"]) == ("master", None, "root")
    parts = edge.api._parts
    keys = type(parts.auth.keys)("the-master-key", "the-client-key")
    parts.auth = parts.auth._replace(keys=keys)
    assert (await ask(edge, "the-master-key")).status == 201
    told = await ask(edge, "the-client-key")
    assert (told.status, "outlive" in told.body["detail"]) == (403, True)


async def test_a_wrong_wish_is_refused_with_its_field(edge: Whole) -> None:
    token = (await make(edge, "operator"))["token"]
    for said, field in (
        ({"ttl": TTL_S_MAX + 1}, "/ttl"),
        ({"ttl": 0}, "/ttl"),
        ({"role": "king"}, "/role"),
        ({"scopes": ["mail"]}, "/scopes"),
        ({"role": "push", "scopes": []}, "/scopes"),
        ({"note": "\n"}, "/note"),
        ({"tenant": "acme"}, "/tenant"),
    ):
        told = await ask(edge, token, **said)
        assert (told.status, told.body["errors"][0]["pointer"]) == (422, field), told.body


async def test_where_nobody_is_asked_for_a_token_there_is_none_to_derive_from(edge: Whole) -> None:
    edge.api._parts.auth = edge.api._parts.auth._replace(required=False)
    me = (await call(edge, "", "GET", "/v1/me")).body
    assert (me["tokens_required"], me["token_id"], me["role"]) == (False, None, "master")
    assert (await ask(edge, "")).status == 409
    token = (await make(edge, "viewer"))["token"]
    assert (await derive(edge, token))["role"] == "viewer"
