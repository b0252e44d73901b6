"""Options of a job that somebody else than its pusher may say: who wrote the function that runs it.

What the pusher says wins. A field that he leaves out is taken from here, and from the defaults where nobody said it.
"""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from jqd.domain.job import BACKOFF_S_MAX, MAX_RETRY_MAX, TIMEOUT_S_MAX, WAITS_MAX, Keep, Priority

Retries = Annotated[int, Meta(ge=0, le=MAX_RETRY_MAX, description=f"a whole number from 0 to {MAX_RETRY_MAX}")]
Timeout = Annotated[
    float, Meta(gt=0, le=TIMEOUT_S_MAX, description=f"a number of seconds above 0 and at most {TIMEOUT_S_MAX:.0f}")
]
WAIT = f"a number of seconds above 0, at most {BACKOFF_S_MAX:.0f}"
_Wait = Annotated[float, Meta(gt=0, le=BACKOFF_S_MAX, description=WAIT)]
Waits = Annotated[
    _Wait | Annotated[tuple[_Wait, ...], Meta(max_length=WAITS_MAX)],
    Meta(description=f"{WAIT}, or an array of up to {WAITS_MAX}"),
]
"""Between attempts. A number is the first wait, and grows as the daemon's own; an array has them one by one, and its
last one stays. An empty one: as the daemon has it."""


DELAY_S_MAX = 100 * 366 * 86_400.0  # a century: longer is a slip of units, milliseconds for seconds
Expiry = Annotated[
    float, Meta(gt=0, le=DELAY_S_MAX, description=f"a number of seconds, above 0 and at most {DELAY_S_MAX:.0f}")
]


class JobOptions(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Those that were said."""

    timeout: Timeout | UnsetType = UNSET
    max_retry: Retries | UnsetType = UNSET
    keep_result: Keep | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    backoff: Waits | UnsetType = UNSET
    expires_in: Expiry | UnsetType = UNSET

    def said(self) -> Iterator[tuple[str, Any]]:
        for field in FIELDS:
            value = getattr(self, field)
            if value is not UNSET:
                yield field, value

    def without(self, given: object) -> "JobOptions":
        """Those of them that `given`, which has fields of the same names, leaves out."""
        return JobOptions(**{field: value for field, value in self.said() if getattr(given, field) is UNSET})


FIELDS = JobOptions.__struct_fields__


class TypeOptions(JobOptions, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What is said of a jobtype: options of its jobs, and who may push them."""

    server_only: bool | UnsetType = UNSET
    """Only who has the master key, and jobs."""

    @property
    def of_jobs(self) -> JobOptions:
        """Those that count for its jobs."""
        return JobOptions(**dict(self.said()))


NOTHING = TypeOptions()
