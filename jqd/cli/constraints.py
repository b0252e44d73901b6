"""Commands about constraints."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.text import Text

from jqd.cli.common import Common, Flag
from jqd.cli.exits import Exit, Usage
from jqd.cli.printing import counted, print_line, print_note
from jqd.cli.render import show, table, tenants_of, whose
from jqd.cli.show import deleted, rows_of
from jqd.domain.dates import lasting
from jqd.domain.units import seconds

Name = Annotated[str, Parameter(help="Name of the constraint.")]


def ls(*, common: Common = Common()) -> int:
    """List the constraints, each with the number of jobs for which its expressions failed."""
    none = "there is no constraint; `jqd constraints set` makes one"
    return rows_of(common, lambda client: client.constraints(), _table, none)


def get(name: Name, /, *, common: Common = Common()) -> int:
    """Show a constraint."""
    with common.client() as client:
        _show(client.constraint(name), common)
    return Exit.DONE


@Parameter(name="*")
@dataclass(frozen=True)
class ConstraintFlags:
    """Options that describe a constraint, for `set` and `dry-run`."""

    rate: str | None = None
    """How many jobs may start in a time: 10/s, 100/m, 5000/h, 3/90s."""
    burst: int = 0
    """How many more may start at once; this allowance refills at the rate."""
    concurrency: int | None = None
    """How many jobs may run at the same time."""
    pause: str | None = None
    """Start no jobs until a date like 2030-01-31T12:00:00Z, or for `ever`."""
    key: str | None = None
    """An expression: each of its values has a limit of its own, like job.argument.customer."""
    cost: str | None = None
    """Expression, like job.argument.pages: as how many jobs one job counts for the rate."""
    on_error: Literal["hold", "pass"] | None = None
    """What becomes of jobs for which an expression fails: hold (they wait, the default) or pass."""
    exact: Flag = False
    """Refuse the constraint if the store has several partitions: each would count by itself."""

    def asked(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `Client.set_constraint`. Raises Usage."""
        if self.rate is None and self.burst:
            raise Usage("--burst comes on top of a --rate")
        rate = None if self.rate is None else _rate(self.rate, self.burst)
        fields = {**vars(self), "rate": rate, "pause": True if self.pause == "ever" else self.pause}
        del fields["burst"]
        return fields


def set_(
    name: str,
    match: str,
    /,
    *,
    flags: ConstraintFlags = ConstraintFlags(),
    dry_run: Flag = False,
    common: Common = Common(),
) -> int:
    """Limit how many of the jobs that match an expression may start in a time, or run at once, at all daemons together.

    Parameters
    ----------
    name
        Name of the constraint; an existing one of that name is replaced.
    match
        An expression in CEL: 'job.name == "mail"', '"bulk" in job.tags', 'job.argument.size > 10'.
    dry_run
        Save nothing; only show what it would do to waiting jobs.
    """
    asked = flags.asked()
    with common.client() as client:
        answer = client.set_constraint(name, match, **asked, dry_run=dry_run)
    if dry_run and common.output == "table":
        _print_trial(name, answer)
    else:
        _show(answer, common)
    return Exit.DONE


def dry_run(name: str, match: str, /, *, flags: ConstraintFlags = ConstraintFlags(), common: Common = Common()) -> int:
    """Show what a constraint would do to waiting jobs, and save nothing. The arguments are those of `set`."""
    return set_(name, match, flags=flags, dry_run=True, common=common)


def rm(name: Name, /, *, common: Common = Common()) -> int:
    """Delete a constraint, so that jobs no longer wait for it."""
    return deleted(common, lambda client: client.delete_constraint(name), name=name)


def _rate(text: str, burst: int) -> dict[str, float]:
    limit, slash, per = text.partition("/")
    if not slash or not limit.isdecimal() or not per:
        raise Usage(f"--rate {text!r} is none: write 10/s, 100/m or 3/90s")
    try:
        per_s = seconds(per if per[0].isdecimal() else f"1{per}")
    except ValueError:
        raise Usage(f"--rate {text!r} is none: write 10/s, 100/m or 3/90s") from None
    return {"limit": int(limit), "per_s": per_s, "burst": burst}


def _show(answer: dict[str, Any], common: Common) -> None:
    if common.output != "table":
        show(answer, common.output)
        return
    for name, value in answer.items():
        if value not in (None, False):
            text = _limit(value) if name == "rate" else "true" if value is True else value
            print_line(f"{name:<12}  {text}")


def _print_trial(name: str, answer: dict[str, Any]) -> None:
    keys = f" under {counted(answer['keys'], 'key')}" if answer["matched"] else ""
    print_line(
        f"{name} matches {answer['matched']} of {counted(answer['looked_at'], 'waiting job')}{keys}; "
        f"{answer['delayed']} would not start at once"
    )
    if answer["failed"]:
        print_note(f"it could not be asked of {counted(answer['failed'], 'job')}: {answer['error']}")
    if answer["warning"]:
        print_note(answer["warning"])


def _limit(rate: dict[str, Any]) -> str:
    burst = f", {rate['burst']} more at once" if rate["burst"] else ""
    return f"{rate['limit']} in {lasting(rate['per_s'])}{burst}"


def _table(rows: list[dict[str, Any]]) -> Text:
    cells = []
    for row in rows:
        limits = [_limit(row["rate"])] if row["rate"] else []
        limits += [f"{row['concurrency']} at once"] if row["concurrency"] else []
        limits += [f"paused until {row['paused_until']}" if row["paused_until"] else "paused"] if row["paused"] else []
        failed = row["failed"] or ""
        cells.append((row["name"], row["match"], "; ".join(limits), row["key"] or "", failed, row["error"]))
    styles = {n: "red" for n, row in enumerate(rows) if row["failed"]}
    return table(*whose(("NAME", "MATCH", "LIMIT", "KEY", "ERRORS", "ERROR"), cells, tenants_of(rows), 1), styles)
