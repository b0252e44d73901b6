"""Page Job: everything known about a job, why it waits, and buttons that change it."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from quart import Response
from werkzeug.exceptions import BadRequest

from jqd.client import Conflict, Invalid, NotFound
from jqd.client.job_info import FINAL_STATES
from jqd.client.path import job_path
from jqd.webui.api import Api, together
from jqd.webui.forms import number_of
from jqd.webui.rights import READ
from jqd.webui.values import read_value
from jqd.webui.visit import Addresses, Visit

FLOW_SHOWN_MAX = 50  # jobs of the flow in the table
IRREVERSIBLE = {
    "cancel": "It will not run; what runs is told to stop, and what it did so far is done. It can be retried.",
    "delete": "It is deleted for good, with its argument, result and history.",
}
"""Act that has to be confirmed → warning that is shown before."""
DONE = {
    "cancel": "The job is cancelled, or will be as soon as its worker stops.",
    "retry": "The job is tried again.",
    "run-now": "The job waits for its date no longer.",
    "priority": "The job has another priority.",
    "mend": "The job is tried again with this argument.",
}
"""Act → message that the page shows after it."""
LEFT = {"delete": "The job is deleted."}

Act = Callable[[Visit, str], Awaitable[object]]


def register(ui: Addresses) -> None:
    @ui.page("/job", needs=READ, takes=("id", "done"))
    async def show(visit: Visit) -> Response:
        return await _page(visit, visit.named("id"), done=DONE.get(visit.done, ""))

    @ui.page("/job/confirm", needs=READ, takes=("id", "act"))
    async def confirm(visit: Visit) -> Response:
        job_id, act = visit.named("id"), visit.query.get("act", "")
        if act not in IRREVERSIBLE:
            raise BadRequest(f"nothing to confirm is called {act!r}")
        job = await visit.api.get(job_path(job_id))
        visit.meet(job)
        return visit.render("confirm.html", job=job, act=act, warning=IRREVERSIBLE[act])

    for name, act in ACTS.items():
        ui.act(f"/job/{name}")(partial(_act, name, act))


async def _act(name: str, act: Act, visit: Visit) -> Response:
    """Do an act (`cancel`, say) to the job that the form names, and redirect to the job's page. If the API refuses the
    act, return the page with the reason above the job, and keep what was typed."""
    job_id = visit.named("id")
    try:
        await act(visit, job_id)
    except (Conflict, Invalid, ValueError) as error:
        return await _page(visit, job_id, refused=str(error), status=getattr(error, "status", None) or 422)
    if name in LEFT:
        return visit.go("/jobs", done=name)
    return visit.go("/job", id=job_id, done=name)


async def _page(visit: Visit, job_id: str, *, done: str = "", refused: str = "", status: int = 200) -> Response:
    api, path = visit.api, job_path(job_id)
    job = await api.get(path)
    visit.meet(job)
    api, path = visit.api, job_path(job.get("id") or job_id)
    ended = job["state"] in FINAL_STATES
    more: dict[str, Callable[[], Awaitable[Any]]] = {"log": partial(_found, api, f"{path}/log")}
    if not ended:
        more["why"] = partial(_found, api, f"{path}/why")
    if job.get("parents") or job.get("parent") or job.get("then"):
        more["flow"] = partial(_found, api, f"{path}/flow")
    found = await together(**more)
    flow = (found.get("flow") or {}).get("jobs", [])
    return visit.render(
        "job.html",
        status=status,
        job=job,
        ended=ended,
        log=(found["log"] or {}).get("log") or job.get("log") or "",
        why=found.get("why"),
        flow=flow[:FLOW_SHOWN_MAX],
        more_flow=max(0, len(flow) - FLOW_SHOWN_MAX),
        done=done,
        refused=refused,
        typed=visit.form.get("argument"),
        call=path,
        command=visit.command("jqd", "get", of=(job_id,)),
    )


async def _found(api: Api, path: str) -> dict[str, Any] | None:
    """Return the answer of a GET; None if the API answers 404."""
    try:
        return await api.get(path)
    except NotFound:
        return None


# ---------------------------------------------------------------- acts


async def _cancel(visit: Visit, job_id: str) -> None:
    if not await visit.api.client.cancel(job_id):
        raise ValueError("it has ended already, so there is nothing to cancel")


async def _priority(visit: Visit, job_id: str) -> None:
    wanted = visit.form.get("priority", "").strip()
    priority = number_of(wanted)
    if not isinstance(priority, int):
        raise ValueError(f"{wanted[:32]!r} is no priority: a whole number is, and a smaller one runs first")
    await visit.api.client.change(job_id, priority=priority)


async def _mend(visit: Visit, job_id: str) -> None:
    await visit.api.client.retry(job_id, argument=read_value(visit.form.get("argument", "")))


ACTS: dict[str, Act] = {
    "cancel": _cancel,
    "delete": lambda visit, job_id: visit.api.client.delete(job_id),
    "retry": lambda visit, job_id: visit.api.client.retry(job_id),
    "run-now": lambda visit, job_id: visit.api.client.run_now(job_id),
    "priority": _priority,
    "mend": _mend,
}
