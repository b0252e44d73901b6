"""GET /metrics: every number of /v1/stats, and health, for Prometheus. Nothing is counted for it alone."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jqd.api.context import ApiContext
from jqd.api.v1.status import figures
from jqd.http import Request, Response

KIND = "text/plain; version=0.0.4; charset=utf-8"
_ODD = re.compile(r"[^a-z0-9_]")


async def metrics(parts: ApiContext, request: Request) -> Response:
    """Counters for Prometheus."""
    control = parts.services.control
    told = {
        "push_ready": control.push_ready() is None,
        "run_ready": control.run_ready() is None,
        "warnings": len(control.warnings()),
        **await figures(parts),
    }
    return Response(200, render(told), KIND)


def render(told: Mapping[str, Any]) -> bytes:
    """Render numbers and truth values by their path: {"journal": {"bytes": 5}} is `jqd_journal_bytes 5`.

    Of several partitions each has a sample under the same name, with its number as a label.
    """
    samples: dict[str, list[str]] = {}
    for name, labels, number in _numbers(told, ("jqd",), ""):
        samples.setdefault(name, []).append(f"{name}{labels} {number}")
    lines = [line for name, rows in samples.items() for line in (f"# TYPE {name} untyped", *rows)]
    return "".join(f"{line}\n" for line in lines).encode()


def _numbers(value: Any, path: tuple[str, ...], labels: str) -> Iterator[tuple[str, str, str]]:
    match value:
        case bool():
            yield "_".join(path), labels, str(int(value))
        case int() | float():
            yield "_".join(path), labels, repr(value)
        case Mapping():
            for key, one in value.items():
                yield from _numbers(one, (*path, _ODD.sub("_", str(key).lower())), labels)
        case Sequence() if path[-1] == "partitions":
            for row in value:
                its = {key: one for key, one in row.items() if key != "partition"}
                yield from _numbers(its, path[:-1], f'{{partition="{row["partition"]}"}}')
