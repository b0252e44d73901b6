"""What constraints let through where the store has several partitions: each counts the jobs in it by itself.

A job lies where its id or its unique key says, else where its jobtype says. Clients of several daemons, buffers,
schedules, `Idempotency-Key`s and followers give ids; so nothing can be said of where the jobs of one jobtype lie.
"""

from jqd.rate_limits.constraints import Limit


def counted_apart(limit: Limit, partitions: int) -> str | None:
    """Return what a constraint may let through in all partitions, in words and numbers; None: what was set."""
    if partitions == 1 or (limit.rate is None and limit.concurrency is None):
        return None
    return f"each of the store's {partitions} partitions counts by itself: {_together(limit, partitions)}"


def why_not_exact(limit: Limit, partitions: int) -> str | None:
    """Return why a limit cannot be exact over these partitions, and what to do; None: one partition counts all of
    its jobs."""
    apart = counted_apart(limit, partitions)
    return apart and f"{apart}; leave out `exact` and set limits {partitions} times as low"


def _together(limit: Limit, count: int) -> str:
    allowed = []
    if limit.concurrency is not None:
        allowed.append(f"{count * limit.concurrency} at once ({count} × {limit.concurrency})")
    if (rate := limit.rate) is not None:
        what = "of its cost" if limit.cost else "starts"
        window = f"{rate.per_s:.3f}".rstrip("0").rstrip(".")
        allowed.append(f"{count * rate.limit} {what} in {window} s ({count} × {rate.limit})")
        if rate.burst:
            allowed.append(f"{count * rate.burst} more of its burst ({count} × {rate.burst})")
    each = " for each value of its key" if limit.key else ""
    return f"together up to {' and '.join(allowed)}{each}"
