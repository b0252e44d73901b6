"""Writes the groups of jobs to the store again, as the store may have lost them. This is done in each group's
partition, before the jobs are applied."""

from collections.abc import Sequence

from jqd.domain.job import Job
from jqd.domain.jobid import partition_of, partition_of_name
from jqd.domain.tenant import annotate, bare, tenant_of
from jqd.service.job_limits import CALLBACK_TAIL, GROUP_STEM
from jqd.store import Store
from jqd.store.links import CLOSED


class Links:
    """Writes the groups that belong to one partition to the store again, before their jobs are applied. The jobs
    themselves may be in any partition."""

    def __init__(self, number: int, store: Store, partitions: int) -> None:
        self._number, self._store, self._partitions = number, store, partitions

    def has_group_here(self, job: Job) -> bool:
        """Return whether a job is in a group of this partition, or closes one; the job itself may be in another
        partition."""
        if job.flow is not None and self._is_here(job.flow.group):
            return True
        return GROUP_STEM in job.name and self._is_here(closed_by(job))  # the cheap check first: called for every job

    def jobs_here(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Return the jobs of this partition. The others are in `jobs` only because they belong to a group of this
        partition."""
        if self._partitions == 1 or not any(map(self.has_group_here, jobs)):
            return jobs
        return [job for job in jobs if partition_of(job.id, self._partitions) == self._number]

    async def write_groups(self, jobs: Sequence[Job]) -> None:
        """Write to the store that jobs are members of their groups, and that groups are closed, for the groups of this
        partition. Raises StoreError."""
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
    """Return the group that was closed by the push of this job; "" if there is none. Such a job waits for the group's
    members, or is the group's callback."""
    own = bare(job.name)
    if not own.startswith(GROUP_STEM):
        return ""
    return annotate(tenant_of(job.name), own.removeprefix(GROUP_STEM).removesuffix(CALLBACK_TAIL))
