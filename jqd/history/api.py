"""Numbers over time: GET /v1/history."""

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from jqd.api.context import ApiContext
from jqd.api.decode import YES, Flag, read_query
from jqd.api.v1.job_views import iso
from jqd.api.v1.responses import Instant
from jqd.domain.array_split import Steps, in_steps
from jqd.domain.tally import EVERYBODY, OTHER, OUTCOMES, RUN_S, WAIT_S, Counts
from jqd.domain.tenant import bare, tenant_of
from jqd.history.counts import decode
from jqd.http import Request, Response, answer
from jqd.service import Services
from jqd.store import HistoryPage

MINUTE_MS = 60_000
FINE_MINUTES = 8 * 60  # up to here in steps of a minute, beyond in steps of ten
COARSE_MINUTES = 8 * 24 * 60
TEN = 10
TYPES_MAX = 200  # jobtypes of one answer: some 800 kB for eight hours
SUCCEEDED, FAILED, DEAD = (OUTCOMES.index(name) for name in ("succeeded", "failed", "dead"))


class HistoryQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query parameters of `GET /v1/history`."""

    name: str | UnsetType = UNSET
    """A jobtype; left out: all together."""
    minutes: Annotated[
        int, Meta(ge=1, le=COARSE_MINUTES, description=f"a whole number from 1 to {COARSE_MINUTES:,} (8 days)")
    ] = 60
    types: Flag = "0"
    """With numbers of each jobtype."""


class HistoryStep(Struct, frozen=True):
    """What happened in one minute, or in ten."""

    at: Instant | None
    """When it began."""
    pushed: int
    started: Annotated[int, Meta(description="attempts")]
    succeeded: int
    failed: Annotated[int, Meta(description="the worker said that it cannot succeed")]
    dead: Annotated[int, Meta(description="its retries are used up, or it expired")]
    retried: Annotated[int, Meta(description="attempts that are made again later")]
    put_off: Annotated[int, Meta(description="attempts that put their job off, which count as none")]
    interrupted: Annotated[int, Meta(description="attempts that count as none, as their worker or daemon stopped")]
    cancelled: Annotated[int, Meta(description="cancels that came to the store, of jobs that ran or had ended, too")]
    wait: Annotated[Sequence[int], Meta(description="first attempts, by how long they waited: see `wait_bounds`")]
    run: Annotated[Sequence[int], Meta(description="attempts, by how long they ran: see `run_bounds`")]
    wait_s: Annotated[float, Meta(description="sum of all waits")]
    run_s: Annotated[float, Meta(description="sum of all runs")]


class TypeHistory(Struct, frozen=True):
    """What one jobtype did in each step of the history: one list for each count."""

    name: Annotated[str, Meta(description="empty: further jobtypes of that tenant, together")]
    pushed: Sequence[int]
    started: Sequence[int]
    ended: Annotated[Sequence[int], Meta(description="jobs whose last attempt ended, or that expired")]
    failed: Annotated[Sequence[int], Meta(description="of those")]
    tenant: str | UnsetType = UNSET
    """Left out for the tenant ""; `*`: of further tenants."""


class History(Struct, frozen=True):
    """Numbers over time, the oldest first."""

    step_minutes: int
    since: Instant | None
    """From when on the store knows anything: it was new then, or emptied. Null: it knows nothing."""
    steps: Sequence[HistoryStep]
    wait_bounds: Annotated[Sequence[float], Meta(description="seconds; the last bucket is of what is above the last")]
    run_bounds: Sequence[float]
    types: Annotated[Sequence[TypeHistory], Meta(description=f"the {TYPES_MAX} busiest")] = ()
    unread: Annotated[int, Meta(description="rows left out that this release cannot read")] = 0


async def get(parts: ApiContext, request: Request) -> Response:
    """`GET /v1/history?name&minutes&types` → 200: what all daemons counted, in steps of a minute for up to 8 hours, of
    ten for up to 8 days. Raises Invalid, StoreAway."""
    query, services = read_query(request, HistoryQuery), parts.services
    sums = _Sums(services, query)
    behind: tuple[int, str] | None = (sums.begin_ms, "")
    since_ms: int | None = None
    while behind is not None:
        page = await services.store.at(0).get_history(sums.minutes, *behind)
        since_ms, behind = page.oldest_ms, page.last
        await in_steps(sums.read(page), request.breathe)
    body = History(
        sums.minutes,
        iso(since_ms) if since_ms is not None else None,
        [_step(sums.begin_ms + place * sums.step_ms, one) for place, one in enumerate(sums.steps)],
        WAIT_S,
        RUN_S,
        _types(sums.types),
        sums.unread,
    )
    return answer(200, body, request.answer_language())


class _OfType(NamedTuple):
    """Counts of one jobtype; each list has a number for each step."""

    pushed: list[int]
    started: list[int]
    ended: list[int]
    failed: list[int]

    @property
    def moves(self) -> int:
        return sum(map(sum, self))


class _Sums:
    """Adds up the store's counts of each minute (jobs pushed, started, ended, by jobtype) for the answer: one sum for
    each step of time, of one or ten minutes. Steps of one minute end with the last whole minute. Steps of ten minutes
    end with the present one, which is not over."""

    def __init__(self, services: Services, query: HistoryQuery) -> None:
        self._principal, self._by_type = services.principal, query.types in YES
        self._name = None if query.name is UNSET else services.qualified_name(query.name)
        self.minutes = 1 if query.minutes <= FINE_MINUTES else TEN
        """Length of a step in minutes."""
        self.step_ms = self.minutes * MINUTE_MS
        self.steps = [Counts() for _ in range(-(-query.minutes // self.minutes))]
        present = services.workers.settings.now_ms(services.clock) // self.step_ms
        self.begin_ms = (present - len(self.steps) + (self.minutes > 1)) * self.step_ms
        self.types: dict[str, _OfType] = {}
        self.unread = 0

    def read(self, page: HistoryPage) -> Steps[None]:
        for at_ms, data in page.rows:
            place, row = (at_ms - self.begin_ms) // self.step_ms, decode(data)
            if row is None:
                self.unread += 1
            elif 0 <= place < len(self.steps):
                for jobtype, counts in row.items():
                    if self._fits(jobtype):
                        self.steps[place].add(counts)
                        if self._by_type:
                            self._note(jobtype, place, counts)
            yield

    def _fits(self, jobtype: str) -> bool:
        if self._name not in (None, jobtype):
            return False
        return self._principal.sees_all if jobtype == EVERYBODY else self._principal.can_access(jobtype)

    def _note(self, jobtype: str, place: int, counts: Counts) -> None:
        if (of := self.types.get(jobtype)) is None:
            of = self.types[jobtype] = _OfType(*([0] * len(self.steps) for _ in _OfType._fields))
        ended = counts.ended
        of.pushed[place] += counts.pushed
        of.started[place] += counts.started
        of.ended[place] += ended[SUCCEEDED] + ended[FAILED] + ended[DEAD]
        of.failed[place] += ended[FAILED] + ended[DEAD]


def _types(types: Mapping[str, _OfType]) -> list[TypeHistory]:
    busiest = sorted(types.items(), key=lambda item: (-item[1].moves, item[0]))[:TYPES_MAX]
    return [
        TypeHistory(bare(jobtype).removesuffix(OTHER), *of, tenant=tenant_of(jobtype) or UNSET)
        for jobtype, of in busiest
    ]


def _step(at_ms: int, counts: Counts) -> HistoryStep:
    ended = dict(zip(OUTCOMES, counts.ended, strict=True))
    return HistoryStep(
        at=iso(at_ms),
        pushed=counts.pushed,
        started=counts.started,
        **ended,
        wait=counts.wait,
        run=counts.run,
        wait_s=round(counts.wait_ms / 1000, 3),
        run_s=round(counts.run_ms / 1000, 3),
    )
