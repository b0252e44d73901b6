"""Page for changes of many jobs: counts all jobs that match a filter, then changes exactly these, in several calls.

The filter contains `before`, the time of the count by the daemon's clock: jobs that come into their state later do not
match. Of some the store does not know when they did, so the daemon also refuses to change more than were counted. One
call of the API (a
piece) examines some thousand jobs, so the browser sends a form for one piece after the other: by itself with
JavaScript, else by a button. The form holds the progress, so the change stops when the page is closed, and survives a
restart of the UI.
"""

import json
from typing import Any, NamedTuple

from quart import Response
from werkzeug.exceptions import BadRequest, UnprocessableEntity

from jqd.client import Conflict, TimedOut, Unavailable, Unreachable
from jqd.client.job_info import FINAL_STATES
from jqd.webui.forms import number_of
from jqd.webui.rights import OPERATE
from jqd.webui.values import count_of
from jqd.webui.visit import Addresses, Visit

FILTER = ("state", "name", "tag", "code", "exitcode", "error", "error_is", "error_like", "search", "since", "before")
"""Names of the API's job filters."""
PIECE_S = 60.0  # added to the usual timeout, for one piece
RETRYABLE = ("failed", "cancelled")
NUMBERS = ("matched", "changed", "met", "looked")  # fields of a `Run`


class Act(NamedTuple):
    """A change that can be made to many jobs (retry, delete, cancel), with its texts."""

    verb: str
    done: str
    warning: str
    is_final: bool = False

    @property
    def title(self) -> str:
        return self.verb.capitalize()


ACTS = {
    "retry": Act("retry", "tried again", "Each is tried again from its first attempt, with the argument it has."),
    "delete": Act(
        "delete", "deleted", "They are deleted for good, with their arguments, results and history.", is_final=True
    ),
    "cancel": Act(
        "cancel",
        "cancelled",
        "They will not run; what runs is told to stop, and what it did so far is done.",
        is_final=True,
    ),
}


class Offer(NamedTuple):
    """A button on a page that lists jobs. It opens the page which changes all jobs that match the list's filter."""

    act: str
    label: str
    fields: dict[str, str]


def offered(which: dict[str, str]) -> list[Offer]:
    """Return a button for each change (retry, delete, cancel) that jobs of the filter may get. Returns none for an
    empty filter, which would mean every job there is."""
    if not which.keys() - {"before"}:
        return []
    state = which.get("state")
    found = []
    for act, states, of in (
        ("retry", RETRYABLE, "that failed"),
        ("delete", FINAL_STATES, "that failed"),
        ("cancel", None, "that have not ended"),
    ):
        fits = state in states if states is not None else state not in FINAL_STATES
        if state is None:
            fields = {**which, "state": "failed"} if states else which
            found.append(Offer(act, f"{ACTS[act].title} all {of}", {"act": act, **fields}))
        elif fits:
            found.append(Offer(act, f"{ACTS[act].title} all of these", {"act": act, **which}))
    return found


class Run(NamedTuple):
    """Progress of the count and of the change. The form carries it from one call to the next."""

    matched: int = 0
    """Matching jobs counted so far."""
    whole: bool = False
    """Whether the count is complete."""
    changed: int = 0
    met: int = 0
    """Matching jobs that the change has examined so far."""
    cursor: str = ""
    looked: int = 0
    """Jobs that the count has examined so far."""

    @classmethod
    def of(cls, form: Any) -> "Run":
        """Read the progress from a form. Raises BadRequest."""
        try:
            matched, changed, met, looked = (count_of(form.get(name, "0")) for name in NUMBERS)
        except ValueError:
            raise BadRequest("this form was changed on its way; begin anew") from None
        return cls(matched, form.get("whole") == "yes", changed, met, str(form.get("cursor", "")), looked)

    @property
    def start(self) -> "Run":
        """The progress when the change begins: all matching jobs are counted, and none is changed."""
        return Run(self.matched, self.whole)

    @property
    def bound(self) -> dict[str, int]:
        """The request's field that keeps a change from jobs that were not counted; empty if the count is not
        complete."""
        return {"matched_max": max(0, self.matched - self.met)} if self.whole else {}

    @property
    def fields(self) -> dict[str, str]:
        numbers = {name: str(getattr(self, name)) for name in NUMBERS}
        return {**numbers, "whole": "yes" if self.whole else "", "cursor": self.cursor}


def register(ui: Addresses) -> None:
    @ui.page("/bulk", needs=OPERATE, takes=(*FILTER, "act"))
    async def ask(visit: Visit) -> Response:
        which = visit.asked(*FILTER)
        act = _act(visit.query)
        if which and "before" not in which:
            answer = await _call(visit, act, which, "", dry_run=True)
            return visit.go("/bulk", act=act, **which, before=answer["at"])
        return await _count(visit, act, _chosen(which), Run())

    @ui.act("/bulk/count")
    async def count(visit: Visit) -> Response:
        return await _count(visit, _act(visit.form), _chosen(_asked(visit.form)), Run.of(visit.form))

    @ui.act("/bulk/piece")
    async def piece(visit: Visit) -> Response:
        act, which, run = _act(visit.form), _chosen(_asked(visit.form)), Run.of(visit.form)
        try:
            answer = await _call(visit, act, which, run.cursor, **run.bound)
        except Conflict as error:
            return _page(visit, act, which, run, phase="refused", refused=str(error))
        except (TimedOut, Unavailable, Unreachable) as error:
            # Part of this piece may be done: those jobs no longer match when the piece is repeated.
            return _page(visit, act, which, run, phase="stopped", refused=str(error))
        cursor = answer.get("cursor") or ""
        run = run._replace(changed=run.changed + answer["changed"], met=run.met + answer["matched"], cursor=cursor)
        return _page(visit, act, which, run, phase="running" if cursor else "done")

    @ui.act("/bulk/stop")
    async def stop(visit: Visit) -> Response:
        form = visit.form
        return _page(visit, _act(form), _chosen(_asked(form)), Run.of(form), phase="stopped")


async def _count(visit: Visit, act: str, which: dict[str, str], run: Run) -> Response:
    answer = await _call(visit, act, which, run.cursor, dry_run=True)
    cursor = answer.get("cursor") or ""
    looked = run.looked + answer.get("looked", 0)
    run = Run(run.matched + answer["matched"], whole=not cursor, cursor=cursor, looked=looked)
    return _page(visit, act, which, run, phase="counted" if run.whole else "counting", of=answer.get("of"))


async def _call(visit: Visit, act: str, which: dict[str, str], cursor: str, **more: Any) -> dict[str, Any]:
    body = {**_body(which), "cursor": cursor, **more}
    return await visit.api.client.ask(f"/v1/jobs/{act}", method="POST", body=body, wait_s=PIECE_S)


def _page(
    visit: Visit,
    act: str,
    which: dict[str, str],
    run: Run,
    *,
    phase: str,
    refused: str = "",
    of: int | None = None,
) -> Response:
    return visit.render(
        "bulk.html",
        act=act,
        what=ACTS[act],
        which=which,
        whose=_whose(visit),
        run=run,
        phase=phase,
        of=of,
        refused=refused,
        fields={"act": act, **which},
        shown={name: each for name, each in which.items() if name != "before"},
        call=f"/v1/jobs/{act} {json.dumps(_body(which), ensure_ascii=False)}",
        command=command_of(visit, act, which, all=True),
    )


def command_of(visit: Visit, verb: str, which: dict[str, str], **flags: Any) -> str:
    """Return the `jqd` command line that does `verb` (`retry`, say) with the jobs of a filter. It leaves out the
    filter's dates, which no command takes."""
    chosen = {name: each for name, each in which.items() if name not in ("since", "before")}
    return visit.command("jqd", verb, **flags, **chosen)


def _whose(visit: Visit) -> str:
    """Return, as text, of which tenants jobs would be changed; empty if this login sees only one tenant."""
    if visit.tenant is None:
        return "all tenants" if visit.me.all_tenants else ""
    return visit.tenant or "none: only jobs of no tenant"


def _act(fields: Any) -> str:
    act = str(fields.get("act", ""))
    if act not in ACTS:
        raise BadRequest(f"nothing that is done to many jobs is called {act!r}")
    return act


def _asked(form: Any) -> dict[str, str]:
    """Return the filter in a form. Raises UnprocessableEntity if the form has an unknown field."""
    odd = form.keys() - {*FILTER, *Run().fields, "act", "tenant", "form_token"}
    if odd:
        raise UnprocessableEntity(f"this form has a field {min(odd)!r}, which chooses no jobs")
    return {name: form[name] for name in FILTER if form.get(name)}


def _chosen(which: dict[str, str]) -> dict[str, str]:
    """Check that a filter is not empty and has `before`; return it. Raises BadRequest."""
    if not which.keys() - {"before"} or "before" not in which:
        raise BadRequest("which jobs? Choose some on the page Jobs: a filter of nothing is every job there is")
    return which


def _body(which: dict[str, str]) -> dict[str, Any]:
    """Turn a filter for jobs (field → text) into a request body: its exit code becomes a number. Raises BadRequest if
    the exit code is no number."""
    if "exitcode" not in which:
        return which
    exitcode = number_of(which["exitcode"])
    if not isinstance(exitcode, int):
        raise BadRequest(f"an exit code is a number, not {which['exitcode'][:32]!r}")
    return {**which, "exitcode": exitcode}
