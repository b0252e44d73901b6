"""Pages of schedules: the list, and forms to create, change, pause or run a schedule."""

from typing import Any

from quart import Response

from jqd.client import AsyncClient
from jqd.client.path import path_of
from jqd.domain.dates import lasting
from jqd.webui.forms import Fault, Wrong, name_fault, number_of, row_of, seconds_of, set_named, typed
from jqd.webui.values import read_value, value
from jqd.webui.visit import Addresses, Visit

PAGE_SCHEDULES = 50
POINTERS = {
    "/job/name": "jobtype",
    "/job/argument": "argument",
    "/job/tags": "tags",
    **{f"/{name}": name for name in ("cron", "tz", "every", "missed", "overlap", "jitter", "until")},
}
"""JSON pointer in the API's body → field of the form."""
FIELDS = ("name", *POINTERS.values(), "revision")
TOO_LONG = "…"  # stands for an argument too long for the form, which is left unchanged
NEW = dict.fromkeys(FIELDS, "") | {
    "argument": "null",
    "tz": "UTC",
    "missed": "once",
    "overlap": "queue",
    "revision": "0",
}
DONE = {
    "set": "It is set: these are its next dates.",
    "run": "Its job is pushed, apart from its dates.",
    "pause": "None of its dates comes until it is resumed.",
    "resume": "Its dates come again, from now on.",
    "delete": "It is deleted: no date comes any more. Jobs that it pushed stay.",
}


def register(ui: Addresses) -> None:
    @ui.page("/schedules", nav="Schedules", takes=("cursor", "done"))
    async def show(visit: Visit) -> Response:
        answer, links = await visit.listed("/v1/schedules", PAGE_SCHEDULES)
        return visit.render(
            "schedules.html",
            schedules=[(row, _when(row)) for row in answer.get("schedules", [])],
            done=DONE.get(visit.done, ""),
            command=visit.command("jqd", "schedules"),
            **links,
        )

    @ui.page("/schedule", takes=("name", "done", "job"))
    async def edit(visit: Visit) -> Response:
        name = visit.query.get("name", "")
        if not name:
            return _editor(visit, NEW)
        row = await visit.api.get(path_of("schedules", name))
        done = DONE.get(visit.done, "")
        return _editor(visit, _typed_before(row), row=row, when=_when(row), done=done)

    @ui.act("/schedule/set")
    async def set_(visit: Visit) -> Response:
        return await _set(visit, typed(visit.form, *FIELDS))

    @ui.act("/schedule/run")
    async def run(visit: Visit) -> Response:
        name = visit.form.get("name", "")
        job_id = await visit.api.client.run_schedule(name)
        return visit.go("/schedule", name=name, done="run", job=job_id)

    ui.acts("/schedule", pause=AsyncClient.pause_schedule, resume=AsyncClient.resume_schedule)
    warning = "None of its dates comes any more. Jobs that it pushed stay."
    ui.deletes("schedule", AsyncClient.delete_schedule, warning, to="/schedules")


async def _set(visit: Visit, typed: dict[str, str]) -> Response:
    faults, before = dict[str, Fault](), await row_of(visit, "schedule", typed["name"])
    job = dict((before or {}).get("job") or {}) | {
        "name": typed["jobtype"],
        "tags": [tag.strip() for tag in typed["tags"].splitlines() if tag.strip()],
    }
    try:
        if "argument" in visit.form:  # the form lacks it if it was too long
            job["argument"] = read_value(typed["argument"] or "null")
    except ValueError as error:
        faults["argument"] = Fault(str(error))
    done = await set_named(visit, "schedule", typed, _body(typed, job), faults, POINTERS)
    if isinstance(done, Wrong):
        return _editor(visit, typed, faults=done.faults, status=done.status)
    return visit.go("/schedule", name=typed["name"], done="set")


def _editor(visit: Visit, typed: dict[str, str], *, status: int = 200, **more: Any) -> Response:
    name = typed["name"]
    is_known = bool(visit.query.get("name") or visit.form.get("known"))
    flags = {each: typed[each] for each in ("cron", "every", "missed", "overlap", "jitter", "until")}
    words = [name or "NAME", typed["jobtype"] or "JOBTYPE", typed["argument"]]
    tags = [f"--tag={tag}" for tag in typed["tags"].splitlines()]
    # The job of an existing schedule may have fields that the form lacks: a command that sets it would drop them.
    shows = visit.command("jqd", "schedules", "next", of=(name,))
    sets = visit.command("jqd", "schedules", "set", *tags, of=words, tz=typed["tz"] if typed["cron"] else "", **flags)
    more.setdefault("faults", {})
    return visit.render(
        "schedule.html",
        status=status,
        typed=typed,
        is_known=is_known,
        has_argument="argument" in visit.form if visit.form else typed["argument"] != TOO_LONG,
        call="/v1/schedules/NAME" if name_fault("schedule", name) else path_of("schedules", name),
        command=shows if is_known else sets,
        **more,
    )


def _when(row: dict[str, Any]) -> str:
    """Return, as text, when a schedule fires."""
    if row.get("every"):
        return f"every {lasting(row['every'])}"
    return f"{row.get('cron')} {row.get('tz')}"


def _body(typed: dict[str, str], job: dict[str, Any]) -> dict[str, Any]:
    """Return the API body for the schedule in a form. `job`: the job that it pushes."""
    body: dict[str, Any] = {"job": job, "missed": typed["missed"], "overlap": typed["overlap"]}
    if typed["cron"]:
        body |= {"cron": typed["cron"], "tz": typed["tz"] or "UTC"}
    if typed["every"]:
        body["every"] = seconds_of(typed["every"])
    if typed["jitter"]:
        body["jitter"] = seconds_of(typed["jitter"])
    return body | ({"until": number_of(typed["until"])} if typed["until"] else {})


def _typed_before(row: dict[str, Any]) -> dict[str, str]:
    """Return the field values with which the form shows an existing schedule."""
    argument = value(row["job"].get("argument"))
    fields = {each: "" if row.get(each) is None else str(row[each]) for each in FIELDS} | {
        "jobtype": row["job"]["name"],
        "argument": argument.text if argument.is_whole else TOO_LONG,
        "tags": "\n".join(row["job"].get("tags") or ()),
    }
    for each in ("every", "jitter"):
        fields[each] = f"{row[each]:g}" if row.get(each) else ""
    return fields
