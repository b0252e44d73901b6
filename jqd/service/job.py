"""A job as it is taken: what a pusher may say of it. What the journal holds of it is `domain/record.py`'s."""

from typing import Annotated

import msgspec
from msgspec import Meta, Raw

from jqd.domain.job import NIL, TAGS_MAX, Keep, Name, NewName, Priority
from jqd.domain.job_options import DELAY_S_MAX, Expiry, Retries, Timeout, Waits

NOTHING = Raw(NIL)
NOT_YET = {
    "then": "then is not supported yet; push the next job from the worker",
}

Delay = Annotated[float, Meta(ge=0, le=DELAY_S_MAX, description=f"a number of seconds, 0 to {DELAY_S_MAX:.0f}")]
Tags = Annotated[tuple[Name, ...], Meta(max_length=TAGS_MAX, description=f"an array of at most {TAGS_MAX} tags")]
Value = Annotated[Raw, Meta(description="any value")]
Date = Annotated[str | float, Meta(description="an ISO 8601 date with a time zone, or a number of Unix seconds")]


def nothing() -> Raw:
    """What stands for a value that is left out; a factory, for no page can draw a default of bytes."""
    return NOTHING


class NewJob(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A job as its pusher writes it."""

    name: NewName
    argument: Value = msgspec.field(default_factory=nothing)
    priority: Priority = 0
    max_retry: Retries = 5
    keep_result: Keep = False
    timeout: Timeout = 30.0
    job_id: NewName | None = None
    run_at: Date | None = None
    delay: Delay | None = None
    replace: bool = False
    tags: Tags = ()
    """Counted before they are read: a body of empty texts is a hundred times as large in memory."""
    backoff: Waits = ()
    expires_in: Expiry | None = None
    """Seconds from its date, or from the push: begun later it is no good to anybody, and dead instead."""
