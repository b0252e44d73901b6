"""Gives back what the store takes us to hold and we do not: the jobs of a claim whose answer was lost."""

from jqd.domain.log import get_logger
from jqd.runner import Runner
from jqd.store import Owner, Store


async def reconcile(store: Store, runner: Runner, owner: Owner) -> None:
    """Give back what the store holds for us and we do not. No claim may be under way. Raises StoreError."""
    before = runner.get_running_jobs()
    held = await store.get_held(owner)
    ours = before | runner.get_running_jobs()  # what left our hand meanwhile did so because the store knows of it
    unknown = {job_id: fence for job_id, fence in held.items() if fence not in (ours.get(job_id), before.get(job_id))}
    if unknown:
        await store.release_jobs(owner, unknown)
        get_logger("reconcile").warning("reconcile.given_back", count=len(unknown))
