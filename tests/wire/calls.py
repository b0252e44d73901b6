"""Every call there is, good and refused, in order: what `surface.py` asks both versions of HTTP."""

import trio

from jqd.api.compat.miniq import TEXT
from jqd.api.route import Route
from jqd.domain.media import JSON, MSGPACK
from jqd.routes import ROUTES
from tests.wire.surface import JOB_BYTES_MAX, KEY, SOON_S, WAIT_S, Surface

NDJSON = "application/x-ndjson"
ODD_ID = "a/b ü%?"
ODD_PATH = "a%2Fb%20%C3%BC%25%3F"
ARRAY_JOBS = 10_000


HANDLER = (("POST", "add/<jobtype>/add"), ("GET", "get/<jobtype>"), ("POST", "del/<jobtype>/delete"))  # miniq's


async def drive(surface: Surface, worker_url: str) -> None:
    """All of it."""
    await _pushes(surface)
    await _looks(surface)
    await _changes(surface)
    await _workers(surface, worker_url)
    await _constraints(surface)
    await _quotas(surface)
    await _schedules(surface)
    await _pauses(surface)
    await _pulls(surface)
    await _many(surface)
    await _skygear(surface)
    await _lines(surface)
    await _lines_runners(surface, worker_url)
    await _tokens(surface)
    await _health(surface)
    for route in ROUTES:
        await _refused(surface, route)
    await _heads(surface)


async def _pushes(surface: Surface) -> None:
    ask, push = surface.ask, "POST /v1/jobs"
    await ask(push, 201, {"name": "a", "job_id": ODD_ID, "tags": ["t"]}, query="?ack=store")
    await ask(push, 200, {"name": "a", "job_id": ODD_ID, "tags": ["t"]})
    await ask(push, 409, {"name": "b", "job_id": ODD_ID})
    await ask(push, 201, {"name": "a", "argument": b"\0"}, kind=MSGPACK, query="?ack=memory")
    await ask(push, 201, {"name": "a"}, kind=MSGPACK, accept=JSON)
    await ask(push, 201, b'{"name":"a"}\n{"name":"b"}\n', kind=NDJSON)
    await ask(push, 207, [{"name": "a"}, {"nome": "a"}])
    await ask(push, 422, {"name": "a", "priority": "high"}, kind=MSGPACK)
    await ask(push, 422, {"name": "a"}, query="?ack=never")
    await ask(push, 413, [{"name": "a"}] * (ARRAY_JOBS + 1), kind=MSGPACK)
    await ask(push, 413, {"name": "a", "argument": "x" * JOB_BYTES_MAX})
    await ask(push, 413, bytes((16 << 20) + 1), kind=MSGPACK)
    await ask(push, 400, b"[]")
    await ask(push, 403, {"name": "a"}, fields={"origin": "http://elsewhere.example"})


async def _looks(surface: Surface) -> None:
    ask, look = surface.ask, "GET /v1/jobs/<job_id>"
    for into in (ODD_PATH, ODD_PATH.lower()):
        await ask(look, 200, into=into)
    await ask(look, 200, into=ODD_PATH, query=f"?wait={SOON_S}", accept=MSGPACK)
    await ask("HEAD /v1/jobs/<job_id>", 200, into=ODD_PATH)
    await ask(look, 404, into="none")
    await ask(look, 422, into=ODD_PATH, query="?wait=long")
    await ask("GET /v1/jobs", 200, query="?tag=t")
    await ask("GET /v1/jobs", 422, query="?limit=0")
    await ask("GET /v1/jobs/<job_id>/result", 200, into=ODD_PATH, accept=MSGPACK)
    await ask("GET /v1/jobs/<job_id>/result", 404, into="none", accept=MSGPACK)
    for accept in (JSON, MSGPACK):
        await ask("GET /v1/jobs/<job_id>/why", 200, into=ODD_PATH, accept=accept)
    await ask("GET /v1/jobs/<job_id>/why", 404, into="none")
    await ask("GET /v1/jobs/<job_id>/flow", 200, into=ODD_PATH)
    await ask("GET /v1/jobs/<job_id>/flow", 404, into="none")
    await ask("GET /v1/types", 200, query="?name=a*")
    await ask("GET /v1/tenants", 200, accept=MSGPACK)
    await ask("GET /v1/history", 200, query="?minutes=600&types=1", accept=MSGPACK)
    await ask("GET /v1/history", 422, query="?minutes=0")


async def _changes(surface: Surface) -> None:
    ask, one = surface.ask, "/v1/jobs/<job_id>"
    await ask(f"PATCH {one}", 200, {"priority": 3, "delay": 3_600}, into=ODD_PATH)
    await ask(f"PATCH {one}", 422, {"priority": "x"}, into=ODD_PATH, kind=MSGPACK)
    await ask(f"PATCH {one}", 404, {"priority": 1}, into="none")
    await ask(f"POST {one}/run-now", 200, into=ODD_PATH)
    await ask(f"POST {one}/retry", 409, into=ODD_PATH)
    await ask(f"DELETE {one}", 409, into=ODD_PATH, query="?purge=1")
    await ask(f"DELETE {one}", 204, into=ODD_PATH)
    await ask(f"PATCH {one}", 409, {"priority": 1}, into=ODD_PATH)
    await ask(f"POST {one}/run-now", 409, into=ODD_PATH)
    await ask(f"POST {one}/retry", 200, into=ODD_PATH, accept=MSGPACK)
    await ask(f"POST {one}/flow/cancel", 200, into=ODD_PATH)
    await ask(f"POST {one}/flow/retry", 200, into=ODD_PATH)
    await ask(f"POST {one}/flow/retry", 404, into="none")
    await ask(f"DELETE {one}", 404, into="none")
    await ask("POST /v1/jobs", 201, {"name": "nobody runs it", "group": "g"})
    for said in ({"then": {"name": "nor that"}}, {}):
        await ask("POST /v1/groups/<group>/close", 200, said, into="g")
    await ask("POST /v1/groups/<group>/close", 422, {"then": 5}, into="g")
    await ask("GET /v1/groups/<group>", 200, into="g")
    await ask("GET /v1/groups/<group>", 404, into="none")
    await ask("POST /v1/groups/<group>/cancel", 200, into="g")
    await ask("POST /v1/groups/<group>/retry", 200, into="g")


async def _workers(surface: Surface, worker_url: str) -> None:
    """A job goes to a worker and comes back, a poll waits for it, and both say so."""
    ask = surface.ask
    card = {"name": "w", "url": worker_url + "/v1", "max_jobs": 1, "jobs": ["nobody pushes it"]}
    worker_id = (await ask("POST /v1/workers", 201, card))["worker_id"]
    await ask("POST /v1/workers", 422, {**card, "max_jobs": 0}, kind=MSGPACK)
    await ask("GET /v1/workers", 200)
    await ask("DELETE /v1/workers/<worker_id>", 204, into=worker_id)
    await ask("DELETE /v1/workers/<worker_id>", 404, into=worker_id)

    hook, one = {"lang": "http", "body": worker_url + "/hook"}, "/v1/handlers/<name>"
    await ask(f"PUT {one}", 201, hook, into="hook")
    await ask(f"PUT {one}", 422, {**hook, "lang": "cobol"}, into="hook")
    await ask(f"PUT {one}", 403, {**hook, "lang": "python"}, into="hook")
    await ask(f"GET {one}", 200, into="hook", accept=MSGPACK)
    await ask(f"GET {one}", 404, into="none")
    await ask("GET /v1/handlers", 200)
    await ask(f"DELETE {one}", 204, into="hook")
    await ask(f"DELETE {one}", 404, into="hook")

    await ask("POST /worker", 400, {"name": "l"}, kind=MSGPACK)
    light = {"name": "l", "url": worker_url, "max_jobs": 4, "jobs": ["light"]}
    mine = {"worker-id": (await ask("POST /worker", 201, light))["worker_id"]}
    job = {"name": "light", "argument": 1, "keep_result": True}
    first, second = [(await ask("POST /job", 201, job, kind=kind))["job_id"] for kind in (MSGPACK, JSON)]
    waiting = (await ask("POST /job", 201, {**job, "name": "dark"}))["job_id"]
    for job_id in (first, second):
        await surface.keeps(job_id)
    await ask("GET /job/<job_id>", 200, into=first)
    await ask("GET /job/<job_id>", 404, into="none", accept=JSON)
    await ask("GET /job/<job_id>/polling", 408, into=first, query=f"?timeout={SOON_S}")
    await ask("GET /job/<job_id>/polling", 404, into="none")
    await ask("DELETE /job/<job_id>", 409, into=first)
    await ask("DELETE /job/<job_id>", 204, into=waiting)
    await ask("DELETE /job/<job_id>", 404, into="none", accept=JSON)
    await ask("DELETE /v1/jobs/<job_id>", 202, into=second)

    async def poll(call: str, query: str) -> None:
        own = Surface(surface.client)
        own.asked = surface.asked
        await own.ask(call, 200, into=first, query=f"?{query}={WAIT_S:g}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(poll, "GET /job/<job_id>/polling", "timeout")
        nursery.start_soon(poll, "GET /v1/jobs/<job_id>", "wait")
        nursery.start_soon(poll, "GET /v1/jobs/<job_id>/result", "wait")
        done = {"type": "success", "job_id": first, "result": "x" * (JOB_BYTES_MAX - 1_000)}
        await ask("POST /done", 400, done)
        await ask("POST /done", 204, done, kind=MSGPACK, fields=mine)
    await ask("GET /v1/jobs/<job_id>/result", 200, into=first, accept=MSGPACK)
    await ask("HEAD /v1/jobs/<job_id>/result", 200, into=first)
    failed = {"type": "failure", "job_id": second, "reason": "other", "should_retry": False, "message": "no"}
    await ask("POST /done", 204, {**failed, "error": [1]}, fields=mine)
    await ask("POST /done", 404, {**failed, "job_id": "none"}, fields=mine)
    await ask("GET /v1/jobs/<job_id>", 200, into=second, query=f"?wait={WAIT_S:g}")
    for path in ("events", "log"):
        await ask(f"GET /v1/jobs/<job_id>/{path}", 200, into=second)
        await ask(f"GET /v1/jobs/<job_id>/{path}", 404, into="none")
    await ask("DELETE /worker", 204, fields=mine)
    await ask("DELETE /worker", 404, fields=mine)


async def _pulls(surface: Surface) -> None:
    """A worker asks for a job, says how far it is, and reports it."""
    ask, beat = surface.ask, "POST /v1/jobs/<job_id>/heartbeat"
    puller = {"worker_id": "puller", "max_jobs": 2}
    await ask("POST /v1/leases", 404, puller)
    await ask("POST /v1/workers", 201, {"name": "p", "jobs": ["pulled"], **puller})
    await ask("POST /v1/leases", 200, puller)
    await ask("POST /v1/leases", 422, {**puller, "wait": "long"}, kind=MSGPACK)
    job_id = (await ask("POST /v1/jobs", 201, {"name": "pulled"}))["job_id"]
    lease = (await ask("POST /v1/leases", 200, {**puller, "wait": WAIT_S}))["lease_id"]
    await ask(beat, 200, {"lease_id": lease, "progress": 0.5, "message": "half"}, into=job_id)
    await ask(beat, 409, {"lease_id": "17"}, into=job_id, kind=MSGPACK)
    await ask(beat, 404, {"lease_id": lease}, into="none")
    outcome = {"job_id": job_id, "lease_id": lease, "type": "success"}
    outcomes = [outcome, {**outcome, "lease_id": "17"}, {**outcome, "job_id": "none"}, {}]
    await ask("POST /v1/outcomes", 200, outcomes)
    await ask("POST /v1/outcomes", 400, [], kind=MSGPACK)
    await ask("DELETE /v1/workers/<worker_id>", 204, into="puller")


async def _many(surface: Surface) -> None:
    ask = surface.ask
    await ask("POST /v1/jobs/cancel", 200, {"job_ids": [ODD_ID, "none"]})
    await ask("POST /v1/jobs/cancel", 422, {}, kind=MSGPACK)
    await ask("POST /v1/jobs/retry", 200, {"job_ids": [ODD_ID]}, kind=MSGPACK)
    await ask("POST /v1/jobs/retry", 422, {"state": "odd"})
    await ask("GET /v1/errors", 200, query="?error=x")
    await ask("GET /v1/errors", 422, query="?state=waiting", accept=MSGPACK)
    await ask("POST /v1/jobs/delete", 200, {"job_ids": ["none"]}, kind=MSGPACK)
    await ask("POST /v1/jobs/delete", 422, {"dry_run": True})
    await ask("POST /v1/jobs/clean", 200, {"before": 0})
    await ask("POST /v1/jobs/clean", 422, {"before": "yesterday"}, accept=MSGPACK)


async def _quotas(surface: Surface) -> None:
    ask, one = surface.ask, "/v1/quotas/<tenant>"
    await ask(f"PUT {one}", 200, {"rate": 5}, into="acme")
    await ask(f"PUT {one}", 422, {"rate": "fast"}, into="acme", kind=MSGPACK)
    await ask(f"GET {one}", 200, into="acme", accept=MSGPACK)
    await ask(f"GET {one}", 404, into="none")
    await ask("GET /v1/quotas", 200)
    await ask(f"DELETE {one}", 204, into="acme")


async def _constraints(surface: Surface) -> None:
    ask, one = surface.ask, "/v1/constraints/<name>"
    wish = {"match": 'job.name == "nothing"', "rate": {"limit": 5}}
    await ask(f"PUT {one}", 200, wish, into="c", query="?dry_run=1")
    for status in (201, 200):
        await ask(f"PUT {one}", status, wish, into="c")
    await ask(f"PUT {one}", 422, {**wish, "match": "job.name =="}, into="c", kind=MSGPACK)
    await ask(f"PUT {one}", 422, wish, into="c", query="?dry_run=maybe")
    await ask(f"GET {one}", 200, into="c", accept=MSGPACK)
    await ask(f"GET {one}", 404, into="none")
    await ask("GET /v1/constraints", 200)
    await ask(f"DELETE {one}", 204, into="c")
    await ask(f"DELETE {one}", 404, into="c")


async def _schedules(surface: Surface) -> None:
    ask, one = surface.ask, "/v1/schedules/<name>"
    plan = {"cron": "0 0 1 1 *", "tz": "Asia/Tokyo", "job": {"name": "yearly", "argument": [1]}}
    for status in (201, 200):
        await ask(f"PUT {one}", status, plan, into="s")
    await ask(f"PUT {one}", 422, {**plan, "cron": "0 0 30 2 *"}, into="s", kind=MSGPACK)
    await ask(f"GET {one}", 200, into="s", accept=MSGPACK)
    await ask(f"GET {one}", 404, into="none")
    await ask("GET /v1/schedules", 200, query="?limit=1&cursor=YQ")
    await ask("GET /v1/schedules", 422, query="?limit=0")
    await ask(f"POST {one}/pause", 200, into="s")
    await ask(f"POST {one}/resume", 200, into="s")
    await ask(f"POST {one}/run-now", 201, into="s")
    for call in ("pause", "resume", "run-now"):
        await ask(f"POST {one}/{call}", 404, into="none")
    await ask(f"DELETE {one}", 204, into="s")
    await ask(f"DELETE {one}", 404, into="s")


async def _pauses(surface: Surface) -> None:
    for call, status in (("pause", 200), ("resume", 200)):
        await surface.ask(f"POST /v1/types/<name>/{call}", status, into="nobody%20pushes%20it")
    await surface.ask("POST /v1/types/<name>/pause", 422, into="x" * 129)
    await surface.ask("POST /v1/types/<name>/pause", 200, {"reason": "the provider is down"}, into="said")
    for call in ("pause", "resume"):
        await surface.ask(f"POST /v1/types/{call}", 200)
    for call in ("drain", "resume"):
        await surface.ask(f"POST /v1/daemons/<daemon>/{call}", 200, into="this")
        await surface.ask(f"POST /v1/daemons/<daemon>/{call}", 404, into="none")


async def _skygear(surface: Surface) -> None:
    """Its calls, and what listens to all of them."""
    ask, keyed = surface.ask, {"x-skygear-api-key": KEY}
    enqueue = {"job": {"action": "nobody calls it", "args": [1]}, "job_id": "sky", "run_at": "2999-01-01T00:00:00Z"}
    await ask("POST /job/enqueue", 200, enqueue, fields=keyed)
    await ask("POST /job/enqueue", 409, enqueue, fields=keyed)
    await ask("POST /job/enqueue", 401, enqueue, kind=MSGPACK)
    await ask("POST /", 200, {"action": "job:enqueue", **enqueue, "replace": True, "api_key": KEY}, kind=MSGPACK)
    await ask("POST /", 404, {"action": "job:stop", "api_key": KEY})
    await ask("POST /job/cancel", 200, {"job_id": "sky"}, fields=keyed)
    await ask("POST /job/cancel", 404, {"job_id": "sky"}, fields=keyed)
    await ask("GET /v1/events", 200, query=f"?seconds={SOON_S}&counters=0")
    await ask("GET /v1/events", 422, query="?event=odd", accept=MSGPACK)


async def _tokens(surface: Surface) -> None:
    ask, one = surface.ask, "DELETE /v1/tokens/<token_id>"
    made = await ask("POST /v1/tokens", 201, {"role": "push", "scopes": ["a*"]})
    await ask("POST /v1/tokens", 422, {"role": "odd"}, kind=MSGPACK)
    await ask("GET /v1/tokens", 200)
    derive, own = "POST /v1/tokens/derive", {"authorization": f"Bearer {made['token']}"}
    await ask(derive, 201, {"ttl": 60, "scopes": ["ab"]}, fields=own)
    await ask(derive, 403, {"role": "master"}, kind=MSGPACK, fields=own)
    await ask(derive, 409)
    await ask(one, 200, into=made["token_id"])
    await ask(one, 404, into="none", accept=MSGPACK)


async def _lines(surface: Surface) -> None:
    of_one, of_any = "POST /<client>/job/<jobtype>/add", "POST /add"
    for call, into, query in ((of_one, "-", ""), (of_any, "", "?jobtype=a")):
        await surface.ask(call, 200, b"x\n# none\ny\n", into=into, query=query, kind=TEXT)
        await surface.ask(call, 200, b"\n", into=into, query=query, kind=TEXT, accept=MSGPACK)
        await surface.ask(call, 400, b"\xff", into=into, query=query, kind=TEXT)
        await surface.ask(call, 413, b"x\n" * (ARRAY_JOBS + 1), into=into, query=query, kind=TEXT)
        await surface.ask(call, 415, b"{}", into=into, query=query)
        await surface.ask(
            call, 403, b"x", into=into, query=query, kind=TEXT, fields={"origin": "http://elsewhere.example"}
        )


async def _lines_runners(surface: Surface, worker_url: str) -> None:
    ask, handler = surface.ask, "/<client>/handler/"
    add, get, delete = (f"{word} {handler}{rest}" for word, rest in HANDLER)
    await ask(add, 200, worker_url.encode(), into="-", kind=TEXT)
    await ask(add, 422, {"body": worker_url, "lang": "cobol"}, into="-")
    await ask(add, 403, {"body": "x"}, into="-", query="?method=sh", kind=MSGPACK)
    await ask(get, 200, into="-", accept=MSGPACK)
    await ask(delete, 200, into="-")
    await ask(get, 404, into="-")
    await ask(delete, 404, into="-")
    await ask("GET /", 200)
    for method in ("POST", "GET"):
        for path in ("/stop", "/start"):
            await ask(f"{method} {path}", 200)
    await ask("GET /stop", 403, fields={"referer": "http://localhost/"})


async def _health(surface: Surface) -> None:
    await surface.ask("GET /v1/audit", 200, query="?limit=1")
    await surface.ask("GET /v1/me", 200)
    for path in ("/openapi.json", "/openapi.yaml", "/docs"):
        await surface.ask(f"GET {path}", 200)
    await surface.ask("GET /metrics", 200)
    for path in ("/v1/stats", "/v1/daemons", "/v1/workers", "/livez", "/readyz", "/readyz/push", "/readyz/run"):
        for accept in (JSON, MSGPACK):
            await surface.ask(f"GET {path}", 200, accept=accept)


async def _refused(surface: Surface, route: Route) -> None:
    """What any call is refused for."""
    native = route.path.startswith("/v1/")
    call, into = f"{route.method} {route.path}", "none"
    await surface.ask(f"OPTIONS {route.path}", 200, into=into)
    odd = "PATCH" if any(each.method == "PUT" for each in ROUTES if each.path == route.path) else "PUT"
    await surface.ask(f"{odd} {route.path}", 405, into=into)
    await surface.ask(f"{odd} {route.path}", 415, b"x", into=into, kind="text/plain")
    if route.method == "GET" and native:
        await surface.ask(f"HEAD {route.path}", 422, into=into, query="?odd=1")
    if native:
        await surface.ask(call, 422, b"{}" if _takes_body(route) else None, into=into, query="?odd=1")
    if _takes_body(route) and TEXT not in route.plain:
        headers = {"worker-id": "none"} if route.path == "/done" else {}
        await surface.ask(call, 400, b"{", into=into, fields=headers)
        await surface.ask(call, 400, b"\xc1", into=into, kind=MSGPACK, fields=headers)
        await surface.ask(call, 415, b"<a/>", into=into, kind="text/plain", fields=headers)
        if not route.any_size:
            size = 413 if native else 400
            await surface.ask(call, size, b" " * (JOB_BYTES_MAX + 1), into=into, fields=headers)


async def _heads(surface: Surface) -> None:
    ask = surface.ask
    await ask("GET /nothing", 404)
    await ask("GET /v1/job/<job_id>", 404, into="x%2fy")
    await ask("GET /livez", 414, query="?" + "x" * 16_384)
    await ask("GET /livez", 431, fields={"odd": "x" * 16_384})
    await ask("GET /livez", 431, fields={f"odd-{number}": "x" for number in range(101)})
    await ask("POST /v1/jobs", 415, b"x", fields={"content-encoding": "gzip"})
    await ask("GET /livez", 421, fields={"host": "elsewhere.example"})
    jobs = [{"name": "a", "argument": number} for number in range(ARRAY_JOBS)]
    await ask("POST /v1/jobs", 201, jobs)


def _takes_body(route: Route) -> bool:
    return route.body is not None
