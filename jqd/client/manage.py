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

TEXTS = 10  # of one reason, as in one answer
PAGE_JOBS = 500  # asked for in one request
SEEN_JOBS = 100_000  # ids remembered of one walk, some 10 MB: a job that moves meanwhile comes again some pages later
Date = datetime | float | timedelta


class Matching(TypedDict, total=False):
    """Which jobs are meant: all fields that are given must match."""

    state: str | None
    """"waiting", "scheduled", "blocked", "running", "retrying", "succeeded", "failed" or "cancelled"."""
    name: str | None
    tag: str | None
    code: Code | None
    """Why the last attempt stopped: "retry", "ok", "failed" or "error"."""
    exitcode: int | None
    """The number with which it stopped."""
    error: str | None
    """Stands in what the last attempt said."""
    error_is: str | None
    """Is the line that `Client.errors` tells of it."""
    error_like: str | None
    """Is such a line but for numbers, ids, quoted values: one of them, or their `pattern`."""
    search: str | None
    """Stands in that line, or the job's name, id, tags or argument."""
    since: Date | None
    """It ended, or was pushed, then or later: a date, Unix seconds, or a time ago."""
    before: Date | None


class Changes(TypedDict, total=False):
    """Changes of a job that has not begun; what is left out stays."""

    priority: int | None
    run_at: datetime | float | str | None
    delay: Duration | None
    argument: Any


class Reasons(NamedTuple):
    """Reasons for failures."""

    rows: list[dict[str, Any]]
    """The most frequent first: `name`, `pattern`, `error`, `count`, `last_hour`, `since`, `latest`, `job_id`,
    `texts`; `tenant` where there is one."""
    others: int
    """Failures with rarer reasons than these, which are only counted."""


class Manage(Constraints, Flows, Schedules, Tokens):
    """`Client` beyond pushing and waiting."""

    _http: Http

    def speaking_for(self, tenant: str) -> Self:
        """Return a view that speaks for one tenant, with a token that may; it shares the connections, and needs no
        close."""
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
        """Jobs that match all that is given; newest first, at most `limit`. Asks page by page.

        `looked` is called after each page but the last: how many jobs were looked at so far, and how many there are,
        where that may be known. `parted` is called where there are so many jobtypes that one part of them comes after
        the other, each newest first.

        They come without error, result, history and argument, which `get` tells. A job that changes its state meanwhile
        comes once, as it was seen first. Raises Invalid for an unknown state.
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
            if looked is not None and far:  # a tenant is not told
                looked(far, answer.get("of"))
            left = None if left is None else left - len(infos)

    def errors(self, **which: Unpack[Matching]) -> Reasons:
        """Return the reasons of matching failures. `state`: "retrying" for those that will be tried again."""
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
        """Have a job tried anew that failed or was cancelled, changed before in the same step if anything is given.

        Raises NotFound, Invalid, Conflict.
        """
        changed = _changes(**changes)
        return self._act("POST", f"{job_path(job_id)}/retry", encode(changed) if changed else None)

    def run_now(self, job_id: str) -> JobInfo:
        """Have a job run at once that waits for its date. Raises NotFound, Conflict."""
        return self._act("POST", f"{job_path(job_id)}/run-now")

    def change(self, job_id: str, **changes: Unpack[Changes]) -> JobInfo:
        """Change a job that waits; what is left out stays. Raises NotFound, Invalid, Conflict when it does not wait."""
        return self._act("PATCH", job_path(job_id), encode(_changes(**changes)))

    def why(self, job_id: str) -> dict[str, Any]:
        """Return why a job waits: `text` in one sentence, `reason` and more for programs. Raises NotFound."""
        return self._http.call_for_map("a question why", "GET", f"{job_path(job_id)}/why")

    def delete(self, job_id: str) -> None:
        """Delete a job for good that has ended. Raises NotFound, Conflict when it has not."""
        self._http.call("DELETE", job_path(job_id), params=query(purge=True), repeatable=False)

    def cancel_many(
        self, *, job_ids: Sequence[str] | None = None, dry_run: bool = False, **which: Unpack[Matching]
    ) -> Changed:
        """Cancel all jobs that have not ended and match all that is given. At least one thing must be given."""
        return self._many("cancel", **_asked(which), job_ids=job_ids, dry_run=dry_run)

    def retry_many(
        self, *, job_ids: Sequence[str] | None = None, dry_run: bool = False, **which: Unpack[Matching]
    ) -> Changed:
        """Have all failed jobs tried anew that match all that is given; with `state` "cancelled" all cancelled ones."""
        return self._many("retry", **_asked(which), job_ids=job_ids, dry_run=dry_run)

    def delete_many(
        self, *, job_ids: Sequence[str] | None = None, dry_run: bool = False, **which: Unpack[Matching]
    ) -> Changed:
        """Delete all failed jobs for good that match all that is given; with another final `state` those."""
        return self._many("delete", **_asked(which), job_ids=job_ids, dry_run=dry_run)

    def clean(self, before: datetime | float | timedelta, *, dry_run: bool = False) -> Changed:
        """Delete jobs that ended before that date, or longer ago than that time; never what failed."""
        return self._many("clean", before=date_given("before", before), dry_run=dry_run)

    def unregister(self, worker_id: str) -> None:
        """Forget a worker everywhere; what it has in flight is still waited for. Raises NotFound, Conflict."""
        self._http.call("DELETE", path_of("workers", worker_id), repeatable=False)

    def handler(self, name: str, *, version: int | None = None) -> dict[str, Any]:
        """Return the newest version of a handler, or that one, as the daemon shows it. Raises NotFound."""
        path = path_of("handlers", name)
        return self._http.call_for_map("a question for a handler", "GET", path, params=query(version=version))

    def handlers(self) -> list[dict[str, Any]]:
        """Return all handlers by name, of each the newest version."""
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
        """Have jobs of that name run at the URL `body`, or by that code, by a new version of their handler.

        `options`: `style`, `max_jobs`, `secrets`, … as `PUT /v1/handlers/{name}` has them. `eid`: of a URL a note of
        yours, kept and shown. Raises Invalid; Denied where code may not be set, or not by you.
        """
        more = {"eid": eid, "before": before, "beforeEach": before_each, "afterEach": after_each}
        fields = {"lang": lang, "body": body, "options": options, "server_only": server_only or None, **more}
        fields = {field: value for field, value in fields.items() if value is not None}
        return self._http.call_for_map(
            "a handler", "PUT", path_of("handlers", name), body=encode(fields), repeatable=False
        )

    def delete_handler(self, name: str) -> None:
        """Forget all versions of what runs a jobtype; what they have in flight is still waited for. Raises NotFound."""
        self._http.call("DELETE", path_of("handlers", name), repeatable=False)

    def stats(self) -> dict[str, Any]:
        """Return the daemon's counters."""
        return self._http.call_for_map("a question for stats", "GET", "/v1/stats")

    def workers(self) -> list[dict[str, Any]]:
        """Return the registered workers."""
        return all_rows(self._http, "workers")

    def gone_workers(self) -> list[dict[str, Any]]:
        """Return the workers that died or left within the last day and have not come back, the newest first."""
        return gone_rows(self._http, "workers")

    def history(self, name: str | None = None, *, minutes: int = 60, types: bool = False) -> dict[str, Any]:
        """Return what all daemons counted: `steps` of a minute, the oldest first, for more than 8 hours of ten minutes.

        Each has `at`, `pushed`, `started`, `succeeded`, `failed`, `dead`, `retried` … `types`: with numbers of each
        jobtype. `since` says from when on anything is known. Raises Invalid.
        """
        params = query(name=name, minutes=minutes, types=types or None)
        return self._http.call_for_map("a question for history", "GET", "/v1/history", params=params)

    def types(self) -> list[dict[str, Any]]:
        """Return the jobtypes that have jobs, or are paused, by name."""
        return all_rows(self._http, "types")

    def drain(self, daemon: str = "this") -> dict[str, Any]:
        """Have a daemon begin no job, through restarts, until it is resumed; `in_flight` says what goes on there."""
        return self._http.call_for_map("a drain", "POST", f"{path_of('daemons', daemon)}/drain")

    def resume_daemon(self, daemon: str = "this") -> dict[str, Any]:
        """Have a daemon begin jobs again. `note` says if it was not drained."""
        return self._http.call_for_map("a resumption", "POST", f"{path_of('daemons', daemon)}/resume")

    def pause_type(self, name: str, *, reason: str = "") -> dict[str, Any]:
        """Pause a jobtype at all daemons, until it is resumed; running jobs go on. `note`: what may be a mistake.
        `reason`: a line that is shown with it."""
        body = encode({"reason": reason}) if reason else None
        return self._http.call_for_map("a pause", "POST", f"{path_of('types', name)}/pause", body=body)

    def resume_type(self, name: str) -> dict[str, Any]:
        """Have jobs of that type begun again. `note` says if it was not paused."""
        return self._http.call_for_map("a resumption", "POST", f"{path_of('types', name)}/resume")

    def pause_all(self) -> dict[str, Any]:
        """Have no job begun of the tenant that the client speaks for, at any daemon, until it is resumed."""
        return self._http.call_for_map("a pause", "POST", "/v1/types/pause")

    def resume_all(self) -> dict[str, Any]:
        """Have jobs of that tenant begun again. `note` says if it was not paused."""
        return self._http.call_for_map("a resumption", "POST", "/v1/types/resume")

    def paused_tenants(self) -> list[dict[str, Any]]:
        """The paused tenants, with `paused_at` and `by`."""
        answer = self._http.call_for_map("a question for types", "GET", "/v1/types", params=query(limit=1))
        return list(answer.get("paused") or ())

    def daemons(self) -> list[dict[str, Any]]:
        """Return the daemons that share this one's store, as it last heard of them."""
        return all_rows(self._http, "daemons")

    def gone_daemons(self) -> list[dict[str, Any]]:
        """Return the daemons that died or left within the last day, the newest first, and what became of their jobs."""
        return gone_rows(self._http, "daemons")

    def _act(self, method: str, path: str, body: bytes | None = None) -> JobInfo:
        answer = self._http.call(method, path, body=body, repeatable=method == "PATCH")
        return _info(answer.body, answer.status)

    def _many(self, what: str, **given: Any) -> Changed:
        # What was tried anew may have failed again.
        return self._changed(f"/v1/jobs/{what}", repeatable=what != "retry", **given)


def _join(known: dict[str, Any], row: dict[str, Any]) -> None:
    """Add what a later answer tells of the same reason."""
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
    """Return the filter as the daemon takes it.

    Raises TypeError for an unknown name: a bulk delete must not be misunderstood.
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
