"""Flows and groups on the command line: options of a push, `jqd flow`, `jqd groups`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.text import Text

from jqd.cli.argument import JSON_BEGINS
from jqd.cli.common import Common, Flag, checked_id, duration
from jqd.cli.exits import Exit, Usage
from jqd.cli.printing import counted, print_note
from jqd.cli.render import COLOURS, console, show, show_as, table
from jqd.client import Changed, FlowInfo
from jqd.client.flows import depths_of
from jqd.domain.flow import OnFailure, Until

NOT_WHOLE = "not all were found: some are on their way, or behind a million links; ask again, or of one further away"
NAMED_MAX = 3  # ids of parents on one line
STYLES = {**COLOURS, "blocked": "yellow"}


@Parameter(name="*")
@dataclass(frozen=True)
class Links:
    """Options of a push that connect the job with others."""

    then: Annotated[list[str] | None, Parameter(negative="", allow_leading_hyphen=True)] = None
    """Job to push when this one has succeeded, with its result as argument: a NAME, or JSON; may be repeated."""
    after: Annotated[list[str] | None, Parameter(negative="")] = None
    """Do not start before the job with this id has ended; may be repeated. A job without an argument gets the array of
    the results of these jobs."""
    result_into: str | None = None
    """With --after: put the results into this field of the argument."""
    one_result: Annotated[bool | None, Parameter(negative="")] = None
    """With a single --after: use the result itself, not an array of one."""
    on_parent_failure: OnFailure | None = None
    """What to do if a job of --after does not succeed: run, cancel or fail (the default) this job."""
    group: str | None = None
    """Add the job to this group. The first job of a group creates it."""
    unique: str | None = None
    """Key of the job. If another job holds this key, push nothing, and print the id of that job."""
    while_: Annotated[Until | None, Parameter(name="--while")] = None
    """How long the job holds the key of --unique: while it is waiting, or until it has ended."""
    debounce: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    """With --unique and --while waiting: each push delays the job anew, and replaces its argument: 30s, 5m."""

    def given(self) -> dict[str, Any]:
        """Return the options as keyword arguments of the client. Raises Usage."""
        then = None if self.then is None else [job_of(text) for text in self.then]
        return {**vars(self), "then": then, "debounce": self.debounce and duration(self.debounce, "--debounce")}


def job_of(text: str) -> dict[str, Any]:
    """Parse the value of --then, a jobtype or a job as JSON. Returns the job as a map. Raises Usage."""
    if not text.startswith(JSON_BEGINS):
        return {"name": text}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise Usage(f'--then {text} is no job: {error}; write a NAME, or {{"name": …, "argument": …}}') from None


def flow(job_id: str, /, *, common: Common = Common()) -> int:
    """Show the flow of a job: all jobs that it waits for or that wait for it, directly or through others.

    Parameters
    ----------
    job_id
        Id of any job in the flow.
    """
    with common.client() as client:
        found = client.flow(checked_id(job_id))
    if common.output == "jsonl":
        show(list(found.jobs), common.output)
    elif common.output != "table":
        show(found, common.output)
    else:
        console().print(_steps(found), end="")
        if not found.whole:
            print_note("there are more: a daemon shows 10,000, and some may be on their way")
    return Exit.DONE


def get(group: str, /, *, common: Common = Common()) -> int:
    """Show the jobs of a group by state, the job that waits for them, and the first that failed.

    Parameters
    ----------
    group
        Name of the group.
    """
    with common.client() as client:
        show(client.group(group), common.output)
    return Exit.DONE


def close(
    group: str,
    /,
    *,
    then: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    on_parent_failure: OnFailure | None = None,
    common: Common = Common(),
) -> int:
    """Close a group: no more jobs can join it. With --then push a job that waits for all its jobs. May be repeated.

    Parameters
    ----------
    group
        Name of the group.
    then
        The job that waits: a NAME, or JSON. If it has no argument, it gets the array of the jobs' results.
    on_parent_failure
        What to do if a job of the group does not succeed: run, cancel or fail (the default) the job of --then.
    """
    with common.client() as client:
        waits = client.close_group(group, None if then is None else job_of(then), on_parent_failure=on_parent_failure)
    text = f"group {group} is closed" if waits is None else waits.job_id
    show_as(text, {"group": group, "closed": True, "then": waits}, common.output)
    return Exit.DONE


def cancel(group: str, /, *, dry_run: Flag = False, common: Common = Common()) -> int:
    """Cancel all jobs of a group that have not ended, and the job that waits for the group.

    Parameters
    ----------
    group
        Name of the group.
    dry_run
        Only count the jobs.
    """
    with common.client() as client:
        return tally(client.cancel_group(group, dry_run=dry_run), "cancelled", common, dry_run=dry_run)


def retry(group: str, /, *, dry_run: Flag = False, common: Common = Common()) -> int:
    """Retry all failed jobs of a group. If the job that waits for the group failed, retry it, too.

    Parameters
    ----------
    group
        Name of the group.
    dry_run
        Only count the jobs.
    """
    with common.client() as client:
        return tally(client.retry_group(group, dry_run=dry_run), "retried", common, dry_run=dry_run)


def tally(changed: Changed, done: str, common: Common, *, dry_run: bool) -> int:
    """Print how many jobs were changed, or with `dry_run` would be changed. `done`: the change in a word, such as
    `cancelled`. Returns the exit code."""
    left = changed.matched - changed.changed
    text = f"{counted(changed.changed, 'job')} {done}{f'; {left} changed meanwhile' if left else ''}"
    counts = {"matched": changed.matched, "changed": changed.changed} | ({} if changed.whole else {"whole": False})
    show_as(f"{counted(changed.matched, 'job')} would be {done}" if dry_run else text, counts, common.output)
    if not changed.whole:
        print_note(NOT_WHOLE)
    return Exit.DONE


def _steps(found: FlowInfo) -> Text:
    depths = depths_of(found.jobs)
    jobs = sorted(found.jobs, key=lambda job: depths[job.job_id])
    rows = [
        (
            depths[job.job_id] + 1,
            job.job_id,
            f"{job.state} for {job.cancelled_for}" if job.cancelled_for else job.state,
            job.attempts,
            job.name,
            _some(job.parents),
            _some(job.waits_for),
        )
        for job in jobs
    ]
    styles = {number: STYLES[job.state] for number, job in enumerate(jobs) if job.state in STYLES}
    return table(("STEP", "ID", "STATE", "ATTEMPTS", "NAME", "AFTER", "WAITS FOR"), rows, styles)


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - NAMED_MAX} more" if len(ids) > NAMED_MAX else ""
    return " ".join(ids[:NAMED_MAX]) + more
