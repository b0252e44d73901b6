"""Tokens at the edge: who comes in, what for, and who does not any more."""

from typing import Any

import trio
from msgspec import structs
from trio.testing import wait_all_tasks_blocked

from jqd.api.compat.skygear import SkyRefusal
from jqd.domain.jobid import IdSource
from jqd.domain.tokens import MAY, OVER_S, Role
from jqd.http import Request, RequestHead, Urgency
from jqd.loops.settings import carried, find_unneeded
from jqd.routes import ROUTES
from tests.api.tokened import ROOT, call, make
from tests.api.tokened import edge as edge  # the fixture


async def test_every_call_is_for_somebody_and_each_role_gets_its_own_and_no_others(edge):
    tokens = {role: (await make(edge, role))["token"] for role in Role}
    for route in ROUTES:
        path = route.path.replace("<job_id>", "01ARZ3NDEKTSV4RRFFQ69G5FAV").replace("<name>", "x")
        path = path.replace("<worker_id>", "x").replace("<token_id>", "x").replace("/polling", "/polling?timeout=0")
        refused = (400, 401, 403)  # as the words of its surface have it
        nobody = (await call(edge, "", route.method, path, b"\xc1", **{"content-type": "text/csv"})).status
        assert (nobody in refused) == (bool(route.needs) or route.refusal is SkyRefusal), route
        assert nobody == 401 or not route.path.startswith("/v1/")
        for role in Role:
            denied = bool(route.needs) and not MAY[role] & set(route.needs)
            if route.path == "/v1/events" and not denied:
                continue  # it does not end
            status = (await call(edge, tokens[role], route.method, path, None)).status
            if route.path.startswith("/v1/"):
                assert (status == 403) == denied, (role, route)
            else:
                assert not denied or status in refused, (role, route)
            assert status != 401


async def test_a_token_is_told_once_and_its_secret_is_kept_nowhere(edge):
    made = await make(edge, "push", note="billing", tenant="acme", scopes=["mail", "bill.*"], expires_in=60)
    secret = made["token"].split("_", 2)[2]  # which may have a _ itself
    (row,) = (await call(edge, ROOT, "GET", "/v1/tokens")).body["tokens"]
    assert row == {name: value for name, value in made.items() if name != "token"}
    assert (row["role"], row["tenant"], row["made_by"]) == ("push", "acme", "root")
    kept = b"".join(body for _, _, body in edge.journal.frames)
    assert secret.encode() not in kept
    assert secret not in repr([*edge.workers.settings.every(), *edge.api._parts.services.tokens])
    edge.clock.advance(61)
    assert (await call(edge, made["token"], "GET", "/v1/jobs/x")).status == 401
    assert (await call(edge, ROOT, "GET", "/v1/tokens")).body["tokens"] == []


async def test_who_is_nobody_is_told_nothing_and_his_body_is_not_read(edge):
    made = await make(edge, "push")
    good = made["token"]
    head, secret = good[:-43], good[-43:]
    wrong = ["x", f"{head}{secret[:-1]}{'A' if secret[-1] != 'A' else 'B'}", head, good.upper(), f"{good}x", ""]
    told = [await call(edge, text, "POST", "/v1/jobs", b"not read", **{"content-length": "8"}) for text in wrong]
    assert {one.status for one in told} == {401}
    assert {one.headers["www-authenticate"] for one in told} == {'Bearer realm="jqd"'}
    assert len({one.raw for one in told[:-1]}) == 1, "all are answered alike"
    for said in ("Basic eDp5", "Bearer", good, "Bearer a b"):
        assert (await edge.call("GET", "/v1/types", headers={"authorization": said})).status == 401
    assert (await edge.call("GET", "/v1/jobs/x", headers={"authorization": f"bearer  {good} "})).status == 404
    ready = (await call(edge, "", "GET", "/readyz")).body
    assert ready["warnings"] == []


async def test_why_a_daemon_is_not_ready_is_for_those_who_see_all(edge):
    where = "the store does not answer: Error 111 connecting to 10.0.0.5:6379. Connection refused."
    edge.control.not_running, edge.control.not_pushing = where, "/var/lib/jqd: no space left"
    for path in ("/readyz", "/readyz/push", "/readyz/run"):
        told = await call(edge, "", "GET", path)
        assert (told.status, "10.0.0.5" in told.raw.decode(), "/var/lib" in told.raw.decode()) == (503, False, False)
    assert (await call(edge, ROOT, "GET", "/readyz")).body["run"]["reason"] == where


async def test_a_revoked_token_lets_nobody_in_from_that_moment_on_and_never_again(edge):
    made = await make(edge, "push")
    assert (await call(edge, made["token"], "GET", "/v1/jobs/x")).status == 404
    (setting,) = edge.workers.settings.all("token")
    for _ in range(2):
        told = await call(edge, ROOT, "DELETE", f"/v1/tokens/{made['token_id']}")
        assert (told.status, told.body) == (200, {"token_id": made["token_id"], "urls": []})
    assert (await call(edge, made["token"], "GET", "/v1/jobs/x")).status == 401
    edge.workers.settings.take([setting, structs.replace(setting, at_ms=setting.at_ms + 10**12)])
    assert (await call(edge, made["token"], "GET", "/v1/jobs/x")).status == 401, "an older rule brings it back"
    assert (await call(edge, ROOT, "DELETE", "/v1/tokens/0123456789abcdef")).status == 404


async def test_no_tenant_fills_what_all_rules_may_take_with_tokens_that_are_over(edge, monkeypatch):
    monkeypatch.setattr("jqd.tenants.tokens.KEPT_BYTES_MAX", 50_000)
    boss = (await make(edge, "master", tenant="acme"))["token"]
    wish = {"role": "push", "scopes": ["x" * 100] * 20, "expires_in": 0.001}
    made = [await call(edge, boss, "POST", "/v1/tokens", wish) for _ in range(4)]
    assert [told.status for told in made] == [201, 201, 409, 409]
    assert "tenant 'acme'" in made[-1].body["detail"]
    await make(edge, "push", tenant="other")
    settings = edge.workers.settings
    gone = {told.body["token_id"] for told in made[:2]}
    assert await find_unneeded(settings, edge.workers, edge.clock.wall_ms()) == []
    edge.clock.advance(OVER_S + 1)
    frame = [setting for setting in settings.every() if setting.name in gone]
    assert await find_unneeded(settings, edge.workers, edge.clock.wall_ms()) == frame
    assert carried(settings, frame, edge.clock.wall_ms()) == []
    for setting in frame:
        settings.forget(setting)
    assert (await call(edge, boss, "POST", "/v1/tokens", wish)).status == 201


async def test_no_masters_that_make_tokens_without_an_end_end_those_of_other_tenants(edge, monkeypatch):
    monkeypatch.setattr("jqd.tenants.tokens.KEPT_BYTES_MAX", 30_000)
    monkeypatch.setattr("jqd.tenants.tokens.SURE_BYTES", 1_000)
    large = {"role": "push", "scopes": ["x" * 100] * 20}

    async def tell(boss, wish):
        return await call(edge, boss, "POST", "/v1/tokens", wish)

    bosses = [(await make(edge, "master", tenant=f"t{number}"))["token"] for number in range(9)]
    told = [[(await tell(boss, large)).status for _ in range(2)] for boss in bosses]
    assert (told[0], told[-1]) == ([201, 201], [201, 409]), "all of them leave a tenth free"
    assert "all tenants but" in (await tell(bosses[-1], large)).body["detail"]
    assert "tenant 't0'" in (await tell(bosses[0], large)).body["detail"], "and each has a tenth"
    for tenant in ("t0", "new"):
        boss = (await make(edge, "master", tenant=tenant))["token"]  # who runs jqd always makes some
    assert (await tell(boss, {"role": "push"})).status == 201, "and so does who has nearly none"


async def test_what_a_revoked_token_was_for_is_not_kept(edge):
    made = await make(edge, "push", scopes=["mail"], note="billing")
    await call(edge, ROOT, "DELETE", f"/v1/tokens/{made['token_id']}")
    (setting,) = edge.workers.settings.all("token")
    assert b"mail" not in bytes(setting.body)
    assert b"billing" not in bytes(setting.body)


async def test_a_tenants_master_makes_and_sees_tokens_of_his_tenant_alone(edge):
    boss = (await make(edge, "master", tenant="acme"))["token"]
    other = await make(edge, "push", tenant="other")
    mine = await make(edge, "worker", by=boss)
    assert mine["tenant"] == "acme"
    assert (await call(edge, boss, "POST", "/v1/tokens", {"role": "push", "tenant": "other"})).status == 403
    rows = (await call(edge, boss, "GET", "/v1/tokens")).body["tokens"]
    assert {row["tenant"] for row in rows} == {"acme"}
    for token_id in (other["token_id"], "0123456789abcdef"):
        told = await call(edge, boss, "DELETE", f"/v1/tokens/{token_id}")
        assert (told.status, told.body["detail"]) == (404, f"there is no token {token_id!r}")
    assert (await call(edge, boss, "GET", "/v1/jobs", **{"jqd-tenant": "other"})).status == 403
    assert (await call(edge, boss, "GET", "/v1/jobs", **{"jqd-tenant": "acme"})).status == 200
    assert (await call(edge, ROOT, "GET", "/v1/jobs", **{"jqd-tenant": "other"})).status == 200


async def test_a_wrong_wish_is_refused_with_its_field(edge):
    for said, field in (
        ({"role": "king"}, "/role"),
        ({"role": "push", "tenant": "A B"}, "/tenant"),
        ({"role": "push", "tenant": "acme\n"}, "/tenant"),
        ({"role": "push", "scopes": []}, "/scopes"),
        ({"role": "push", "scopes": ["a\x1fb"]}, "/scopes"),
        ({"role": "push", "note": "\n"}, "/note"),
        ({"role": "push", "expires_in": 0}, "/expires_in"),
        ({"role": "push", "for": "me"}, "/for"),
    ):
        told = await call(edge, ROOT, "POST", "/v1/tokens", said)
        assert (told.status, told.body["errors"][0]["pointer"]) == (422, field), told.body
    told = await call(edge, ROOT, "POST", "/v1/tokens", {"role": "push", "note": "x" * 5_000})
    assert "note must be text of up to 200 characters, not 5003 bytes" in told.body["detail"]


async def test_a_token_of_no_tenant_may_be_asked_for_in_so_many_words(edge):
    assert (await make(edge, "push", tenant=""))["tenant"] == ""
    told = await call(edge, ROOT, "POST", "/v1/tokens", {"role": "viewer", "scopes": ["mail"]})
    assert (
        told.body["detail"] == "scopes bound the roles push and worker only: a viewer sees all jobtypes; leave them out"
    )


async def test_on_loopback_nobody_needs_a_token_and_who_has_one_is_its_own(edge):
    token = (await make(edge, "push", tenant="acme"))["token"]
    edge.api._parts.auth = edge.api._parts.auth._replace(required=False)
    assert (await call(edge, "", "GET", "/v1/types")).status == 200
    assert (await call(edge, token, "GET", "/v1/types")).status == 403
    assert (await call(edge, token[:-1] + "!", "GET", "/v1/types")).status == 401, "a slip is told, not passed over"
    assert (await call(edge, token[:-1] + "!", "GET", "/livez")).status == 200


async def test_a_tenant_has_its_own_turns_at_the_door_wherever_it_comes_from(edge):
    token = (await make(edge, Role.PUSH, tenant="acme"))["token"]
    plain = (await make(edge, Role.PUSH))["token"]

    def whose(said: str | None, peer: str = "192.0.2.1") -> str:
        headers = {} if said is None else {"authorization": said}
        asked = Request(RequestHead("POST", "/v1/jobs", "/v1/jobs", b"", headers), peer)
        return str(edge.api.whose(asked))

    assert {whose(f"Bearer {token}", peer) for peer in ("192.0.2.1", "2001:db8::1")} == {"tenant acme"}
    for said in (None, f"Bearer {plain}", f"Bearer {token}x", f"Bearer {ROOT}", "Basic \xff", "Bearer jqd_\xff_\xff"):
        assert whose(said) == "192.0.2.1", "who shows none of a tenant has those of his address"


async def test_what_workers_say_waits_behind_no_pushes(edge):
    """Late, it loses them the jobs that they have."""

    def urgency(method: str, path: str) -> Urgency:
        asked = Request(RequestHead(method, path, path, b"", {}))
        return Urgency(edge.api.urgent(asked))

    for route in ROUTES:
        if route.needs == (Role.WORKER,):
            path = route.path.replace("<job_id>", "1").replace("<worker_id>", "1")
            assert route.method == "DELETE" or urgency(route.method, path), path
    assert urgency("GET", "/readyz/run")
    assert urgency("HEAD", "/readyz/run")
    for method, path, how in (
        ("POST", "/v1/jobs", 0),
        ("POST", "/v1/jobs/1/heartbeat", 1),
        ("POST", "/v1/leases", 1),
        ("POST", "/v1/workers", 1),
        ("GET", "/v1/workers", 0),
        ("POST", "/v1/outcomes", 2),
        ("POST", "/done", 2),
        ("GET", "/v1/handlers/heartbeat", 0),  # a handler is called so
        ("POST", "/nothing/heartbeat", 0),
    ):
        assert urgency(method, path) == how, path


async def test_who_waits_when_his_token_is_revoked_waits_no_longer(edge, autojump_clock):
    """A worker that asks for jobs would be given one a minute later."""
    token = await make(edge, "worker")
    card = {"name": "w", "jobs": ["mail"], "max_jobs": 1, "worker_id": "w1"}
    assert (await call(edge, token["token"], "POST", "/v1/workers", card)).status == 201
    job_id = (await call(edge, token["token"], "POST", "/v1/jobs", {"name": "other"})).body["job_id"]
    await edge.apply()
    told = []

    async def wait(method: str, path: str, body: Any = None) -> None:
        told.append((await call(edge, token["token"], method, path, body)).status)

    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "POST", "/v1/leases", {"worker_id": "w1", "max_jobs": 1, "wait": 50})
        nursery.start_soon(wait, "GET", f"/v1/jobs/{job_id}?wait=50")
        await trio.sleep(10)
        assert (await call(edge, ROOT, "DELETE", f"/v1/tokens/{token['token_id']}")).status == 200
    assert told == [401, 401]
    assert trio.current_time() - began_s < 10 + 5


async def test_a_report_of_many_jobs_is_answered_as_soon_as_one_of_one(edge, autojump_clock):
    """While daemons tell the store what it forgot, each of these ids may be on its way."""
    worker = (await make(edge, "worker", tenant="acme"))["token"]
    source = IdSource(journal=12345, salt=7, clock=edge.clock)
    told = [{"job_id": source.take(1).first, "lease_id": "5", "type": "success"} for _ in range(64)]
    edge.control.settled = lambda where: False
    began_s = trio.current_time()
    answer = await call(edge, worker, "POST", "/v1/outcomes", told)
    assert answer.status == 503
    assert trio.current_time() - began_s < 2 * edge.api._parts.services.config.find_s


async def test_each_token_reads_the_quota_of_its_own_tenant_and_what_waits_for_it(edge):
    for tenant in ("acme", "other"):
        assert (await call(edge, ROOT, "PUT", f"/v1/quotas/{tenant}", {"queued": 5})).status == 200
        edge.control.shelves[tenant] = 3
    for role in Role:
        token = (await make(edge, role, tenant="acme"))["token"]
        listed = await call(edge, token, "GET", "/v1/quotas")
        assert [(row["tenant"], row["queued"], row["put_off"]) for row in listed.body["quotas"]] == [("acme", 5, 3)]
        assert (await call(edge, token, "GET", "/v1/quotas/acme")).body == listed.body["quotas"][0]
        there, none = [await call(edge, token, "GET", f"/v1/quotas/{name}") for name in ("other", "ether")]
        assert (there.status, there.body["detail"]) == (404, none.body["detail"].replace("ether", "other"))
        for method in ("PUT", "DELETE"):
            assert (await call(edge, token, method, "/v1/quotas/acme", {"queued": 9})).status == 403
        assert (await call(edge, token, "GET", "/readyz")).body["warnings"] == ["what follows 3 jobs of acme waits"]
        ours = (await make(edge, role))["token"]
        every = (await call(edge, ours, "GET", "/v1/quotas")).body["quotas"]
        assert len(every) == (2 if Role.VIEWER in MAY[role] else 0), "who pushes for no tenant has no quota"
    named = await call(edge, ROOT, "GET", "/v1/quotas", **{"jqd-tenant": "acme"})
    assert [row["tenant"] for row in named.body["quotas"]] == ["acme"]
    assert (await call(edge, "", "GET", "/readyz")).body["warnings"] == []


async def test_one_list_of_a_tenant_at_most_stands_in_the_line_of_the_store(edge):
    asking, most = 0, 0
    list_jobs = edge.store.list_jobs

    async def counted(*args: Any, **more: Any) -> Any:
        nonlocal asking, most
        asking += 1
        most = max(most, asking)
        await wait_all_tasks_blocked()
        asking -= 1
        return await list_jobs(*args, **more)

    edge.store.list_jobs = counted
    tokens = [(await make(edge, "viewer", tenant=tenant))["token"] for tenant in ("acme", "other")]
    async with trio.open_nursery() as nursery:
        for token in tokens * 4:
            nursery.start_soon(call, edge, token, "GET", "/v1/jobs")
    assert most == len(tokens)
