"""The store's methods on jobs that wait for others (`lua/shared/links.lua` draws their keys)."""

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jqd.domain.errors import StoreRefused
from jqd.domain.job import Job, State
from jqd.domain.record import Lane
from jqd.store import codec
from jqd.store.keys import lane_field
from jqd.store.methods import STEP_JOBS, ScriptMethods, in_steps

NEW = "new"  # as the number of parents: what was noted before is void, unless others asked since
ENDED_FIRST: Mapping[str, int] = {}
"""Stages of parents that never began anew."""
NONE_FAILED: Mapping[str, int] = {}
ENTRIES = 20  # done in one call, with up to CHILDREN children each: below what one call may take
CHILDREN = 200  # told of one end at once
KIN = 200  # parents and children of whom one call asks or tells: some seven commands each, 4 ms of the server
CLOSED = "!"  # as the id of a member: the group is closed
LOOKED = 100  # jobs of which one call tells what they have to do with others: 2 ms of the server
MEMBERS = 2_000  # of a group told in one call
GROUP_MAX = 10_000  # members: one job may wait for all of them
PLACE_S = 30.0  # a place of a push that was not confirmed: far longer than a push takes, else it failed
UNIQUE_S = 600.0  # what has a key and is not in the store: on its way there, or lost with its daemon's disk


class Blocked(NamedTuple):
    """A job whose parents' states are to be queried."""

    entry: str
    job: Job
    is_blocked: bool = True
    """Else it goes on, or has ended, without having waited here: its parents are only to know of it."""


class Parent(NamedTuple):
    """A job that ended, or began anew, and some of its children at which this is not noted yet."""

    entry: str
    id: str
    how: str
    """"succeeded", "failed", "cancelled"; "gone": it was deleted since; empty: it began anew."""
    children: list[str]
    stage: int
    """Of two notes of a parent the one of the later stage counts (`lua/shared/links.lua`)."""
    passed: int = 0
    """How many such children come before these in the order of the entry."""


class Due(NamedTuple):
    """The notes of `links` whose time has come."""

    wait_s: float | None
    """Until more is due; None: there is nothing more."""
    linked: int
    """Number of jobs whose ends may concern other jobs."""
    rest_until_ms: int
    """Others get these again from then on: as `links` has it, to be handed back."""
    blocked: list[Blocked]
    ended: list[Parent]


class WatchPair(NamedTuple):
    """A job that waits for another."""

    child: str
    tenant: str
    parent: str
    """The parent's id, or "=" and the id that its pusher chose."""
    last_field: str
    """The field of the parent's journal in `applied` (`Keys.last_field`); empty for a pusher's own id."""


class ParentNote(NamedTuple):
    """What became of a parent."""

    child: str
    parent: str = ""
    how: str = ""
    """As it ended; empty: it has not."""
    size: int | str = ""
    """Number of all parents, once all are noted; NEW."""
    stage: int | str = ""
    """Of the parent; empty: it never began anew. With NEW: `rest_until_ms` of the `take_links` that gave the child."""
    mark: str = ""
    """Digest of the parents that were queried (`Flow.mark`): a child that waits for others by now notes nothing. Empty:
    the note comes from the parent's side.
    """


class Watched(NamedTuple):
    """The state of a parent, as its partition knows it."""

    id: str
    """The parent's id; empty: no job has that own id."""
    how: str | None
    """As it ended; "" while it has not; None: no such job of that tenant is here, or how it ended is not certain."""
    last_id: str | None
    """The last job id applied from the journal that made the parent; None: the partition does not know that journal."""
    is_coming: bool = False
    """A journal may have it, or a content that begins it anew; or what the store forgot."""
    stage: int = 0


class Standing(NamedTuple):
    """The state of a job's parents, taken together."""

    is_done: bool
    """All of them have ended."""
    failed: str
    """The id of the first parent that did not succeed; empty: none."""
    mark: str = ""
    """Which parents: `Flow.mark`."""


class Linked(NamedTuple):
    """A job of a flow, with its parents and some of its children."""

    job: Job
    state: str
    attempts: int
    """Attempts begun, a running one included."""
    children: int
    listed: list[str]
    """Some of its children."""
    generation: int = 0
    """A time in µs: when it last began anew, by the store's clock, or was given its own id; 0: never."""
    ended_ms: int = 0
    """When the job ended, by the store's clock; 0: it has not."""
    cancelled_to: int = 0
    """Up to which generation it was cancelled; 0: the first, or it was not."""


class Joined(enum.IntEnum):
    """Whether jobs became members of their group."""

    CLOSED = 0
    MEMBERS = 1
    FULL = 2


class Group(NamedTuple):
    closed_at_ms: int
    """0: it is open."""
    job_ids: list[str]
    end: int = 0
    """How many members to skip for the next page; 0: there are no more."""


class Closing(NamedTuple):
    """A group that is closed."""

    unsure: int
    """Number of places reserved by pushes that are not confirmed yet."""
    job_ids: list[str]


class UniqueWanted(NamedTuple):
    key: str
    token: str
    """The token of the push that wants the key."""
    until: str
    """"waiting": a job that has begun has it no more; "ended"."""
    job_id: str = ""


class LinkMethods(ScriptMethods):
    async def take_links(
        self, limit: int, rest_s: float, *, children_max: int = CHILDREN, passed: Mapping[str, int] = NONE_FAILED
    ) -> Due:
        """Return up to `limit` due notes. They are due again after `rest_s`, unless `drop_links` removes them before.
        `passed`: entry → how many of its children are skipped, because they could not be reached; where these are all,
        none is.

        A blocked job whose row cannot be read fails, and is named in the answer; the others are returned."""
        skips = [word for skip in passed.items() for word in skip]
        numbers = limit, children_max, round(rest_s * 1000)
        answer = await self._caller.call("take_links", self._caller.identity, *numbers, *skips)
        wait_ms, linked, until_ms, *rows = self._list("links", answer)
        wait_s = None if wait_ms == b"" else self._whole("links", wait_ms) / 1000
        due = Due(wait_s, self._whole("linked", linked), self._whole("links", until_ms), [], [])
        for row in rows:
            entry, what, *more = self._list("links", row)
            name = self._text("links", entry)
            if name[:1] == "w":
                is_blocked = self._whole("later", more[0]) == 1
                if (job := self._readable(name[1:], what, is_blocked=is_blocked)) is not None:
                    due.blocked.append(Blocked(name, job, is_blocked))
            else:
                children = [self._text("children", one) for one in more[3:]]
                stage, skip = self._whole("children", more[1]), self._whole("children", more[2])
                due.ended.append(Parent(name, name[1:], self._text("outcome", what), children, stage, skip))
        await self.burial.bury()
        return due

    def _readable(self, job_id: str, row: object, *, is_blocked: bool = False) -> Job | None:
        """The job of a row; None, and named in health, where it cannot be read. `is_blocked`: it is to be buried."""
        try:
            return codec.decode_job(self._keys, job_id, row)
        except codec.Unreadable as error:
            self.burial.warn(str(error))
            if is_blocked:
                self.burial.note(job_id, str(error), row)
        except StoreRefused as error:  # of another version: it stays for the jqd that wrote it
            self.burial.warn(str(error))
        return None

    @property
    def identity(self) -> str:
        """The identity of the store in the life that was last looked at."""
        return self._caller.identity

    async def ask_again(self, partition: int, identity: str) -> None:
        """Make all parents due for a query, unless that was done already in this life of that partition."""
        after = ""
        while after := self._text("later", await self._caller.call("ask_again", partition, identity, after, STEP_JOBS)):
            pass

    async def watch_parents(self, pairs: Sequence[WatchPair]) -> list[Watched]:
        """Watch parents: from now on their ends are noted for their children. Returns how each stands now."""
        found: list[Watched] = []
        for some in in_steps(pairs, KIN):
            flat = [one for pair in some for one in pair]
            answer = await self._caller.call("watch_parents", self._caller.identity, *flat)
            for given, how, last, stage in self._rows("children", answer, 4):
                text, last_id = self._text("outcome", how), None if last is None else self._text("applied", last)
                known = None if text in ("?", "~") else text
                number = self._whole("children", stage)
                found.append(Watched(self._text("names", given), known, last_id, text == "~", number))
        return found

    async def note_parents(self, notes: Sequence[ParentNote]) -> dict[str, Standing]:
        """Note the ends of parents at their children. Returns child → how it stands then."""
        standing: dict[str, Standing] = {}
        for some in in_steps(notes, KIN):
            answer = await self._caller.call("note_parents", *(one for note in some for one in note))
            for child, done, failed, mark in self._rows("parents", answer, 4):
                text = self._text("parents", failed), self._text("parents", mark)
                standing[self._text("parents", child)] = Standing(done == 1, *text)
        return standing

    async def drop_links(
        self,
        done: Mapping[str, Sequence[str]],
        rest_until_ms: int = 0,
        stages: Mapping[str, int] = ENDED_FIRST,
        failed: Mapping[str, int] = NONE_FAILED,
    ) -> list[str]:
        """Remove notes: entry → the children that know of it. One stays that has further children, or was noted anew
        since `take_links` set `rest_until_ms`. `stages`: the stage of the parent that the children know. `failed`: how
        many of the children that were taken, or passed over, do not know of it; for these alone it rests. Returns the
        entries that have others.
        """
        left: list[str] = []
        for some in in_steps(list(done.items()), ENTRIES):
            flat: list[str | int] = []
            for entry, its in some:
                flat += (entry, stages.get(entry, 1), failed.get(entry, 0), len(its), *its)
            left += self._texts("links", await self._caller.call("drop_links", rest_until_ms, *flat))
        return left

    async def list_links(
        self,
        given: Sequence[str],
        most: int,
        skip: int = 0,
        around_max: int = 0,
        known: Sequence[str] = (),
        links: int | None = None,
    ) -> list[Linked | None]:
        """Of each, up to `most` children after the first `skip`; None for what is not here. One whose row cannot be
        read has no jobtype, and counts as failed. `given`: ids, or "=" and own ones. Then come up to `around_max`
        jobs more, found from them, the nearest first, and none of `known`. Fewer than are given where these have more
        than `links` parents and listed children.

        Raises StoreUnsettled where an own id may be in a journal only."""
        found: list[Linked | None] = []
        left, links_read = given, 0
        while left and (links is None or links_read <= links):
            some = left[:LOOKED]
            numbers = most, skip, around_max, len(known)
            answer = await self._caller.call("list_links", self._caller.identity, *numbers, *known, *some)
            looked, *rows = self._list("jobs", answer)
            new = [None if row is None else self._linked(row) for row in rows]
            links_read += sum(len(row.listed) + len(row.job.flow.after if row.job.flow else ()) for row in new if row)
            found += new
            left = left[max(1, self._whole("jobs", looked)) :]
        return found

    def _linked(self, row: object) -> Linked:
        job_id, header, how, attempts, children, listed, began, ended, cancelled = codec.fields(
            self._keys, "jobs", row, 9
        )
        job = self._readable(self._text("jobs", job_id), header)
        return Linked(
            job or Job(self._text("jobs", job_id), ""),
            self._text("outcome", how) if job is not None else State.FAILED,
            self._whole("tries", attempts) if job is None else codec.attempt(job, self._whole("tries", attempts)),
            self._whole("children", children),
            self._texts("children", listed),
            self._whole("generation", began or b"0"),
            self._whole("ended", ended or b"0"),
            self._whole("generation", cancelled or b"0"),
        )

    # ------------------------------------------------------------ groups and unique keys

    async def join_group(self, group: str, tokens: Sequence[str]) -> Joined:
        """Reserve places in a group for jobs that are about to be pushed, each under a token of its own. A place that
        is not confirmed in PLACE_S is void once others join, or the group is closed. Raises StoreUnsettled: members may
        be in a journal only.
        """
        numbers = round(PLACE_S * 1000), GROUP_MAX
        for some in in_steps(tokens, STEP_JOBS):
            answer = await self._caller.call("join_group", self._caller.identity, group, *numbers, *some)
            joined = Joined(self._whole("grouped", answer))
            if joined is not Joined.MEMBERS:
                return joined
        return Joined.MEMBERS

    async def confirm_members(self, group: str, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """(token, id) of jobs that are journaled, or (token, "") where there will be none. ("", id), from a journal: it
        has a place, unless the group is closed and waits for nobody any more. ("", CLOSED), from a journal: it was
        closed; behind its members. Returns ids that are no members: it was closed without them."""
        late: list[str] = []
        for some in in_steps(pairs, STEP_JOBS):
            flat = [one for pair in some for one in pair]
            late += self._texts("grouped", await self._caller.call("confirm_members", group, *flat))
        return late

    async def close_group(self, group: str) -> Closing:
        """Close a group: no job joins it any more. Raises StoreUnsettled."""
        answer = await self._caller.call("close_group", self._caller.identity, group, round(PLACE_S * 1000))
        unsure, *ids = self._list("grouped", answer)
        return Closing(self._whole("grouped", unsure), [self._text("grouped", one) for one in ids])

    async def get_group(self, group: str, most: int = GROUP_MAX, skip: int = 0) -> Group | None:
        """Return a group with at most `most` of its members, after the first `skip`."""
        ids: list[str] = []
        while True:
            answer = await self._caller.call("get_group", group, skip, min(MEMBERS, most - len(ids)))
            if answer is None:
                return None
            closed, end, *some = self._list("grouped", answer)
            ids += self._texts("grouped", some)
            skip = self._whole("grouped", end)
            if not skip or len(ids) >= most:
                return Group(self._whole("grouped", closed), ids, skip)

    async def reserve_unique(self, wanted: Sequence[UniqueWanted]) -> list[str]:
        """Reserve unique keys. Returns the owner of each: the token that wants it; the id of a living job; "~" and the
        token of another push that is not confirmed yet. Raises StoreUnsettled: the owner may be in a journal only."""
        given: list[str] = []
        for some in in_steps(wanted, STEP_JOBS):
            flat = [one for each in some for one in (each.key, each.token, each.until)]
            life = self._caller.identity, round(UNIQUE_S * 1000)
            given += self._texts("unique", await self._caller.call("reserve_unique", *life, *flat))
        return given

    async def confirm_unique(self, wanted: Sequence[UniqueWanted], written: tuple[str, int] | None = None) -> list[str]:
        """Note that jobs with unique keys are journaled, or, without an id, never will be. Returns each key's owner; of
        one whose job came and was deleted since, that job. `written`: in which journal, and the position behind
        their frame: no job with a key has an id of its pusher, so all are in the lane of jobs."""
        journal_id, position = written or ("", 1)  # of no journal anything is applied
        given: list[str] = []
        for some in in_steps(wanted, STEP_JOBS):
            flat = [one for each in some for one in (each.key, each.token, each.job_id, each.until)]
            where = lane_field(journal_id, Lane.JOBS), position
            given += self._texts("unique", await self._caller.call("confirm_unique", *where, *flat))
        return given
