"""Commands about schedules."""

from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.text import Text

from jqd.cli.argument import argument as read_argument
from jqd.cli.common import Common, Options, duration
from jqd.cli.exits import Exit, Usage
from jqd.cli.printing import print_line, print_note
from jqd.cli.render import show, show_as, table, tenants_of, whose
from jqd.cli.show import deleted, rows_of
from jqd.domain.dates import ago, lasting
from jqd.domain.visible import operand

Name = Annotated[str, Parameter(help="Name of the schedule.")]


def ls(*, common: Common = Common()) -> int:
    """List the schedules, with the next date of each."""
    none = "there is no schedule; `jqd schedules set` makes one"
    return rows_of(common, lambda client: client.schedules(), _table, none)


def set_(
    name: str,
    jobtype: str,
    argument: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    /,
    *,
    cron: str | None = None,
    every: str | None = None,
    tz: str | None = None,
    missed: Literal["skip", "once", "all"] | None = None,
    overlap: Literal["skip", "queue", "replace"] | None = None,
    jitter: str | None = None,
    until: str | None = None,
    given: Options = Options(),
    common: Common = Common(),
) -> int:
    """Create or change a schedule, which pushes a job at recurring dates; show its next dates.

    Parameters
    ----------
    name
        Name of the schedule; an existing one of that name is changed.
    jobtype
        Jobtype of the job that is pushed.
    argument
        Argument of the job, written as for push.
    cron
        Minute, hour, day of the month, month, day of the week: '30 2 * * *'.
    every
        Instead of --cron: time from one date to the next: 90, 30s, 5m, 2h, 1d.
    tz
        The time zone of --cron, like Europe/Berlin; without it UTC.
    missed
        What to push after dates passed while no daemon could push: once (for the latest date), skip (nothing), or all.
    overlap
        What to do if the last job has not ended at a date: queue (push later), skip the date, or replace (cancel it).
    jitter
        Start each job later than its date, by a random delay up to this: 5m.
    until
        Push no job after this date, like 2030-01-31T08:00:00Z.
    """
    if (cron is None) == (every is None):
        raise Usage("when? Give --cron or --every, one of them")
    job = {"name": jobtype, "argument": read_argument(argument, as_text=given.text), **given.given()}
    with common.client() as client:
        answer = client.set_schedule(
            name,
            job,
            cron=cron,
            every=None if every is None else duration(every, "--every"),
            tz=tz,
            missed=missed,
            overlap=overlap,
            jitter=None if jitter is None else duration(jitter, "--jitter"),
            until=until,
        )
    return _dates(answer, common)


def next_(name: Name, /, *, common: Common = Common()) -> int:
    """Show the next five dates of a schedule."""
    with common.client() as client:
        return _dates(client.schedule(name), common)


def pause(name: Name, /, *, common: Common = Common()) -> int:
    """Pause a schedule: it pushes no jobs until it is resumed."""
    with common.client() as client:
        return _dates(client.pause_schedule(name), common)


def resume(name: Name, /, *, common: Common = Common()) -> int:
    """Resume a schedule. Dates that passed meanwhile are skipped."""
    with common.client() as client:
        return _dates(client.resume_schedule(name), common)


def run(name: Name, /, *, common: Common = Common()) -> int:
    """Push the job of a schedule now, whatever its dates are; prints the job's id."""
    with common.client() as client:
        job_id = client.run_schedule(name)
    show_as(job_id, {"job_id": job_id}, common.output)
    return Exit.DONE


def rm(name: Name, /, *, common: Common = Common()) -> int:
    """Delete a schedule; jobs that it pushed stay."""
    return deleted(common, lambda client: client.delete_schedule(name), name=name)


def _dates(answer: dict[str, Any], common: Common) -> int:
    if common.output != "table":
        show(answer, common.output)
        return Exit.DONE
    for date in answer["next"]:
        print_line(f"{date}  {ago(date)}")
    if answer.get("paused_at"):
        resume = f"jqd schedules resume {operand(answer['name'])}"
        print_note(f"{answer['name']} is paused since {answer['paused_at']}; `{resume}` goes on")
    elif answer.get("waits"):
        print_note(f"{answer['name']} waits: {answer['waits']}")
    elif not answer["next"]:
        print_note(f"{answer['name']} has no date to come")
    return Exit.DONE


def _table(rows: list[dict[str, Any]]) -> Text:
    cells = []
    for row in rows:
        when = row["cron"] or f"every {lasting(row['every'])}"
        zone = row["tz"] if row["cron"] else ""
        date = row["next"][0] if row["next"] else None
        upcoming = "paused" if row.get("paused_at") else ago(date) or "never"
        last = (row.get("last") or {}).get("date")
        cells.append((row["name"], when, zone, row["job"]["name"], upcoming, ago(last), row.get("waits")))
    styles = {n: "red" for n, row in enumerate(rows) if row.get("waits")}
    headings = ("NAME", "WHEN", "ZONE", "JOB", "NEXT", "LAST", "WAITS")
    return table(*whose(headings, cells, tenants_of(rows), 1), styles)
