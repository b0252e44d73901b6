"""Reserves and confirms, for pushed jobs, places in groups (a place is the membership of one job) and unique keys.

    reserve_keys, join ──▶ store: reserved, under tokens ──▶ journal ──▶ confirm ──▶ store: held, under the jobs' ids

A push that meets a key reserved by another push waits until the reservation is confirmed or released, and so does a
call that closes a group: so no answer names a job that is never accepted. A push that fails releases its places and
keys (key_returns.py). If its daemon dies, the store keeps places for PLACE_S and keys for UNIQUE_S. Applying the
journal confirms them again.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Self

import trio

from jqd.domain.errors import Conflict, Denied, JournalRefused, NotYet, StoreError, TooLarge
from jqd.domain.flow import unique_text
from jqd.domain.job_spec import JobSpec
from jqd.domain.jobid import partition_of_name
from jqd.domain.log import get_logger
from jqd.domain.record import Lane, cancel_of, encode_cancels
from jqd.domain.tenant import bare
from jqd.service.find import once_settled
from jqd.service.flow_checks import following_of
from jqd.service.frames import Written
from jqd.service.key_returns import GIVE_BACK_S, UNDER_WAY
from jqd.service.services import Services
from jqd.store import OnItsWay
from jqd.store.links import GROUP_MAX, Joined, UniqueWanted

WAIT_S = 2.0  # wait for another push of the same key, whose sync takes some milliseconds
POLL_S = 0.02
SEEN = 100  # members of a group that are checked before a token with scopes may join it: one call of each partition


class PushLinks:
    """The places that one push reserves in groups, and the unique keys that it reserves (`async with`). When the block
    ends, those that no journaled job has are released."""

    def __init__(self, services: Services, *, follows: bool = False) -> None:
        """`follows`: the jobs follow an outcome and cannot be refused. If their group is closed, they do not join
        it."""
        self._services, self._follows = services, follows
        self._keys: dict[str, UniqueWanted] = {}
        self._unanswered: dict[str, UniqueWanted] = {}
        """The keys in `_keys` that the store was asked to reserve, and for which it has not answered."""
        self._places: dict[str, list[str]] = {}
        """Group → tokens of reserved places that have not been assigned to a journaled job."""
        self._members: dict[str, list[tuple[str, str]]] = {}
        """Group → (token, job id) of journaled jobs whose places are not confirmed yet."""
        self._wanted: list[UniqueWanted] = []
        """Keys of journaled jobs that are not confirmed yet."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Release the group places and unique keys that no journaled job has."""
        services = self._services
        if self._keys:
            unsure = self._unanswered.values()
            await services.key_returns.give_back(services.store, services.partitions, self._keys.values(), unsure)
        try:
            with trio.move_on_after(GIVE_BACK_S, shield=True):
                for group, tokens in self._places.items():
                    if tokens:
                        await services.home(group).confirm_members(group, [(token, "") for token in tokens])
        except StoreError as error:  # the places lapse by themselves soon
            get_logger("links").warning("links.kept", error=str(error))

    async def reserve_keys(self, jobs: Sequence[JobSpec]) -> dict[str, str]:
        """Reserve the unique keys of jobs. Returns the keys that other jobs have: key → id of that job.

        Raises NotYet if another push of a key takes too long, or jobs of earlier pushes are not in the store yet;
        StoreAway, StoreRefused.
        """
        services = self._services
        keys = {services.unique_key(job): job.while_ for job in jobs if job.unique is not None}
        if not keys:
            return {}
        where = {partition_of_name(key, services.partitions) for key in keys}
        for lane in (Lane.JOBS, Lane.CHANGES):
            if not await services.control.wait_caught_up(lane, services.journal.unsure_to, WAIT_S, where):
                raise NotYet("jobs with unique keys are on their way into the store; nothing was taken: push it again")
        tokens = services.journal.ids.take(len(keys)).ids()
        due = {
            key: UniqueWanted(key, token, until)
            for (key, until), token in zip(keys.items(), tokens, strict=True)
            if key not in self._keys
        }
        self._keys |= due  # before the call: a reservation whose answer is lost is given back, too
        taken: dict[str, str] = {}
        deadline_s = trio.current_time() + WAIT_S
        while True:
            for number, some in self._by_home(due):
                ask = partial(services.store.at(number).reserve_unique, [due[key] for key in some])
                self._unanswered = {key: due[key] for key in some}
                answers = await once_settled(services, {number}, ask)
                self._unanswered = {}
                for key, has in zip(some, answers, strict=True):
                    if has == due[key].token:
                        del due[key]
                    elif not has.startswith(UNDER_WAY):
                        taken[key] = has
                        del due[key], self._keys[key]
            if not due:
                return taken
            if trio.current_time() >= deadline_s:
                key = unique_text(next(iter(due)))
                raise NotYet(
                    f"another push with the unique key {key!r} is under way, and whether it is taken "
                    "is not known yet; nothing of this one was taken: push it again"
                )
            await trio.sleep(POLL_S)

    async def join(self, jobs: Sequence[JobSpec]) -> set[str]:
        """Reserve places in the groups of jobs. Raises Conflict for a closed group, TooLarge for a full one, StoreAway,
        StoreRefused. If the jobs follow an outcome, nothing is refused, and the names of closed or full groups are
        returned."""
        sizes: dict[str, int] = {}
        left: set[str] = set()
        for job in jobs:
            if job.group is not None:
                group = self._services.qualified_name(job.group)
                sizes[group] = sizes.get(group, 0) + 1
        for group, size in sizes.items():
            tokens = self._services.journal.ids.take(size).ids()
            self._places[group] = tokens  # before the call: all are given back if it fails
            where = {partition_of_name(group, self._services.partitions)}
            ask = partial(self._services.home(group).join_group, group, tokens)
            joined = await once_settled(self._services, where, ask)
            if joined is Joined.MEMBERS:
                continue
            why = "is closed" if joined is Joined.CLOSED else f"would have more than {GROUP_MAX} members"
            if self._follows:
                del self._places[group]
                left.add(bare(group))
                get_logger("links").warning("links.not_joined", group=bare(group), count=size, why=why)
                continue
            detail = f"group {bare(group)!r} {why}; nothing of this push was taken"
            raise Conflict(detail) if joined is Joined.CLOSED else TooLarge(detail)
        return left

    async def confirm_known(self, jobs: Sequence[JobSpec], ids: Mapping[str, str]) -> None:
        """Confirm the group places of jobs that an earlier push accepted, in case that push could not confirm them.

        `ids`: pusher's own id → the daemon's. Raises Conflict if a group was closed without them, StoreAway,
        StoreRefused.
        """
        members: dict[str, list[tuple[str, str]]] = {}
        for job in jobs:
            if job.group is not None and job.job_id is not None:
                members.setdefault(self._services.qualified_name(job.group), []).append(("", ids[job.job_id]))
        for group, pairs in members.items():
            late = await self._services.home(group).confirm_members(group, pairs)
            if late:
                which = next(name for name, job_id in ids.items() if job_id == late[0])
                raise Conflict(
                    f"group {bare(group)!r} was closed without it: job_id {which!r} runs, and {len(late) - 1} others, "
                    "but what waits for the group does not wait for them; nothing else of this push was taken"
                )

    def journaled(self, jobs: Sequence[JobSpec], job_ids: Sequence[str]) -> None:
        """Note that jobs are in the journal: whatever fails from now on, their group places and unique keys are not
        released."""
        for job, job_id in zip(jobs, job_ids, strict=True):
            group = None if job.group is None else self._services.qualified_name(job.group)
            if group in self._places:
                self._members.setdefault(group, []).append((self._places[group].pop(), job_id))
            key = self._services.unique_key(job)
            if key in self._keys:
                self._wanted.append(self._keys.pop(key)._replace(job_id=job_id))

    async def confirm(self, frame: Written, generations: Mapping[int, int]) -> None:
        """Confirm to the store the group places and unique keys of the jobs in a frame. `generations`: index of a job
        in the frame → its generation.

        Raises NotYet if the store does not answer, or if the push took so long that other jobs have the keys or the
        groups were closed: then these jobs are cancelled."""
        services, job_ids = self._services, frame.job_ids
        members, self._members = self._members, {}
        wanted, self._wanted = self._wanted, []
        try:
            with trio.CancelScope(shield=True):
                late = await self._confirm(members, wanted, frame)
        except StoreError as error:
            services.journal.unsure_to = services.journal.written
            raise NotYet(
                f"the jobs are in the journal, but the store could not confirm their group or unique key ({error}): "
                "push those with a unique key again, they count once"
            ) from error
        if late and not self._follows:
            numbers = {job_id: generations.get(place, 0) for place, job_id in enumerate(job_ids)}
            raise await self._taken_back([cancel_of(job_id, numbers[job_id]) for job_id in late])

    async def _confirm(
        self, members: Mapping[str, list[tuple[str, str]]], wanted: Sequence[UniqueWanted], frame: Written
    ) -> list[str]:
        late: list[str] = []
        written = self._services.journal.journal_id, frame.position
        for group, pairs in members.items():
            late += await self._services.home(group).confirm_members(group, pairs)
        by_key = {each.key: each for each in wanted}
        for number, some in self._by_home(by_key):
            has = await self._services.store.at(number).confirm_unique([by_key[key] for key in some], written)
            late += [by_key[key].job_id for key, job_id in zip(some, has, strict=True) if job_id != by_key[key].job_id]
        return late

    async def _taken_back(self, records: Sequence[str]) -> NotYet:
        """Journal `records`, the cancels of jobs that lost their unique keys or group places. Return the error for the
        push of these jobs, which says whether they may still run."""
        journal, left = self._services.journal, "they were taken back"
        try:
            position = journal.write(Lane.CANCELS, len(records), encode_cancels(list(records)))
            await journal.wsync(position, shielded=True)
        except JournalRefused as error:
            left = f"they could not be taken back ({error}) and may run"
        return NotYet(
            f"while this push was written to disk, others got the unique key of {len(records)} of its jobs, or their "
            f"group was closed: {left}; push those again"
        )

    def _by_home(self, keys: Iterable[str]) -> list[tuple[int, list[str]]]:
        """Return (partition, its keys) for each partition of these keys, always in the same order, so that no two
        pushes wait for each other."""
        services = self._services

        def home(key: str) -> int:
            return partition_of_name(key, services.partitions)

        return [(number, list(some)) for number, some in groupby(sorted(keys, key=home), home)]


def has_links(jobs: Sequence[JobSpec]) -> bool:
    """Return whether any job has a group or a unique key."""
    return any(job.group is not None or job.unique is not None for job in jobs)


async def expect_groups_seen(services: Services, jobs: Sequence[JobSpec]) -> None:
    """Raise Denied if jobs would join a group with members that the token may not see: the job that waits for a group
    gets the results of all members, and fails if any of them fails. Jobs in `then` are checked too, as they join later
    without a token."""
    groups = {each.group: None for job in jobs for each in following_of(job) if each.group is not None}
    for group in groups:
        qualified = services.qualified_name(group)
        found = await services.home(qualified).get_group(qualified, SEEN)
        ids = found.job_ids if found is not None else []
        if unknown := await _expect_seen(services, group, ids):
            await services.control.wait_ingested(WAIT_S)
            unknown = await _expect_seen(services, group, unknown)
        for job_id in unknown:
            if isinstance(await services.store.get_job(job_id), OnItsWay):  # a deleted member does not matter
                raise NotYet(
                    f"group {group!r} has jobs on their way into the store, of which it is not known yet whether this "
                    "token is for them; nothing was taken: push it again"
                )


async def _expect_seen(services: Services, group: str, job_ids: Sequence[str]) -> list[str]:
    """Raise Denied if the token may not see one of these jobs. Returns the ids of jobs that are not in the store."""
    unknown: list[str] = []
    for number in set(services.partitions_of(job_ids)):
        some = [job_id for job_id in job_ids if services.where(job_id) == {number}]
        rows = await services.store.at(number).list_links(some, 0)
        if not all(row is None or services.principal.can_access(row.job.jobtype) for row in rows):
            raise Denied(f"group {group!r} has jobs that this token is not for; nothing was taken")
        unknown += [job_id for job_id, row in zip(some, rows, strict=True) if row is None]
    return unknown
