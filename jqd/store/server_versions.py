"""Judges a server's version by known holes, through which anybody who may call a script takes over the machine.

jqd's own scripts are fixed, so another client of the server has to use the hole. There are two limits. Below the first,
scripts can leave their sandbox (CVE-2025-49844 and related), and jqd does not start. Below the second, later holes are
known, and jqd warns.

Distributions mend a version without changing its number, and providers of managed servers do as they like: for these
the number proves nothing, and jqd only warns.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from jqd.domain.diagnostic import Diagnostic, Severity

Version = tuple[int, int, int]


class Lines(NamedTuple):
    """The first versions of one release series without the holes known up to July 2026, from its release notes."""

    sandbox_from: Version
    newest_from: Version


OLDEST: Version = (7, 0, 0)  # older servers know no functions, nor `#!lua` flags
FLOORS: dict[str, dict[tuple[int, int], Lines]] = {
    "redis": {
        (7, 2): Lines((7, 2, 11), (7, 2, 11)),
        (7, 4): Lines((7, 4, 6), (7, 4, 9)),
        (8, 0): Lines((8, 0, 4), (8, 0, 4)),
        (8, 2): Lines((8, 2, 2), (8, 2, 6)),
        (8, 4): Lines((8, 4, 0), (8, 4, 3)),
        (8, 6): Lines((8, 6, 0), (8, 6, 3)),
    },
    "valkey": {
        (7, 2): Lines((7, 2, 11), (7, 2, 12)),
        (8, 0): Lines((8, 0, 6), (8, 0, 7)),
        (8, 1): Lines((8, 1, 4), (8, 1, 9)),
        (9, 0): Lines((9, 0, 0), (9, 0, 5)),
        (9, 1): Lines((9, 1, 0), (9, 1, 1)),
    },
}
# Versions that a distribution keeps and mends under the same number.
FROZEN = {
    ("redis", (7, 0, 15)): "Debian 12 (5:7.0.15-1~deb12u10 or later) or Ubuntu 24.04",
    ("redis", (8, 0, 2)): "Debian 13",
    ("valkey", (8, 1, 1)): "Debian 13",
}


def judge_version(info: Mapping[str, Any], *, managed: bool) -> list[Diagnostic]:
    """Return findings about the version in the server's INFO. `managed`: the server hides its settings."""
    product, version = named(info)
    server = f"{product.capitalize()} {'.'.join(map(str, version))}"
    if version < OLDEST:
        return [
            Diagnostic(
                "version",
                Severity.REFUSE,
                f"the server is {server}",
                "it does not understand what jqd's scripts say of themselves (#!lua)",
                "use Redis 7.0 or Valkey 7.2, or newer",
            )
        ]
    series = FLOORS[product]
    lines = series.get(version[:2])
    if version[:2] > max(series) or (lines is not None and version >= lines.newest_from):
        return []
    if lines is not None and version >= lines.sandbox_from:
        return [_holes(server, f"{_text(lines.newest_from)} or newer mends holes that {server} has")]
    why = "whoever may call scripts on it can take over its machine (CVE-2025-49844)"
    if managed or (product, version) in FROZEN:
        who = FROZEN.get((product, version), "its provider, if it is a managed server")
        return [_holes(server, f"{why}, unless it was mended under the same number: by {who}")]
    return [Diagnostic("version", Severity.REFUSE, f"the server is {server}", why, _newer(product, lines))]


def named(info: Mapping[str, Any]) -> tuple[str, Version]:
    """Return the name and version of the server's product. The `redis_version` of a Valkey is not its own version."""
    product = "valkey" if info.get("valkey_version") else "redis"
    numbers = [int(part) for part in str(info.get(f"{product}_version", "")).split(".")[:3] if part.isdecimal()]
    major, minor, patch = [*numbers, 0, 0, 0][:3]
    return product, (major, minor, patch)


def _holes(server: str, why: str) -> Diagnostic:
    return Diagnostic("version", Severity.WARN, f"the server is {server}", why, "keep its package up to date")


def _newer(product: str, lines: Lines | None) -> str:
    if lines is not None:
        return f"update it to {_text(lines.newest_from)} or newer"
    least = min(FLOORS[product])
    return f"update it to {product.capitalize()} {least[0]}.{least[1]} or newer, each with its latest fixes"


def _text(version: Version) -> str:
    return ".".join(map(str, version))
