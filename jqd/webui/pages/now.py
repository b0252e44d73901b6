"""Page Now: the state of the queue, with its troubles first."""

from functools import partial
from typing import Any

from quart import Response

from jqd.client import Unavailable
from jqd.domain.dates import lasting
from jqd.webui.api import SHARED_S, Api, together
from jqd.webui.picture import COLUMNS, hour_rows
from jqd.webui.rights import ANYBODY, LOOK, remedy
from jqd.webui.values import number
from jqd.webui.visit import Addresses, Visit

TYPES_MAX = 1_000  # jobtypes that are read; if there are more, the page says so
WORKERS_MAX = 1_000
HISTORY_S = 20.0  # how long an answer is shared: the last hour changes once a minute
SHOWN_MAX = 10  # jobtypes in the table, and findings of one kind
STATES = ("waiting", "scheduled", "blocked", "running", "retrying", "succeeded", "failed", "cancelled")
AWAY = "the store does not answer; pushes go on"
RATES = ("pushed", "started", "ended", "failed")


class Finding:
    """A trouble of the queue that a person should look at, perhaps with a link."""

    def __init__(self, level: str, text: str, href: str = "") -> None:
        self.level = level
        """`bad`: the queue takes or runs no jobs, or a jobtype waits in vain. `warn`: other troubles."""
        self.text = text
        self.href = href


def register(ui: Addresses) -> None:
    @ui.page("/", nav="Now", needs=ANYBODY)
    async def show(visit: Visit) -> Response:
        found, sees_all = await _ask(visit), visit.me.all_tenants
        types: list[dict[str, Any]] = found["types"].get("types", [])
        workers = found["workers"].get("workers")
        counts = _counts(found["totals"], None if sees_all else visit.me.tenant)
        oldest = sorted((row for row in types if row.get("oldest_s") is not None), key=lambda row: -row["oldest_s"])
        return visit.render(
            "now.html",
            sees=visit.has(LOOK),
            needs=LOOK.whom,
            remedy=remedy(visit.me.tenant, LOOK),
            counts=counts,
            unknown=found["totals"].get("unknown") or AWAY,
            states=STATES,
            rates=RATES,
            oldest=oldest[:SHOWN_MAX],
            more_oldest=max(0, len(oldest) - SHOWN_MAX),
            workers=workers,
            more_types=bool(found["types"].get("cursor")),
            hour=hour_rows(found["hour"]) if "steps" in found["hour"] else [],
            columns=COLUMNS,
            findings=_findings(visit, found, oldest, workers, (counts or {}).get("failed") or 0),
        )


async def _ask(visit: Visit) -> dict[str, Any]:
    """Make those API calls for the page that this role may make; return their answers by name."""
    api, calls = visit.api, {"totals": "/v1/stats" if visit.me.all_tenants else "/v1/tenants"}
    if not visit.has(LOOK):
        return {"ready": await api.ready(), "totals": {}, "types": {}, "workers": {}, "hour": {}}
    return await together(
        ready=api.ready,
        totals=partial(_or_why, api, calls["totals"]),
        types=partial(_or_why, api, "/v1/types", limit=TYPES_MAX),
        workers=partial(_or_why, api, "/v1/workers", limit=WORKERS_MAX),
        hour=partial(_or_why, api, "/v1/history", HISTORY_S, minutes=60),
    )


async def _or_why(api: Api, path: str, kept_s: float = SHARED_S, **params: Any) -> dict[str, Any]:
    """Return the answer of a GET. If the store is away, return `{"unknown": reason}`."""
    try:
        return await api.get(path, kept_s, **params)
    except Unavailable as error:
        return {"unknown": str(error)}


def _counts(answer: dict[str, Any], tenant: str | None) -> dict[str, Any] | None:
    """Return job counts by state, and rates a minute, of one tenant; of all together if `tenant` is None. None while
    the store is away. `answer`: that of `/v1/tenants` or `/v1/stats`. A tenant that is not in it has no jobs."""
    if tenant is None or "tenants" not in answer:
        return (answer.get("store") or {}).get("counts")
    row: dict[str, Any] = next((each for each in answer["tenants"] if each["tenant"] == tenant), {})
    rates = {f"{rate}_a_minute": row.get("per_minute", {}).get(rate, 0) for rate in RATES}
    return {state: row.get(state, 0) for state in STATES} | rates


def _findings(
    visit: Visit, found: dict[str, Any], oldest: list[dict[str, Any]], workers: list[dict[str, Any]] | None, dead: int
) -> list[Finding]:
    ready, findings = found["ready"], []
    for half, verb in (("push", "takes no jobs"), ("run", "runs no jobs")):
        half_ready = ready.get(half) or {}
        if not half_ready.get("ready", True):
            findings.append(Finding("bad", f"The daemon {verb}: {half_ready.get('reason')}"))
    findings += [Finding("warn", str(warning)) for warning in ready.get("warnings") or ()]
    if workers == []:
        findings.append(Finding("warn", "No worker is registered: start one with `jqd worker`."))
    for row in [row for row in oldest if row.get("note")][:SHOWN_MAX]:
        href = visit.of_row("/jobs", row, state="waiting", name=row["name"])
        findings.append(Finding("bad", f"{row['name']} waits for {lasting(row['oldest_s'])}: {row['note']}", href))
    for one in found["types"].get("paused") or ():
        whose = f"tenant {one['tenant']}" if one.get("tenant") else "whatever has no tenant"
        findings.append(Finding("warn", f"Paused since {one.get('paused_at')}: {whose}."))
    if dead:
        jobs = "job has" if dead == 1 else "jobs have"
        findings.append(Finding("warn", f"{number(dead)} {jobs} failed for good.", visit.link("/jobs", state="failed")))
    return findings
