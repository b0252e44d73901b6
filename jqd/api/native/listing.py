"""Lists: jobs by state, name and tag; the jobtypes that have work; the daemons of the store."""

from typing import Any

from jqd.api.message import Request, Response, answer
from jqd.api.native.show import iso, job_brief
from jqd.api.parts import Parts
from jqd.api.problems import Problem
from jqd.desk import listing as desk

LIST_JOBS, LIST_JOBS_MAX = 50, 1_000
TYPES_MAX = 1_000  # in one answer: the store looks at each of them
FILTERS = ("state", "name", "tag", "limit", "cursor")


async def list_jobs(parts: Parts, request: Request) -> Response:
    """`GET /v1/jobs?state&name&tag&limit&cursor` → 200 {jobs, cursor}, newest first. Raises Problem 422."""
    query = request.query()
    limit = query.get("limit", str(LIST_JOBS))
    if not (limit.isascii() and limit.isdecimal()) or not 1 <= int(limit[:9]) <= LIST_JOBS_MAX:
        raise Problem(422, f"limit is a whole number from 1 to {LIST_JOBS_MAX}, not {limit[:32]!r}")
    state, name, tag = (query.get(field) for field in ("state", "name", "tag"))
    page = await desk.list_jobs(parts.desk, state, name, tag, int(limit), query.get("cursor", ""))
    jobs = [job_brief(parts.desk, view) for view in page.jobs]
    return answer(200, {"jobs": jobs, "cursor": page.cursor}, request.answer_language())


async def list_types(parts: Parts, request: Request) -> Response:
    """`GET /v1/types` → 200 {types}: those that have jobs waiting or running."""
    now_ms = parts.desk.clock.wall_ms()
    rows: list[dict[str, Any]] = [
        {
            "name": row.jobtype,
            "waiting": row.waiting,
            "running": row.running,
            "oldest_at": iso(row.oldest_ms),
            "oldest_s": max(0, now_ms - row.oldest_ms) / 1000 if row.oldest_ms else None,
            "rate": parts.desk.control.rate(row.jobtype),
            "handler": None,
        }
        for row in await parts.desk.store.list_types(TYPES_MAX)
    ]
    return answer(200, {"types": rows}, request.answer_language())


async def list_daemons(parts: Parts, request: Request) -> Response:
    """`GET /v1/daemons` → 200 {daemons}: who shares this store, as this daemon last heard of them."""
    rows = [
        {
            "daemon": peer.sysid,
            "this": peer.is_this,
            "living": peer.living,
            "through": peer.through,
            "heard_s": round(peer.heard_s, 3),
            "in_hand": await parts.desk.control.in_hand(peer.sysid),
        }
        for peer in parts.desk.control.daemons()
    ]
    return answer(200, {"daemons": rows}, request.answer_language())
