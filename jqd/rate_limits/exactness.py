"""Where jobs lie that a constraint may meet: each partition of the store counts those in it by itself."""

from collections.abc import Sequence

from jqd.domain.jobid import partition_of_name
from jqd.domain.tenant import annotate, tenant_of
from jqd.rate_limits.constraints import Limit
from jqd.rate_limits.matcher import only_names


def partitions_met(name: str, limit: Limit, partitions: int) -> Sequence[int]:
    """Return the partitions of the jobtypes that a constraint may match; all, where the expression does not name them.

    `name`: with its tenant. Jobs with an id or a unique key of their own lie where that says, whatever their jobtype.
    """
    names = only_names(limit.match)
    if names is None:
        return range(partitions)
    return sorted({partition_of_name(annotate(tenant_of(name), each), partitions) for each in names})


def counted_apart(name: str, limit: Limit, partitions: int) -> str | None:
    """Return what more than its limits a constraint may let through, in words and numbers; None: nothing."""
    if partitions == 1 or (limit.rate is None and limit.concurrency is None):
        return None
    where = partitions_met(name, limit, partitions)
    if len(where) > 1:
        return f"it may meet jobs in {len(where)} partitions, and each counts by itself: {_together(limit, len(where))}"
    others = "an id or a unique key of their own" + ("" if tenant_of(name) else ", or a tenant with a name")
    return (
        f"its jobs lie in partition {where[0]} of {partitions}, which counts them; but jobs with {others} lie where"
        f" that says, and count there: {_together(limit, partitions)}"
    )


def why_not_exact(name: str, limit: Limit, partitions: int) -> str | None:
    """Return why it cannot be exact, and what to do; None: one partition counts all jobs of its jobtypes."""
    where = partitions_met(name, limit, partitions)
    apart = counted_apart(name, limit, partitions)
    if apart is None or len(where) == 1:
        return None
    names = only_names(limit.match)
    if names is None:
        remedy = 'name jobtypes that lie in one partition (job.name == "…", job.name in ["…", "…"])'
    else:
        homes = (f"{each!r} in {partition_of_name(annotate(tenant_of(name), each), partitions)}" for each in names)
        remedy = f"choose jobtypes that lie in one partition ({', '.join(homes)})"
    return f"{apart}; {remedy}, or leave out `exact` and set limits {len(where)} times as low"


def _together(limit: Limit, count: int) -> str:
    allowed = []
    if limit.concurrency is not None:
        allowed.append(f"{count * limit.concurrency} at once ({count} × {limit.concurrency})")
    if (rate := limit.rate) is not None:
        allowed.append(f"{count * rate.limit} starts in {rate.per_s:g} s ({count} × {rate.limit})")
        if rate.burst:
            allowed.append(f"{count * rate.burst} more of its burst ({count} × {rate.burst})")
    each = " for each value of its key" if limit.key else ""
    return f"together up to {' and '.join(allowed)}{each}"
