"""Commands about quotas, and about the tenants that have them."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from jqd.cli.common import Common
from jqd.cli.exits import Exit, Usage
from jqd.cli.render import show, table
from jqd.cli.show import STATES, deleted, rows_of
from jqd.domain.dates import ago


def tenants(*, common: Common = Common()) -> int:
    """List the tenants that have jobs, a quota or a pause, with their jobs by state."""
    return rows_of(common, lambda client: client.tenants(), _tenants, "there are no jobs, and no tenant has a quota")


def _tenants(rows: Sequence[dict[str, Any]]) -> Text:
    cells = [
        (
            row["tenant"] or "(none)",
            row["types"],
            *(row[state] for state in STATES),
            ago(row["oldest_at"]),
            _quota(row["quota"]),
            "; ".join(_of_tenant(row)),
        )
        for row in rows
    ]
    styles = {n: "yellow" for n, row in enumerate(rows) if row["paused_at"] or row["put_off"]}
    headings = ("TENANT", "TYPES", *(state.upper() for state in STATES), "OLDEST", "QUOTA", "NOTE")
    return table(headings, cells, styles)


def _quota(quota: dict[str, Any] | None) -> str:
    limits = {name: limit for name, limit in (quota or {}).items() if isinstance(limit, (int, float)) and limit}
    return ", ".join(f"{name} {limit:g}" for name, limit in limits.items())


def _of_tenant(row: dict[str, Any]) -> list[str]:
    notes = [f"paused since {row['paused_at']}"] if row["paused_at"] else []
    if row["paused_types"]:
        notes.append(f"{row['paused_types']} types paused")
    if row["put_off"]:
        notes.append(f"followers of {row['put_off']} parents wait for the quota")
    return notes


LIMITS = ("rate", "bytes", "queued", "in_flight", "dead")


def ls(*, common: Common = Common()) -> int:
    """List the quotas of tenants. PUT OFF: number of jobs whose followers are pushed only when the quota has room."""
    return rows_of(common, lambda client: client.quotas(), _table, "no tenant has a quota")


def set_(
    tenant: str,
    /,
    *,
    rate: float | None = None,
    bytes_: float | None = None,
    queued: int | None = None,
    in_flight: int | None = None,
    dead: int | None = None,
    common: Common = Common(),
) -> int:
    """Set how much a tenant may push. This replaces its whole quota: a limit that is left out is removed.

    Parameters
    ----------
    tenant
        Name of the tenant.
    rate
        Most jobs pushed per second.
    bytes_
        Most bytes of jobs pushed per second.
    queued
        Most jobs that wait.
    in_flight
        Most jobs that have not ended.
    dead
        Most failed jobs that are kept. At that number nothing can be pushed until some are retried or deleted.
    """
    if (rate, bytes_, queued, in_flight, dead) == (None,) * len(LIMITS):
        raise Usage("which limit? Give --rate, --bytes, --queued, --in-flight or --dead; or `jqd quotas rm`")
    with common.client() as client:
        answer = client.set_quota(tenant, rate=rate, bytes_per_s=bytes_, queued=queued, in_flight=in_flight, dead=dead)
    show(answer, common.output)
    return Exit.DONE


def rm(tenant: str, /, *, common: Common = Common()) -> int:
    """Delete a tenant's quota, so that it may push without limit."""
    return deleted(common, lambda client: client.delete_quota(tenant), tenant=tenant)


def _table(rows: list[dict[str, Any]]) -> Text:
    cells = [(row["tenant"], *(row[limit] for limit in LIMITS), row.get("put_off")) for row in rows]
    return table(("TENANT", "RATE", "BYTES", "QUEUED", "IN FLIGHT", "DEAD", "PUT OFF"), cells)
