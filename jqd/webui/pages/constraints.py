"""Pages of constraints: the list, and an editor. The editor shows errors at their character, and which waiting jobs a
constraint would delay."""

import re
from functools import partial
from typing import Any

from quart import Response

from jqd.client import AsyncClient, Invalid, NotFound
from jqd.client.path import job_path, path_of
from jqd.domain.dates import lasting
from jqd.webui.api import Api, together
from jqd.webui.forms import Fault, Wrong, name_fault, number_of, seconds_of, set_named, typed
from jqd.webui.visit import Addresses, Visit

PAGE_CONSTRAINTS = 100
LOOKED_AT_MAX = 20  # waiting jobs for which the page asks why they wait, a call each
POINTERS = {
    "/match": "match",
    "/key": "key",
    "/cost": "cost",
    "/concurrency": "concurrency",
    "/rate/limit": "limit",
    "/rate/per_s": "per",
    "/rate/burst": "burst",
    "/pause": "until",
    "/on_error": "on_error",
    "/exact": "exact",
}
"""JSON pointer in the API's body → field of the form."""
FIELDS = ("name", *POINTERS.values(), "pause", "revision")
NEW = dict.fromkeys(FIELDS, "") | {"per": "1s", "pause": "no", "on_error": "hold", "exact": "no", "revision": "0"}
DONE = {
    "set": "It holds at all daemons within a second, for waiting jobs too.",
    "delete": "It is deleted: nothing waits for it any more.",
}
_OF_ONE_NAME = re.compile(r"""\s*job\.name\s*==\s*(["'])([^"'\\\n]+)\1\s*(?:&&|$)""")


def register(ui: Addresses) -> None:
    @ui.page("/constraints", nav="Constraints", takes=("cursor", "done"))
    async def show(visit: Visit) -> Response:
        answer, links = await visit.listed("/v1/constraints", PAGE_CONSTRAINTS)
        return visit.render(
            "constraints.html",
            constraints=[(row, _limits(row)) for row in answer.get("constraints", [])],
            done=DONE.get(visit.done, ""),
            command=visit.command("jqd", "constraints"),
            **links,
        )

    @ui.page("/constraint", takes=("name", "done"))
    async def edit(visit: Visit) -> Response:
        name = visit.query.get("name", "")
        if not name:
            return _editor(visit, NEW)
        row = await visit.api.get(path_of("constraints", name))
        return await _known(visit, row)

    @ui.act("/constraint/set")
    async def set_(visit: Visit) -> Response:
        return await _set(visit, typed(visit.form, *FIELDS), is_trial="trial" in visit.form)

    warning = "Jobs that wait for it start at once, as far as nothing else limits them."
    ui.deletes("constraint", AsyncClient.delete_constraint, warning, to="/constraints")


async def _set(visit: Visit, typed: dict[str, str], *, is_trial: bool) -> Response:
    """Save the constraint in the form, and redirect to its page. With `is_trial` save nothing, and return the editor
    with what the constraint would do. If the form has faults, return the editor with these."""
    faults = dict[str, Fault]()
    if typed["until"] and typed["pause"] != "until":
        faults["until"] = Fault("it is for a pause until then: choose that, or leave it empty")
    done = await set_named(visit, "constraint", typed, _body(typed), faults, POINTERS, is_trial=is_trial)
    if isinstance(done, Wrong):
        return _editor(visit, typed, faults=done.faults, status=done.status)
    return _editor(visit, typed, trial=done) if is_trial else visit.go("/constraint", name=typed["name"], done="set")


async def _known(visit: Visit, row: dict[str, Any]) -> Response:
    """Return the page of an existing constraint (`row`): the jobs that wait for it, and the editor."""
    typed = _typed_before(row)
    found = await together(trial=partial(_trial, visit, row, typed), limited=partial(_limited, visit.api, row))
    done = DONE.get(visit.done, "")
    return _editor(visit, typed, row=row, stands=found["trial"], limited=found["limited"], done=done)


def _editor(visit: Visit, typed: dict[str, str], *, status: int = 200, **more: Any) -> Response:
    name = typed["name"]
    flags = {"rate": f"{typed['limit']}/{typed['per']}" if typed["limit"] else "", "concurrency": typed["concurrency"]}
    paused = {"no": "", "ever": "ever"}.get(typed["pause"], typed["until"])
    flags |= {"burst": typed["burst"], "pause": paused, "key": typed["key"], "cost": typed["cost"]}
    shows = visit.query.get("name") and not visit.form  # the saved constraint is shown, nothing was typed
    is_known = bool(visit.query.get("name") or visit.form.get("known"))
    flags |= {"on_error": typed["on_error"] if typed["on_error"] != "hold" else ""}
    of, exact = (name or "NAME", typed["match"]), typed["exact"] == "yes"
    sets = visit.command("jqd", "constraints", "set", of=of, exact=exact, **flags)
    more.setdefault("faults", {})
    return visit.render(
        "constraint.html",
        status=status,
        typed=typed,
        is_known=is_known,
        method="GET" if shows else "PUT",
        call="/v1/constraints/NAME" if name_fault("constraint", name) else path_of("constraints", name),
        command=visit.command("jqd", "constraints", "get", of=(name,)) if shows else sets,
        **more,
    )


async def _trial(visit: Visit, row: dict[str, Any], typed: dict[str, str]) -> dict[str, Any] | None:
    """Ask the API how an existing constraint affects the waiting jobs; return the answer. None if this login may not
    ask that, or the daemon does not understand the constraint."""
    if not visit.may("set") or not visit.owns(row):
        return None
    try:
        return await visit.api.put(path_of("constraints", row["name"]), _body(typed), dry_run=True)
    except Invalid:  # set by a version that understood it: the list says what is wrong with it
        return None


async def _limited(api: Api, row: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Find the jobs that a constraint holds back, among the newest waiting ones. Returns each with its wait reason."""
    only = _OF_ONE_NAME.match(row["match"])
    answer = await api.get("/v1/jobs", state="waiting", name=only[2] if only else None, limit=LOOKED_AT_MAX)
    jobs = {job["job_id"]: job for job in answer.get("jobs", [])}
    whys = await together(**{job_id: partial(_why, api, job_id) for job_id in jobs})
    return [(job, whys[each]) for each, job in jobs.items() if whys[each].get("by") == row["name"]]


async def _why(api: Api, job_id: str) -> dict[str, Any]:
    try:
        answer = await api.get(f"{job_path(job_id)}/why")
    except NotFound:  # it is gone since the list was made
        return {}
    return answer if answer.get("reason") == "limited" else {}


def _limits(row: dict[str, Any]) -> str:
    """Return a constraint's limits as text."""
    rows = []
    if rate := row.get("rate"):
        burst = f", {rate['burst']} more at once" if rate.get("burst") else ""
        rows.append(f"{rate['limit']} in {lasting(rate['per_s'])}{burst}")
    if row.get("concurrency"):
        rows.append(f"{row['concurrency']} at once")
    if row.get("paused"):
        rows.append(f"paused until {row['paused_until']}" if row.get("paused_until") else "paused")
    return "; ".join(rows)


def _body(typed: dict[str, str]) -> dict[str, Any]:
    """Return the API body for the constraint in a form."""
    body: dict[str, Any] = {"match": typed["match"], "on_error": typed["on_error"] or "hold"}
    if typed["limit"] or typed["burst"]:
        body["rate"] = {"per_s": seconds_of(typed["per"] or "1")}
        body["rate"] |= {field: number_of(typed[field]) for field in ("limit", "burst") if typed[field]}
    if typed["concurrency"]:
        body["concurrency"] = number_of(typed["concurrency"])
    if typed["pause"] == "ever":
        body["pause"] = True
    elif typed["pause"] == "until":
        body["pause"] = typed["until"]
    if typed["exact"] == "yes":
        body["exact"] = True
    return body | {name: typed[name] for name in ("key", "cost") if typed[name]}


def _typed_before(row: dict[str, Any]) -> dict[str, str]:
    """Return the field values with which the editor shows an existing constraint."""
    rate = row.get("rate") or {}
    until = row.get("paused_until") or ""
    fields = {
        "name": row["name"],
        "match": row["match"],
        "limit": rate.get("limit"),
        "per": f"{rate['per_s']:g}" if rate else "1",
        "burst": rate.get("burst") or "",
        "concurrency": row.get("concurrency"),
        "pause": ("until" if until else "ever") if row.get("paused") else "no",
        "until": until,
        "key": row.get("key"),
        "cost": row.get("cost"),
        "on_error": row.get("on_error"),
        "exact": "no",
        "revision": row.get("revision", ""),
    }
    return {name: "" if each is None else str(each) for name, each in fields.items()}
