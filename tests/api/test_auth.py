"""Another tenant's is as if it were not: every call that names something, once with what there is.

The same status, the same words, the same calls of the store; and nothing of it is touched.
"""

from typing import Any, NamedTuple

import pytest

from jqd.domain.settings import Setting
from jqd.domain.tenant import tenant_of
from tests.api.edge import JSON
from tests.api.whole import Whole

ACME, OTHER = {"jqd-tenant": "acme"}, {"jqd-tenant": "other"}
HOOK = {"lang": "http", "body": "http://127.0.0.1:9/"}
PLAN = {"every": 60, "job": {"name": "mail"}}
CARD = {"name": "w", "jobs": ["mail"], "max_jobs": 9, "ttl": 60}

EACH = {"workers": 2}  # a version of a handler is one, too


class Call(NamedTuple):
    method: str
    path: str
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()


ONE_JOB = [
    Call("GET", "/v1/jobs/{it}"),
    Call("GET", "/v1/jobs/{it}/result?consume=1"),
    Call("GET", "/v1/jobs/{it}/why"),
    Call("DELETE", "/v1/jobs/{it}"),
    Call("DELETE", "/v1/jobs/{it}?purge=1"),
    Call("PATCH", "/v1/jobs/{it}", {"priority": 1}),
    Call("POST", "/v1/jobs/{it}/retry"),
    Call("POST", "/v1/jobs/{it}/run-now"),
    Call("POST", "/v1/jobs/{it}/heartbeat", {"lease_id": "{lease}"}),
    Call("POST", "/v1/outcomes", [{"job_id": "{it}", "lease_id": "{lease}", "type": "success"}]),
    Call("POST", "/v1/outcomes", [{"job_id": "{it}", "lease_id": "{lease}", "type": "refused"}]),
    Call("POST", "/v1/jobs/cancel", {"job_ids": ["{it}"]}),
    Call("POST", "/v1/jobs/retry", {"job_ids": ["{it}"]}),
    Call("POST", "/v1/jobs/delete", {"job_ids": ["{it}"]}),
    Call("GET", "/job/{it}"),
    Call("GET", "/job/{it}/polling?timeout=0"),
    Call("DELETE", "/job/{it}"),
    Call("POST", "/done", {"job_id": "{it}", "type": "success", "result": 1}, (("worker-id", "w1"),)),
]
NAMED = [
    Call("GET", "/v1/handlers/{it}"),
    Call("DELETE", "/v1/handlers/{it}"),
    Call("GET", "/v1/schedules/{it}"),
    Call("DELETE", "/v1/schedules/{it}"),
    Call("POST", "/v1/schedules/{it}/pause"),
    Call("POST", "/v1/schedules/{it}/resume"),
    Call("POST", "/v1/schedules/{it}/run-now"),
    Call("GET", "/v1/constraints/{it}"),
    Call("DELETE", "/v1/constraints/{it}"),
    Call("POST", "/v1/types/{it}/resume"),
    Call("DELETE", "/v1/workers/{it}"),
    Call("POST", "/v1/leases", {"worker_id": "{it}", "max_jobs": 1}),
    Call("DELETE", "/worker", None, (("worker-id", "{it}"),)),
]


def filled(what: Any, **names: str) -> Any:
    if isinstance(what, str):
        return what.format(**names) if "{" in what else what
    if isinstance(what, dict):
        return {name: filled(value, **names) for name, value in what.items()}
    return [filled(value, **names) for value in what] if isinstance(what, list) else what


class Watched(Whole):
    """An edge that notes each call of its store."""

    asked: list[str]

    async def begin(self) -> "Watched":
        await super().begin()
        self.asked = []
        client: Any = self.whole._caller
        call = client.call

        async def noted(name: str, *arguments: Any) -> object:
            self.asked.append(name)
            return await call(name, *arguments)

        client.call = noted
        return self


async def answer(edge: Watched, call: Call, who: dict[str, str], **names: str) -> tuple[int, str, int]:
    """Status, what was said without the name, and how often the store was asked."""
    before, journaled = len(edge.asked), len(edge.journal.frames)
    headers = {**who, **dict(filled(list(map(list, call.headers)), **names))}
    told = await edge.call(
        call.method, filled(call.path, **names), filled(call.body, **names), kind=JSON, accept=JSON, headers=headers
    )
    assert len(edge.journal.frames) == journaled or "/types/" in call.path, f"{call} wrote something"
    return told.status, told.raw.decode().replace(names["it"], "it"), len(edge.asked) - before


@pytest.fixture
async def edge() -> Watched:
    return await Watched().begin()


async def acmes(edge: Whole, **fields: Any) -> str:
    told = await edge.call("POST", "/v1/jobs", {"name": "mail", "max_retry": 0, **fields}, headers=ACME)
    await edge.apply()
    return str(told.body["job_id"])


async def test_a_strangers_job_is_none_in_every_state(edge):
    unused = edge.journal.ids.take(1).first
    worker = await edge.call("POST", "/v1/workers", {**CARD, "worker_id": "w1"}, headers=ACME)
    assert worker.status == 201
    for who in (OTHER,):
        assert (await edge.call("POST", "/v1/workers", {**CARD, "worker_id": "w1"}, headers=who)).status == 201
    held_id = await acmes(edge)
    (held,) = await edge.claim("acme\x1fmail")
    await edge.hand(held, worker="acme\x1fw1")
    waiting, later = await acmes(edge), await acmes(edge, delay=600)
    cancelled, failed = await acmes(edge, delay=600), held_id
    assert (await edge.call("DELETE", f"/v1/jobs/{cancelled}", headers=ACME)).status == 204
    before = {it: (await edge.call("GET", f"/v1/jobs/{it}", headers=ACME)).raw for it in (waiting, later, failed)}
    for call in ONE_JOB:
        random = await answer(edge, call, OTHER, it=unused, lease=str(held.fence))
        assert random[0] in (200, 404), (call, random)
        for it in (held_id, waiting, later, cancelled):
            assert await answer(edge, call, OTHER, it=it, lease=str(held.fence)) == random, call
    named = await acmes(edge, job_id="order-7")
    for call in ONE_JOB:
        random = await answer(edge, call, OTHER, it="order-8", lease=str(held.fence))
        assert await answer(edge, call, OTHER, it=named, lease=str(held.fence)) == random, call
    assert {it: (await edge.call("GET", f"/v1/jobs/{it}", headers=ACME)).raw for it in before} == before
    for path, body in (("/v1/jobs", None), ("/v1/errors", None), ("/v1/types", None), ("/v1/jobs?state=failed", None)):
        told = await edge.call("GET", path, body, accept=JSON, headers=OTHER)
        assert not any(rows for rows in told.body.values() if isinstance(rows, list)), path
    for act in ("cancel", "retry", "delete"):
        told = await edge.call("POST", f"/v1/jobs/{act}", {"name": "mail"}, accept=JSON, headers=OTHER)
        assert (told.body["matched"], told.body["changed"]) == (0, 0)
    told = await edge.call("POST", "/v1/jobs/clean", {"before": 4_000_000_000}, accept=JSON, headers=OTHER)
    assert told.body["changed"] == 0
    assert (await edge.call("GET", f"/v1/jobs/{cancelled}", headers=ACME)).status == 200


async def test_so_are_a_strangers_handlers_schedules_pauses_and_workers(edge):
    made = [
        ("PUT", "/v1/handlers/mine", HOOK),
        ("PUT", "/v1/schedules/mine", PLAN),
        ("POST", "/v1/types/mine/pause", None),
    ]
    made.append(("POST", "/v1/workers", {**CARD, "worker_id": "mine"}))
    made.append(("PUT", "/v1/constraints/mine", {"match": "true", "concurrency": 1}))
    for method, path, body in made:
        assert (await edge.call(method, path, body, headers=ACME)).status in (200, 201)

    def acmes_rules() -> list[Setting]:
        return [setting for setting in edge.workers.settings.every() if tenant_of(setting.name) == "acme"]

    settings = acmes_rules()
    for call in NAMED:
        random = await answer(edge, call, OTHER, it="none")
        assert random[0] in (200, 404)
        assert await answer(edge, call, OTHER, it="mine") == random, call
    assert acmes_rules() == settings
    for path in ("handlers", "schedules", "types", "workers", "constraints"):
        assert (await edge.call("GET", f"/v1/{path}", accept=JSON, headers=OTHER)).body[path] == []
        assert len((await edge.call("GET", f"/v1/{path}", accept=JSON, headers=ACME)).body[path]) == EACH.get(path, 1)
    for method, path, body in made:
        assert (await edge.call(method, path, body, headers=OTHER)).status in (200, 201), "it has its own of that name"
    for path in ("handlers", "schedules", "types", "workers"):
        assert len((await edge.call("GET", f"/v1/{path}", accept=JSON)).body[path]) == 2 * EACH.get(path, 1), (
            "who sees all sees both"
        )
    for path in ("stats", "daemons"):
        assert (await edge.call("GET", f"/v1/{path}", headers=OTHER)).status == 403, "they are of all tenants together"
        assert (await edge.call("GET", f"/v1/{path}", headers={"jqd-tenant": ""})).status == 200
