"""Now: how the queue does, what is wrong first."""

from functools import partial
from typing import TYPE_CHECKING, Any

from quart import Response

from jqd.client import Forbidden, Unavailable
from jqd.webui.api import SHARED_S, Api, together
from jqd.webui.hour import COLUMNS, rows
from jqd.webui.values import lasting
from jqd.webui.visit import Visit

if TYPE_CHECKING:
    from jqd.webui.app import Ui

TYPES_MAX = 1_000  # jobtypes that are looked at; of more the page says so
WORKERS_MAX = 1_000
HISTORY_S = 20.0  # the last hour changes once a minute
SHOWN_MAX = 10  # jobtypes in the table, and findings of one kind
STATES = ("waiting", "scheduled", "blocked", "running", "retrying", "succeeded", "failed", "cancelled")
RATES = ("pushed", "started", "ended", "failed")


class Finding:
    """Something that a person should look at."""

    def __init__(self, level: str, text: str, href: str = "") -> None:
        self.level = level
        """`bad`: jobs are not taken or not run. `warn`: they may soon not be."""
        self.text = text
        self.href = href


def register(ui: "Ui") -> None:
    @ui.page("/", nav="Now")
    async def show(visit: Visit) -> Response:
        api = visit.api
        found = await together(
            ready=api.ready,
            stats=partial(_or_none, api, "/v1/stats"),
            types=partial(_or_none, api, "/v1/types", limit=TYPES_MAX),
            workers=partial(_or_none, api, "/v1/workers", limit=WORKERS_MAX),
            hour=partial(_or_none, api, "/v1/history", HISTORY_S, minutes=60),
        )
        types: list[dict[str, Any]] = (found["types"] or {}).get("types", [])
        workers = (found["workers"] or {}).get("workers")
        oldest = sorted((row for row in types if row.get("oldest_s") is not None), key=lambda row: -row["oldest_s"])
        return visit.render(
            "now.html",
            counts=_counts(found["stats"], types),
            states=STATES,
            rates=RATES,
            oldest=oldest[:SHOWN_MAX],
            more_oldest=max(0, len(oldest) - SHOWN_MAX),
            workers=workers,
            more_types=bool((found["types"] or {}).get("cursor")),
            daemon=found["stats"] or {},
            hour=rows(found["hour"]) if found["hour"] else [],
            columns=COLUMNS,
            findings=_findings(visit, found, oldest, workers),
        )


async def _or_none(api: Api, path: str, kept_s: float = SHARED_S, **params: Any) -> dict[str, Any] | None:
    """Return the answer; None where this role may not ask, or the store is away, which /readyz tells."""
    try:
        return await api.get_kept(path, kept_s, **params)
    except (Forbidden, Unavailable) as error:
        if error.status == 401:
            raise
        return None


def _counts(stats: dict[str, Any] | None, types: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return jobs by state and rates a minute: those of the store, or of a tenant the sums of its jobtypes."""
    if stats is not None:
        return (stats.get("store") or {}).get("counts")
    counts: dict[str, Any] = {state: sum(row.get(state) or 0 for row in types) for state in STATES}
    for rate in RATES:
        counts[f"{rate}_a_minute"] = sum((row.get("per_minute") or {}).get(rate) or 0 for row in types)
    return counts


def _findings(
    visit: Visit, found: dict[str, Any], oldest: list[dict[str, Any]], workers: list[dict[str, Any]] | None
) -> list[Finding]:
    ready, findings = found["ready"], []
    for half, verb in (("push", "takes no jobs"), ("run", "runs no jobs")):
        told = ready.get(half) or {}
        if not told.get("ready", True):
            findings.append(Finding("bad", f"The daemon {verb}: {told.get('reason')}"))
    findings += [Finding("warn", str(warning)) for warning in ready.get("warnings") or ()]
    if workers == []:
        findings.append(Finding("warn", "No worker is registered: start one with `jqd worker`."))
    for row in [row for row in oldest if row.get("note")][:SHOWN_MAX]:
        href = visit.of_row("/jobs", row, state="waiting", name=row["name"])
        findings.append(Finding("bad", f"{row['name']} waits for {lasting(row['oldest_s'])}: {row['note']}", href))
    for one in (found["types"] or {}).get("paused") or ():
        whose = f"tenant {one['tenant']}" if one.get("tenant") else "whatever has no tenant"
        findings.append(Finding("warn", f"Paused since {one.get('paused_at')}: {whose}."))
    counts = _counts(found["stats"], (found["types"] or {}).get("types", []))
    if counts and counts.get("failed"):
        dead = counts["failed"]
        findings.append(Finding("warn", f"{dead} jobs have failed for good.", visit.link("/jobs", state="failed")))
    return findings
