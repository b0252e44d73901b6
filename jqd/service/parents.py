"""The parents of jobs that wait for others, as shown to pushers of such jobs, and in explanations of why they wait."""

from collections.abc import Sequence

from jqd.domain.errors import NotFound, NotYet, StoreAway
from jqd.domain.flow import Flow
from jqd.domain.job import State
from jqd.domain.tenant import bare
from jqd.service.act_on_each import act_on_each
from jqd.service.circles import in_words, rows_of, way_back
from jqd.service.find import find, resolve
from jqd.service.services import Services
from jqd.store import JobView

CHECKED_MAX = 100  # parents of one request that are looked for: more are checked by the loop that waits for them
LOOKS_MAX = 32  # at once: each is up to two calls of the store
NAMED_MAX = 3  # in one sentence


async def unknown_parents(services: Services, parents: Sequence[str]) -> set[str]:
    """Return the ids, of the first CHECKED_MAX, of which no job is known: most likely a slip of the pusher.

    Empty while the store is away: the push counts, and `why` says what the job waits for. Of a token with scopes all
    parents are looked for, as it may get results only of jobs that it may see; else raises StoreAway, NotYet."""
    is_scoped = bool(services.principal.scopes)
    unknown: set[str] = set()

    async def look(given: str) -> None:
        try:
            job_id = await resolve(services, given)
            await find(services, job_id, named=job_id != given, given=given)
        except NotFound:
            unknown.add(given)
        except (StoreAway, NotYet):
            if is_scoped:
                raise
            return  # whether there is such a job is not known now

    await act_on_each(parents if is_scoped else parents[:CHECKED_MAX], look, LOOKS_MAX)
    return unknown


async def cancelled_for(services: Services, job: JobView) -> str:
    """The parent for which a job was cancelled: the first of CHECKED_MAX that did not succeed; "": none is known.

    It is not noted with the cancel, but found by how the parents stand. Raises StoreAway, StoreRefused."""
    flow = job.flow
    if job.state is not State.CANCELLED or flow is None or flow.on_parent_failure != "cancel":
        return ""
    rows = await rows_of(services, flow.after[:CHECKED_MAX])
    bad = (State.FAILED, State.CANCELLED)
    return next((bare(parent) for parent in flow.after if parent in rows and rows[parent].state in bad), "")


async def awaited(services: Services, job: JobView, flow: Flow) -> str:
    """What a blocked job waits for, in words: the first parents that have not ended."""
    way = await way_back(services, {job.id, job.name} - {""}, flow.after, {})
    if way:
        whole = in_words(services, [job.name or job.id, *way])
        return f"it waits for itself, by {whole}, and never begins: cancel one of them, or run it now"
    # Its parents are known by the names that its own tenant gave, whoever asks.
    services = services.as_principal(services.principal._replace(tenant=job.tenant))
    unknown = "not known to this token" if services.principal.scopes else "nobody knows it"
    named: list[str] = []
    for parent in map(bare, flow.after[:CHECKED_MAX]):
        try:
            job_id = await resolve(services, parent)
            view = await find(services, job_id, named=job_id != parent, given=parent)
        except NotFound:
            named.append(f"{parent} ({unknown})")
        except NotYet:
            named.append(f"{parent} (on its way)")
        else:
            if not view.state.is_final:
                state = view.state.value if isinstance(view, JobView) else "on its way"
                named.append(f"{parent} ({state})")
        if len(named) == NAMED_MAX:
            break
    which = f": {', '.join(named)}" if named else ""
    count = len(flow.after)
    return f"it waits for its {'parent' if count == 1 else f'{count} parents'}{which}"
