"""Suggests the right name to somebody who used a field, setting or command that does not exist."""

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

SETTINGS_ELSEWHERE = {
    "http.bind": ("port", "host", "listen", "address", "http.port", "http.host"),
    "store.url": ("store", "redis", "redis_url", "valkey_url", "broker", "broker_url"),
    "log.level": ("loglevel", "log_level", "verbosity"),
}

COMMANDS_ELSEWHERE = {
    "jqd jobs": ("ls", "list", "ps", "queue"),
    "jqd types": ("queues", "jobtypes", "lsq"),
    "jqd get": ("show", "info", "inspect", "describe", "result"),
    "jqd clean": ("purge", "prune", "clear", "flush"),
    "jqd delete": ("rm", "remove", "del"),
    "jqd push": ("enqueue", "add", "submit", "send", "schedule"),
    "jqd retry": ("requeue", "rerun", "restart", "kick"),
    "jqd cancel": ("kill", "abort", "stop", "revoke"),
    "jqd status": ("stats", "health", "stat"),
    "jqd serve": ("server", "daemon", "start", "run"),
    "jqd types pause": ("pause",),
    "jqd types resume": ("resume", "unpause"),
}

# Settings under `retry` in other queues that are options of each job here.
OF_A_PUSH = ("max", "max_retry", "max_retries", "max_attempts", "retries", "attempts", "limit")


def no_setting(given: str) -> str:
    """Return a hint if the name is that of a setting in other job queues which in jqd is an option of each job; else an
    empty text."""
    if given.startswith("retry.") and given.removeprefix("retry.") in OF_A_PUSH:
        return "how often a job is tried goes with the job: max_retry of its push; the longest wait is 'retry.cap_s'"
    return ""


def command(words: Sequence[str], behind: Sequence[str] = ()) -> str:
    """Return the command of jqd that corresponds to `words`, a command of other job queues; empty if none does, or if
    the words came after subcommands of jqd (`behind`)."""
    found = [ours for ours, others in COMMANDS_ELSEWHERE.items() if words and not behind and words[0] in others]
    return found[0] if found else ""


def settings(given: str) -> list[str]:
    """Return the names of the daemon's settings for which other programs use the name `given`."""
    return [path for path, others in SETTINGS_ELSEWHERE.items() if given in others]


def suggestion(name: str, fields: Sequence[str]) -> str:
    """Return `; did you mean …?` with the field most similar to `name`, which is not in `fields`. If no field is
    similar, the text lists all fields."""
    lower = name.lower()
    same = [field for field, others in ELSEWHERE.items() if field in fields and lower in others]
    close = same or difflib.get_close_matches(lower, fields, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(fields)}"
