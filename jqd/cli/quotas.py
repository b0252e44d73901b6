"""Commands about quotas."""

from typing import Any

from rich.text import Text

from jqd.cli.common import Common
from jqd.cli.exits import Exit, Usage
from jqd.cli.render import show, table
from jqd.cli.show import deleted, rows_of

LIMITS = ("rate", "bytes", "queued", "in_flight", "dead")


def ls(*, common: Common = Common()) -> int:
    """List how much tenants may push, and how many jobs have followers that wait for that (put off)."""
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
    """Say how much a tenant may push, instead of what was said before; what is left out has no limit.

    Parameters
    ----------
    tenant
        Its name.
    rate
        Jobs a second.
    bytes_
        Bytes of jobs a second.
    queued
        Jobs that wait.
    in_flight
        Jobs that have not ended.
    dead
        Jobs that failed and are kept: who has so many pushes no more until some are retried or deleted.
    """
    if (rate, bytes_, queued, in_flight, dead) == (None,) * len(LIMITS):
        raise Usage("which limit? Give --rate, --bytes, --queued, --in-flight or --dead; or `jqd quotas rm`")
    with common.client() as client:
        answer = client.set_quota(tenant, rate=rate, bytes_per_s=bytes_, queued=queued, in_flight=in_flight, dead=dead)
    show(answer, common.output)
    return Exit.DONE


def rm(tenant: str, /, *, common: Common = Common()) -> int:
    """Let a tenant push as much as it likes."""
    return deleted(common, lambda client: client.delete_quota(tenant), tenant=tenant)


def _table(rows: list[dict[str, Any]]) -> Text:
    cells = [(row["tenant"], *(row[limit] for limit in LIMITS), row.get("put_off")) for row in rows]
    return table(("TENANT", "RATE", "BYTES", "QUEUED", "IN FLIGHT", "DEAD", "PUT OFF"), cells)
