"""What scripts should have counted, counted from the data: by how each job lies there, one by one."""

from collections.abc import Iterable
from contextlib import suppress

from jqd.domain.flow import BLOCKED_MS
from jqd.domain.job import Fate, State
from jqd.store import codec
from jqd.store.keys import Keys
from jqd.store.views import decode_end
from jqd.testing.keyspace import NOTHING, Keyspace, SortedSet

WHOLE = ("jobs", "tries", "outcome", "later", "ended", "dead", "members", "counts")
"""Keys that are read whole, beside the hands of the members."""
TOTALS = (b"pushed", b"started", b"ended", b"failures")
"""Names of fields that only grow."""


def recount(keyspace: Keyspace, keys: Keys) -> dict[str, int]:
    """Field → how many jobs of a jobtype stand so, and how many of all. Of a row that cannot be read the outcome may
    tell it."""
    rows = _Rows(keyspace, keys)
    found: dict[str, int] = {}
    for job_id, row in rows.hash("jobs").items():
        jobtype, state = rows.stands(job_id, row)
        for field in (f"{state.value}:{jobtype}", state.value):
            found[field] = found.get(field, 0) + 1
    return found


def counted(keyspace: Keyspace, keys: Keys) -> dict[str, int]:
    """The same as the store kept it, without totals."""
    kept = keyspace.keys.get(keys["counts"].encode(), NOTHING)
    return {field.decode(): int(number) for field, number in kept.items() if _name(field) not in TOTALS}


def miscounted(keyspace: Keyspace, keys: Keys) -> str | None:
    """What is wrong with the counts, or None."""
    kept, found = counted(keyspace, keys), recount(keyspace, keys)
    return None if kept == found else f"kept are {kept}, and there are {found}"


def without_jobs(kept: Iterable[bytes]) -> set[bytes]:
    """Jobtypes that have totals and no jobs, or the other way round."""
    fields = {field for field in kept if b":" in field}
    total, standing = ({_jobtype(each) for each in fields if (_name(each) in TOTALS) == one} for one in (True, False))
    return total ^ standing


def _name(field: bytes) -> bytes:
    return field.partition(b":")[0]


def _jobtype(field: bytes) -> bytes:
    return field.partition(b":")[2]


def hands(keys: Keys, members: Iterable[bytes]) -> list[str]:
    """The keys of all hands."""
    return [keys.held(sysid) for sysid in (*(member.decode() for member in members), "*")]


class _Rows:
    def __init__(self, keyspace: Keyspace, keys: Keys) -> None:
        self._keyspace, self._keys = keyspace, keys
        self._held: set[bytes] = set()
        for hand in hands(keys, self.hash("members")):
            self._held |= self._set(hand)
        self._ended, self._dead, self._later = (self._set(keys[name]) for name in ("ended", "dead", "later"))

    def hash(self, name: str) -> dict[bytes, bytes]:
        row: dict[bytes, bytes] = self._keyspace.keys.get(self._keys[name].encode(), NOTHING)
        return row

    def _set(self, key: str) -> set[bytes]:
        rows = self._keyspace.keys.get(key.encode())
        return set(rows.scores) if isinstance(rows, SortedSet) else set()

    def _is_blocked(self, job_id: bytes) -> bool:
        rows = self._keyspace.keys.get(self._keys["later"].encode())
        return isinstance(rows, SortedSet) and rows.scores.get(job_id, 0) >= BLOCKED_MS

    def stands(self, job_id: bytes, row: bytes) -> tuple[str, State]:
        name = job_id.decode()
        try:
            jobtype = codec.decode_job(self._keys, name, row, bare=True).jobtype
        except codec.Unreadable:
            jobtype = ""
            if job_id in self._ended | self._dead:
                with suppress(codec.Unreadable):
                    outcome, _ = decode_end(self._keys, name, self.hash("outcome").get(job_id))
                    jobtype = outcome.jobtype if outcome else ""
        return jobtype, self._state(job_id, name)

    def _state(self, job_id: bytes, name: str) -> State:
        if job_id in self._ended:
            try:
                outcome, cancelled = decode_end(self._keys, name, self.hash("outcome").get(job_id))
            except codec.Unreadable:
                return State.SUCCEEDED  # as nearly all that lie there did
            assert cancelled or (outcome and outcome.fate is Fate.SUCCEEDED), f"{name} failed and lies among the ended"
            return State.CANCELLED if cancelled else State.SUCCEEDED
        if job_id in self._dead:
            return State.FAILED
        if job_id in self._held:
            return State.RUNNING
        failed = codec.failed_attempts(self._keys, name, self.hash("tries").get(job_id))
        if failed:
            return State.RETRYING
        if self._is_blocked(job_id):
            return State.BLOCKED
        return State.SCHEDULED if job_id in self._later else State.WAITING
