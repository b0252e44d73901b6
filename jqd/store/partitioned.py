"""Makes several partitions look like one store to the API.

A call on a job goes to the partition that its id names. A call on a name (an id that a pusher chose) or on a jobtype
goes to the partition that it belongs to. Lists and numbers are asked of all partitions at once. An error names its
partition. docs/adr/0009 says what lies where.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, TypeVar

import trio

from jqd.domain.errors import StoreError
from jqd.domain.job import State
from jqd.domain.jobid import partition_of, partition_of_name
from jqd.domain.results import LargeResult
from jqd.store.counts import Counts, Totals, TypeView, added
from jqd.store.listing import LIST_FREE, LIST_S, LIST_SOURCES
from jqd.store.merged_list import CURSOR_IDS, PIECE_JOBS, decode_cursor, encode_cursor
from jqd.store.names import NameGiven, NameJournaled, NameStanding, NameWanted
from jqd.store.store import Store
from jqd.store.types import (
    NO_LOG,
    Cleaned,
    EditGiven,
    Entrusted,
    JobView,
    Log,
    OnItsWay,
    Page,
    QueuePlace,
    Release,
    StoreStats,
)

SOURCES = 2 * LIST_SOURCES  # places walked side by side in all partitions together: their cursor fits into a URL

S = TypeVar("S")
T = TypeVar("T")
Piece = Callable[[Store, list[S]], Awaitable[list[T]]]
"""Calls one partition with the items that belong to it, and returns an answer for each item."""
Calls = Mapping[int, Callable[[], Awaitable[T]]]
"""Number of a partition → the call to make to it."""


class PartitionedStore:
    """Does what `Store` does, over several partitions. While a partition is away, calls on its jobs and names fail, and
    so do all lists: StoreAway names it.
    """

    def __init__(self, stores: Sequence[Store], *, servers: int) -> None:
        """`stores`: one for each partition, in the order of their numbers. `servers`: how many servers hold them:
        partition n is on server n % servers."""
        assert len(stores) > 1, "one store needs nobody before it"
        self._stores = stores
        self._servers = servers

    # ------------------------------------------------------------ what is safe

    async def wait_durable(
        self,
        replicas: int = 0,
        timeout_s: float = 5.0,
        where: Collection[int] | None = None,
        *,
        or_accepted: bool = False,
    ) -> bool:
        numbers = range(len(self._stores)) if where is None else where
        return all(
            await self._call_each(
                numbers, lambda store: store.wait_durable(replicas, timeout_s, or_accepted=or_accepted)
            )
        )

    @property
    def durability_rule(self) -> str:
        rules: dict[str, list[str]] = {}
        for number, store in enumerate(self._stores):
            rules.setdefault(store.durability_rule, []).append(str(number))
        if len(rules) == 1:
            return next(iter(rules))
        return "; ".join(f"partition {', '.join(numbers)}: {rule}" for rule, numbers in rules.items())

    # ------------------------------------------------------------ what the store agrees to before it is journaled

    async def reserve_names(self, wanted: Sequence[NameWanted]) -> list[NameGiven]:
        """See Store. If one partition is away, names that other partitions gave become free again by themselves."""
        homes = [self._of_name(one.name) for one in wanted]
        return await self._in_order(homes, wanted, lambda store, part: store.reserve_names(part))

    async def free_names(self, wanted: Sequence[NameWanted]) -> None:
        homes = [self._of_name(one.name) for one in wanted]

        async def free(store: Store, part: Sequence[NameWanted]) -> list[None]:
            await store.free_names(part)
            return [None] * len(part)

        await self._in_order(homes, wanted, free)

    async def confirm_names(
        self, journaled: Sequence[NameJournaled], written: tuple[str, int] | None = None
    ) -> list[NameStanding]:
        """See Store. Names are confirmed in all reachable partitions, even when others fail."""
        homes = [self._of_name(one.name) for one in journaled]
        return await self._in_order(homes, journaled, lambda store, part: store.confirm_names(part, written))

    async def reserve_change(self, job_id: str) -> int:
        return await self._call(self._of(job_id), lambda store: store.reserve_change(job_id))

    async def reserve_edit(self, job_id: str, revision: int) -> EditGiven | None:
        return await self._call(self._of(job_id), lambda store: store.reserve_edit(job_id, revision))

    # ------------------------------------------------------------ one job, or those that are named

    async def get_job(self, job_id: str) -> JobView | OnItsWay | None:
        return await self._call(self._of(job_id), lambda store: store.get_job(job_id))

    async def queue_place(self, job_id: str, ages: bool = False) -> QueuePlace | None:
        """See Store. Counts only jobs of the same partition: jobs of others are claimed independently."""
        return await self._call(self._of(job_id), lambda store: store.queue_place(job_id, ages))

    async def get_piece(self, large: LargeResult, at: int) -> bytes | None:
        return await self._call(self._of(large.job_id), lambda store: store.get_piece(large, at))

    async def drop_result(self, job_id: str, read: bytes | LargeResult | None = None) -> None:
        await self._call(self._of(job_id), lambda store: store.drop_result(job_id, read))

    async def resolve(self, name: str, *, promised: bool = False) -> str | None:
        return await self._call(self._of_name(name), lambda store: store.resolve(name, promised=promised))

    async def resolve_all(self, names: Sequence[str]) -> list[str | None]:
        homes = [self._of_name(name) for name in names]
        return await self._in_order(homes, names, lambda store, part: store.resolve_all(part))

    async def unfinished(self, job_ids: Sequence[str], *, dead: bool = False) -> list[str]:
        return await self._ids_from(job_ids, job_ids, lambda store, part: store.unfinished(part, dead=dead))

    async def delete_dead(self, job_ids: Sequence[str]) -> list[str]:
        return await self._ids_from(job_ids, job_ids, lambda store, part: store.delete_dead(part))

    async def touch(
        self,
        claims: Sequence[tuple[str, int]],
        *,
        renew: bool = True,
        rows: bool = True,
        silence_s: int = 0,
        progress: bytes = b"",
        log: Log = NO_LOG,
    ) -> list[Entrusted]:
        homes = [self._of(job_id) for job_id, _ in claims]
        ask: dict[str, Any] = {"renew": renew, "rows": rows, "silence_s": silence_s, "progress": progress, "log": log}
        return await self._in_order(homes, claims, lambda store, part: store.touch(part, **ask))

    async def get_briefs(self, job_ids: Sequence[str]) -> list[JobView | OnItsWay | None]:
        homes = [self._of(job_id) for job_id in job_ids]
        return await self._in_order(homes, job_ids, lambda store, part: store.get_briefs(part))

    async def get_jobs(self, job_ids: Sequence[str]) -> list[JobView | OnItsWay | None]:
        homes = [self._of(job_id) for job_id in job_ids]
        return await self._in_order(homes, job_ids, lambda store, part: store.get_jobs(part))

    async def watch_logs(self, known: Sequence[tuple[str, int, int]], watch_ms: int) -> list[Log | None]:
        homes = [self._of(job_id) for job_id, *_ in known]
        return await self._in_order(homes, known, lambda store, part: store.watch_logs(part, watch_ms))

    async def release_entrusted(self, claims: Sequence[tuple[str, int]], how: Release = Release.UNSENT) -> list[str]:
        job_ids = [job_id for job_id, _ in claims]
        return await self._ids_from(job_ids, claims, lambda store, part: store.release_entrusted(part, how))

    # ------------------------------------------------------------ all there are

    async def stats(self) -> StoreStats:
        answers = await self._ask({n: store.stats for n, store in enumerate(self._stores)})
        answered = {n: answer for n, answer in answers.items() if isinstance(answer, StoreStats)}
        lost = {n: answer for n, answer in sorted(answers.items()) if isinstance(answer, Exception)}
        for error in lost.values():
            if not answered or not isinstance(error, StoreError):
                raise error
        memory: dict[int, int] = {}  # by server: several partitions may share one
        for number, one in answered.items():
            memory[number % self._servers] = max(one.used_memory, memory.get(number % self._servers, 0))
        waiting, scheduled, running, ended, dead, types = added(one[:6] for one in answered.values())
        return StoreStats(
            *(waiting, scheduled, running, ended, dead, types),
            used_memory=sum(memory.values()),
            unreachable=tuple(lost),
            counts=Counts(*added(one.counts for one in answered.values())),
            totals=Totals(*added(one.totals for one in answered.values())),
        )

    async def list_types(self, partition: int | None = None, *, dated: bool = True) -> list[TypeView]:
        """Return the jobtypes that have jobs, with their numbers added up over all partitions, or in one `partition`:
        jobs of one type whose pushers chose their ids lie in others than the rest. `dated`: also read when the oldest
        waiting job came."""
        rows: dict[str, TypeView] = {}
        asked = range(len(self._stores)) if partition is None else (partition,)
        answered = await self._call_each(asked, lambda store: store.list_types(dated=dated))
        for part in answered:
            for row in part:
                rows[row.jobtype] = _joined(rows[row.jobtype], row) if row.jobtype in rows else row
        return sorted(rows.values())

    async def clean_ended(self, before_ms: int, limit: int) -> Cleaned:
        """See Store. Skips partitions that fail. Raises the first one's error only if no job was examined in the
        others, so a caller that repeats the call until nothing is left gets the error at last."""
        gone, looked, date_ms, failed = 0, 0, before_ms, None
        for number in range(len(self._stores)):
            left = limit - looked
            if left <= 0:
                break

            def clean(store: Store, left: int = left) -> Awaitable[Cleaned]:
                return store.clean_ended(before_ms, left)

            try:
                some = await self._call(number, clean)
            except StoreError as error:
                failed = failed or error
                continue
            gone, looked, date_ms = gone + some.gone, looked + some.examined, min(date_ms, some.before_ms)
        if failed is not None and not looked:
            raise failed
        return Cleaned(gone, looked, date_ms)

    async def list_jobs(
        self,
        state: State | None,
        jobtype: str | None,
        tag: str | None,
        limit: int,
        cursor: str,
        tenant: str | None = None,
        *,
        row_bytes: int = 0,
        tried: bool = False,
    ) -> Page:
        which = state, jobtype, tag
        sources = max(1, min(LIST_SOURCES, SOURCES // len(self._stores)))
        more: dict[str, Any] = {"row_bytes": row_bytes, "tried": tried, "sources": sources}
        walks, until_s = decode_cursor(cursor, len(self._stores), self.seal), trio.current_time() + LIST_S
        looked, in_parts = 0, False
        found: dict[str, JobView] = {}  # by id: a job may move between the pieces of its partition
        piece = max(1, min(limit, PIECE_JOBS, CURSOR_IDS // len(walks)))
        while len(found) < limit:
            dry = {n: walk for n, walk in enumerate(walks) if walk.is_dry}
            if dry and found and looked >= LIST_FREE and trio.current_time() >= until_s:
                break
            if dry:
                # This is the only partition left: all that is fetched goes into the page, and nothing is fetched twice.
                last = len(dry) == 1 and not any(walk.rows or walk.given for walk in walks)
                size = limit - len(found) if last else piece
                asks = {
                    n: partial(self._stores[n].list_jobs, *which, walk.begin(size), walk.start, tenant, **more)
                    for n, walk in dry.items()
                }
                pages = await self._all(asks)
                for number, page in pages.items():
                    looked, in_parts = looked + page.examined, in_parts or page.in_parts
                    dry[number].take(page)
                continue
            ready = [walk for walk in walks if walk.rows]
            if not ready:
                break
            view = max(ready, key=lambda walk: walk.rows[-1].id).pop_newest()
            found[view.id] = view
        jobs = sorted(found.values(), key=lambda view: view.id, reverse=True)
        return Page(jobs, encode_cursor(walks, self.seal), looked, in_parts)

    @property
    def seal(self) -> str:
        return self._stores[0].seal

    # ------------------------------------------------------------ asking

    def at(self, number: int) -> Store:
        """Return the store of partition `number`."""
        return self._stores[number]

    def _of(self, job_id: str) -> int:
        return partition_of(job_id, len(self._stores))

    def _of_name(self, name: str) -> int:
        return partition_of_name(name, len(self._stores))

    async def _call(self, number: int, call: Callable[[Store], Awaitable[T]]) -> T:
        try:
            return await call(self._stores[number])
        except StoreError as error:
            raise self._named(error, number) from error

    async def _call_each(self, numbers: Iterable[int], call: Callable[[Store], Awaitable[T]]) -> list[T]:
        return list((await self._all({n: partial(call, self._stores[n]) for n in numbers})).values())

    async def _in_order(self, homes: Sequence[int], items: Sequence[S], call: Piece[S, T]) -> list[T]:
        """Call each partition with its own items (`homes`: the partition of each item). Returns the answers in the
        order of the items."""
        answers = {n: iter(part) for n, part in (await self._at_home(homes, items, call)).items()}
        return [next(answers[home]) for home in homes]

    async def _ids_from(self, job_ids: Sequence[str], items: Sequence[S], call: Piece[S, str]) -> list[str]:
        """Call each partition with its own items, one for each of `job_ids`. Returns the ids that the partitions
        answered, in the order of `job_ids`."""
        answers = await self._at_home([self._of(job_id) for job_id in job_ids], items, call)
        named = {job_id for part in answers.values() for job_id in part}
        return [job_id for job_id in job_ids if job_id in named]

    async def _at_home(self, homes: Sequence[int], items: Sequence[S], call: Piece[S, T]) -> dict[int, list[T]]:
        """Call each partition with its own items (`homes`: the partition of each item). Returns partition → its
        answers."""
        pieces: dict[int, list[S]] = {}
        for home, item in zip(homes, items, strict=True):
            pieces.setdefault(home, []).append(item)
        return await self._all({n: partial(call, self._stores[n], part) for n, part in pieces.items()})

    async def _all(self, calls: Calls[T]) -> dict[int, T]:
        """Make the calls (partition → call) at once. Returns their answers, or raises the error of the lowest failing
        partition."""
        answers: dict[int, T] = {}
        for number, answer in sorted((await self._ask(calls)).items()):
            if isinstance(answer, Exception):
                raise answer
            answers[number] = answer
        return answers

    async def _ask(self, calls: Calls[T]) -> dict[int, T | Exception]:
        """Make the calls (partition → call) at once. Returns each partition's answer or error; an error stops no other
        call."""
        answers: dict[int, T | Exception] = {}

        async def ask(number: int, call: Callable[[], Awaitable[T]]) -> None:
            try:
                answers[number] = await call()
            except StoreError as error:
                answers[number] = self._named(error, number)
            except Exception as error:  # noqa: BLE001 - raised by `_all`: callers expect errors, not groups of them
                answers[number] = error

        async with trio.open_nursery() as nursery:
            for number, call in calls.items():
                nursery.start_soon(ask, number, call)
        return answers

    def _named(self, error: StoreError, number: int) -> StoreError:
        """Return a copy of the error whose message names the partition."""
        named = copy(error)
        named.args = (f"partition {number} of {len(self._stores)}: {error}",)
        named.__cause__ = error
        return named


EdgeStore = Store | PartitionedStore
"""The store as the API uses it, whatever the number of partitions."""


def _joined(one: TypeView, other: TypeView) -> TypeView:
    oldest = min((row.oldest_ms for row in (one, other) if row.oldest_ms), default=0)
    counts, totals = Counts(*added((one.counts, other.counts))), Totals(*added((one.totals, other.totals)))
    return TypeView(one.jobtype, counts, oldest, totals)
