"""Reads where jobs are in an in-memory store."""

from typing import NamedTuple

from jqd.store.keys import Keys
from jqd.testing.keyspace import NOTHING, Keyspace, SortedSet
from jqd.testing.store import FakeStore

WORKERS = "*"
"""Takes the place of a daemon's id (sysid) in the store, for jobs that workers hold by themselves."""


class Place(NamedTuple):
    """Where a job is in the store: in which set. If it is in flight, also at which daemon."""

    name: str
    """Name of the set: ready, later, held (in flight), ended or dead."""
    sysid: str = ""

    @property
    def is_open(self) -> bool:
        """Whether the job has not ended."""
        return self.name not in ("ended", "dead")


class Places:
    """Reads an in-memory store by its keys, see docs/build/STORE.md. Each call reads the present state."""

    def __init__(self, keyspace: Keyspace, keys: Keys) -> None:
        self._keyspace = keyspace
        self._keys = keys

    def place(self, job_id: str) -> Place | None:
        """Return where a job is; None: the store does not have it."""
        given = job_id.encode()
        if given not in self._hash("jobs"):
            return None
        for name in ("later", "ended", "dead"):
            if given in self._set(self._keys[name]).scores:
                return Place(name)
        for sysid in (*self.members(), WORKERS):
            if given in self._set(self._keys.held(sysid)).scores:
                return Place("held", sysid)
        return Place("ready")

    def members(self) -> dict[str, tuple[int, int, str]]:
        """Return sysid → heartbeat counter, epoch, identity of the store it last recovered for."""
        rows = {sysid.decode(): row.decode().split(":", 2) for sysid, row in self._hash("members").items()}
        return {sysid: (int(row[0]), int(row[1]), row[2]) for sysid, row in rows.items()}

    def in_flight(self, sysid: str) -> dict[str, int]:
        """Return job id → fence of all jobs in flight at a daemon, even of those that have been leased to it but have
        not reached it yet."""
        return {job_id.decode(): int(fence) for job_id, fence in self._set(self._keys.held(sysid)).scores.items()}

    def deaths(self) -> dict[str, tuple[int, int]]:
        """Return job id → (how often a daemon died while it held the job, how often one died while it held only this
        job)."""
        rows = {field.decode(): row.decode() for field, row in self._hash("deaths").items() if field[:1] not in b"@#"}
        return {job_id: (int(both.split(":")[0]), int(both.split(":")[1])) for job_id, both in rows.items()}

    def runs_alone(self, sysid: str, now_ms: int) -> str | None:
        """Return the id of the job that a daemon (`sysid`) runs alone now, without other jobs, because daemons died
        while they held it. None: there is no such job."""
        note = self._hash("deaths").get(b"@" + sysid.encode())
        if note is None:
            return None
        until_ms, job_id = note.decode().split(" ")
        return job_id if int(until_ms) > now_ms and job_id in self.in_flight(sysid) else None

    def waiting(self, jobtype: str) -> list[tuple[str, float]]:
        """Return (job id, score) of the jobs of a type that may run now and have no constraint."""
        rows = [*self._set(self._keys.ready(jobtype)).scores.items()]
        for first, priority in self._set(f"{self._keys['backlog']}:{jobtype}").scores.items():
            page: list[bytes] = self._keyspace.keys[f"{self._keys['page']}:{first.decode()}:{jobtype}".encode()]
            rows += [(job_id, priority) for job_id in page]
        return [(job_id.decode(), priority) for job_id, priority in rows]

    def job_id_of(self, name: str) -> str | None:
        """Return the job id for an id that the pusher chose; None: the store does not know it."""
        row = self._hash("names").get(name.encode())
        return None if row is None else row.decode().split(" ")[1]

    def known(self) -> set[str]:
        """Return the ids of all jobs of which the store has anything: the job itself, or what it keeps of a job that
        has ended."""
        deaths = {note[1:] for note in self._set(self._keys["tombstones"]).scores if note[:1] != b"n"}
        return {job_id.decode() for job_id in (*self._hash("jobs"), *deaths, *self._hash("about")) if job_id != b"?"}

    def journals(self) -> set[str]:
        """Return the ids of all journals of which the store notes how far their records are applied."""
        fields = (field.decode().partition(":") for field in self._hash("applied"))
        return {journal for journal, _, what in fields if journal != "last" and what != "kept"}

    def _hash(self, name: str) -> dict[bytes, bytes]:
        row: dict[bytes, bytes] = self._keyspace.keys.get(self._keys[name].encode(), NOTHING)
        return row

    def _set(self, key: str) -> SortedSet:
        rows: SortedSet = self._keyspace.keys.get(key.encode()) or SortedSet()
        return rows


def places_of(store: FakeStore) -> Places:
    return Places(store.server.keyspace, store.keys)
