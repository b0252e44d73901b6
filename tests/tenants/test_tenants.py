"""Tenants at the edge: each has its own jobs, ids, jobtypes, handlers, schedules, pauses and workers, and no others."""

from typing import Any

import pytest
import trio

from jqd.cron import service as schedules
from jqd.domain.job import Wanted
from jqd.domain.jobid import parse_id
from jqd.domain.shares import Share
from jqd.domain.tenant import annotate, any_of
from jqd.rate_limits import service as constraints
from jqd.routes import ROUTES
from jqd.runner import Running, registry
from jqd.service import handlers, pauses, settings
from jqd.store import Owner
from jqd.tenants import tokens
from jqd.testing.store import FakeStore
from tests.api.edge import JSON, Answer
from tests.api.whole import Whole

ACME, OTHER = {"jqd-tenant": "acme"}, {"jqd-tenant": "other"}


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


async def call(edge: Whole, method: str, path: str, body: Any = None, **as_: Any) -> Answer:
    return await edge.call(method, path, body, accept=JSON, **as_)


async def push(edge: Whole, headers: Any, **fields: Any) -> str:
    told = await call(edge, "POST", "/v1/jobs", {"name": "mail", **fields}, headers=headers)
    assert told.status == 201, told.body
    await edge.apply()
    return str(told.body["job_id"])


async def names_of(edge: Whole, headers: Any = None, query: str = "") -> list[tuple[str, str]]:
    told = await call(edge, "GET", f"/v1/jobs{query}", headers=headers)
    return sorted((row["name"], row.get("tenant", "")) for row in told.body["jobs"])


async def test_a_job_has_its_tenant_and_its_plain_name(edge):
    job_id = await push(edge, ACME, argument=[1], tags=["a"])
    shown = (await call(edge, "GET", f"/v1/jobs/{job_id}", headers=ACME)).body
    assert (shown["name"], shown["tenant"], shown["argument"]) == ("mail", "acme", [1])
    ours = await push(edge, None)
    assert "tenant" not in (await call(edge, "GET", f"/v1/jobs/{ours}")).body
    assert await names_of(edge) == [("mail", ""), ("mail", "acme")], "who speaks for nobody sees all"
    assert await names_of(edge, ACME, "?name=mail") == [("mail", "acme")]
    assert await names_of(edge, {"jqd-tenant": ""}) == [("mail", "")]
    for everybody in (None, {"jqd-tenant": "*"}):
        assert await names_of(edge, everybody, "?name=mail") == [("mail", ""), ("mail", "acme")]
    assert await names_of(edge, {"jqd-tenant": ""}, "?name=mail") == [("mail", "")]
    assert await names_of(edge, OTHER, "?name=mail") == []


async def test_an_id_that_a_pusher_chose_is_his_tenants(edge):
    for headers, argument in ((ACME, "a"), (OTHER, "b"), (None, "c")):
        assert await push(edge, headers, job_id="order-7", argument=argument) == "order-7"
    for headers, argument in ((ACME, "a"), (OTHER, "b"), (None, "c")):
        shown = (await call(edge, "GET", "/v1/jobs/order-7", headers=headers)).body
        assert (shown["job_id"], shown["argument"]) == ("order-7", argument)
    again = await call(edge, "POST", "/v1/jobs", {"name": "mail", "job_id": "order-7", "argument": "a"}, headers=ACME)
    assert (again.status, again.body["duplicate"]) == (200, True)
    edited = await call(edge, "PATCH", "/v1/jobs/order-7", {"priority": 3}, headers=ACME)
    assert (edited.status, edited.body["name"], edited.body["tenant"]) == (200, "mail", "acme"), edited.body
    priorities = [
        (await call(edge, "GET", "/v1/jobs/order-7", headers=headers)).body["priority"]
        for headers in (ACME, OTHER, None)
    ]
    assert priorities == [3, 0, 0]


@pytest.mark.parametrize("headers", [ACME, None])
async def test_no_answer_tells_a_name_as_jqd_knows_it(edge, headers):
    """That is what `edge.call` looks for, in every answer of every test."""
    worker = {"name": "w", "url": "http://127.0.0.1:9/", "max_jobs": 1, "jobs": [{"name": "mail", "timeout": 9}]}
    worker_id = (await call(edge, "POST", "/v1/workers", worker, headers=ACME)).body["worker_id"]
    await call(edge, "PUT", "/v1/handlers/bill", {"lang": "http", "body": "http://127.0.0.1:9/"}, headers=ACME)
    await call(edge, "PUT", "/v1/constraints/slow", {"match": "mail", "concurrency": 1}, headers=ACME)
    await call(edge, "PUT", "/v1/schedules/nightly", {"every": 60, "job": {"name": "mail"}}, headers=ACME)
    await call(edge, "POST", "/v1/types/pause", {"name": "halted"}, headers=ACME)
    ids = [await push(edge, ACME, name=name, job_id=f"x-{name}") for name in ("mail", "mail@3", "bill", "halted")]
    (here,) = await edge.claim(annotate("acme", "mail"))
    (pulled,) = await edge.claim(annotate("acme", "bill"))
    edge.runner.at_work[here.job.id] = Running(annotate("acme", worker_id), 1)
    await edge.hand(pulled, annotate("acme", worker_id))
    besides = ("/v1/events", "/", "/job/polling")
    paths = [route.path for route in ROUTES if "<" not in route.path and route.path not in besides]
    for path in [*paths, *(f"/v1/jobs/{each}{more}" for each in ids for more in ("", "/why"))]:
        await edge.call("GET", path, headers=headers or {})
    told = (await call(edge, "GET", f"/v1/jobs/{here.job.id}/why", headers=headers)).body
    assert (told["reason"], told["by"], f"at worker {worker_id}" in told["text"]) == ("running", worker_id, True)


async def claim(store: FakeStore, owner: Owner, wanted: Wanted) -> list[str]:
    found = []
    for row in await store.get_waiting_jobtypes([wanted], 9):
        held = await store.get_waiting_jobs(owner, row.jobtype, 9, priority_min=-9, priority_max=9, bytes_max=9_999)
        found += [one.job.jobtype for one in held]
    return found


async def test_what_takes_any_type_gets_those_of_its_tenant(edge):
    for headers in (ACME, OTHER, None):
        await push(edge, headers)
        await push(edge, headers, name="bill", priority=-1)
    assert edge.owner is not None
    besides = frozenset({annotate("acme", "bill")})
    assert await claim(edge.whole, edge.owner, Wanted(None, besides=besides, tenant="acme")) == [
        annotate("acme", "mail")
    ]
    assert await claim(edge.whole, edge.owner, Wanted(None, tenant="acme")) == [annotate("acme", "bill")]
    assert sorted(await claim(edge.whole, edge.owner, Wanted(None))) == ["bill", "mail"]
    assert sorted(await claim(edge.whole, edge.owner, Wanted(None, besides=frozenset({"x"})))) == []
    assert await claim(edge.whole, edge.owner, Wanted(annotate("other", "mail"))) == [annotate("other", "mail")]


async def test_what_others_have_hides_nothing(edge):
    """A thousand jobs with priorities of their own, all better: whoever takes any type would walk over all of them."""
    for at in range(0, 1_500, 500):
        jobs = [{"name": "flood", "priority": -1 - n} for n in range(at, at + 500)]
        assert (await call(edge, "POST", "/v1/jobs", jobs, headers=OTHER)).status == 201
        await edge.apply()
    for headers in (ACME, None):
        await push(edge, headers)
    assert edge.owner is not None
    assert await claim(edge.whole, edge.owner, Wanted(None, tenant="acme")) == [annotate("acme", "mail")]
    assert await claim(edge.whole, edge.owner, Wanted(None)) == ["mail"]


async def test_a_worker_is_its_tenants_and_so_is_its_id(edge):
    card = {"name": "w", "url": "http://127.0.0.1:9/", "jobs": "*", "max_jobs": 1}
    ids = [(await call(edge, "POST", "/v1/workers", card, headers=who)).body["worker_id"] for who in (ACME, OTHER)]
    named = {**card, "jobs": ["mail"], "worker_id": "w1"}
    for who in (ACME, None):
        assert (await call(edge, "POST", "/v1/workers", named, headers=who)).body["worker_id"] == "w1"
    everybody = sorted(edge.workers.list(), key=lambda one: (one.name, one.url is None, one.jobs))
    assert [(one.tenant, one.jobs) for one in everybody] == [
        ("acme", (any_of("acme"),)),
        ("acme", (annotate("acme", "mail"),)),
        ("", ("mail",)),
        ("other", (any_of("other"),)),
    ]
    assert [one.takes(annotate("acme", "mail"), 0) for one in everybody] == [True, True, False, False]
    assert [one.takes("mail", 0) for one in everybody] == [False, False, True, False]
    rows = (await call(edge, "GET", "/v1/workers", headers=ACME)).body["workers"]
    found = sorted((row["worker_id"], row["jobs"], row["tenant"]) for row in rows)
    assert found == sorted([(ids[0], "*", "acme"), ("w1", ["mail"], "acme")])
    assert (await call(edge, "DELETE", "/v1/workers/w1", headers=OTHER)).status == 404
    assert (await call(edge, "DELETE", "/v1/workers/w1", headers=ACME)).status == 204
    assert [one.id for one in edge.workers.list() if not one.tenant] == ["w1"]


async def test_no_name_from_outside_is_another_tenants(edge):
    for path, body in (
        ("/v1/jobs", {"name": annotate("acme", "mail")}),
        ("/v1/jobs", {"name": "mail", "job_id": annotate("acme", "order-7")}),
        ("/v1/workers", {"name": "w", "jobs": [annotate("acme", "mail")], "max_jobs": 1}),
        ("/v1/workers", {"name": "w", "jobs": ["a"], "max_jobs": 1, "worker_id": annotate("acme", "w")}),
        ("/v1/types/acme%1Fmail/pause", None),
        ("/v1/leases", {"worker_id": annotate("acme", "w"), "max_jobs": 1}),
        ("/v1/jobs/cancel", {"name": annotate("acme", "mail")}),
        ("/v1/jobs/acme%1Fa/run-now", None),
    ):
        assert (await call(edge, "POST", path, body)).status == 422, path
    for what, body in (("schedules", {"every": 60, "job": {"name": "a"}}), ("handlers", {"lang": "http", "body": "x"})):
        assert (await call(edge, "PUT", f"/v1/{what}/acme%1Fa", body)).status == 422
    for path in (
        "schedules/acme%1Fa",
        "constraints/acme%1fa",
        "handlers/acme%1Fa",
        "jobs/acme%1Fa",
        "jobs/acme%1Fa/why",
    ):
        assert (await call(edge, "GET", f"/v1/{path}")).status == 422, path
    for path in ("jobs", "errors", "events"):
        assert (await call(edge, "GET", f"/v1/{path}?limit=1&name=acme%1fmail")).status == 422, path
    assert (await call(edge, "DELETE", "/v1/workers/acme%1Fw")).status == 422
    assert (await call(edge, "DELETE", "/worker", headers={"worker-id": annotate("acme", "w")})).status == 404
    assert (await call(edge, "GET", "/job/acme%1Fa")).status == 404
    assert (await call(edge, "GET", "/job/nobody/polling?odd=%1F&timeout=0")).status == 404, (
        "what it does not know it passes over"
    )
    for name in ("ACME", "a/b", "-a", "a" * 33):
        told = await call(edge, "GET", "/v1/jobs", headers={"jqd-tenant": name})
        assert told.status == 422, name


async def test_of_an_id_on_its_way_a_stranger_learns_nothing_and_does_nothing(edge, autojump_clock):
    edge.cancels_first = True  # the lanes of jobs stand still
    told = await call(edge, "POST", "/v1/jobs", {"name": "mail"}, headers=ACME)
    job_id = told.body["job_id"]
    assert parse_id(job_id) is not None
    assert (await call(edge, "GET", f"/v1/jobs/{job_id}", headers=ACME)).body["state"] == "waiting"
    asked_s = trio.current_time()
    for method in ("GET", "DELETE"):
        assert (await call(edge, method, f"/v1/jobs/{job_id}", headers=OTHER)).status == 404
    assert trio.current_time() == asked_s, "nor by how long that takes, when others push"
    edge.cancels_first = False
    await edge.apply()
    assert (await call(edge, "GET", f"/v1/jobs/{job_id}", headers=ACME)).body["state"] == "waiting", "nobody cancelled"
    assert (await call(edge, "GET", f"/v1/jobs/{job_id}", headers=OTHER)).status == 404


CARD = {"url": "http://127.0.0.1:9/", "max_jobs": 1}
OF_EACH = [
    (handlers, "HANDLERS", 1, ("PUT", "/v1/handlers/{}", {"lang": "http", "body": "http://127.0.0.1:9/"})),
    (schedules, "SCHEDULES", 1, ("PUT", "/v1/schedules/{}", {"every": 60, "job": {"name": "a"}})),
    (constraints, "CONSTRAINTS", 1, ("PUT", "/v1/constraints/{}", {"match": "true", "concurrency": 1})),
    (pauses, "PAUSED", 1, ("POST", "/v1/types/{}/pause", None)),
    (tokens, "TOKENS", 1, ("POST", "/v1/tokens", {"role": "push", "note": "{}"})),
    (registry, "WORKERS", 1, ("POST", "/v1/workers", {**CARD, "name": "{}", "jobs": "*"})),
    (registry, "NAMES", 2, ("POST", "/v1/workers", {**CARD, "name": "{}", "jobs": ["{}1", "{}2"]})),
]


def called(text: Any, name: str) -> Any:
    """With its name in the place of the brackets."""
    if isinstance(text, dict):
        return {key: called(value, name) for key, value in text.items()}
    if isinstance(text, list):
        return [called(value, name) for value in text]
    return text.replace("{}", name) if isinstance(text, str) else text


@pytest.mark.parametrize(("room", "name", "size", "say"), OF_EACH, ids=lambda row: row if isinstance(row, str) else "")
async def test_no_tenant_uses_up_what_all_share_and_who_runs_jqd_can_act(edge, monkeypatch, room, name, size, say):
    monkeypatch.setattr(room, name, Share("things", 30 * size))
    method, path, body = say
    number = 0

    async def one(tenant: str) -> tuple[int, str]:
        nonlocal number
        number += 1
        given = called(body, f"n{number}")
        told = await call(edge, method, called(path, f"n{number}"), given, headers={"jqd-tenant": tenant})
        return told.status, told.body.get("detail", "")

    own = [await one("acme") for _ in range(4)]
    assert [status in (200, 201) for status, _ in own] == [True] * 3 + [False]
    assert f"a tenant may have {3 * size} things, and 'acme' has {3 * size}" in own[-1][1]
    others = [await one(f"t{number}") for number in range(8) for _ in range(3)]
    assert {status for status, _ in others} <= {200, 201}
    status, detail = await one("t9")
    assert (status in (409, 422), f"all tenants together may have {27 * size} things" in detail) == (True, True)
    ours = [await one("") for _ in range(4)]
    assert [status in (200, 201) for status, _ in ours] == [True] * 3 + [False]
    assert f"there may be {30 * size} things, and no more" in ours[-1][1]


async def test_no_tenant_fills_what_all_rules_may_take_and_it_deletes_what_it_has(edge, monkeypatch):
    for name, most in (("TENANT_BYTES_MAX", 3_000), ("TENANTS_BYTES_MAX", 3_500)):
        monkeypatch.setattr(settings, name, most)

    async def fill(tenant: str) -> tuple[int, str]:
        for number in range(20):
            path = f"/v1/schedules/s{number}"
            body = {"every": 60, "job": {"name": "a", "argument": "x" * 200}}
            told = await call(edge, "PUT", path, body, headers={"jqd-tenant": tenant})
            if told.status != 201:
                return number, told.body["detail"]
        return 20, ""

    sizes = edge.workers.settings.sizes
    taken, why = await fill("acme")
    assert (taken > 3, sizes["acme"] <= 3_000, "those of tenant 'acme' together may take" in why) == (True, True, True)
    for number in range(taken):
        assert (await call(edge, "DELETE", f"/v1/schedules/s{number}", headers=ACME)).status == 204
    taken, why = await fill("other")
    assert (taken > 3, 'those of all tenants but "" together may take' in why) == (True, True)
    assert sizes["acme"] + sizes["other"] <= 3_500
    assert await fill("") == (20, "")
    assert sizes.total() == sum(setting.size_bytes for setting in edge.workers.settings.every())


async def test_who_runs_jqd_sees_what_all_tenants_have_and_a_tenant_its_own(edge):
    said = [(method, called(path, "mine"), called(body, "mine")) for *_, (method, path, body) in OF_EACH[:6]]
    for tenant in ("acme", "other", ""):
        for method, path, body in said:
            told = await call(edge, method, path, body, headers={"jqd-tenant": tenant})
            assert told.status in (200, 201), told.body

    async def tenants(what: str, tenant: str | None) -> list[str]:
        headers = None if tenant is None else {"jqd-tenant": tenant}
        rows = (await call(edge, "GET", f"/v1/{what}", headers=headers)).body[what]
        return sorted(row.get("tenant") or "" for row in rows)

    for what in ("handlers", "schedules", "constraints", "types", "tokens"):
        for everybody in (None, "*"):
            assert await tenants(what, everybody) == ["", "acme", "other"], what
        assert [await tenants(what, tenant) for tenant in ("acme", "")] == [["acme"], [""]], what
    for method, path in (("POST", "/v1/types/pause"), ("POST", "/v1/jobs"), ("PUT", "/v1/constraints/mine")):
        told = await call(edge, method, path, {"name": "a"}, headers={"jqd-tenant": "*"})
        assert (told.status, told.body["detail"][-12:]) == (422, "ant: name it"), "it would be of the tenant '' alone"
    assert await tenants("workers", "*") == ["", "", "acme", "acme", "other", "other"], "a version of a handler is one"
    boss = (await call(edge, "POST", "/v1/tokens", {"role": "master"}, headers=ACME)).body["token"]
    told = await call(edge, "GET", "/v1/types", headers={"authorization": f"Bearer {boss}", "jqd-tenant": "*"})
    assert told.status == 403
