"""`jqd tenants`: how the jobs of each tenant stand."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from jqd.cli.common import Common
from jqd.cli.render import ago, instant, table
from jqd.cli.show import STATES, rows_of


def tenants(*, common: Common = Common()) -> int:
    """List the tenants that have jobs, a quota or a pause, and how many of their jobs stand how."""
    return rows_of(common, lambda client: client.tenants(), _tenants, "there are no jobs, and no tenant has a quota")


def _tenants(rows: Sequence[dict[str, Any]]) -> Text:
    cells = [
        (
            row["tenant"] or "(none)",
            row["types"],
            *(row[state] for state in STATES),
            ago(instant(row["oldest_at"])),
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
