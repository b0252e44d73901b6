"""Commands that look over many jobs and change what becomes of them."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Annotated, Any

from cyclopts import Parameter

from jqd.cli.common import Common, age, checked_id
from jqd.cli.exits import Exit, Usage, exit_of
from jqd.cli.render import show
from jqd.client import Cancel, Changed, Client, Conflict, NotFound
from jqd.client.info import FINAL_STATES

LIST_JOBS = 50  # shown when no number is given: a screen or two

Flag = Annotated[bool, Parameter(negative="")]


@Parameter(name="*")
@dataclass(frozen=True)
class Which:
    """Options of the commands that change all jobs of some kind."""

    name: str | None = None
    """The jobtype."""
    tag: str | None = None
    """One of their tags."""
    dry_run: Flag = False
    """Only count them."""


def jobs(
    *,
    state: str | None = None,
    name: str | None = None,
    tag: str | None = None,
    limit: int = LIST_JOBS,
    common: Common | None = None,
) -> int:
    """List jobs, newest first.

    Parameters
    ----------
    state
        waiting, scheduled, running, retrying, succeeded, failed or cancelled.
    name
        The jobtype.
    tag
        One of their tags.
    limit
        How many at most.
    """
    common = common or Common()
    if limit < 1:
        raise Usage(f"--limit {limit}: list one job or more")
    with common.client() as client:
        found = list(client.jobs(state=state, name=name, tag=tag, limit=limit))
    _say_if_none(found, "no job is of that kind, or the store does not know it yet", common)
    if common.output == "table":
        for info in found:
            when = info.finished_at or info.started_at or info.eligible_at or info.created_at
            at = when.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00") if when else ""
            why = (info.message or "").strip().rpartition("\n")[2]
            show(f"{info.job_id:<26}  {info.state:<9}  {at:<19}  {info.name}  {why}".rstrip(), common.output)
    else:
        show(found, common.output)
    return Exit.DONE


def cancel(
    *job_ids: str,
    all_: Annotated[bool, Parameter(name="--all", negative="")] = False,
    state: str | None = None,
    which: Which | None = None,
    common: Common | None = None,
) -> int:
    """Cancel jobs that have not ended: those named, or with --all those that match all other options.

    Parameters
    ----------
    job_ids
        Ids of jobs.
    all_
        All jobs in that state, of that name, with that tag.
    state
        waiting, scheduled, running or retrying.
    """
    common, which = common or Common(), which or Which()
    _one_of(job_ids, all_, state=state, **asdict(which))
    if all_ and not (state or which.name or which.tag):
        raise Usage("all of which? Give --state, --name or --tag")
    if state in FINAL_STATES:
        raise Usage(f"--state {state}: it has ended, and only jobs that have not are cancelled")
    with common.client() as client:
        if all_:
            return _told(client.cancel_many(state=state, **asdict(which)), common)
        return _each(job_ids, "cancel", lambda job_id: _cancel(client, job_id), common)


def retry(
    *job_ids: str,
    all_: Annotated[bool, Parameter(name="--all", negative="")] = False,
    state: str | None = None,
    which: Which | None = None,
    common: Common | None = None,
) -> int:
    """Have failed or cancelled jobs tried anew: those named, or with --all those that match all other options.

    Parameters
    ----------
    job_ids
        Ids of jobs.
    all_
        All jobs that failed; with --state cancelled those that were cancelled.
    state
        failed or cancelled.
    """
    common, which = common or Common(), which or Which()
    _one_of(job_ids, all_, state=state, **asdict(which))
    if state not in (None, "failed", "cancelled"):
        raise Usage(f"--state {state}: only failed and cancelled jobs are tried anew")
    with common.client() as client:
        if all_:
            return _told(client.retry_many(state=state or "failed", **asdict(which)), common)
        return _each(job_ids, "retry", lambda job_id: (client.retry(job_id).state, Exit.DONE), common)


def run_now(*job_ids: str, common: Common | None = None) -> int:
    """Have jobs run at once that wait for their date.

    Parameters
    ----------
    job_ids
        Ids of jobs.
    """
    common = common or Common()
    _one_of(job_ids, False)
    with common.client() as client:
        return _each(job_ids, "run_now", lambda job_id: (client.run_now(job_id).state, Exit.DONE), common)


def delete(*job_ids: str, common: Common | None = None) -> int:
    """Delete jobs for good that have ended, dead ones too.

    Parameters
    ----------
    job_ids
        Ids of jobs.
    """
    common = common or Common()
    _one_of(job_ids, False)
    with common.client() as client:
        return _each(job_ids, "delete", lambda job_id: _delete(client, job_id), common)


def clean(*, older: str, dry_run: Flag = False, common: Common | None = None) -> int:
    """Delete jobs that ended longer ago than --older; never dead ones, which are kept until somebody deals with them.

    Parameters
    ----------
    older
        30s, 5m, 2h or 7d, always with the unit.
    dry_run
        Only count them.
    """
    common = common or Common()
    old = timedelta(seconds=age(older, "--older"))
    with common.client() as client:
        return _told(client.clean(old, dry_run=dry_run), common)


def types(*, common: Common | None = None) -> int:
    """List the jobtypes that have jobs waiting or running."""
    return _rows(common or Common(), lambda client: client.types(), "no job waits or runs")


def workers(*, common: Common | None = None) -> int:
    """List the workers that are registered at this daemon, and the jobtypes they run."""
    none = "no worker is registered at this daemon; start one with `jqd worker`"
    return _rows(common or Common(), lambda client: client.workers(), none)


def daemons(*, common: Common | None = None) -> int:
    """List the daemons that share one store."""
    return _rows(common or Common(), lambda client: client.daemons(), "no daemon has been heard of yet")


def _rows(common: Common, ask: Callable[[Client], list[dict[str, Any]]], none: str) -> int:
    with common.client() as client:
        rows = ask(client)
    _say_if_none(rows, none, common)
    show(rows, common.output)
    return Exit.DONE


def _say_if_none(rows: Sequence[Any], none: str, common: Common) -> None:
    """Say on stderr that the list is empty: no output at all would look like a command that failed."""
    if not rows and common.output == "table":
        print(f"jqd: {none}", file=sys.stderr)


def _one_of(job_ids: tuple[str, ...], all_: bool, **given: Any) -> None:
    """Raises Usage unless either jobs are named or --all is given."""
    filters = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if job_ids and (all_ or filters):
        raise Usage(f"name jobs, or give {' '.join(['--all', *filters[:1]])}: not both")
    if not job_ids and not all_:
        hint = f"; {filters[0]} goes with --all" if filters else ""
        raise Usage(f"which jobs? Give their ids{hint}")


def _each(job_ids: tuple[str, ...], what: str, act: Callable[[str], tuple[str, Exit]], common: Common) -> int:
    """Do the same to each job named; of several, one that is gone or cannot be changed stops none of the others."""
    rows: list[dict[str, str]] = []
    codes: list[Exit] = []
    for job_id in map(checked_id, job_ids):
        try:
            told, code = act(job_id)
        except (NotFound, Conflict) as error:
            if len(job_ids) == 1:
                raise
            told, code = str(error), exit_of(error)
        rows.append({"job_id": job_id, what: told})
        codes.append(code)
    show(rows[0] if len(rows) == 1 else rows, common.output)
    return max(codes)


def _cancel(client: Client, job_id: str) -> tuple[str, Exit]:
    done = client.cancel(job_id)
    return str(done.value), Exit.FAILED if done is Cancel.TOO_LATE else Exit.DONE


def _delete(client: Client, job_id: str) -> tuple[str, Exit]:
    client.delete(job_id)
    return "deleted", Exit.DONE


def _told(changed: Changed, common: Common) -> int:
    show(changed._asdict(), common.output)
    return Exit.DONE
