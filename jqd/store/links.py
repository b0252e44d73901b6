"""The store's methods on jobs that wait for others, groups, and unique keys. `lua/shared/links.lua` draws the keys."""

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jqd.domain.errors import StoreRefused
from jqd.domain.job import Job, State
from jqd.domain.record import Lane
from jqd.store import codec
from jqd.store.keys import lane_field
from jqd.store.methods import STEP_JOBS, ScriptMethods, in_steps

NEW = "new"  # in place of the number of parents: void earlier notes, unless another caller asked since
ENDED_FIRST: Mapping[str, int] = {}
"""Default of `stages`: no parent ever began anew."""
NONE_FAILED: Mapping[str, int] = {}
ENTRIES = 20  # notes in one call, with up to CHILDREN children each: fewer words than a call may have
CHILDREN = 200  # children that are told of one end at once
KIN = 200  # parents and children in one call: some seven commands each, 4 ms of the server
CLOSED = "!"  # stands for the id of a member: the group is closed
LOOKED = 100  # jobs whose parents and children one call reads: 2 ms of the server
MEMBERS = 2_000  # members of a group in one answer
GROUP_MAX = 10_000  # members of a group: one job may wait for all of them
PLACE_S = 30.0  # after which a place that was not confirmed is void; a push takes far less
UNIQUE_S = 600.0  # a reserved key whose job is not in the store by then is free: it was lost with its daemon's disk


class Blocked(NamedTuple):
    """A job that waits for other jobs, its parents. The loop `flows` asks the parents' partitions how they ended."""

    entry: str
    job: Job
    is_blocked: bool = True
    """False: the job did not wait (it runs or has ended), and only its parents are to know of it."""


class Parent(NamedTuple):
    """A job that ended or began anew, and some of its children (jobs that wait for it) that do not know it yet."""

    entry: str
    id: str
    how: str
    """"succeeded", "failed", "cancelled"; "gone": it was deleted since; "": it began anew."""
    children: list[str]
    stage: int
    """Of two notes on the same parent the one with the later stage counts (`lua/shared/links.lua`)."""
    children_before: int = 0
    """How many more such children come before `children`."""


class Due(NamedTuple):
    """The answer of `take_links`: notes that are due, on jobs that ended and on jobs that wait."""

    wait_s: float | None
    """Seconds until the next note is due; None: there is none."""
    linked: int
    """How many jobs have children, parents or a unique key."""
    rest_until_ms: int
    """When (ms) other callers get the same notes again; to be given to `drop_links`."""
    blocked: list[Blocked]
    ended: list[Parent]


class WatchPair(NamedTuple):
    """A job (child) that waits for another one (parent)."""

    child: str
    tenant: str
    parent: str
    """The parent's id, or "=" and the id that its pusher chose."""
    last_field: str
    """The field of `applied` for the parent's journal (`Keys.last_field`); empty for an id that a pusher chose."""


class ParentNote(NamedTuple):
    """What the partition of a child notes about a parent: whether and how it ended."""

    child: str
    parent: str = ""
    how: str = ""
    """How it ended; "": it has not."""
    size: int | str = ""
    """The number of all parents, once all are noted; or NEW."""
    stage: int | str = ""
    """The parent's stage; "": it never began anew. With NEW: `rest_until_ms` of the child's `take_links`."""
    mark: str = ""
    """Digest of the parents that were asked (`Flow.mark`): nothing is noted if the child waits for other parents by
    now. "": the parent reports its end by itself.
    """


class Watched(NamedTuple):
    """The state of a parent, as its partition knows it."""

    id: str
    """The parent's id; "": no job has the id that a pusher chose."""
    how: str | None
    """How it ended; "": it has not; None: this tenant has no such job here, or its end is not certain."""
    last_id: str | None
    """The last job id applied from the journal that made the parent; None: that journal is not known here."""
    is_coming: bool = False
    """Whether the job, or a content that begins it anew, may be in a journal only, or the store forgot it."""
    stage: int = 0


class ParentsState(NamedTuple):
    """The state of all parents of a job, taken together."""

    is_done: bool
    """Whether all parents have ended."""
    failed: str
    """The id of the first parent that did not succeed; "": none."""
    mark: str = ""
    """Digest that identifies these parents: `Flow.mark`."""


class Linked(NamedTuple):
    """A job of a flow, with its parents and some of its children."""

    job: Job
    state: str
    attempts: int
    """Attempts that began, including a running one."""
    children: int
    listed: list[str]
    """Ids of some of its children."""
    generation: int = 0
    """When (µs, by the store's clock) the job last began anew, or got the id that its pusher chose; 0: never."""
    ended_ms: int = 0
    """When it ended, by the store's clock; 0: it has not."""
    cancelled_to: int = 0
    """The generation up to which the job was cancelled; 0: the first one, or it was not."""


class Joined(enum.IntEnum):
    """Whether jobs became members of their group."""

    CLOSED = 0
    MEMBERS = 1
    FULL = 2


class Group(NamedTuple):
    closed_at_ms: int
    """When it was closed; 0: it is open."""
    job_ids: list[str]
    end: int = 0
    """How many members to skip for the next page; 0: there are no more."""


class Closing(NamedTuple):
    """A group that was just closed."""

    unconfirmed: int
    """How many places pushes have reserved and not confirmed yet."""
    job_ids: list[str]


class UniqueWanted(NamedTuple):
    key: str
    token: str
    """The token of the push that wants the key."""
    until: str
    """"waiting": the job has the key until it begins; "ended": until it ends."""
    job_id: str = ""


class LinkMethods(ScriptMethods):
    async def take_links(
        self, limit: int, rest_s: float, *, children_max: int = CHILDREN, passed: Mapping[str, int] = NONE_FAILED
    ) -> Due:
        """Return up to `limit` notes that are due: on jobs that ended, whose end the caller reports to their children,
        and on jobs that wait, whose parents' partitions the caller asks. A note is due again after `rest_s`, unless
        `drop_links` removes it.

        `children_max`: the most children returned with one job. `passed`: entry (name of a note) → how many of its
        children to skip, as they could not be reached; none are skipped if it has no others. A waiting job whose value
        in the store cannot be read fails, is named in health, and is left out."""
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
        """Decode the value (row) that the store keeps of a job. If it cannot be read, warn in health and return None.
        `is_blocked`: the job waits; then, if its row is damaged, let the job fail."""
        try:
            return codec.decode_job(self._keys, job_id, row)
        except codec.Unreadable as error:
            self.burial.warn(str(error))
            if is_blocked:
                self.burial.note(job_id, str(error), row)
        except StoreRefused as error:  # of another version: its row stays
            self.burial.warn(str(error))
        return None

    @property
    def identity(self) -> str:
        """The identity of the store that `look` accepted last."""
        return self._caller.identity

    async def ask_again(self, partition: int, identity: str) -> None:
        """Make the notes on all waiting jobs due, so that their parents are asked again: the partition `partition` may
        have forgotten that jobs wait for its jobs.

        Does nothing if this was done before for this life (`identity`) of that partition."""
        after = ""
        while after := self._text("later", await self._caller.call("ask_again", partition, identity, after, STEP_JOBS)):
            pass

    async def watch_parents(self, pairs: Sequence[WatchPair]) -> list[Watched]:
        """Note at each parent which child waits for it, so that the child is told when the parent ends. Returns the
        present state of each parent, in order."""
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

    async def note_parents(self, notes: Sequence[ParentNote]) -> dict[str, ParentsState]:
        """Note at children how their parents ended. Returns child → the state of all its parents afterwards."""
        states: dict[str, ParentsState] = {}
        for some in in_steps(notes, KIN):
            answer = await self._caller.call("note_parents", *(one for note in some for one in note))
            for child, done, failed, mark in self._rows("parents", answer, 4):
                text = self._text("parents", failed), self._text("parents", mark)
                states[self._text("parents", child)] = ParentsState(done == 1, *text)
        return states

    async def drop_links(
        self,
        done: Mapping[str, Sequence[str]],
        rest_until_ms: int = 0,
        stages: Mapping[str, int] = ENDED_FIRST,
        failed: Mapping[str, int] = NONE_FAILED,
    ) -> list[str]:
        """Remove notes that `take_links` returned. Returns the entries of notes that stay, as they have further
        children.

        `done`: entry → the children that were told. `rest_until_ms`: as `take_links` returned it; a note that was
        renewed since then stays. `stages`: entry → the parent's stage that the children were told. `failed`: entry →
        how many children that were returned or skipped could not be reached; if a note has no others, it stays until it
        is due again.
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
        """Return jobs, each with its parents and up to `most` of its children, after the first `skip`; None for a
        missing job.

        `given`: ids of the wanted jobs, or "=" and an id that a pusher chose. After the wanted jobs come up to
        `around_max` others that are linked with them, the nearest first, without those in `known`. The list ends early
        once it has more than `links` parents and children. A job whose row cannot be read has no jobtype, and counts as
        failed.

        Raises StoreUnsettled if a job with a pusher's id may be in a journal only."""
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
        """Reserve places in a group for jobs that are about to be pushed, each under its own token.

        A place that is not confirmed within PLACE_S is void once others join or the group is closed. Raises
        StoreUnsettled: members may be in a journal only.
        """
        numbers = round(PLACE_S * 1000), GROUP_MAX
        for some in in_steps(tokens, STEP_JOBS):
            answer = await self._caller.call("join_group", self._caller.identity, group, *numbers, *some)
            joined = Joined(self._whole("grouped", answer))
            if joined is not Joined.MEMBERS:
                return joined
        return Joined.MEMBERS

    async def confirm_members(self, group: str, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Confirm places in a group that `join_group` reserved. Returns the ids of jobs that are no members, because
        the group was closed without them. Each pair of `pairs` is one of these:

        (token, id)     the job is in a journal, in the place that the token reserved
        (token, "")     there will be no job: the place is free again
        ("", id)        from a journal: a member, unless the group is closed and no longer waits for members
        ("", CLOSED)    from a journal, behind its members: the group was closed
        """
        late: list[str] = []
        for some in in_steps(pairs, STEP_JOBS):
            flat = [one for pair in some for one in pair]
            late += self._texts("grouped", await self._caller.call("confirm_members", group, *flat))
        return late

    async def close_group(self, group: str) -> Closing:
        """Close a group, so that no further job joins it. Raises StoreUnsettled: members may be in a journal only."""
        answer = await self._caller.call("close_group", self._caller.identity, group, round(PLACE_S * 1000))
        unsure, *ids = self._list("grouped", answer)
        return Closing(self._whole("grouped", unsure), [self._text("grouped", one) for one in ids])

    async def get_group(self, group: str, most: int = GROUP_MAX, skip: int = 0) -> Group | None:
        """Return a group with up to `most` of its members, after the first `skip`; None: there is no such group."""
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
        """Reserve unique keys for jobs that are about to be pushed. Returns who has each key: the push's own token, the
        id of a living job, or "~" and the token of another push that is not confirmed yet. Raises StoreUnsettled if the
        job that has a key may be in a journal only."""
        given: list[str] = []
        for some in in_steps(wanted, STEP_JOBS):
            flat = [one for each in some for one in (each.key, each.token, each.until)]
            life = self._caller.identity, round(UNIQUE_S * 1000)
            given += self._texts("unique", await self._caller.call("reserve_unique", *life, *flat))
        return given

    async def confirm_unique(self, wanted: Sequence[UniqueWanted], written: tuple[str, int] | None = None) -> list[str]:
        """Note that jobs with unique keys are in a journal. A job without an id was not pushed: its key is free again.
        Returns the id or token of who has each key now; "": nobody.

        `written`: the journal's id and its position behind these jobs. A job that was applied from there and has been
        deleted since counts as having its key. None of these jobs has an id that a pusher chose, so all are in the lane
        of jobs."""
        journal_id, position = written or ("", 1)  # "" is no journal
        given: list[str] = []
        for some in in_steps(wanted, STEP_JOBS):
            flat = [one for each in some for one in (each.key, each.token, each.job_id, each.until)]
            where = lane_field(journal_id, Lane.JOBS), position
            given += self._texts("unique", await self._caller.call("confirm_unique", *where, *flat))
        return given
