"""What lines must hold, found by looking at every job that waits (STORE.md, Lines)."""

from collections import Counter, defaultdict

from jqd.domain.queue_name import BETWEEN
from jqd.store import codec
from jqd.store.keys import Keys
from jqd.testing.keyspace import NOTHING, Keyspace, SortedSet

Rows = dict[bytes, float]


class Line:
    """A list of hints, by the name of its key."""

    def __init__(self, name: str, ids: list[bytes]) -> None:
        self.name, self.ids = name, ids
        self.level, self.queue = split(name)
        self.since, self.priority = self.level.replace("!", ":").split(":")
        self.jobtype = self.queue.partition(BETWEEN)[0]

    @property
    def owner(self) -> str:
        """What its stale hints are counted under."""
        return f"{self.priority}:{self.queue}"


def split(name: str) -> tuple[str, str]:
    """Of the name of a line: its level and its queue, or jobtype."""
    mark = next(at for at, letter in enumerate(name) if letter in ":!")
    end = name.index(":", mark + 1)
    return name[:end], name[end + 1 :]


def lines_of(keyspace: Keyspace, keys: Keys) -> list[Line]:
    """All there are."""
    begin = f"{keys['line']}:".encode()
    return [Line(key[len(begin) :].decode(), ids) for key, ids in keyspace.keys.items() if key.startswith(begin)]


def waiting(keyspace: Keyspace, keys: Keys) -> set[bytes]:
    """Ids of all jobs that are ready: they are here, and nowhere else."""
    jobs = set(keyspace.keys.get(keys["jobs"].encode(), NOTHING))
    for name in ("later", "ended", "dead"):
        jobs -= _scores(keyspace, keys[name]).keys()
    for rows in _sets(keyspace, keys, "held").values():
        jobs -= rows.keys()
    return jobs


def check_indexes(keyspace: Keyspace, keys: Keys) -> None:
    """Each job that waits has a hint in its line, each line a turn, or what it waits for, and each head its row."""
    waits, lines = waiting(keyspace, keys), lines_of(keyspace, keys)
    _check_hints(keyspace, keys, waits, lines)
    _check_turns(keyspace, keys, lines)


def _check_hints(keyspace: Keyspace, keys: Keys, waits: set[bytes], lines: list[Line]) -> None:
    rows = keyspace.keys.get(keys["jobs"].encode(), NOTHING)
    wanted: dict[bytes, str] = {}
    for job_id in waits:
        try:
            job = codec.decode_job(keys, job_id.decode(), rows[job_id], bare=True)
        except codec.Unreadable:
            continue
        wanted[job_id] = f"{job.priority}:{job.jobtype}{job.queue}"
    found: dict[bytes, str] = {}
    stale: Counter[str] = Counter()
    for line in lines:
        for job_id in line.ids:
            if job_id in waits and wanted.get(job_id, line.owner) == line.owner and job_id not in found:
                found[job_id] = line.owner
            else:
                stale[line.owner] += 1
    assert not {job_id: its for job_id, its in wanted.items() if job_id not in found}, "it waits, and has no hint"
    counted = {owner.decode(): int(n) for owner, n in keyspace.keys.get(keys["stale"].encode(), NOTHING).items()}
    assert not {owner: n for owner, n in stale.items() if n > counted.get(owner, 0)}, "hints that are stale, untold"


def _check_turns(keyspace: Keyspace, keys: Keys, lines: list[Line]) -> None:
    parked = {
        name.decode(): row.decode().split(" ", 1)
        for name, row in keyspace.keys.get(keys["parked"].encode(), NOTHING).items()
    }
    turns: dict[str, Rows] = defaultdict(dict)  # level and jobtype → queues
    levels: dict[str, Rows] = defaultdict(dict)
    aside: dict[str, Rows] = defaultdict(dict)
    told = {name.decode(): rows for name, rows in _sets(keyspace, keys, "turns").items()}
    by_name = {line.name: line for line in lines}
    for line in lines:
        if line.name in parked:
            turn, bucket = parked[line.name]
            aside[bucket][f"{turn} {line.name}".encode()] = float(line.priority)
        else:
            turns[f"{line.level}:{line.jobtype}"][line.queue.encode()] = 0
            levels[line.jobtype][line.level.encode()] = float(line.priority)
    assert parked.keys() <= by_name.keys(), "a line that has no job waits for something"
    assert {name: rows.keys() for name, rows in told.items()} == {name: rows.keys() for name, rows in turns.items()}
    assert {name.decode(): rows for name, rows in _sets(keyspace, keys, "levels").items()} == levels
    assert {name.decode(): rows for name, rows in _sets(keyspace, keys, "aside").items()} == aside
    due = {
        bucket for name in ("due", "again") for row in _scores(keyspace, keys[name]) for bucket in row.split(b"\x1e")
    }
    assert {bucket.encode() for bucket in aside} <= due, "nobody looks again at what waits"
    heads: dict[str, Rows] = defaultdict(dict)
    for jobtype, its in levels.items():
        for priority in set(its.values()):
            level = min(name for name, score in its.items() if score == priority).decode()
            rows = told[f"{level}:{jobtype}"]
            queue = min(rows, key=lambda one: (rows[one], one)).decode()
            row = f"{level}:{by_name[f'{level}:{queue}'].ids[0].decode()}:{jobtype}"
            heads[jobtype[: jobtype.find("\x1f") + 1]][row.encode()] = priority
    assert {name.decode(): rows for name, rows in _sets(keyspace, keys, "heads").items()} == heads


def _scores(keyspace: Keyspace, key: str) -> Rows:
    rows = keyspace.keys.get(key.encode())
    return rows.scores if isinstance(rows, SortedSet) else {}


def _sets(keyspace: Keyspace, keys: Keys, stem: str) -> dict[bytes, Rows]:
    begin = f"{keys[stem]}:".encode()
    return {
        key[len(begin) :]: value.scores
        for key, value in keyspace.keys.items()
        if key.startswith(begin) and isinstance(value, SortedSet)
    }
