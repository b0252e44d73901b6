"""Suggests the right name to somebody who used a field that does not exist."""

import difflib
from collections.abc import Sequence

# Field → its names in other queues, which need not be similar.
ELSEWHERE = {
    "argument": ("arg", "args", "arguments", "params", "parameters", "payload", "data", "body", "kwargs", "input"),
    "name": ("type", "jobtype", "job_type", "job", "task", "kind", "queue", "function", "handler"),
    "max_retry": ("retry", "retries", "max_retries", "max_attempts", "attempts"),
    "timeout": ("time_limit", "ttr", "timeout_s"),
    "job_id": ("id", "jid", "task_id", "unique", "key"),
    "run_at": ("at", "eta", "scheduled_at", "scheduled_for", "not_before"),
    "delay": ("in", "countdown", "after_s", "delay_s"),
    "backoff": ("retry_backoff", "retry_delay", "retry_interval", "retry_after", "min_backoff"),
    "expires_in": ("expires", "expire_in", "expiry", "expiration", "expires_at"),
    "keep_result": ("keep", "result", "store_result"),
}


def suggestion(name: str, fields: Sequence[str]) -> str:
    """Return `; did you mean …?` with the field most similar to `name`, which is not in `fields`. If no field is
    similar, the text lists all fields."""
    lower = name.lower()
    same = [field for field, others in ELSEWHERE.items() if field in fields and lower in others]
    close = same or difflib.get_close_matches(lower, fields, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(fields)}"
