"""Half of the fake store: the server all clients share, which life of it answers, who sits there, what they hold."""

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

import trio

from jqd.store import Look, Member, Owner, Release, Renewed, StoreConfig, Told, codec
from jqd.words.clock import Clock
from jqd.words.errors import StaleOwner, StoreAway, StoreChanged, SysidTaken
from jqd.words.job import Job, Outcome
from jqd.words.record import Lane

SUSPECT_DEATHS = 2  # from which on a job runs alone


@dataclass(slots=True)
class Entry:
    """A job and where it lies: in the set `place`, at `score` (priority, date or fence), perhaps in a hand."""

    job: Job
    place: str
    score: int
    sysid: str = ""


@dataclass(slots=True)
class Tries:
    """What went wrong with a job so far."""

    count: int = 0
    kept: list[Outcome] = field(default_factory=list)


@dataclass
class Seat:
    """A member's row."""

    counter: int
    epoch: int
    through: str


@dataclass
class Name:
    """Whose a pusher's own id is."""

    revision: int
    job_id: str
    until_ms: int
    """0: confirmed."""
    digest: str


@dataclass
class Data:
    """All that the server holds."""

    entries: dict[str, Entry] = field(default_factory=dict)
    tries: dict[str, Tries] = field(default_factory=dict)
    outcomes: dict[str, Outcome | None] = field(default_factory=dict)
    """How jobs ended; None: without an attempt."""
    cancelled: set[str] = field(default_factory=set)
    late: dict[str, Outcome] = field(default_factory=dict)
    """Endings of a later attempt than the one that ended the job."""
    results: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    notes: dict[tuple[str, str], int] = field(default_factory=dict)
    """Letter (as in lua/include/move.lua) and id → when."""
    early: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Held before it came: id → sysid, fence."""
    positions: dict[tuple[str, Lane], int] = field(default_factory=dict)
    gone: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Journal id → ranges of positions that were deleted there before they came here."""
    kept: dict[str, Told] = field(default_factory=dict)
    """Journal id → what it told of the jobs that it keeps."""
    last: dict[int, str] = field(default_factory=dict)
    members: dict[str, Seat] = field(default_factory=dict)
    names: dict[str, Name] = field(default_factory=dict)
    generations: dict[str, tuple[int, int, bool]] = field(default_factory=dict)
    """Id → revision, generation, whether that change came too late."""
    awaited: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Id → revision of a change that is about to come, until when it is waited for."""
    cancelled_to: dict[str, int] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    """Id → sysid that is to be told of a cancel."""
    deaths: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Id → deaths it was in hand at, those it was alone at."""
    alone: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Sysid → until when it runs which job alone."""
    emptying: dict[str, int] = field(default_factory=dict)
    """Sysid → how many were in its hand when it began to be emptied, while some of them are left."""
    handlers: dict[str, tuple[int, dict[int, bytes]]] = field(default_factory=dict)
    fence: int = 0
    life: str = ""
    run: int = 0
    """Of the server, when it was last looked at."""
    settled: str = ""
    low: int = 0
    """Fences above this and up to `high` were given in a time that the store does not remember."""
    high: int = 0


@dataclass
class Server:
    """What survives a change of its data: how often it was started, and how many lives were begun."""

    data: Data = field(default_factory=Data)
    runs: int = 1
    lives: int = 0


class FakeMembers:
    """A client of a fake server. `another_client` gives what another daemon would open."""

    def __init__(self, clock: Clock, config: StoreConfig | None = None) -> None:
        """Time comes from `clock` alone."""
        self.away: str | None = None
        self.durable = True
        """What `wait_durable` says."""
        self._clock = clock
        self._config = config or StoreConfig(url="redis://fake")
        self._server = Server()
        self._journals: set[int] = set()
        self._run = 0  # of the server that was accepted; 0: any
        self._identity = "."
        self._changed = ""  # why nothing is answered before the next look

    @property
    def _data(self) -> Data:
        return self._server.data

    def another_client(self) -> Self:
        """Of the same server."""
        other = copy.copy(self)
        other._journals, other._run, other._identity, other._changed = set(), 0, ".", ""
        return other

    # ------------------------------------------------------------ what may happen to a server

    def image(self) -> Data:
        """What a dump would hold now."""
        return copy.deepcopy(self._data)

    def load(self, image: Data) -> None:
        """Put an old dump in place of what there is, unnoticed by connections."""
        life, settled = self._data.life, self._data.settled
        self._server.data = copy.deepcopy(image)
        self._data.life, self._data.settled = life, settled

    def restart(self, image: Data | None = None) -> None:
        """Start anew, with an older dump or with all there is: connections lead to another run of it."""
        self._server.runs += 1
        if image is not None:
            self._server.data = copy.deepcopy(image)

    def wipe(self) -> None:
        """Lose everything, as FLUSHALL does: connections stay."""
        self._server.data = Data()

    # ------------------------------------------------------------ which store this is

    async def look(self, *, fresh: bool) -> Look:
        """See Store."""
        await self._reach()
        self._run, self._changed = self._server.runs, ""
        unused = not self._data.life
        if unused or self._data.run != self._run:
            self._new_life()
        self._data.run = self._run
        if fresh and unused and not self._data.members:
            self._data.settled = f"{self._run}.{self._data.life}"
        self._identity = f"{self._run}.{self._data.life}"
        return Look(self._identity, self._data.settled == self._identity)

    async def new_life(self, identity: str) -> None:
        """See Store."""
        await self._answer()
        if self._data.life == identity.rpartition(".")[2]:
            self._new_life()

    def _new_life(self) -> None:
        data = self._data
        if not data.high or data.settled == f"{data.run}.{data.life}":
            data.low = data.fence
        data.low = min(data.low, data.fence)
        data.high = data.fence = max(data.fence, self._now_ms() * 1000)
        self._server.lives += 1
        data.life, data.settled = f"life-{self._server.lives}", ""

    def _is_forgotten(self, fence: int) -> bool:
        return self._data.low < fence <= self._data.high

    async def wait_durable(
        self, replicas: int = 0, timeout_s: float = 5.0, where: Collection[int] | None = None
    ) -> bool:
        """See Store."""
        await self._answer()
        return self.durable

    @property
    def durability_rule(self) -> str:
        """See Store."""
        return "whatever `durable` says"

    # ------------------------------------------------------------ members

    async def reserve_sysid(self, sysid: str, previous_epoch_dead: bool, *, through: bool) -> Owner:
        """See Store."""
        await self._answer()
        self._expect_life()
        seat = self._data.members.get(sysid)
        if seat and seat.epoch and not previous_epoch_dead:
            raise SysidTaken(f"another living daemon uses the sysid {sysid} (epoch {seat.epoch})")
        if not through:
            self._data.settled = ""
            self._data.emptying.pop(sysid, None)
        epoch = self._next_fence()
        counter = max((seat.counter if seat else 0) + 1, self._now_ms() * 1000)
        self._data.members[sysid] = Seat(counter, epoch, self._identity if through else "")
        if through:
            self._give_back(sysid, None, died=bool(seat and seat.epoch))
        return Owner(sysid, epoch)

    async def renew_sysid(self, owner: Owner, *, through: bool, settle: bool = False) -> Renewed:
        """See Store."""
        await self._answer()
        self._expect_life()
        self._own(owner)
        seat = self._data.members[owner.sysid]
        seat.counter = max(seat.counter + 1, self._now_ms() * 1000)
        seat.through = self._identity if through else ""
        if settle and self._all_through():
            self._data.settled = self._identity
        members = {
            sysid: Member(seat.counter, seat.epoch, seat.through == self._identity)
            for sysid, seat in self._data.members.items()
        }
        cancels = [job_id for job_id, holder in self._data.asked.items() if holder == owner.sysid]
        for job_id in cancels:
            del self._data.asked[job_id]
        return Renewed(members, self._data.settled == self._identity, cancels)

    async def release_sysid(self, owner: Owner) -> None:
        """See Store."""
        await self._answer()
        seat = self._data.members.get(owner.sysid)
        if seat is None:
            return
        if seat.epoch not in (0, owner.epoch):
            raise StaleOwner(f"epoch {owner.epoch} of {owner.sysid} was burnt; present: {seat.epoch}")
        self._give_back(owner.sysid, None)
        del self._data.members[owner.sysid]

    async def reap(self, sysid: str, member: Member, limit: int) -> int:
        """See Store."""
        await self._answer()
        seat = self._data.members.get(sysid)
        if seat is None or (seat.epoch != 0 and (seat.counter, seat.epoch) != (member.counter, member.epoch)):
            return 0
        seat.epoch, seat.through = 0, ""
        moved = self._give_back(sysid, limit, died=True)
        if not moved:
            del self._data.members[sysid]
        return moved

    # ------------------------------------------------------------ hands

    async def get_held(self, owner: Owner) -> dict[str, int]:
        """See Store."""
        await self._answer()
        self._own(owner)
        ours = {i: e.score for i, e in self._data.entries.items() if e.place == "held" and e.sysid == owner.sysid}
        return ours | {i: fence for i, (sysid, fence) in self._data.early.items() if sysid == owner.sysid}

    async def reassert(self, owner: Owner, holds: Mapping[str, int]) -> list[str]:
        """See Store."""
        if not holds:
            return []
        await self._answer()
        self._expect_life()
        self._own(owner)
        return [job_id for job_id, fence in holds.items() if not self._is_ours_again(owner, job_id, fence)]

    def _is_ours_again(self, owner: Owner, job_id: str, fence: int) -> bool:
        entry = self._data.entries.get(job_id)
        if entry is None:
            noted = ("s", job_id) in self._data.notes or ("d", job_id) in self._data.notes
            if noted or self._data.early.get(job_id, (owner.sysid, 0))[0] != owner.sysid:
                return False
            self._data.early[job_id] = owner.sysid, fence
            return True
        if entry.place in ("ended", "dead") or (entry.place == "held" and entry.sysid != owner.sysid):
            return False
        entry.place, entry.score, entry.sysid = "held", fence, owner.sysid
        return True

    async def release_jobs(
        self, owner: Owner, held: Mapping[str, int], how: Release = Release.UNGET, delay_ms: int = 0
    ) -> None:
        """See Store."""
        if not held:
            return
        await self._answer()
        self._own(owner)
        for job_id, fence in held.items():
            entry = self._data.entries.get(job_id)
            if entry and entry.place == "held" and entry.sysid == owner.sysid and entry.score == fence:
                if how is Release.ARCHIVE:
                    self._data.notes["c", job_id] = self._now_ms()
                due_ms = self._now_ms() + delay_ms if how is Release.RETRY and delay_ms else None
                self._put_back(entry, due_ms)
                self._data.asked.pop(job_id, None)
            if self._data.early.get(job_id) == (owner.sysid, fence):
                del self._data.early[job_id]
                self._data.asked.pop(job_id, None)

    def _put_back(self, entry: Entry, due_ms: int | None, last: Outcome | None = None) -> None:
        """Out of a hand, not ended: cancelled when that was asked for, else ready, or later by its date of now."""
        entry.sysid = ""
        date_ms = max(due_ms or 0, entry.job.eligible_at_ms)
        if self._data.notes.pop(("c", entry.job.id), None) is not None:
            self._data.outcomes[entry.job.id] = last
            self._data.cancelled.add(entry.job.id)
            entry.place, entry.score = "ended", self._now_ms()
        else:
            later = date_ms > self._now_ms()
            entry.place, entry.score = ("later", date_ms) if later else ("ready", entry.job.priority)

    def _give_back(self, sysid: str, limit: int | None, *, died: bool = False) -> int:
        """The first of that hand by fence and id; one that has not come yet just drops."""
        hand = [(e.score, job_id) for job_id, e in self._data.entries.items() if e.place == "held" and e.sysid == sysid]
        hand += [(fence, job_id) for job_id, (holder, fence) in self._data.early.items() if holder == sysid]
        gone = sorted(hand)[:limit]
        size = max(len(hand), self._data.emptying.pop(sysid, 0))
        if len(gone) < len(hand):
            self._data.emptying[sysid] = size
        for _, job_id in gone:
            self._data.asked.pop(job_id, None)
            if self._data.early.pop(job_id, None) is None:
                entry = self._data.entries[job_id]
                if not died or not self._killed(entry, alone=size == 1 and self._is_laid_to(sysid, job_id)):
                    self._put_back(entry, None)
        self._data.alone.pop(sysid, None)
        return len(gone)

    def _is_laid_to(self, sysid: str, job_id: str) -> bool:
        """Of a suspect a death counts as one alone only where it was run alone: the daemon may have had other hands."""
        deaths, _ = self._data.deaths.get(job_id, (0, 0))
        return deaths < SUSPECT_DEATHS or self._data.alone.get(sysid, (0, ""))[1] == job_id

    def _killed(self, entry: Entry, *, alone: bool) -> bool:
        """Count a death; whether it was one too many."""
        job_id = entry.job.id
        deaths, before = self._data.deaths.get(job_id, (0, 0))
        self._data.deaths[job_id] = deaths + 1, before + alone
        if before + alone < self._config.crash_limit or ("c", job_id) in self._data.notes:
            return False
        self._data.outcomes[job_id] = codec.crashed(job_id, before + alone)
        entry.place, entry.score, entry.sysid = "dead", self._now_ms(), ""
        return True

    # ------------------------------------------------------------ shared

    async def _reach(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.away is not None:
            raise StoreAway(f"the store does not answer: {self.away}")

    async def _answer(self) -> None:
        await self._reach()
        if self._run not in (0, self._server.runs):
            self._changed = "another run of the server answers than was accepted"
        if self._changed:
            raise StoreChanged(self._changed)

    def _is_life(self) -> bool:
        """Whether the life we looked at is the present one; we never looked at any before the first."""
        return self._identity == "." or self._data.life == self._identity.rpartition(".")[2]

    def _expect_life(self) -> None:
        if not self._is_life():
            self._changed = "another life of the store has begun: it was emptied, or found to be rolled back"
            raise StoreChanged(self._changed)

    def _now_ms(self) -> int:
        return self._clock.wall_ms()

    def _own(self, owner: Owner) -> None:
        seat = self._data.members.get(owner.sysid)
        if seat is None or seat.epoch != owner.epoch:
            raise StaleOwner(f"epoch {owner.epoch} of {owner.sysid} was burnt")

    def _all_through(self) -> bool:
        return all(seat.through == self._identity for seat in self._data.members.values() if seat.epoch)

    def _next_fence(self) -> int:
        self._data.fence = max(self._data.fence + 1, self._now_ms() * 1000)
        return self._data.fence
