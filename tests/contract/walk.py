"""A random walk that is done on two stores at once: every answer of both must be the same."""

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from msgspec import structs

from jqd.domain.errors import PositionMismatch, StoreChanged, StoreError
from jqd.domain.job import INTERRUPTED, SNOOZE, Change, ChangeKind, Fate, Held, Job, Wanted
from jqd.domain.jobid import IdSource, journal_number
from jqd.domain.record import Lane, cancel_of
from jqd.store import (
    NameGiven,
    NameJournaled,
    NameState,
    NameWanted,
    Owner,
    Release,
    Renewed,
    Store,
    StoreLook,
    Suspects,
)
from jqd.store.keys import Keys
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.bench import ALL, JOURNAL, holds, outcome
from tests.store.places import check_places

GONE_MAX = 8  # as shared/gone.lua has it

SYSIDS, TYPES = ("one", "two"), ("mail", "thumb")


class Walk:
    """One seed, two stores."""

    def __init__(self, seed: int, real: Store, fake: FakeStore, clock: ManualClock, wipe: Callable[[], object]) -> None:
        self.random = random.Random(seed)
        self.also = random.Random(seed)  # of its own, so that the walks of before stay as they were
        self.stores = (real, fake)
        self.clock = clock
        self.ids = IdSource(journal=journal_number(JOURNAL), salt=1, clock=clock)
        self.at = dict.fromkeys(Lane, 0)
        self.jobs: list[Job] = []
        self.held: list[Held] = []
        self.owners: list[Owner] = []
        self.names: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self.revisions: list[int] = []
        self.shut = False
        self.passed = 0
        self.forgets = False
        """Whether it ever was emptied or rolled back: claims of before are forgotten."""
        self.wipe = wipe

    async def both(self, call: Callable[[Store], Awaitable[Any]]) -> Any:
        """The answer, or the class of the error, which both must share."""
        answers: list[Any] = []
        for store, names in zip(self.stores, self.names, strict=True):
            try:
                answer = await call(store)
            except StoreError as error:
                answer = type(error)
            if isinstance(answer, StoreLook):  # each store has names of its own for its lives
                answer = names.setdefault(answer.identity, len(names)), answer.settled
            if isinstance(answer, list) and answer and isinstance(answer[0], NameGiven):
                answer = [given._replace(life="") for given in answer]
            answers.append(answer)
        assert answers[0] == answers[1]
        self.shut = answers[0] is StoreChanged
        return answers[0]

    async def step(self) -> None:
        """One random thing. What was shut is looked at soon, and then everybody joins anew."""
        if self.shut and self.random.random() < 0.5:
            await self.look()
            await self.join()
        verbs = [self.push, self.push, self.claim, self.claim, self.settle, self.settle, self.cancel, self.release]
        await self.random.choice(
            [
                *verbs,
                self.promote,
                self.pass_over,
                self.reassert,
                self.unfinished,
                self.join,
                self.renew,
                self.reap,
                self.purge,
                self.leave,
                self.look,
                self.lose,
                self.push_named,
                self.change,
                self.change,
                self.delete,
            ]
        )()
        self.clock.advance(self.random.choice([0.001, 0.1, 1.0]))

    def owner(self) -> Owner:
        """Mostly one that joined lately: most others are stale."""
        return self.random.choice(self.owners[-2:] if self.random.random() < 0.9 else self.owners)

    async def push(self) -> None:
        known = self.random.sample(self.jobs, min(len(self.jobs), 1))
        if self.random.random() < 0.5:
            first, last = sorted(self.random.choices(range(self.at[Lane.JOBS] + 1), k=2))
            known = [structs.replace(job, copied=(first, last)) for job in known]
        fresh = [self.make() for _ in range(self.random.randint(1, 3))]
        applied = [job for job in fresh if self.random.random() < 0.7]
        await self.lane(Lane.JOBS, lambda store, at: store.apply_jobs(JOURNAL, *at, [*known, *applied]))

    async def pass_over(self) -> None:
        self.passed += 1
        gone = self.passed < GONE_MAX  # of more the store remembers less exactly
        await self.lane(Lane.JOBS, lambda store, at: store.skip(JOURNAL, Lane.JOBS, *at, gone=gone))

    def make(self) -> Job:
        date_ms = self.random.choice([0, 0, self.clock.wall_ms() + self.random.randint(-1000, 3000)])
        priority, jobtype = self.random.randint(-2, 2), self.random.choice(TYPES)
        begins_ms = max(date_ms, self.clock.wall_ms())
        expires_ms = self.also.choice([0, 0, 0, begins_ms + self.also.randint(1, 5_000)])
        job = Job(
            self.ids.take(1).first,
            jobtype,
            priority=priority,
            eligible_at_ms=date_ms,
            keep_result=True,
            expires_at_ms=expires_ms,
        )
        self.jobs.append(job)
        return job

    async def claim(self) -> None:
        if self.owners:
            owner, jobtype, limit = (
                self.owner(),
                self.random.choice(TYPES),
                self.random.randint(1, 4),
            )
            limits = {**ALL, "priority_max": self.random.choice([0, 2]), "bytes_max": self.random.choice([60, 999])}
            limits["suspects"] = self.random.choice(list(Suspects))
            answer = await self.both(lambda store: store.get_waiting_jobs(owner, jobtype, limit, **limits))
            if isinstance(answer, list):
                self.held += answer

    async def settle(self) -> None:
        held = self.random.sample(self.held, min(len(self.held), 2))
        held += [Held(job, 99, 1) for job in self.random.sample(self.jobs, min(len(self.jobs), 1))]
        ended = [
            outcome(one, self.random.choice(list(Fate)), result=b"\x01", delay_ms=self.random.choice([0, 700]))
            for one in held
        ]
        for place, one in enumerate(held):
            more: list[dict[str, Any]] = [{}, {"log": "said"}, {"reason": SNOOZE, "snoozes": one.snoozes + 1}]
            more.append({"reason": INTERRUPTED, "interruptions": one.interruptions + 1})
            more.append({"follows": b"of %d" % one.fence})
            ended[place] = structs.replace(ended[place], **self.also.choice(more))
        before = await self.both(outbox)
        late = await self.lane(Lane.OUTCOMES, lambda store, at: store.apply_outcomes(JOURNAL, *at, ended))
        if isinstance(late, list) and isinstance(before, frozenset) and len({one.job.id for one in held}) == len(held):
            counted = {one.job_id: one.follows for one in ended if one.follows and one.fate is Fate.SUCCEEDED}
            stale = {ended[place].job_id for place in late}
            follow = {b"%b %b" % (key.encode(), its) for key, its in counted.items() if key not in stale}
            after = await self.both(outbox)
            assert follow <= after, "what follows a success that counts is not lost"
            new = {
                entry for entry in after - before if not entry.endswith((b" of 99", b" of 77"))
            }  # of before all lives
            assert new <= follow or self.forgets, "an outcome that changes nothing leaves nothing"

    async def empty(self) -> None:
        entries = sorted(await outbox(self.stores[0]))[:2]
        await self.both(lambda store: store.drop_outbox(entries))

    async def cancel(self) -> None:
        generation = self.random.choice([0, 0, self.random.choice([0, *self.revisions])])
        ids = [cancel_of(job.id, generation) for job in self.random.sample(self.jobs, min(len(self.jobs), 1))]
        await self.lane(Lane.CANCELS, lambda store, at: store.apply_cancels(JOURNAL, *at, ids))

    async def push_named(self) -> None:
        """Under one of a few names; now and then the job never comes."""
        name, replace = self.random.choice(("red", "blue")), self.random.random() < 0.3
        digest = self.random.choice(("d1", "d2"))
        job = self.make()
        wanted = NameWanted(name, job.id, digest, replace)
        given = await self.both(lambda store: store.reserve_names([wanted]))
        await self.both(lambda store: store.resolve(name))
        if not isinstance(given, list) or not given[0].revision:
            return
        # Whatever else becomes of a job, it keeps the name it was pushed under: no content comes without.
        self.jobs = [structs.replace(one, name=name) if one.id == given[0].job_id else one for one in self.jobs]
        if self.random.random() < 0.2:
            return
        kind = ChangeKind.REPLACE if given[0].state is NameState.REPLACE else ChangeKind.NEW
        change = Change(given[0].revision, given[0].revision, kind, digest)
        named = structs.replace(job, id=given[0].job_id, name=name, change=change)
        self.revisions.append(given[0].revision)
        if self.random.random() < 0.5:
            row = NameJournaled(name, named.id, digest, given[0].revision)
            await self.both(lambda store: store.confirm_names([row]))
        await self.lane(Lane.CHANGES, lambda store, at: store.apply_changes(JOURNAL, *at, [named]))

    async def change(self) -> None:
        """Another content, for any job: what waits, runs, has ended, or has not come yet; in any order."""
        if not self.jobs:
            return
        revision = await self.both(lambda store: store.reserve_change(self.jobs[0].id))
        if not isinstance(revision, int):
            return
        self.revisions.append(revision)
        kind = self.random.choice((ChangeKind.EDIT, ChangeKind.RETRY))
        base = self.random.choice([0, *self.revisions]) if kind is ChangeKind.EDIT else revision
        job = self.random.choice(self.jobs)
        priority, jobtype = self.random.randint(-2, 2), self.random.choice(TYPES)
        late = self.random.choice([revision, self.random.choice(self.revisions)])
        changed = structs.replace(
            job, priority=priority, jobtype=jobtype, change=Change(late, min(base, late), kind), argument=b"\x02"
        )
        await self.lane(Lane.CHANGES, lambda store, at: store.apply_changes(JOURNAL, *at, [changed]))

    async def delete(self) -> None:
        if self.random.random() < 0.5:
            ids = [job.id for job in self.random.sample(self.jobs, min(len(self.jobs), 2))]
            await self.both(lambda store: store.delete_dead(ids))
        else:
            before_ms = self.clock.wall_ms() - self.random.choice([0, 5_000])
            await self.both(lambda store: store.clean_ended(before_ms, 3))

    async def lane(self, lane: Lane, call: Callable[[Store, tuple[int, int]], Awaitable[Any]]) -> Any:
        """Apply at the present position; now and then twice, or from a wrong one."""
        start, end = self.at[lane], self.at[lane] + 10
        answer = await self.both(lambda store: call(store, (start, end)))
        if answer is StoreChanged:
            return None
        if answer is PositionMismatch:  # it was emptied
            self.at = dict.fromkeys(Lane, 0)
            return None
        self.at[lane] = end
        if self.random.random() < 0.2:
            wrong = self.random.choice([(start, end), (end + 5, end + 9)])
            await self.both(lambda store: call(store, wrong))
        return answer

    async def release(self) -> None:
        if self.owners:
            owner, held = self.owner(), self.random.sample(self.held, min(len(self.held), 3))
            how = self.random.choice([*Release])
            await self.both(lambda store: store.release_jobs(owner, holds(held), how))

    async def reassert(self) -> None:
        """Say that we hold what we once held, what was never ours, and what has not come yet."""
        if self.owners:
            owner = self.owner()
            claimed = holds(self.random.sample(self.held, min(len(self.held), 2)))
            claimed |= {job.id: 77 for job in [*self.jobs[-1:], *self.random.sample(self.jobs, min(len(self.jobs), 1))]}
            lost = await self.both(lambda store: store.reassert(owner, claimed))
            if isinstance(lost, list):
                known = {job.id: job for job in self.jobs}
                self.held += [Held(known[i], fence, 1) for i, fence in claimed.items() if i not in lost]

    async def unfinished(self) -> None:
        asked = [job.id for job in self.random.sample(self.jobs, min(len(self.jobs), 5))]
        await self.both(lambda store: store.unfinished(asked))

    async def promote(self) -> None:
        limit = self.random.randint(1, 3)
        await self.both(lambda store: store.promote(limit))

    async def join(self) -> None:
        sysid, dead, through = self.random.choice(SYSIDS), self.random.random() < 0.7, self.random.random() < 0.9
        owner = await self.both(lambda store: store.reserve_sysid(sysid, dead, through=through))
        if isinstance(owner, Owner):
            self.owners.append(owner)

    async def renew(self) -> None:
        if self.owners:
            owner = self.owner()
            through, settle = self.random.random() < 0.9, self.random.random() < 0.3
            await self.both(lambda store: store.renew_sysid(owner, through=through, settle=settle))

    async def reap(self) -> None:
        if self.owners:
            owner, target = self.owner(), self.random.choice(SYSIDS)
            answer = await self.both(lambda store: store.renew_sysid(owner, through=True))
            if isinstance(answer, Renewed) and target in answer.members:
                while await self.both(lambda store: store.reap(target, answer.members[target], 1)):
                    if self.random.random() < 0.3:
                        break  # left half done, for whoever comes next

    async def leave(self) -> None:
        if self.owners and self.random.random() < 0.3:
            owner = self.owner()
            await self.both(lambda store: store.release_sysid(owner))

    async def purge(self) -> None:
        limit = self.random.randint(1, 5)
        await self.both(lambda store: store.purge(limit))

    async def look(self) -> None:
        fresh = self.random.random() < 0.3
        await self.both(lambda store: store.look(fresh=fresh))

    async def lose(self) -> None:
        """Now and then the store is emptied, or found to be rolled back."""
        if self.random.random() < 0.1:
            self.forgets = True
            self.wipe()
        elif self.names[0] and self.random.random() < 0.3:
            at = self.random.randrange(len(self.names[0]))
            lives = {id(store): list(names)[at] for store, names in zip(self.stores, self.names, strict=True)}
            self.forgets = True
            await self.both(lambda store: store.new_life(lives[id(store)]))

    async def compare(self) -> None:
        """All that can be seen."""
        await self.look()
        for job in self.jobs:
            await self.both(partial(get_job, job.id))
        await self.both(lambda store: store.get_waiting_jobtypes([Wanted()], 9))
        low = self.random.randint(-2, 2)
        wanted = [
            Wanted(self.random.choice([None, *TYPES]), low, self.random.randint(low, 2)),
            Wanted(None, besides=frozenset(self.random.sample(TYPES, 1))),
            Wanted(self.random.choice(TYPES), 1, 1),
        ]
        for some in (wanted[:1], wanted[1:2], wanted):
            await self.both(lambda store, some=some: store.get_waiting_jobtypes(some, 9))  # type: ignore[misc]
        await self.both(lambda store: store.list_types())
        await self.both(partial(listed, self.random.randint(1, 60)))
        await self.both(lambda store: store.applied(JOURNAL))
        await self.both(outbox)
        await self.empty()
        for owner in self.owners:
            await self.both(partial(get_held, owner))
        real, fake = [await store.stats() for store in self.stores]
        assert real[:6] == fake[:6]


async def outbox(store: Store) -> frozenset[bytes]:
    """For `both`: entries that came in one millisecond have no order."""
    return frozenset((await store.get_outbox(500, 1 << 20)).entries)


async def get_job(job_id: str, store: Store) -> object:
    """For `both`."""
    return await store.get_job(job_id)


async def listed(limit: int, store: Store) -> list[str]:
    """All jobs, page by page: each once, in whatever order more than a page has."""
    found: list[str] = []
    cursor = ""
    while True:
        page = await store.list_jobs(None, None, None, limit, cursor)
        ids = [view.id for view in page.jobs]
        assert ids == sorted(ids, reverse=True)
        found += ids
        if not page.cursor:
            return sorted(found)
        cursor = page.cursor


async def get_held(owner: Owner, store: Store) -> object:
    """For `both`."""
    return await store.get_held(owner)


def check(client: Any, keys: Keys) -> None:
    """What lies where, what is noted, and which results are kept."""
    check_places(client, keys)
    noted = [note for note in client.zrange(keys["tombstones"], 0, -1) if client.hexists(keys["jobs"], note[1:])]
    # A name may promise an id that no job ever comes under; the walk then pushes or changes that id without the name.
    names = [row.split(b" ") for row in client.hvals(keys["names"])]
    promised = {b"p" + job_id for _, job_id, until_ms, _ in names if until_ms != b"0"}
    kept = [note for note in noted if note not in promised]
    assert all(note[:1] in b"cz" for note in kept), "a job uses up its notes, but for an asked cancel and a late end"
    assert set(client.hkeys(keys["result"])) == set(client.zrange(keys["results"], 0, -1))
