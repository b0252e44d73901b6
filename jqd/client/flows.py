"""The client's calls about groups and flows. A flow is a job with all jobs that are linked with it, directly or through
others."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from jqd.client.errors import JqdClientError
from jqd.client.http import Http, encode, query
from jqd.client.job_info import Changed
from jqd.client.path import job_path, path_of
from jqd.domain.flow import OnFailure

T = TypeVar("T")
LOOK_S = 60.0  # added to the usual timeout: one request reads, or changes, some 10,000 jobs


class FlowJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job of a flow."""

    job_id: str
    name: str
    state: str
    attempts: int
    """Number of attempts, including one that is running."""
    parents: Sequence[str] = ()
    """Ids of the jobs for which it waits or waited, or of the job whose outcome created it: at most a hundred."""
    children: Sequence[str] = ()
    """Ids of the jobs that wait for it, or that it created: at most a hundred."""
    waits_for: Sequence[str] = ()
    """Ids of the parents that have not ended."""
    group: str | None = None
    cancelled_for: str | None = None
    """Id of the failed parent because of which it was cancelled."""


class FlowInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job and all jobs linked with it, directly or through others. They are sorted in parts of 500: the nearest jobs
    come in the first part; within each part the oldest come first."""

    jobs: Sequence[FlowJob]
    whole: bool
    """False: the flow has more than the 10,000 jobs that a daemon reads, or some of its jobs are not in the store
    yet."""


class GroupWaits(msgspec.Struct, frozen=True, kw_only=True):
    """The job that waits for all jobs of a group."""

    job_id: str
    state: str | None
    """The state of the job; None: it is not in the store yet."""


class GroupInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a group and its jobs."""

    group: str
    closed: bool
    closed_at: datetime | None
    jobs: int
    counts: Mapping[str, int]
    """State → number of jobs in it. "unknown": the job is not in the store yet, or was deleted."""
    progress: float
    """Share of the jobs that have ended, from 0 to 1."""
    then: GroupWaits | None = None
    errors: Sequence[Mapping[str, Any]] = ()
    """The first ten failed jobs: `job_id`, `name`, `message`."""
    first: Sequence[Mapping[str, Any]] = ()
    """The ten jobs that joined first: `job_id`, `name`, `state`."""


class Flows:
    """`Client`'s methods about flows and groups."""

    _http: Http

    def flow(self, job_id: str) -> FlowInfo:
        """Return the flow of a job: the job, its parents and children, their parents and children, and so on. Raises
        NotFound."""
        jobs: list[FlowJob] = []
        cursor = ""
        while True:
            params = query(cursor=cursor or None)
            answer = self._http.call_for_map(
                "a question for a flow", "GET", f"{job_path(job_id)}/flow", params=params, wait_s=LOOK_S
            )
            page = converted(answer, FlowInfo)
            jobs += page.jobs
            cursor = answer.get("cursor") or ""
            if not cursor:
                return FlowInfo(jobs=jobs, whole=page.whole)

    def cancel_flow(self, job_id: str, *, dry_run: bool = False) -> Changed:
        """Cancel all jobs of a job's flow that have not ended. `dry_run`: only count them. Raises NotFound."""
        return self._changed(f"{job_path(job_id)}/flow/cancel", dry_run=dry_run)

    def retry_flow(self, job_id: str, *, dry_run: bool = False) -> Changed:
        """Retry all jobs of a job's flow that failed, or were cancelled because of a parent. `dry_run`: only count
        them. Raises NotFound."""
        return self._changed(f"{job_path(job_id)}/flow/retry", dry_run=dry_run, repeatable=False)

    def group(self, group: str) -> GroupInfo:
        """Return the state of a group. Raises NotFound."""
        return converted(
            self._http.call_for_map("a question for a group", "GET", group_path(group), wait_s=LOOK_S), GroupInfo
        )

    def close_group(
        self, group: str, then: Mapping[str, Any] | None = None, *, on_parent_failure: OnFailure | None = None
    ) -> GroupWaits | None:
        """Close a group, so that no more jobs can join it. Returns the job that waits for all jobs of the group, if
        there is one.

        `then`: the job that waits, as `push_one` takes it; without an argument it gets the list of the group's results.
        `on_parent_failure`: what happens to this job if a job of the group does not succeed. The same call again has no
        effect; another `then` raises Conflict.
        """
        fields = {"then": then, "on_parent_failure": on_parent_failure}
        body = encode({name: value for name, value in fields.items() if value is not None})
        answer = self._http.call_for_map("a call about a group", "POST", f"{group_path(group)}/close", body=body)
        return None if answer.get("then") is None else converted(answer["then"], GroupWaits)

    def cancel_group(self, group: str, *, dry_run: bool = False) -> Changed:
        """Cancel all jobs of a group that have not ended, and the job that waits for them. `dry_run`: only count them.
        Raises NotFound."""
        return self._changed(f"{group_path(group)}/cancel", dry_run=dry_run)

    def retry_group(self, group: str, *, dry_run: bool = False) -> Changed:
        """Retry all failed jobs of a group, and the job that waits for them if it failed. `dry_run`: only count them.
        Raises NotFound."""
        return self._changed(f"{group_path(group)}/retry", dry_run=dry_run, repeatable=False)

    def _changed(self, path: str, *, repeatable: bool = True, **given: Any) -> Changed:
        """Change jobs, some ten thousand with each request, and return the sum of the answers. `given`: fields of the
        request; None and False are left out; `matched_max` bounds the sum. `repeatable`: whether a request that arrives
        twice counts once."""
        fields = {name: value for name, value in given.items() if value is not None and value is not False}
        how: dict[str, Any] = {"wait_s": LOOK_S, "repeatable": repeatable or "dry_run" in fields}
        matched, changed, at = 0, 0, ""
        refused: list[Mapping[str, Any]] = []
        while True:
            body = encode(fields) if fields else None
            try:
                answer = self._http.call_for_map("a call about jobs", "POST", path, body=body, **how)
            except JqdClientError as error:
                if matched:
                    error.args = (f"{error} (before that {matched} jobs matched, {changed} were changed)",)
                raise
            matched, changed = matched + answer["matched"], changed + answer["changed"]
            refused += answer.get("refused") or ()
            at = at or answer.get("at", "")
            if not answer.get("cursor"):
                return Changed(matched, changed, tuple(refused), answer.get("whole", True), at)
            fields["cursor"] = answer["cursor"]
            if "matched_max" in fields:
                fields["matched_max"] -= answer["matched"]


def depths_of(jobs: Sequence[FlowJob]) -> dict[str, int]:
    """Return job id → depth in the flow: 0 without parents in it, else one more than the greatest depth among the
    parents."""
    depths = {job.job_id: 0 for job in jobs}
    edges = [(parent, job.job_id) for job in jobs for parent in job.parents]
    edges += [(job.job_id, child) for job in jobs for child in job.children]  # both: each list has only the first 100
    followers: dict[str, list[str]] = {job_id: [] for job_id in depths}
    missing = Counter[str]()
    for parent, child in dict.fromkeys(edges):
        if parent in depths and child in depths:
            followers[parent].append(child)
            missing[child] += 1
    ready = [job_id for job_id in depths if not missing[job_id]]
    while ready:
        parent = ready.pop()
        for child in followers[parent]:
            depths[child] = max(depths[child], depths[parent] + 1)
            missing[child] -= 1
            if not missing[child]:
                ready.append(child)
    return depths


def group_path(group: str) -> str:
    return path_of("groups", group)


def converted(answer: Any, kind: type[T]) -> T:
    """Convert an answer about a flow or a group to the type `kind`. Raises JqdClientError if it does not fit."""
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise JqdClientError(f"the answer about a flow or group is not understood: {error}", status=200) from error
