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
from jqd.cli.printing import print_note
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
    """Options of a push that tie the job to others."""

    then: Annotated[list[str] | None, Parameter(negative="", allow_leading_hyphen=True)] = None
    """Push this job once it has succeeded, with its result as argument: a NAME, or a job as JSON; may be repeated."""
    after: Annotated[list[str] | None, Parameter(negative="")] = None
    """Do not begin before the job with this id has ended; may be repeated. Without an argument of its own it gets the
    array of their results."""
    result_into: str | None = None
    """Put those results into this field of its argument."""
    one_result: Annotated[bool | None, Parameter(negative="")] = None
    """With one --after: give it the result itself, not an array of one."""
    on_parent_failure: OnFailure | None = None
    """If a job of --after did not succeed: run, cancel or fail it; fail by default."""
    group: str | None = None
    """Make it a member of this group, which is made with its first member."""
    unique: str | None = None
    """While a job with this key lives, push none: print that one's id."""
    while_: Annotated[Until | None, Parameter(name="--while")] = None
    """How long it holds its key: until it is no longer waiting, or until it has ended."""
    debounce: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    """With --unique and --while waiting: put the job off by so long each time, with the last argument: 30s, 5m."""

    def given(self) -> dict[str, Any]:
        """Return the options as the client takes them. Raises Usage."""
        then = None if self.then is None else [job_of(text) for text in self.then]
        return {**vars(self), "then": then, "debounce": self.debounce and duration(self.debounce, "--debounce")}


def job_of(text: str) -> dict[str, Any]:
    """Return a following job, given as a name or as JSON, as a map. Raises Usage."""
    if not text.startswith(JSON_BEGINS):
        return {"name": text}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise Usage(f'--then {text} is no job: {error}; write a NAME, or {{"name": …, "argument": …}}') from None


def flow(job_id: str, /, *, common: Common = Common()) -> int:
    """Show the jobs that a job has to do with: those it waits for, those that wait for it, theirs and so on.

    Parameters
    ----------
    job_id
        The id of any of them.
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
    """Show how the jobs of a group stand, what waits for them, and the first that failed.

    Parameters
    ----------
    group
        Its name.
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
    """Let no more jobs into a group; with --then push a job that waits for all of them. The same again counts once.

    Parameters
    ----------
    group
        Its name.
    then
        The job: a NAME, or a job as JSON; without an argument it gets the array of their results.
    on_parent_failure
        If one of them did not succeed: run, cancel or fail it; fail by default.
    """
    with common.client() as client:
        waits = client.close_group(group, None if then is None else job_of(then), on_parent_failure=on_parent_failure)
    text = f"group {group} is closed" if waits is None else waits.job_id
    show_as(text, {"group": group, "closed": True, "then": waits}, common.output)
    return Exit.DONE


def cancel(group: str, /, *, dry_run: Flag = False, common: Common = Common()) -> int:
    """Cancel all jobs of a group that have not ended, and the one that waits for them.

    Parameters
    ----------
    group
        Its name.
    dry_run
        Only count them.
    """
    with common.client() as client:
        return tally(client.cancel_group(group, dry_run=dry_run), "cancelled", common, dry_run=dry_run)


def retry(group: str, /, *, dry_run: Flag = False, common: Common = Common()) -> int:
    """Have all jobs of a group tried anew that failed, and the one that waits for them, if it failed.

    Parameters
    ----------
    group
        Its name.
    dry_run
        Only count them.
    """
    with common.client() as client:
        return tally(client.retry_group(group, dry_run=dry_run), "tried anew", common, dry_run=dry_run)


def tally(changed: Changed, done: str, common: Common, *, dry_run: bool) -> int:
    """Print how many jobs were changed, or would be."""
    left = changed.matched - changed.changed
    text = f"{changed.changed} jobs {done}{f'; {left} changed meanwhile' if left else ''}"
    counts = {"matched": changed.matched, "changed": changed.changed} | ({} if changed.whole else {"whole": False})
    show_as(f"{changed.matched} jobs would be {done}" if dry_run else text, counts, common.output)
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
