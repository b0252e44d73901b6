"""Checks the jobs that a worker's report asks to be pushed as followers of the reported job."""

from collections.abc import Callable, Sequence

from jqd.domain.errors import TooLarge, Unreadable
from jqd.domain.followers import FOLLOWERS_BYTES_MAX, FOLLOWERS_MAX
from jqd.domain.jobid import is_of_date
from jqd.domain.tenant import in_scope
from jqd.service.batch import read_array
from jqd.service.config import ServiceConfig
from jqd.service.flow_checks import OWN_ID, following_of, names_of, uncalled

NO_REPLACE = (
    "a job that follows another cannot replace one: it may be pushed again after a loss, and would take the place of"
    " what came since; push it by itself, or under another job_id"
)


def wrong(
    config: ServiceConfig,
    why_no_callback: Callable[[str], str | None],
    follows: bytes,
    scopes: Sequence[str] = (),
) -> str:
    """Return what is wrong with the jobs that are to follow an outcome; empty if they can be pushed.

    They are pushed later, in the name of the tenant of the job that they follow, so the worker's scopes are checked
    now. `why_no_callback`: returns why no callback can go to a URL. `scopes`: of the token that the worker reports
    with; if the jobs come in a worker's HTTP answer, of the token that it was registered with.
    """
    if len(follows) > FOLLOWERS_BYTES_MAX:
        return f"they have {len(follows)} bytes, at most {FOLLOWERS_BYTES_MAX} can follow one job"
    try:
        batch = read_array(follows, False, config)
    except (Unreadable, TooLarge) as error:
        return str(error)
    if batch.refused:
        first = batch.refused[0]
        return f"jobs/{first.place}{first.pointer}: {first.detail}"
    if batch.size > FOLLOWERS_MAX:
        return f"they are {batch.size}, at most {FOLLOWERS_MAX} can follow one job"
    for place, job in enumerate(batch.jobs):
        foreign = [name for name in names_of([job]) if not in_scope(scopes, name)] if scopes else []
        if foreign:
            return f"jobs/{place}/name: the worker's token is not for jobs {foreign[0][:64]!r}"
        if scopes and job.job_id is not None and is_of_date(job.job_id):
            return f"jobs/{place}/job_id: a token for some jobtypes cannot take the id of a schedule's date"
        if scopes and job.after:
            return f"jobs/{place}/after: a token for some jobtypes cannot let jobs wait for others; push it by itself"
        if scopes and any(each.group is not None for each in following_of(job)):
            return f"jobs/{place}/group: a token for some jobtypes cannot let jobs join a group; push it by itself"
        if why := uncalled(job, why_no_callback):
            return f"jobs/{place}/callback: {why}"
        if job.replace:
            return f"jobs/{place}/replace: {NO_REPLACE}"
        if job.unique is not None:
            return f"jobs/{place}/unique: {OWN_ID}"
    chosen = [job.job_id for job in batch.jobs if job.job_id is not None]
    return "" if len(set(chosen)) == len(chosen) else "two of them have the same job_id"
