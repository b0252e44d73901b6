"""Flow: the jobs that a job has to do with, by steps and as a picture. Group: how its jobs stand. Both as a whole."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from quart import Response
from werkzeug.exceptions import BadRequest

from jqd.client import Changed, FlowInfo, FlowJob, GroupInfo
from jqd.client.flows import LOOK_S, converted, depths_of, group_path
from jqd.client.job_info import FINAL_STATES
from jqd.client.path import job_path
from jqd.webui.pages.now import STATES
from jqd.webui.picture import draw
from jqd.webui.rights import OPERATE, READ
from jqd.webui.visit import Visit

if TYPE_CHECKING:
    from jqd.webui.app import Ui

GROUP_S = 5.0  # an answer is shared for so long: it looks at up to 10,000 jobs
PAGE = 200  # jobs: some screens, and as many as a picture has


class Sure(NamedTuple):
    """What a page asks before it is done."""

    title: str
    warning: str
    call: str
    command: str


FLOW_ACTS = {
    "cancel": "All that have not ended are cancelled; what runs is told to stop.",
    "retry": "All that failed, or were cancelled for a parent, are tried again.",
}
GROUP_ACTS = {
    "close": "No job joins it any more, and none can be named later that waits for all of its jobs.",
    "cancel": "All of its jobs that have not ended are cancelled, and the one that waits for them.",
    "retry": "All of its jobs that failed are tried again, and the one that waits for them.",
}
DONE = {"cancel": "cancelled", "retry": "tried again", "close": "closed"}


def register(ui: "Ui") -> None:
    @ui.page("/flow", needs=READ, takes=("id", "state", "cursor", "done", "changed", "more"))
    async def show(visit: Visit) -> Response:
        return await _flow(visit, _named(visit.query, "id"))

    @ui.page("/flow/confirm", needs=OPERATE, takes=("id", "act"))
    async def confirm_flow(visit: Visit) -> Response:
        job_id, act = _named(visit.query, "id"), _act(visit.query.get("act"), FLOW_ACTS)
        await _meet(visit, job_id)
        of = visit.api.client.cancel_flow if act == "cancel" else visit.api.client.retry_flow
        found = await of(job_id, dry_run=True)
        sure = Sure(
            f"{act.capitalize()} this flow?",
            FLOW_ACTS[act],
            f"{job_path(job_id)}/flow/{act}",
            visit.command("jqd", act, of=(job_id,), flow=True),
        )
        return _ask(visit, sure, act, f"/flow/{act}", {"id": job_id}, "/flow", found.matched)

    @ui.page("/group", needs=READ, takes=("name", "done", "changed"))
    async def show_group(visit: Visit) -> Response:
        return await _group(visit, _named(visit.query, "name"))

    @ui.page("/group/confirm", needs=READ, takes=("name", "act"))
    async def confirm_group(visit: Visit) -> Response:
        name, act = _named(visit.query, "name"), _act(visit.query.get("act"), GROUP_ACTS)
        matched = None
        if act != "close":
            of = visit.api.client.cancel_group if act == "cancel" else visit.api.client.retry_group
            matched = (await of(name, dry_run=True)).matched
        sure = Sure(
            f"{act.capitalize()} this group?",
            GROUP_ACTS[act],
            f"{group_path(name)}/{act}",
            visit.command("jqd", "groups", act, of=(name,)),
        )
        return _ask(visit, sure, act, f"/group/{act}", {"name": name}, "/group", matched)

    ui.act("/flow/cancel")(_change("/flow", "id", "cancel", lambda visit: visit.api.client.cancel_flow))
    ui.act("/flow/retry")(_change("/flow", "id", "retry", lambda visit: visit.api.client.retry_flow))
    ui.act("/group/cancel")(_change("/group", "name", "cancel", lambda visit: visit.api.client.cancel_group))
    ui.act("/group/retry")(_change("/group", "name", "retry", lambda visit: visit.api.client.retry_group))

    @ui.act("/group/close")
    async def close(visit: Visit) -> Response:
        name = _named(visit.form, "name")
        await visit.api.client.close_group(name)
        return visit.go("/group", name=name, done="close")


def _change(
    page: str, key: str, act: str, of: Callable[[Visit], Callable[[str], Awaitable[Changed]]]
) -> Callable[[Visit], Awaitable[Response]]:
    async def change(visit: Visit) -> Response:
        named = _named(visit.form, key)
        changed = await of(visit)(named)
        return visit.go(page, **{key: named}, done=act, changed=changed.changed, more=None if changed.whole else "1")

    return change


async def _flow(visit: Visit, job_id: str) -> Response:
    state = visit.query.get("state", "")
    if state not in ("", *STATES):
        raise BadRequest(f"no job of a flow is {state[:32]!r}: one is {', '.join(STATES)}")
    job = await _meet(visit, job_id)
    path = f"{job_path(job_id)}/flow"
    cursor = visit.query.get("cursor") or None
    answer = await visit.api.get(path, wait_s=LOOK_S, limit=PAGE, cursor=cursor)
    found, older = converted(answer, FlowInfo), answer.get("cursor") or None
    is_one = cursor is None and older is None
    depths = depths_of(found.jobs)
    shown = sorted((job for job in found.jobs if state in ("", job.state)), key=lambda job: depths[job.job_id])
    groups = sorted({job.group for job in found.jobs if job.group})
    ended = all(job.state in FINAL_STATES for job in found.jobs)
    return visit.render(
        "flow.html",
        job_id=job_id,
        named=job.get("job_id") or job_id,
        rows=[(depths[job.job_id] + 1, job) for job in shown],
        jobs=len(found.jobs),
        is_one=is_one,
        is_all=found.whole or older is not None,
        is_live=is_one and not ended,
        counts=[(each, count) for each, count in _counts(found.jobs) if count],
        state=state,
        groups=groups,
        several=len(groups) > 1,
        cursor=cursor,
        picture=draw(found.jobs, depths),
        ended=is_one and ended,
        done=_done(visit),
        first=None if cursor is None else visit.link("/flow", id=job_id),
        further=None if older is None else visit.link("/flow", id=job_id, cursor=older),
        call=path,
        command=visit.command("jqd", "flow", of=(job.get("job_id") or job_id,)),
    )


async def _meet(visit: Visit, job_id: str) -> dict[str, Any]:
    """Return this job, and speak for its tenant: it may be named by its id alone; ids in a flow are its tenant's."""
    job = await visit.api.get(job_path(job_id))
    visit.meet(job)
    return job


async def _group(visit: Visit, name: str) -> Response:
    path = group_path(name)
    group = converted(await visit.api.get_kept(path, GROUP_S, wait_s=LOOK_S), GroupInfo)
    return visit.render(
        "group.html",
        group=group,
        is_live=group.progress < 1,
        states=(*STATES, "unknown"),
        done=_done(visit),
        call=path,
        command=visit.command("jqd", "groups", "get", of=(name,)),
    )


def _ask(
    visit: Visit, sure: Sure, act: str, action: str, fields: dict[str, str], back: str, matched: int | None
) -> Response:
    return visit.render("whole.html", sure=sure, act=act, action=action, fields=fields, back=back, matched=matched)


def _counts(jobs: Sequence[FlowJob]) -> list[tuple[str, int]]:
    counts = Counter(job.state for job in jobs)
    return [(state, counts[state]) for state in STATES]


def _done(visit: Visit) -> str:
    """Return what the page says after an act."""
    done, changed = visit.done, visit.query.get("changed", "")
    if done not in DONE:
        return ""
    if done == "close":
        return "The group is closed."
    sentence = f"{changed} jobs are {DONE[done]}." if changed.isdigit() else f"Its jobs are {DONE[done]}."
    return (
        f"{sentence} Not all were found: do it again, or on the flow of one further away."
        if "more" in visit.query
        else sentence
    )


def _act(act: str | None, known: dict[str, str]) -> str:
    if act not in known:
        raise BadRequest(f"nothing to confirm is called {act!r}")
    return act


def _named(fields: Mapping[str, str], key: str) -> str:
    named = fields.get(key, "")
    if not named:
        raise BadRequest(f"which one? Its {key} is missing from the address")
    return named
