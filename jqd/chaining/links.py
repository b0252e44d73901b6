"""Writes the group of each job to the store again before the job is applied, as the store may have lost it.

This is done in the group's partition.
"""

from collections.abc import Sequence

from jqd.domain.job import Job
from jqd.domain.jobid import partition_of, partition_of_name
from jqd.domain.tenant import annotate, bare, tenant_of
from jqd.service.job_limits import CALLBACK_TAIL, GROUP_STEM
from jqd.store import Store
from jqd.store.links import CLOSED


class Links:
    """Writes groups of one partition to the store again, before jobs that belong to them are applied. The members of a
    group may be in any partition."""

    def __init__(self, number: int, store: Store, partitions: int) -> None:
        self._number, self._store, self._partitions = number, store, partitions

    def concern(self, job: Job) -> bool:
        """Return whether a job is in a group of this partition, or closes one; the job itself may be in another
        partition."""
        if job.flow is not None and self._is_here(job.flow.group):
            return True
        return GROUP_STEM in job.name and self._is_here(closed_by(job))  # the cheap check first: called for every job

    def here(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Return those of the jobs that are themselves in this partition."""
        if self._partitions == 1 or not any(map(self.concern, jobs)):
            return jobs
        return [job for job in jobs if partition_of(job.id, self._partitions) == self._number]

    async def confirm(self, jobs: Sequence[Job]) -> None:
        """Make these jobs members of their groups in the store, and close groups. Raises StoreError."""
        members: dict[str, list[tuple[str, str]]] = {}
        for job in jobs:
            flow = job.flow
            if flow is None and GROUP_STEM not in job.name:
                continue  # nearly all jobs
            if flow is not None and flow.group and self._is_here(flow.group):
                members.setdefault(flow.group, []).append(("", job.id))
            if (group := closed_by(job)) and self._is_here(group):
                after = flow.after if flow is not None else ()  # all members of the group, ended or not
                members.setdefault(group, []).extend([*(("", member) for member in after), ("", CLOSED)])
        for group, pairs in members.items():
            await self._store.confirm_members(group, pairs)

    def _is_here(self, name: str) -> bool:
        return bool(name) and partition_of_name(name, self._partitions) == self._number


def closed_by(job: Job) -> str:
    """Return the group that was closed when this job was pushed: the job waits for the group's members, or is the
    group's callback. "": there is none."""
    own = bare(job.name)
    if not own.startswith(GROUP_STEM):
        return ""
    return annotate(tenant_of(job.name), own.removeprefix(GROUP_STEM).removesuffix(CALLBACK_TAIL))
