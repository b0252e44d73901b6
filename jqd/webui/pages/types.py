"""Page Types: all jobtypes, with their last hour, why they wait, and buttons to pause and resume. Page Type: one
jobtype over time."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from quart import Response
from werkzeug.exceptions import BadRequest, NotFound

from jqd.client import AsyncClient, Unavailable
from jqd.webui.pages.now import RATES, STATES
from jqd.webui.picture import CHART_HEIGHT, CHART_WIDTH, LINE_HEIGHT, LINE_WIDTH, below, points, spoken
from jqd.webui.values import link, number
from jqd.webui.visit import Addresses, Visit

PAGE = 100  # jobtypes on one page
LOOKED, CALLS_MAX = 1_000, 10  # jobtypes per call, and calls, to find one by its exact name
HISTORY_S = 20.0  # how long an answer is shared: it has a new step each minute
SPANS = {60: "an hour", 480: "8 hours", 11_520: "8 days"}
"""Minutes that a chart covers → label."""
COUNTED = {
    "pushed": "Pushed",
    "started": "Started",
    "succeeded": "Succeeded",
    "failed": "Failed at once",
    "dead": "Failed, retries used up",
    "retried": "Retried",
    "put_off": "Put off",
    "interrupted": "Interrupted",
    "cancelled": "Cancelled",
}
"""Name of a counter in the history → label."""


class Line(NamedTuple):
    """One line of a chart."""

    title: str
    name: str
    points: str
    most: float
    total: float


def register(ui: Addresses) -> None:
    @ui.page("/types", nav="Types", takes=("name", "cursor"))
    async def show(visit: Visit) -> Response:
        which = visit.asked("name")
        answer, links = await visit.listed("/v1/types", PAGE, which)
        lines = await _lines(visit)
        return visit.render(
            "types.html",
            rows=[(row, lines.get((row.get("tenant", ""), row["name"]))) for row in answer["types"]],
            states=STATES,
            name=which.get("name", ""),
            width=LINE_WIDTH,
            height=LINE_HEIGHT,
            ours=("", visit.me.tenant),
            command=visit.command("jqd", "types"),
            **links,
        )

    @ui.page("/type", takes=("name", "minutes", "done"))
    async def one(visit: Visit) -> Response:
        return await _page(visit)

    @ui.act("/type/pause")
    async def pause(visit: Visit) -> Response:
        name = visit.named("name")
        await visit.api.client.pause_type(name, reason=visit.form.get("reason", "").strip())
        return visit.go("/type", name=name, done="pause")

    ui.acts("/type", resume=AsyncClient.resume_type)


async def _page(visit: Visit) -> Response:
    name = visit.named("name")
    row = await _row(visit, name)
    try:
        minutes = int(visit.query.get("minutes", "60"))
    except ValueError:
        raise BadRequest("minutes is a whole number") from None
    history = await visit.api.get("/v1/history", HISTORY_S, name=name, minutes=minutes)
    steps: Sequence[dict[str, Any]] = history["steps"]
    if row is None and not any(sum(step[each] for each in COUNTED) for step in steps):
        raise NotFound(f"there are no jobs of the type {name}, and were none in this time")
    done = {"pause": "Its jobs are not begun any more, at any daemon.", "resume": "Its jobs are begun again."}
    return visit.render(
        "type.html",
        name=name,
        row=row,
        states=STATES,
        rates=RATES,
        spans=SPANS,
        minutes=minutes,
        step_minutes=history["step_minutes"],
        lines=_chart(steps),
        width=CHART_WIDTH,
        height=CHART_HEIGHT,
        steps=steps[::-1],
        counted=COUNTED,
        waited=_shares_of(steps, "wait", history["wait_bounds"]),
        ran=_shares_of(steps, "run", history["run_bounds"]),
        done=done.get(visit.done, ""),
        call=link("/v1/history", name=name, minutes=minutes),
        command=visit.command("jqd", "jobs", name=name),
    )


async def _row(visit: Visit, name: str) -> dict[str, Any] | None:
    """Return the API's row of the jobtype with exactly this name, of the visit's tenant; None: not found. The API also
    finds names that contain it, so several pages of its list are searched."""
    cursor = ""
    for _ in range(CALLS_MAX):
        answer = await visit.api.get("/v1/types", limit=LOOKED, cursor=cursor or None, name=name)
        for row in answer["types"]:
            if row["name"] == name and row.get("tenant", "") == visit.me.tenant:
                return row  # type: ignore[no-any-return]
        cursor = answer.get("cursor") or ""
        if not cursor:
            break
    return None


async def _lines(visit: Visit) -> dict[tuple[str, str], Line]:
    """Return (tenant, jobtype) → a line for the chart: how many jobs of this type ended in each minute of the last
    hour. Empty while the store is away."""
    try:
        answer = await visit.api.get("/v1/history", HISTORY_S, minutes=60, types=1)
    except Unavailable:
        return {}
    found = {}
    for row in answer["types"]:
        ended = row["ended"]
        drawn = points(ended, LINE_WIDTH, LINE_HEIGHT, max(ended, default=0))
        found[row.get("tenant", ""), row["name"]] = Line("ended", "ended", drawn, max(ended, default=0), sum(ended))
    return found


def _chart(steps: Sequence[dict[str, Any]]) -> list[Line]:
    """Return the lines of the chart, all drawn to the same scale."""
    numbers = {
        "pushed": [step["pushed"] for step in steps],
        "succeeded": [step["succeeded"] for step in steps],
        "failed": [step["failed"] + step["dead"] for step in steps],
    }
    most = max((max(each, default=0) for each in numbers.values()), default=0)
    return [
        Line(name.capitalize(), name, points(each, CHART_WIDTH, CHART_HEIGHT, most), most, sum(each))
        for name, each in numbers.items()
    ]


def _shares_of(steps: Sequence[dict[str, Any]], field: str, bounds: Sequence[float]) -> str:
    """Return, as text, the two durations below which half and 95 % of the jobs stayed, as precise as the histogram's
    buckets. `field`: `wait` or `run`. Empty if there were no jobs."""
    counts = [sum(bucket) for bucket in zip(*(step[field] for step in steps), strict=False)]
    total = sum(counts)
    if not total:
        return ""
    half, most = (below(counts, bounds, share) for share in (0.5, 0.95))
    return f"half of {number(total)} {_below(*half)}, 95 % {_below(*most)}"


def _below(is_above: bool, bound: float) -> str:
    return f"{'more than' if is_above else 'up to'} {spoken(bound)}"
