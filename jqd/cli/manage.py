"""Commands that change one job or many, pause jobtypes, and remove workers."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated, Any

from cyclopts import Parameter

from jqd.cli.argument import argument as read_argument
from jqd.cli.common import Common, Flag, age, checked_id, duration
from jqd.cli.exits import Exit, Usage, exit_of
from jqd.cli.flows import tally
from jqd.cli.printing import counted, print_note
from jqd.cli.render import show, show_as
from jqd.cli.show import Matching
from jqd.client import Cancel, Changed, Client, Conflict, NotFound
from jqd.client.job_info import FINAL_STATES

IDS_MAX = 1_000  # ids in one request

Whole = Annotated[bool, Parameter(name="--all", negative="", show_default=False)]


@Parameter(name="*")
@dataclass(frozen=True)
class Sure:
    """Options of a change of many jobs: confirm it beforehand, or only count the jobs."""

    dry_run: Flag = False
    """Only count the jobs."""
    yes: Flag = False
    """Do not ask for confirmation."""


Act = Callable[[Client, str], dict[str, Any]]


def cancel(
    *job_ids: str,
    all_: Whole = False,
    state: str | None = None,
    flow: Flag = False,
    which: Matching = Matching(),
    sure: Sure = Sure(),
    common: Common = Common(),
) -> int:
    """Cancel jobs that have not ended: those with these ids, or with --all those that match all other options.

    Parameters
    ----------
    job_ids
        Ids of jobs.
    all_
        Cancel all jobs that match --state, --name, --tag …; shows how many, and asks first unless --yes is given.
    state
        Only jobs in this state: waiting, scheduled, blocked, running or retrying.
    flow
        With one id: cancel the job and all others of its flow (`jqd flow` lists them).
    """
    filters = _one_of(job_ids, all_, which, state=state, dry_run=sure.dry_run and not flow)
    if flow:
        job_id = _one_id(job_ids, "flow")
        with common.client() as client:
            found = client.cancel_flow(job_id, dry_run=sure.dry_run)
            return tally(found, "cancelled", common, dry_run=sure.dry_run)
    if all_ and filters in ([], ["--dry-run"]):
        raise Usage("all of which? Give --state, --name, --tag or --error")
    if state in FINAL_STATES:
        raise Usage(f"--state {state}: it has ended, and only jobs that have not are cancelled")
    with common.client() as client:
        if all_:
            return _many("cancel", partial(client.cancel_many, state=state, **which.asked()), sure, common)
        return _each(job_ids, "cancel", lambda job_id: _cancel(client, job_id), common)


def retry(
    *job_ids: str,
    all_: Whole = False,
    state: str | None = None,
    which: Matching = Matching(),
    argument: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    text: Flag = False,
    priority: int | None = None,
    in_: Annotated[str | None, Parameter(name="--in", allow_leading_hyphen=True)] = None,
    flow: Flag = False,
    sure: Sure = Sure(),
    common: Common = Common(),
) -> int:
    """Retry failed or cancelled jobs: those with these ids, or with --all those that match all other options.

    Parameters
    ----------
    job_ids
        Ids of jobs.
    all_
        Retry all failed jobs that match; with --state cancelled the cancelled ones. Shows how many, and asks first
        unless --yes is given.
    state
        Only jobs in this state: failed (the default) or cancelled.
    argument
        With one id: new argument of the job, written as for push.
    text
        Take --argument as a string, even if it looks like JSON.
    priority
        With one id: new priority of the job.
    in_
        With one id: wait this long before the job starts: 90, 30s, 5m, 2h, 1d.
    flow
        With one id: all jobs of its flow (`jqd flow` lists them) that failed, or were cancelled because of a parent.
    """
    _one_of(job_ids, all_, which, state=state, dry_run=sure.dry_run and not flow)
    if state not in (None, "failed", "cancelled"):
        raise Usage(f"--state {state}: only failed and cancelled jobs are retried")
    changes: dict[str, Any] = {} if argument is None else {"argument": read_argument(argument, as_text=text)}
    if priority is not None:
        changes["priority"] = priority
    if in_ is not None:
        changes["delay"] = duration(in_, "--in")
    if changes:
        flag = next(iter(changes)).replace("delay", "in")
        _one_id(job_ids, flag)
        if flow:
            raise Usage(f"--{flag} changes one job, --flow tries several anew: give one of them")
    if flow:
        job_id = _one_id(job_ids, "flow")
        with common.client() as client:
            found = client.retry_flow(job_id, dry_run=sure.dry_run)
            return tally(found, "retried", common, dry_run=sure.dry_run)
    with common.client() as client:
        if all_:
            act = partial(client.retry_many, state=state or "failed", **which.asked())
            return _many("retry", act, sure, common)
        if len(job_ids) == 1:
            return _each(job_ids, "retry", lambda job_id: (client.retry(job_id, **changes).state, Exit.DONE), common)
        return _named(job_ids, "retry", "waiting", lambda ids: client.retry_many(job_ids=ids), common)


def _one_id(job_ids: tuple[str, ...], flag: str) -> str:
    if len(job_ids) != 1:
        raise Usage(f"--{flag} is about one job; name it")
    return checked_id(job_ids[0])


def run_now(*job_ids: str, common: Common = Common()) -> int:
    """Run jobs now that wait for their date, or for other jobs: then without their results.

    Parameters
    ----------
    job_ids
        Ids of jobs.
    """
    _one_of(job_ids, False)
    with common.client() as client:
        return _each(job_ids, "run_now", lambda job_id: (client.run_now(job_id).state, Exit.DONE), common)


def delete(
    *job_ids: str,
    all_: Whole = False,
    state: str | None = None,
    which: Matching = Matching(),
    sure: Sure = Sure(),
    common: Common = Common(),
) -> int:
    """Delete ended jobs for good: those with these ids, or with --all those that failed and match all other options.

    Parameters
    ----------
    job_ids
        Ids of jobs.
    all_
        Delete all failed jobs that match; with --state those in that state. Shows how many, and asks first unless --yes
        is given.
    state
        Only jobs in this state: failed (the default), cancelled or succeeded.
    """
    _one_of(job_ids, all_, which, state=state, dry_run=sure.dry_run)
    if state not in (None, *FINAL_STATES):
        raise Usage(f"--state {state}: only jobs that have ended are deleted; cancel them first")
    with common.client() as client:
        if not all_:
            if len(job_ids) == 1:
                return _each(job_ids, "delete", lambda job_id: _delete(client, job_id), common)
            return _named(job_ids, "delete", "deleted", lambda ids: client.delete_many(job_ids=ids), common)
        act = partial(client.delete_many, state=state or "failed", **which.asked())
        return _many("delete for good", act, sure, common)


def clean(*, older: str, dry_run: Flag = False, common: Common = Common()) -> int:
    """Delete jobs that succeeded or were cancelled longer ago than --older. Failed jobs stay.

    Parameters
    ----------
    older
        Least time since a job ended: 30s, 5m, 2h or 7d, always with the unit.
    dry_run
        Only count the jobs.
    """
    old = timedelta(seconds=age(older, "--older"))
    with common.client() as client:
        return _show_changed(client.clean(old, dry_run=dry_run), common)


def forget(*worker_ids: str, common: Common = Common()) -> int:
    """Remove workers from all daemons. Their jobs in flight may still end.

    Parameters
    ----------
    worker_ids
        Ids of workers, as `jqd workers` shows them.
    """
    if not worker_ids:
        raise Usage("which workers? Give their ids; `jqd workers` shows them")
    with common.client() as client:
        return _each(worker_ids, "rm", lambda one: _forget(client, one), common, called="worker_id")


def pause(*jobtypes: str, all_: Whole = False, reason: str = "", common: Common = Common()) -> int:
    """Pause jobtypes: no daemon starts their jobs until they are resumed. Running jobs go on.

    Parameters
    ----------
    jobtypes
        Names of jobtypes.
    all_
        Instead of names: pause all jobtypes of the token's tenant, or of the tenant that --tenant names.
    reason
        Why they are paused: a line that is shown with the jobtypes and their jobs.
    """
    if all_ and reason:
        raise Usage("--reason is of jobtypes that are named")
    if all_:
        return _whole(jobtypes, common, lambda client: client.pause_all())
    return _types(jobtypes, "pause", common, lambda client, name: client.pause_type(name, reason=reason), "paused")


def resume(*jobtypes: str, all_: Whole = False, common: Common = Common()) -> int:
    """Resume paused jobtypes: their jobs start again.

    Parameters
    ----------
    jobtypes
        Names of jobtypes.
    all_
        End the pause of the whole tenant (the token's, or --tenant). Jobtypes paused by name stay paused.
    """
    if all_:
        return _whole(jobtypes, common, lambda client: client.resume_all())
    return _types(jobtypes, "resume", common, lambda client, name: client.resume_type(name), "resumed")


def _whole(names: tuple[str, ...], common: Common, act: Callable[[Client], dict[str, Any]]) -> int:
    """Pause or resume all jobtypes of a tenant, for `--all`; print the new state. `act`: makes the call. Returns the
    exit code. Raises Usage if jobtypes are named as well."""
    if names:
        raise Usage("name jobtypes, or give --all: not both")
    with common.client() as client:
        answer = act(client)
    if answer.get("note"):
        print_note(answer["note"])
    whose = f"all jobs of tenant {answer['tenant']!r}" if answer["tenant"] else "all jobs without a tenant"
    state = f"paused since {answer['paused_at']}" if answer["paused_at"] else "resumed"
    show_as(f"{whose}: {state}", answer, common.output)
    return Exit.DONE


def _types(names: tuple[str, ...], what: str, common: Common, act: Act, done: str) -> int:
    if not names:
        raise Usage(
            "which jobtypes? Give their names (`jqd types` shows those that have jobs), or --all"
            + (f" for all of tenant {common.tenant!r}" if common.tenant else "")
        )

    def acted(client: Client, name: str) -> tuple[str, Exit]:
        if note := act(client, name).get("note"):
            print_note(note)
        return done, Exit.DONE

    with common.client() as client:
        return _each(names, what, lambda name: acted(client, name), common, called="name")


def _many(what: str, act: Callable[..., Changed], sure: Sure, common: Common) -> int:
    if sure.dry_run or sure.yes:
        return _show_changed(act(dry_run=sure.dry_run), common)
    counted = act(dry_run=True)
    if counted.matched:
        _sure(what, counted.matched)
        counted = act(counted=counted)
    return _show_changed(counted, common)


def _sure(what: str, matched: int) -> None:
    """Ask the person to confirm a change (`what`) of `matched` jobs. Raises Usage if the person says no, or stdin is no
    terminal."""
    if not sys.stdin.isatty():
        raise Usage(f"this would {what} {counted(matched, 'job')}; say so with --yes, or count them with --dry-run")
    print_note(f"{what}: {counted(matched, 'job')}. Sure? [y/N] ", end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Usage("nothing was done")


def _one_of(job_ids: tuple[str, ...], all_: bool, which: Matching = Matching(), **given: Any) -> list[str]:
    """Check that a command got either ids of jobs or --all, and filters only with --all. Returns the flags of the
    filters that were given, such as `--name`. `given`: value of each further option that is a filter. Raises Usage."""
    filters = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    filters = [*(flag for flag, _ in which.given()), *filters]
    if job_ids and (all_ or filters):
        raise Usage(f"name jobs, or give {' '.join(['--all', *filters[:1]])}: not both")
    if not job_ids and not all_:
        hint = f"; {filters[0]} goes with --all" if filters else ""
        raise Usage(f"which jobs? Give their ids{hint}")
    return filters


def _named(
    job_ids: tuple[str, ...], what: str, done: str, act: Callable[[Sequence[str]], Changed], common: Common
) -> int:
    """Change all jobs with these ids, a thousand with each call of `act`; return the exit code. Prints for each id,
    under the heading `what`, either `done` or why the job was not changed."""
    wished = [checked_id(job_id) for job_id in dict.fromkeys(job_ids)]
    refused: dict[str, Mapping[str, Any]] = {}
    for at in range(0, len(wished), IDS_MAX):
        refused |= {str(row["job_id"]): row for row in act(wished[at : at + IDS_MAX]).refused}
    rows = [{"job_id": each, what: refused[each]["detail"] if each in refused else done} for each in wished]
    show(rows, common.output)
    codes = [Exit.NOT_FOUND if row["status"] == 404 else Exit.FAILED for row in refused.values()]
    return max(codes, default=Exit.DONE)


def _each(
    job_ids: tuple[str, ...],
    what: str,
    act: Callable[[str], tuple[str, Exit]],
    common: Common,
    *,
    called: str = "job_id",
) -> int:
    """Call `act` for each id or name; `act` returns a result to be printed, and an exit code. If it raises NotFound or
    Conflict for one of several ids, that is printed as the result; for a single id it is raised. Returns the highest
    exit code. `what`, `called`: headings of the results and of the ids."""
    rows: list[dict[str, str]] = []
    codes: list[Exit] = []
    for job_id in map(checked_id, job_ids):
        try:
            row_value, code = act(job_id)
        except (NotFound, Conflict) as error:
            if len(job_ids) == 1:
                raise
            row_value, code = str(error), exit_of(error)
        rows.append({called: job_id, what: row_value})
        codes.append(code)
    show(rows[0] if len(rows) == 1 else rows, common.output)
    return max(codes)


def _cancel(client: Client, job_id: str) -> tuple[str, Exit]:
    done = client.cancel(job_id)
    return str(done.value), Exit.FAILED if done is Cancel.TOO_LATE else Exit.DONE


def _delete(client: Client, job_id: str) -> tuple[str, Exit]:
    client.delete(job_id)
    return "deleted", Exit.DONE


def _forget(client: Client, worker_id: str) -> tuple[str, Exit]:
    client.unregister(worker_id)
    return "forgotten", Exit.DONE


def _show_changed(changed: Changed, common: Common) -> int:
    show({"matched": changed.matched, "changed": changed.changed}, common.output)
    return Exit.DONE
