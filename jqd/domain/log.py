"""Logging to stderr: each event has a name and fields, never a payload.

There is one event per batch of jobs, with counts. Its name begins with the name of the loop (`ingest.jobs count=500
ms=3`). On a terminal events are text, elsewhere one JSON object per line. Logging never waits, and never fails
(`lossy_stream.py`).
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, TextIO, cast

import structlog

from jqd.domain.lossy_stream import LossyStream, writer_of
from jqd.domain.tenant import SEPARATOR, bare, is_tenant, tenant_of

Format = Literal["auto", "console", "json"]


def get_logger(component: str) -> Any:
    """Return a logger whose events have the field `component`."""
    return structlog.get_logger(component=component)


def logs_debug() -> bool:
    """Return whether debug lines are logged."""
    return structlog.is_configured() and bool(structlog.get_logger().is_enabled_for(logging.DEBUG))


@contextmanager
def logging_with(**fields: object) -> Iterator[None]:
    """Add fields to all events that are logged in the `with` block, and in tasks started in it."""
    with structlog.contextvars.bound_contextvars(**fields):
        yield


def name_tenants(_: object, __: str, event: Any) -> Any:
    """Split qualified names in the fields of a log event: the bare name stays, and the tenant becomes a field. (A
    structlog processor.)"""
    for key, value in [*event.items()]:
        if type(value) is str and SEPARATOR in value and is_tenant(tenant_of(value)):
            event[key] = bare(value)
            event.setdefault("tenant", tenant_of(value))
    return event


def configure(*, level: str = "info", form: Format = "auto", stream: TextIO | None = None) -> None:
    """Set format and level of this process's log. To be called once, at start. `form` auto: text on a terminal, JSON
    elsewhere. Raises ValueError for a wrong level."""
    out = stream or sys.stderr
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"unknown log level {level!r}; choose debug, info, warning or error")
    console = form == "console" or (form == "auto" and out.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=out.isatty()) if console else structlog.processors.JSONRenderer()
    )
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts")
    if (writer := writer_of(out)) is not None:
        writer.note = lambda lines: _dropped(lines, stamp, renderer)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            stamp,
            structlog.processors.format_exc_info,
            name_tenants,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", LossyStream(out))),
        cache_logger_on_first_use=False,
    )


def _dropped(lines: int, stamp: Any, renderer: Any) -> str:
    """Return the log line that says how many lines were dropped."""
    event = stamp(None, "warning", {"event": "log.dropped", "level": "warning", "component": "log", "lines": lines})
    return f"{renderer(None, 'warning', event)}\n"
