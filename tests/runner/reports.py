"""Outcomes of one job as its reports make them."""

import random
from typing import Any

from jqd.domain.backoff import Backoff
from jqd.domain.flow import Flow
from jqd.domain.job import Held, Job, Keep, Outcome
from jqd.runner.outcome import (
    Report,
    end_attempt,
)

NOW_MS = 1_700_000_000_000


def end(
    report: Report,
    *,
    attempt: int = 1,
    max_retry: int = 2,
    keep: Keep = True,
    waits: tuple[float, ...] = (),
    result_max: int = 100,
    snoozes: int = 0,
    interruptions: int = 0,
    wrong: str = "",
    flow: Flow | None = None,
    traceparent: str = "",
) -> Outcome:
    more: Any = {"flow": flow, "traceparent": traceparent}
    return end_attempt(
        Held(
            Job("A", "mail", max_retry=max_retry, keep_result=keep, priority=4, backoff=waits, **more),
            9,
            attempt,
            snoozes=snoozes,
            interruptions=interruptions,
        ),
        report,
        backoff=Backoff(first_s=2.0, factor=3.0, jitter=0.0),
        source=random.Random(1),
        worker="W",
        started_at_ms=NOW_MS,
        finished_at_ms=NOW_MS + 5,
        result_bytes_max=result_max,
        max_interruptions=3,
        wrong=lambda _: wrong,
    )
