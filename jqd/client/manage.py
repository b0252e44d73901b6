"""The client's calls about many jobs, handlers, workers and daemons."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, Self, TypedDict, Unpack

from jqd.client.constraints import Constraints
from jqd.client.errors import JqdClientError
from jqd.client.flows import LOOK_S, Flows
from jqd.client.http import Http, all_rows, encode, gone_rows, query
from jqd.client.job_info import Changed, JobInfo, date_given, job_info, job_map
from jqd.client.path import job_path, path_of
from jqd.client.schedules import Schedules
from jqd.client.tokens import Tokens
from jqd.domain.job import Code
from jqd.domain.suggest import suggestion
from jqd.domain.units import Duration

TEXTS = 10  # example texts of one reason; a daemon's answer has as many
PAGE_JOBS = 500  # asked for in one request
SEEN_JOBS = 100_000  # ids remembered while listing, some 10 MB: a job that changes state may come again pages later
Date = datetime | float | timedelta


class Matching(TypedDict, total=False):
    """A filter of jobs: all fields that are given must match."""

    state: str | None
    """"waiting", "scheduled", "blocked", "running", "retrying", "succeeded", "failed" or "cancelled"."""
    name: str | None
    tag: str | None
    code: Code | None
    """Why the last attempt stopped: "retry", "ok", "failed" or "error"."""
    exitcode: int | None
    """The last attempt's exit code."""
    error: str | None
    """Text that the error of the last attempt contains."""
    error_is: str | None
    """The exact error line, as `Client.errors` lists it."""
    error_like: str | None
    """An error line, or the `pattern` of one. Numbers, ids and quoted values in it may differ."""
    search: str | None
    """Text that the error line, or the job's name, id, tags or argument contains."""
    since: Date | None
    """The earliest time at which the job ended, or was pushed: a date, Unix seconds, or how long ago."""
    before: Date | None


class Changes(TypedDict, total=False):
    """Changes to a job that has not begun. Fields that are left out keep their values."""

    priority: int | None
    run_at: datetime | float | str | None
    delay: Duration | None
    argument: Any


class Reasons(NamedTuple):
    """The errors of failed jobs, counted by reason. Errors that differ only in numbers and the like have the same
    reason."""

    rows: list[dict[str, Any]]
    """The reasons, the most frequent first: `name`, `pattern`, `error`, `count`, `last_hour`, `since`, `latest`,
    `job_id`, `texts`; `tenant` where there is one."""
    others: int
    """Number of failures with rarer reasons, which have no row."""


class Manage(Constraints, Flows, Schedules, Tokens):
    """`Client`'s methods about many jobs, handlers, workers and daemons."""

    _http: Http

    def speaking_for(self, tenant: str) -> Self:
        """Return a view that acts for one tenant, if the token allows it. It shares the connections and need not be
        closed."""
        view = copy(self)
        view._http = self._http.speaking_for(tenant)
        return view

    def jobs(
        self,
        *,
        limit: int | None = None,
        looked: Callable[[int, int | None], object] | None = None,
        parted: Callable[[], object] | None = None,
        **which: Unpack[Matching],
    ) -> Iterator[JobInfo]:
        """Yield the jobs that match the filter, newest first, at most `limit`. They are read page by page.

        The jobs lack error, result, history and argument, which `get` has. A job whose state changes meanwhile comes
        once, as it was first seen. `looked`: called after each page but the last with the number of jobs examined so
        far, and the number of all jobs, or None if unknown. `parted`: called if there are so many jobtypes that the
        daemon lists the jobs in several parts, one after another, each sorted newest first. Raises Invalid for an
        unknown state.
        """
        cursor, left, far = "", limit, 0
        asked = _asked(which)
        seen: dict[str, None] = {}  # the oldest first
        while left is None or left > 0:
            size = PAGE_JOBS if left is None else min(left, PAGE_JOBS)
            params = query(**asked, limit=size, cursor=cursor or None)
            answer = self._http.call_for_map("a question for jobs", "GET", "/v1/jobs", params=params)
            if parted is not None and answer.get("in_parts"):
                parted()
            infos = [_info(job) for job in answer.get("jobs", [])]
            infos = [info for info in infos if info.job_id not in seen]
            yield from infos
            seen |= dict.fromkeys(info.job_id for info in infos)
            for job_id in list(itertools.islice(seen, max(0, len(seen) - SEEN_JOBS))):
                del seen[job_id]
            cursor = answer.get("cursor") or ""
            if not cursor:
                return
            far += answer.get("looked", 0)
            if looked is not None and far:  # a tenant gets no number
                looked(far, answer.get("of"))
            left = None if left is None else left - len(infos)

    def errors(self, **which: Unpack[Matching]) -> Reasons:
        """Return why the matching jobs failed, counted by reason. By default these are jobs that failed for good;
        `state` "retrying" selects jobs that will be tried again."""
        params = query(**_asked(which))
        found: dict[tuple[str, str, str], dict[str, Any]] = {}
        cursor, others = "", 0
        while True:
            asked = params | ({"cursor": cursor} if cursor else {})
            answer = self._http.call_for_map("a question for errors", "GET", "/v1/errors", params=asked, wait_s=LOOK_S)
            for row in answer["errors"]:
                known = found.setdefault((row.get("tenant", ""), row["name"], row.get("pattern") or row["error"]), row)
                if known is not row:
                    _join(known, row)
            cursor, others = answer.get("cursor") or "", others + answer["others"]
            if not cursor:
                return Reasons(sorted(found.values(), key=lambda row: -row["count"]), others)

    def retry(self, job_id: str, **changes: Unpack[Changes]) -> JobInfo:
        """Retry a job that failed or was cancelled, and make `changes` in the same step. Raises NotFound, Invalid,
        Conflict."""
        changed = _changes(**changes)
        return self._act("POST", f"{job_path(job_id)}/retry", encode(changed) if changed else None)

    def run_now(self, job_id: str) -> JobInfo:
        """Let a job start now that waits for its date, or for its parents: then without their results. Raises NotFound,
        Conflict."""
        return self._act("POST", f"{job_path(job_id)}/run-now")

    def change(self, job_id: str, **changes: Unpack[Changes]) -> JobInfo:
        """Change a waiting job. Raises NotFound, Invalid; Conflict if it is not waiting."""
        return self._act("PATCH", job_path(job_id), encode(_changes(**changes)))

    def why(self, job_id: str) -> dict[str, Any]:
        """Return why a job waits: `text` is a sentence for people; `reason` and other fields are for programs. Raises
        NotFound."""
        return self._http.call_for_map("a question why", "GET", f"{job_path(job_id)}/why")

    def delete(self, job_id: str) -> None:
        """Delete a job that has ended. Raises NotFound; Conflict if it has not ended."""
        self._http.call("DELETE", job_path(job_id), params=query(purge=True), repeatable=False)

    def cancel_many(
        self,
        *,
        job_ids: Sequence[str] | None = None,
        dry_run: bool = False,
        counted: Changed | None = None,
        **which: Unpack[Matching],
    ) -> Changed:
        """Cancel all matching jobs that have not ended. At least one filter, or `job_ids`, is required. `counted`: what
        a dry run of the same call returned; if more jobs match by now, Conflict is raised."""
        return self._many("cancel", counted, **_asked(which), job_ids=job_ids, dry_run=dry_run)

    def retry_many(
        self,
        *,
        job_ids: Sequence[str] | None = None,
        dry_run: bool = False,
        counted: Changed | None = None,
        **which: Unpack[Matching],
    ) -> Changed:
        """Retry all matching jobs that failed; if `state` is "cancelled", the matching jobs that were cancelled.
        `counted`: see `cancel_many`."""
        return self._many("retry", counted, **_asked(which), job_ids=job_ids, dry_run=dry_run)

    def delete_many(
        self,
        *,
        job_ids: Sequence[str] | None = None,
        dry_run: bool = False,
        counted: Changed | None = None,
        **which: Unpack[Matching],
    ) -> Changed:
        """Delete all matching jobs that failed; if `state` is another final state, the matching jobs in that state.
        `counted`: see `cancel_many`."""
        return self._many("delete", counted, **_asked(which), job_ids=job_ids, dry_run=dry_run)

    def clean(self, before: datetime | float | timedelta, *, dry_run: bool = False) -> Changed:
        """Delete jobs that ended before a date, or longer ago than a timedelta. Failed jobs are never deleted."""
        return self._many("clean", before=date_given("before", before), dry_run=dry_run)

    def unregister(self, worker_id: str) -> None:
        """Remove a worker from all daemons. Its jobs in flight may still end. Raises NotFound, Conflict."""
        self._http.call("DELETE", path_of("workers", worker_id), repeatable=False)

    def handler(self, name: str, *, version: int | None = None) -> dict[str, Any]:
        """Return a handler, by default its newest version. Raises NotFound."""
        path = path_of("handlers", name)
        return self._http.call_for_map("a question for a handler", "GET", path, params=query(version=version))

    def handlers(self) -> list[dict[str, Any]]:
        """Return the newest version of each handler, by name."""
        return all_rows(self._http, "handlers")

    def set_handler(
        self,
        name: str,
        body: str,
        options: Mapping[str, Any],
        *,
        lang: Literal["http", "python", "node", "sh"] = "http",
        eid: str | None = None,
        before: str | None = None,
        before_each: str | None = None,
        after_each: str | None = None,
        server_only: bool = False,
    ) -> dict[str, Any]:
        """Create a handler or a new version of it. It runs the jobs named `name`, at the URL or by the code in `body`.

        `options`: `style`, `max_jobs`, `secrets`, … as in `PUT /v1/handlers/{name}`. `before`: code that runs once in
        each process; `before_each`, `after_each`: code that runs around each batch of jobs. `server_only`: only the
        master key, schedules and jobs may push such jobs. `eid`: for a URL, a note that is only shown. Raises Invalid;
        Forbidden if code may not be set, or not with this token.
        """
        more = {"eid": eid, "before": before, "beforeEach": before_each, "afterEach": after_each}
        fields = {"lang": lang, "body": body, "options": options, "server_only": server_only or None, **more}
        fields = {field: value for field, value in fields.items() if value is not None}
        return self._http.call_for_map(
            "a handler", "PUT", path_of("handlers", name), body=encode(fields), repeatable=False
        )

    def delete_handler(self, name: str) -> None:
        """Delete all versions of a handler. Their jobs in flight may still end. Raises NotFound."""
        self._http.call("DELETE", path_of("handlers", name), repeatable=False)

    def stats(self) -> dict[str, Any]:
        """Return the daemon's counters."""
        return self._http.call_for_map("a question for stats", "GET", "/v1/stats")

    def workers(self) -> list[dict[str, Any]]:
        """Return the registered workers."""
        return all_rows(self._http, "workers")

    def gone_workers(self) -> list[dict[str, Any]]:
        """Return the workers that died or left within the last day and are not back, newest first."""
        return gone_rows(self._http, "workers")

    def history(self, name: str | None = None, *, minutes: int = 60, types: bool = False) -> dict[str, Any]:
        """Return how many jobs were pushed, started and so on in the past, at all daemons together: `steps`, oldest
        first, one per minute; above 8 hours, one per ten minutes.

        Each step has `at`, `pushed`, `started`, `succeeded`, `failed`, `dead`, `retried` … `types`: also by jobtype.
        `since` in the answer is the time when counting began. Raises Invalid.
        """
        params = query(name=name, minutes=minutes, types=types or None)
        return self._http.call_for_map("a question for history", "GET", "/v1/history", params=params)

    def types(self) -> list[dict[str, Any]]:
        """Return the jobtypes that have jobs or are paused, by name."""
        return all_rows(self._http, "types")

    def drain(self, daemon: str = "this") -> dict[str, Any]:
        """Stop a daemon from starting jobs until `resume_daemon`, even if the daemon restarts. `in_flight` in the
        answer: the number of jobs that still run there; None if the store does not answer."""
        return self._http.call_for_map("a drain", "POST", f"{path_of('daemons', daemon)}/drain")

    def resume_daemon(self, daemon: str = "this") -> dict[str, Any]:
        """Let a drained daemon start jobs again. `note` in the answer says if it was not drained."""
        return self._http.call_for_map("a resumption", "POST", f"{path_of('daemons', daemon)}/resume")

    def pause_type(self, name: str, *, reason: str = "") -> dict[str, Any]:
        """Pause a jobtype at all daemons until it is resumed. Running jobs go on. `reason`: shown to people. `note` in
        the answer warns of a likely mistake."""
        body = encode({"reason": reason}) if reason else None
        return self._http.call_for_map("a pause", "POST", f"{path_of('types', name)}/pause", body=body)

    def resume_type(self, name: str) -> dict[str, Any]:
        """Resume a paused jobtype. `note` in the answer says if it was not paused."""
        return self._http.call_for_map("a resumption", "POST", f"{path_of('types', name)}/resume")

    def pause_all(self) -> dict[str, Any]:
        """Pause all jobs of the client's tenant at all daemons, until `resume_all`."""
        return self._http.call_for_map("a pause", "POST", "/v1/types/pause")

    def resume_all(self) -> dict[str, Any]:
        """Resume the jobs of the client's tenant. `note` in the answer says if they were not paused."""
        return self._http.call_for_map("a resumption", "POST", "/v1/types/resume")

    def paused_tenants(self) -> list[dict[str, Any]]:
        """Return the paused tenants, each with `paused_at` and `by`."""
        answer = self._http.call_for_map("a question for types", "GET", "/v1/types", params=query(limit=1))
        return list(answer.get("paused") or ())

    def daemons(self) -> list[dict[str, Any]]:
        """Return the daemons that share the asked daemon's store, each as it last reported itself."""
        return all_rows(self._http, "daemons")

    def gone_daemons(self) -> list[dict[str, Any]]:
        """Return the daemons that died or left within the last day, newest first, with what became of their jobs."""
        return gone_rows(self._http, "daemons")

    def _act(self, method: str, path: str, body: bytes | None = None) -> JobInfo:
        answer = self._http.call(method, path, body=body, repeatable=method == "PATCH")
        return _info(answer.body, answer.status)

    def _many(self, what: str, counted: Changed | None = None, **given: Any) -> Changed:
        if counted is not None:
            given |= {"before": given["before"] or counted.at or None, "matched_max": counted.matched}
        # A retry is not repeatable: jobs may have failed again meanwhile.
        return self._changed(f"/v1/jobs/{what}", repeatable=what != "retry", **given)


def _join(known: dict[str, Any], row: dict[str, Any]) -> None:
    """Add the counts of an error in `row` to those of the same error in `known`, which came from an earlier answer."""
    if (row["latest"] or "") > (known["latest"] or ""):
        known |= {name: row[name] for name in ("latest", "error", "job_id")}
    known["since"] = min(known["since"] or "", row["since"] or "")
    for number in ("count", "last_hour"):
        known[number] = known.get(number, 0) + row.get(number, 0)
    texts = Counter({each["error"]: each["count"] for each in known.get("texts") or ()})
    texts.update({each["error"]: each["count"] for each in row.get("texts") or ()})
    known["texts"] = [{"error": error, "count": count} for error, count in texts.most_common(TEXTS)]


def _changes(**changes: Unpack[Changes]) -> dict[str, Any]:
    for given in (one for one in changes if one not in Changes.__annotations__):
        raise TypeError(f"no change is called {given!r}{suggestion(given, [*Changes.__annotations__])}")
    argument = {"argument": changes.pop("argument")} if "argument" in changes else {}
    fields = job_map("", **changes)
    del fields["name"]
    return fields | argument


def _asked(which: Matching) -> dict[str, Any]:
    """Return the filter in the form that the daemon takes.

    Raises TypeError for an unknown field, because a filter that is misunderstood could delete too many jobs.
    """
    if unknown := which.keys() - Matching.__annotations__.keys():
        raise TypeError(
            f"{min(unknown)!r} is nothing that jobs are chosen by; there are {', '.join(Matching.__annotations__)}"
        )
    since, before = date_given("since", which.get("since")), date_given("before", which.get("before"))
    return {**which, "since": since, "before": before}


def _info(answer: Any, status: int = 200) -> JobInfo:
    try:
        return job_info(answer)
    except ValueError as error:
        raise JqdClientError(f"the answer about a job is not understood: {error}", status=status) from error
