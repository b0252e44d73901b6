"""What the indexes of keyed queues must hold, found by looking at every job that waits (STORE.md, Queues)."""

from collections import defaultdict

from jqd.store.keys import Keys
from jqd.testing.keyspace import Keyspace, SortedSet

Rows = dict[bytes, float]


def check_indexes(keyspace: Keyspace, keys: Keys) -> None:
    """Each queue stands where who claims finds it, or apart with what it waits for, and nothing else stands there."""
    tied = keyspace.keys.get(keys["tied"].encode(), {})
    assert tied.keys() == _waiting(keyspace, keys).keys(), "lists find the queues here"
    found: dict[bytes, Rows] = defaultdict(dict)  # jobtype → the rows of its queues
    apart: Rows = {}
    for queue, jobs in _waiting(keyspace, keys).items():
        heads: dict[float, bytes] = {}
        for priority, job_id in sorted(jobs):
            heads.setdefault(priority, job_id)
        if tied[queue]:
            first, bucket = tied[queue].split(b" ", 1)
            best = min(heads)
            assert heads[best] == first, f"{queue!r} waits for {bucket!r}, and its first job is another"
            apart[bucket + b" " + first + b":" + queue] = best
        else:
            rows = {job_id + b":" + queue: priority for priority, job_id in heads.items()}
            found[queue.partition(b"\x1e")[0]] |= rows
    assert apart == {
        bucket + b" " + row: score
        for bucket, rows in _sets(keyspace, keys, "throttled").items()
        for row, score in rows.items()
    }
    everywhere = _sets(keyspace, keys, "queues")
    assert dict(found) == {name: rows for name, rows in everywhere.items() if not name.endswith(b"\x1f")}
    leads: dict[bytes, Rows] = defaultdict(dict)  # what stands before the names of a tenant → rows
    loose = _sets(keyspace, keys, "loose")
    tied = {job_id + b":" + queue for queue, jobs in _waiting(keyspace, keys).items() for _, job_id in jobs}
    assert not tied & {row for rows in loose.values() for row in rows}, "it waits loose and in its queue"
    for jobtype in found.keys() | loose.keys():
        rows = found[jobtype] | loose.get(jobtype, {})
        tenant = jobtype[: jobtype.find(b"\x1f") + 1]
        for priority in set(rows.values()):
            leads[tenant][min(row for row in rows if rows[row] == priority)] = priority
    heads_key = keyspace.keys.get(keys["index"].encode())
    told = {name: rows for name, rows in everywhere.items() if name.endswith(b"\x1f")}
    told[b""] = heads_key.scores if heads_key else {}
    for tenant, rows in told.items():
        assert leads[tenant] == {row: score for row, score in rows.items() if b"\x1e" in row}


def _waiting(keyspace: Keyspace, keys: Keys) -> dict[bytes, list[tuple[float, bytes]]]:
    """Keyed queue → priorities and ids of its jobs."""
    found: dict[bytes, list[tuple[float, bytes]]] = defaultdict(list)
    for queue, rows in _sets(keyspace, keys, "ready").items():
        found[queue] += [(score, job_id) for job_id, score in rows.items()]
    for queue, pages in _sets(keyspace, keys, "backlog").items():
        for first, priority in pages.items():
            page = keyspace.keys[b"%s:%s:%s" % (keys["page"].encode(), first, queue)]
            found[queue] += [(priority, job_id) for job_id in page]
    return {queue: jobs for queue, jobs in found.items() if b"\x1e" in queue and jobs}


def _sets(keyspace: Keyspace, keys: Keys, stem: str) -> dict[bytes, Rows]:
    begin = f"{keys[stem]}:".encode()
    return {
        key[len(begin) :]: value.scores
        for key, value in keyspace.keys.items()
        if key.startswith(begin) and isinstance(value, SortedSet)
    }
