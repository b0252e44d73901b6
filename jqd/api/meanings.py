"""The meanings of the fields of requests and answers, for the OpenAPI document and use/REFERENCE.md.

The meaning of a field is the docstring below it in its class. The meanings of request fields that many classes have are
in WORDS. Links in these texts are relative to docs/use/.
"""

import ast
import inspect
import sys
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import Any, get_args

import msgspec
from msgspec import Struct

# Name of a field, or class and name → its meaning.
WORDS = {
    "ack": "how safe jobs must be before the answer: [levels](HTTP.md#pushing-jobs-post-v1jobs)",
    "argument": "what the handler gets; at most 1 MiB, nested at most 256 levels",
    "backoff": "wait between attempts: a number grows, the last of an array repeats; default: the daemon's",
    "body": "the URL",
    "bytes": "of jobs as they are pushed",
    "concurrency": "attempts at once",
    "consume": "drop the result once it is answered, JSON before it is sent; needs a token that may push",
    "cost": "expression: what a start takes of the rate; 1",
    "counters": "send counters, too",
    "cron": "[five fields](SCHEDULING.md#fields-of-a-schedule)",
    "dead": "failed jobs that are kept",
    "delay": "how long to wait before it may start; not with `run_at`",
    "dry_run": "change nothing",
    "error": "for programs",
    "event": "only these events",
    "every": "instead of `cron`",
    "extend": "more time from now on",
    "finished_at": "date by the worker's clock; only shown",
    "in_flight": "jobs that have not ended",
    "interrupted": "of `refused`: the job had begun",
    "jitter": "each date is put off at random by up to this",
    "job": "what is pushed",
    "job_id": "the job",
    "job_ids": "these jobs",
    "jobs": "of a success: [jobs that follow](WORKERS.md#jobs-that-follow)",
    "keep_result": "keep the result an hour; `required`: fail if it is too large to keep",
    "key": "expression: counted apart for each of its values",
    "lang": "how it is run",
    "lease_id": "the lease that the job came with",
    "limit": "of one page",
    "log": "the end of what the attempt printed",
    "match": "[expression](SCHEDULING.md#expressions): which jobs",
    "max_retry": "attempts after the first failed one",
    "message": "for people",
    "missed": "if dates passed while no daemon ran",
    "name": "jobtype",
    "note": "for people",
    "on_error": "jobs whose expression fails",
    "options": "how it is called, and options of its jobs",
    "overlap": "if the job before has not ended",
    "per_s": "the window",
    "priority": "smaller runs first",
    "priority_max": "jobs with this number or less",
    "priority_min": "jobs with this number or more",
    "progress": "how far the job is",
    "purge": "delete an ended job for good",
    "queued": "jobs that wait",
    "rate": "how many in which time",
    "reason": "`timeout` or `other`",
    "replace": "take the place of the job with that `job_id`",
    "replicas": "copies of the store that must have it; implies `ack=store`",
    "result": "kept only with `keep_result`",
    "retry_after": "instead of the back-off",
    "role": "what it may do",
    "run_at": "not before",
    "scopes": "only these jobtypes",
    "should_retry": "false: failed for good",
    "state": "only jobs in this state",
    "status": "instead of `type`: 1xx retry, 2xx ok, 4xx failed, 5xx error",
    "tag": "only jobs with this tag",
    "timeout": "of one attempt",
    "type": "how it ended",
    "tz": "time zone of `cron`",
    "until": "no date after this",
    "version": "this one instead of the newest",
    "weight": "[percent of the requests](HTTP.md#handlers-v1handlers) for this version",
    "wait": "answer when there is something, or after this time; at most `api.wait_s_max`",
    "worker_id": "as it was registered",
    "Allowance.rate": "jobs a second",
    "Clean.before": "only jobs that ended before this date",
    "JobSpec.expires_in": "fails unless it has begun within this time after its date or push",
    "JobSpec.tags": "to find jobs by",
    "JobSpec.on_parent_failure": "`run` it all the same, `cancel` it, or let it `fail`",
    "JobSpec.group": "the group that it belongs to",
    "JobsQuery.error": "text in the last attempt's message or error, upper or lower case",
    "JobsQuery.search": "text in jobtype, own id, tag, argument (up to some 16 KiB), message or error;"
    " or an integer in the argument",
    "JobsQuery.error_like": "a line of `GET /v1/errors` or its `pattern`; numbers, ids, quoted values may differ",
    "JobsQuery.error_is": "the line that `GET /v1/errors` shows",
    "JobsQuery.since": "in its state, and unchanged, since then or later",
    "JobsQuery.before": "or before it",
    "Edit.run_at": "null: at once",
    "Pulling.warm": "jobtypes whose code this worker has loaded: it gets such jobs first",
    "Pulling.heartbeat": "the longest silence about these jobs; left out: as registered",
    "Outcome.result_bytes": "size of a result that is too large to be sent",
    "Registration.jobs": "each a name, or a map [with options](WORKERS.md#options-of-a-job-function); at most 1,000",
    "Registration.url": "where jobs are posted; left out: it [pulls](WORKERS.md#pulling-jobs)",
    "Registration.style": "[how it is called](WORKERS.md#what-all-of-them-can-rely-on)",
    "Registration.worker_id": "of an earlier registration, to repeat or change it",
    "Registration.batch": "jobs in one request; left out: at most `max_jobs`",
    "Registration.batch_linger_ms": "how long a smaller batch waits for more jobs",
    "Registration.ttl": "how long it is remembered unless it registers again",
    "Registration.heartbeat": "the longest silence about jobs that it keeps; left out: their longest timeout",
    "Registration.format": "of requests; default JSON for web hooks, else MessagePack",
    "Registration.secrets": "they [sign](WORKERS.md#signatures) each request; left out: those from before",
    "Registration.trouble": "what keeps it from running jobs; shown to operators",
    "Definition.server_only": "only schedules, jobs and the master key may push such jobs",
    "JobSpec.job_id": "[your own id](HTTP.md#your-own-ids)",
    "PushQuery.atomic": "take all of an array, or nothing",
    "Pulling.max_jobs": "how many it wants",
    "Rate.burst": "how many more may start at once",
    "Rate.limit": "starts in the window, or what they cost",
    "LightWorker.jobs": "jobtypes that it takes",
    "Polling.timeout": "answer when the job has ended, or after this time",
    "Registration.name": "for people; need not be unique",
    "DerivedWanted.ttl": "how long it is valid; never longer than the token that asks",
    "DerivedWanted.role": "default: that of the token that asks",
    "TypesQuery.name": "text in the jobtype, upper or lower case; with a * at its end: its beginning",
    "HistoryQuery.name": "of this jobtype; default: all together",
    "HistoryQuery.minutes": "how far back; above 480 in steps of ten",
    "HistoryQuery.types": "with numbers of each jobtype",
    "TokenWanted.expires_in": "after this time it is invalid",
}


def meaning(kind: type[Struct], name: str, shown: str) -> str:
    """Return the meaning of a field of a request, or "" if it has none. `shown`: the field's name in bodies."""
    return WORDS.get(f"{kind.__name__}.{shown}") or text_of(kind, name, shown) or WORDS.get(shown, "")


def text_of(kind: type[Struct], name: str, shown: str) -> str:
    """Return the docstring below a field in its class, on one line, or "" if there is none."""
    return " ".join(texts_of(kind).get(name, "").split()).rstrip(".")


def structs_in(kinds: Iterable[Any]) -> list[type[Struct]]:
    """Return all Struct classes with fields that occur in these types, or within their fields, without repetition."""
    found: dict[type[Struct], None] = {}

    def look(kind: Any) -> None:
        if isinstance(kind, type) and issubclass(kind, Struct):
            if kind in found or not kind.__struct_fields__:
                return
            found[kind] = None
            for field in msgspec.structs.fields(kind):
                look(field.type)
        for part in get_args(kind):
            look(part)

    for kind in kinds:
        look(kind)
    return list(found)


def texts_of(kind: type[Any]) -> dict[str, str]:
    """Return field → the docstring below it, for a class and its base classes."""
    texts: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        if each.__module__.partition(".")[0] == "jqd":
            texts |= _texts_in(each.__module__).get(each.__qualname__, {})
    return texts


@cache
def _texts_in(module: str) -> dict[str, dict[str, str]]:
    """Return class → field → the docstring below the field, for all classes of a module."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        if not isinstance(node, ast.ClassDef):
            continue
        texts = found[node.name] = {}
        for field, below in pairwise(node.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = inspect.cleandoc(text)
    return found
