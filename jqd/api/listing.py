"""Lists: jobs by state, name and tag; the jobtypes that have work; the daemons of the store."""

from typing import Any

from jqd.api.message import Request, Response, answer
from jqd.api.parts import Parts
from jqd.api.problems import Problem
from jqd.api.show import iso, job_brief
from jqd.words.job import State

LIST_JOBS, LIST_JOBS_MAX = 50, 1_000
TYPES_MAX = 1_000  # in one answer: the store looks at each of them
FILTERS = ("state", "name", "tag", "limit", "cursor")


async def list_jobs(parts: Parts, request: Request) -> Response:
    """`GET /v1/jobs?state&name&tag&limit&cursor` → 200 {jobs, cursor}, newest first. Raises Problem 422."""
    query = request.query()
    limit = query.get("limit", str(LIST_JOBS))
    if not (limit.isascii() and limit.isdecimal()) or not 1 <= int(limit[:9]) <= LIST_JOBS_MAX:
        raise Problem(422, f"limit is a whole number from 1 to {LIST_JOBS_MAX}, not {limit[:32]!r}")
    state = state_named(query["state"]) if "state" in query else None
    cursor = query.get("cursor", "")
    try:
        page = await parts.store.list_jobs(state, query.get("name"), query.get("tag"), int(limit), cursor)
    except ValueError as error:
        raise bad_cursor(cursor) from error
    jobs = [job_brief(parts, view) for view in page.jobs]
    return answer(200, {"jobs": jobs, "cursor": page.cursor}, request.answer_language())


async def list_types(parts: Parts, request: Request) -> Response:
    """`GET /v1/types` → 200 {types}: those that have jobs waiting or running."""
    now_ms = parts.clock.wall_ms()
    rows: list[dict[str, Any]] = [
        {
            "name": row.jobtype,
            "waiting": row.waiting,
            "running": row.running,
            "oldest_at": iso(row.oldest_ms),
            "oldest_s": max(0, now_ms - row.oldest_ms) / 1000 if row.oldest_ms else None,
            "rate": parts.control.rate(row.jobtype),
            "handler": None,
        }
        for row in await parts.store.list_types(TYPES_MAX)
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
            "in_hand": await parts.control.in_hand(peer.sysid),
        }
        for peer in parts.control.daemons()
    ]
    return answer(200, {"daemons": rows}, request.answer_language())


def state_named(text: str) -> State:
    """The state of that name. Raises Problem 422."""
    try:
        return State(text)
    except ValueError:
        raise Problem(422, f"there is no state {text[:32]!r}; there are {', '.join(State)}") from None


def bad_cursor(cursor: str) -> Problem:
    """422: it was not made by us."""
    return Problem(422, f"cursor {cursor[:32]!r} is none that an answer gave; leave it out to begin anew")
