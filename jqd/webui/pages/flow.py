"""Page Flow: a job with its ancestors and descendants, as steps and as a picture. Page Group: the jobs of a group by
state. Both can cancel or retry all their jobs at once."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from quart import Response
from werkzeug.exceptions import BadRequest

from jqd.client import AsyncClient, Changed, FlowInfo, FlowJob, GroupInfo
from jqd.client.flows import LOOK_S, converted, depths_of, group_path
from jqd.client.job_info import FINAL_STATES
from jqd.client.path import job_path
from jqd.webui.pages.now import STATES
from jqd.webui.picture import draw
from jqd.webui.rights import OPERATE, READ
from jqd.webui.visit import Addresses, Visit

GROUP_S = 5.0  # how long an answer about a group is shared: the daemon reads up to 10,000 jobs for it
PAGE = 200  # jobs on a page: some screens, and the most of a picture


class Whole(NamedTuple):
    """How to cancel, retry or close a whole flow or group: the paths, texts and calls for it."""

    page: str
    key: str
    """Name of the query parameter and form field that has the id of the flow, or the name of the group."""
    api_path: Callable[[str], str]
    warnings: Mapping[str, str]
    """Act → warning that is shown before it is confirmed."""
    calls: Mapping[str, Callable[..., Awaitable[Changed]]]
    """Act → method of the client; with `dry_run` it only counts the jobs."""
    command: tuple[str, ...]
    """Words of the command line that come before the act."""
    flags: Mapping[str, Any]


FLOW = Whole(
    "/flow",
    "id",
    lambda job_id: f"{job_path(job_id)}/flow",
    {
        "cancel": "All that have not ended are cancelled; what runs is told to stop.",
        "retry": "All that failed, or were cancelled for a parent, are tried again.",
    },
    {"cancel": AsyncClient.cancel_flow, "retry": AsyncClient.retry_flow},
    ("jqd",),
    {"flow": True},
)
GROUP = Whole(
    "/group",
    "name",
    group_path,
    {
        "close": "No job joins it any more, and none can be named later that waits for all of its jobs.",
        "cancel": "All of its jobs that have not ended are cancelled, and the one that waits for them.",
        "retry": "All of its jobs that failed are tried again, and the one that waits for them.",
    },
    {"cancel": AsyncClient.cancel_group, "retry": AsyncClient.retry_group},
    ("jqd", "groups"),
    {},
)
DONE = {"cancel": "cancelled", "retry": "tried again", "close": "closed"}


def register(ui: Addresses) -> None:
    takes = ("id", "state", "cursor", "done", "changed", "more")
    ui.page("/flow", needs=READ, takes=takes)(_flow)
    ui.page("/flow/confirm", needs=OPERATE, takes=("id", "act"))(partial(_confirm, FLOW))
    ui.page("/group", needs=READ, takes=("name", "done", "changed"))(_group)
    ui.page("/group/confirm", needs=READ, takes=("name", "act"))(partial(_confirm, GROUP))
    for whole in (FLOW, GROUP):
        for act in whole.calls:
            ui.act(f"{whole.page}/{act}")(partial(_change, whole, act))
    ui.acts("/group", close=AsyncClient.close_group)


async def _confirm(whole: Whole, visit: Visit) -> Response:
    named, act = visit.named(whole.key), visit.query.get("act", "")
    if act not in whole.warnings:
        raise BadRequest(f"nothing to confirm is called {act!r}")
    if whole is FLOW:
        await _meet(visit, named)
    counted = await whole.calls[act](visit.api.client, named, dry_run=True) if act in whole.calls else None
    return visit.render(
        "whole.html",
        title=f"{act.capitalize()} this {whole.page[1:]}?",
        warning=whole.warnings[act],
        act=act,
        page=whole.page,
        fields={whole.key: named},
        matched=None if counted is None else counted.matched,
        call=f"{whole.api_path(named)}/{act}",
        command=visit.command(*whole.command, act, of=(named,), **whole.flags),
    )


async def _change(whole: Whole, act: str, visit: Visit) -> Response:
    named = visit.named(whole.key)
    changed = await whole.calls[act](visit.api.client, named)
    more = None if changed.whole else "1"
    return visit.go(whole.page, **{whole.key: named}, done=act, changed=changed.changed, more=more)


async def _flow(visit: Visit) -> Response:
    job_id, state = visit.named("id"), visit.query.get("state", "")
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
    """Read a job and return it. Its tenant becomes the tenant of the visit, because the ids in its flow belong to that
    tenant."""
    job = await visit.api.get(job_path(job_id))
    visit.meet(job)
    return job


async def _group(visit: Visit) -> Response:
    name = visit.named("name")
    path = group_path(name)
    group = converted(await visit.api.get(path, GROUP_S, wait_s=LOOK_S), GroupInfo)
    return visit.render(
        "group.html",
        group=group,
        is_live=group.progress < 1,
        states=(*STATES, "unknown"),
        done=_done(visit),
        call=path,
        command=visit.command("jqd", "groups", "get", of=(name,)),
    )


def _counts(jobs: Sequence[FlowJob]) -> list[tuple[str, int]]:
    counts = Counter(job.state for job in jobs)
    return [(state, counts[state]) for state in STATES]


def _done(visit: Visit) -> str:
    """Return the message that the page shows after an act; empty if there was none."""
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
