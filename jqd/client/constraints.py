"""The client's calls about constraints."""

from collections.abc import Mapping
from typing import Any

from jqd.client.http import Http, all_rows, encode, query
from jqd.client.path import path_of


class Constraints:
    """`Client`'s methods about constraints. A constraint is returned as a dict: `name`, `match`, `rate`, `concurrency`,
    …"""

    _http: Http

    def set_constraint(
        self,
        name: str,
        match: str,
        *,
        rate: Mapping[str, float] | None = None,
        concurrency: int | None = None,
        pause: bool | float | str | None = None,
        cost: str | None = None,
        key: str | None = None,
        on_error: str | None = None,
        exact: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Create or replace a constraint, and return it. It limits how many of the matching jobs may start in a time,
        or run at once.

        `match`: an expression in CEL that selects jobs. `rate`: {"limit": 10, "per_s": 1, "burst": 0}. `concurrency`:
        how many jobs may run at once. `pause`: True, or until a date. `cost`: an expression that says for how many a
        job counts. `key`: an expression; each of its values has a limit of its own. `on_error`: what happens to jobs on
        which an expression fails: "hold" (they wait) or "pass" (they are not limited). `exact`: refuse the constraint
        if the store has several partitions, each of which counts by itself; otherwise `warning` in the answer says how
        many more jobs they may let through. `dry_run`: change nothing, but return what the constraint would do to
        waiting jobs. Raises Invalid, which says where in the expression the error is.
        """
        fields = {
            "match": match,
            "rate": None if rate is None else dict(rate),
            "concurrency": concurrency,
            "pause": pause,
            "cost": cost,
            "key": key,
            "on_error": on_error,
            "exact": exact or None,
        }
        values = {name: value for name, value in fields.items() if value is not None}
        return self._http.call_for_map(
            "a call about a constraint",
            "PUT",
            _path(name),
            body=encode(values),
            params=query(dry_run="1" if dry_run else None),
        )

    def constraints(self) -> list[dict[str, Any]]:
        """Return all constraints, by name."""
        return all_rows(self._http, "constraints")

    def constraint(self, name: str) -> dict[str, Any]:
        """Return one constraint. Raises NotFound."""
        return self._http.call_for_map("a call about a constraint", "GET", _path(name))

    def delete_constraint(self, name: str) -> None:
        """Delete a constraint, so that jobs no longer wait for it. Raises NotFound."""
        self._http.call("DELETE", _path(name), repeatable=False)


def _path(name: str) -> str:
    return path_of("constraints", name)
