"""Constraints: what may start when; an editor that shows faults at the character, and what a constraint would do."""

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from quart import Response

from jqd.client import Conflict, Invalid, NotFound, TooLarge
from jqd.client.path import job_path, path_of
from jqd.webui.api import Api, together
from jqd.webui.asking import Question, ask
from jqd.webui.forms import TAKEN, Fault, faults_of, name_fault, number_of, put, seconds_of, typed
from jqd.webui.values import lasting, link
from jqd.webui.visit import Visit

if TYPE_CHECKING:
    from jqd.webui.app import Ui

PAGE_CONSTRAINTS = 100
LOOKED_AT_MAX = 20  # waiting jobs that are asked why they wait, each a call
FIELDS = (
    "name",
    "match",
    "limit",
    "per",
    "burst",
    "concurrency",
    "pause",
    "until",
    "key",
    "cost",
    "on_error",
    "exact",
    "revision",
)
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
NEW = dict.fromkeys(FIELDS, "") | {"per": "1s", "pause": "no", "on_error": "hold", "exact": "no", "revision": "0"}
DONE = {
    "set": "It holds at all daemons within a second, for waiting jobs too.",
    "delete": "It is deleted: nothing waits for it any more.",
}
_OF_ONE_NAME = re.compile(r"""\s*job\.name\s*==\s*(["'])([^"'\\\n]+)\1\s*(?:&&|$)""")


def register(ui: "Ui") -> None:
    @ui.page("/constraints", nav="Constraints", takes=("cursor", "done"))
    async def show(visit: Visit) -> Response:
        cursor = visit.query.get("cursor", "")
        answer = await visit.api.get("/v1/constraints", limit=PAGE_CONSTRAINTS, cursor=cursor or None)
        cursor_next = answer.get("cursor") or ""
        return visit.render(
            "constraints.html",
            constraints=[(row, _limits(row)) for row in answer.get("constraints", [])],
            newest="/constraints" if cursor else "",
            older=visit.link("/constraints", cursor=cursor_next) if cursor_next else "",
            done=DONE.get(visit.done, ""),
            call=link("/v1/constraints", limit=PAGE_CONSTRAINTS, cursor=cursor),
            command=visit.command("jqd", "constraints"),
        )

    @ui.page("/constraint", takes=("name", "done"))
    async def edit(visit: Visit) -> Response:
        name = visit.query.get("name", "")
        if not name:
            return _editor(visit, NEW)
        row = await visit.api.get(path_of("constraints", name))
        return await _known(visit, row)

    @ui.page("/constraint/confirm", takes=("name",))
    async def confirm(visit: Visit) -> Response:
        name = visit.query.get("name", "")
        await visit.api.get(path_of("constraints", name))
        warning = "Jobs that wait for it start at once, as far as nothing else limits them."
        back = visit.link("/constraint", name=name)
        return ask(
            visit,
            Question(
                f"Delete constraint {name}?", warning, "Delete", "remove", "/constraint/delete", {"name": name}, back
            ),
        )

    @ui.act("/constraint/set")
    async def set_(visit: Visit) -> Response:
        return await _set(visit, typed(visit.form, *FIELDS), is_trial="trial" in visit.form)

    @ui.act("/constraint/delete")
    async def delete(visit: Visit) -> Response:
        await visit.api.client.delete_constraint(visit.form.get("name", ""))
        return visit.go("/constraints", done="delete")


async def _set(visit: Visit, typed: dict[str, str], *, is_trial: bool) -> Response:
    """Set what was typed, or try it; what the API says against it stands at its field, and nothing typed is lost."""
    name, faults = typed["name"], dict[str, Fault]()
    if wrong := name_fault("constraint", name):
        faults["name"] = wrong
    elif not is_trial and not visit.form.get("known") and await _is_there(visit.api, name):
        faults["name"] = TAKEN
    if typed["until"] and typed["pause"] != "until":
        faults["until"] = Fault("it is for a pause until then: choose that, or leave it empty")
    try:
        path = path_of("constraints", "…" if wrong else name)
        answer = await put(
            visit,
            path,
            _body(typed),
            faults,
            dry_run=is_trial or None,
            revision=None if is_trial else typed["revision"] or None,
        )
    except Invalid as error:
        faults = faults_of(error, POINTERS, typed) | faults
        return _editor(visit, typed, faults=faults, status=409 if faults.get("name") is TAKEN else error.status)
    except (Conflict, TooLarge) as error:
        return _editor(visit, typed, faults={"": Fault(str(error))}, status=error.status)
    return _editor(visit, typed, trial=answer) if is_trial else visit.go("/constraint", name=name, done="set")


async def _is_there(api: Api, name: str) -> bool:
    try:
        await api.get(path_of("constraints", name))
    except NotFound:
        return False
    return True


async def _known(visit: Visit, row: dict[str, Any]) -> Response:
    """Show a constraint: who waits for it now, and the editor."""
    typed = _typed_before(row)
    found = await together(trial=partial(_trial, visit, row, typed), limited=partial(_limited, visit.api, row))
    done = DONE.get(visit.done, "")
    return _editor(visit, typed, row=row, stands=found["trial"], limited=found["limited"], done=done)


def _editor(visit: Visit, typed: dict[str, str], *, status: int = 200, **more: Any) -> Response:
    name = typed["name"]
    flags = {"rate": f"{typed['limit']}/{typed['per']}" if typed["limit"] else "", "concurrency": typed["concurrency"]}
    paused = {"no": "", "ever": "ever"}.get(typed["pause"], typed["until"])
    flags |= {"burst": typed["burst"], "pause": paused, "key": typed["key"], "cost": typed["cost"]}
    shows = visit.query.get("name") and not visit.form  # it is as it was set, and nothing was typed
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
    """Return what a constraint does to jobs that wait now; None where this role may not try one."""
    if not visit.may("set") or not visit.owns(row):
        return None
    try:
        return await visit.api.put(path_of("constraints", row["name"]), _body(typed), dry_run=True)
    except Invalid:  # set by a version that understood it: the list says what is wrong with it
        return None


async def _limited(api: Api, row: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return those of the newest waiting jobs that wait for it, each with why."""
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
    """Return in words what it limits."""
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
    """Return the constraint as the API takes it."""
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
    """Return the fields of the editor for a constraint as it is."""
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
