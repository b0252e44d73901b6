"""To whom each field of the store belongs (docs/build/STORE.md, Bounds): what has no owner would stay for ever."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from jqd.store.keys import KINDS, STEMS, Keys
from jqd.testing.keyspace import Keyspace
from tests.harness.recount import without_jobs

Rows = dict[bytes, Any]
LETTERS = b"sdcrzonp"
LIFE_ROWS = (
    "id settled settled_at behind run history partition backed_off low high late unclaimed began marks version again"
    " seen back swept"
)
LIFE = f"{LIFE_ROWS} seal".encode().split()  # and of daemons: `sat:`


class Found:
    """What one store holds, and who is there."""

    def __init__(self, keyspace: Keyspace, keys: Keys) -> None:
        self._rows: dict[str, dict[bytes, Rows]] = defaultdict(dict)  # key → what stands behind its stem → fields
        stems = {f"{keys[name]}:".encode(): name for name in STEMS}
        plain = {keys[name].encode(): name for name in KINDS if name not in STEMS}
        for key, value in keyspace.keys.items():
            stem = next((stem for stem in stems if key.startswith(stem)), b"")
            rows = getattr(value, "scores", value)
            rows = (
                rows
                if isinstance(rows, dict)
                else {b"": rows}
                if isinstance(rows, bytes)
                else dict.fromkeys(rows or ())
            )
            self._rows[stems[stem] if stem else plain[key]][key[len(stem) :] if stem else b""] = rows
        self.over = self.ids("ended") | self.ids("dead")
        self.here = self.ids("jobs")
        self.held = self.ids("held")
        told = {job_id: (b" " + record).partition(b" q")[::2] for job_id, record in self.rows("about").items()}
        self.early = {job_id for job_id, (hold, _) in told.items() if hold.endswith(b" ?")}
        self.counted = {job_id for job_id, (_, queue) in told.items() if queue}
        self.waits = self.ids("ready") | self.ids("page") | self.ids("later") | ids_of(self.ids("loose"))
        self.queues = self.of("ready").keys() | self.of("backlog").keys() | self.of("loose").keys()
        self.noted = {letter: set[bytes]() for letter in LETTERS}
        for note in self.ids("tombstones"):
            self.noted[note[0]].add(note[1:])
        self.unique = {row.split(b" ")[0] for row in self.rows("unique").values() if row[:1] != b"~"}
        self.promised = {b"\0" + key for key, row in self.rows("unique").items() if row[:1] == b"~"}
        self.fences = {b"%d" % score for score in self._rows["held"].get(b"*", {}).values()}

    def of(self, name: str) -> dict[bytes, Rows]:
        """By what stands behind the stem; of a key that is none, nothing does."""
        return self._rows[name]

    def rows(self, name: str) -> Rows:
        """The fields of a key that is no stem."""
        return self._rows[name].get(b"", {})

    def ids(self, name: str) -> set[bytes]:
        """All fields of a key, or of all keys of that stem."""
        return {field for rows in self._rows[name].values() for field in rows}

    def note(self, letters: bytes) -> set[bytes]:
        """Whose notes of these letters there are."""
        return set[bytes]().union(*(self.noted[letter] for letter in letters))


def ids_of(rows: Iterable[bytes]) -> set[bytes]:
    """Of rows `<id>:<queue>`."""
    return {row.partition(b":")[0] for row in rows}


def _marked(fields: Iterable[bytes], **owners: set[bytes]) -> set[bytes]:
    """Fields that begin with a mark and are of no owner that this mark has; those of jobs begin with a digit."""
    marks = {mark.encode(): its for mark, its in owners.items() if mark != "plain"}
    return {
        field
        for field in fields
        if (field[1:] not in marks[field[:1]] if field[:1] in marks else field not in owners["plain"])
    }


def _ends(found: Found, name: str) -> set[bytes]:
    return _marked(found.ids(name), plain=found.over | found.note(b"sdc"), z=found.note(b"z"))


def _of_daemons(fields: Iterable[bytes], marks: bytes, found: Found, jobs: set[bytes]) -> set[bytes]:
    members = found.ids("members")
    return {each for each in fields if (each[1:] not in members if each[0] in marks else each not in jobs)}


Unowned = Callable[[Found], Iterable[bytes]]
LIVING = "a job that has not ended"
HERE = "a job that is here, or a note of it"
NOTE = "what a note tells has not come"
ARCHIVE = "the archive"
QUOTA = "jobs that follow, and are in no journal yet"
JOURNAL = "a journal"
LOGS = "the newest 1,000 successes, and 1,000 others"
WATCHED = "who is watched"
PIECES = "a large result"
LIMIT = "a constraint and its window"
RULE = "a setting"
SEAT = "a daemon's membership"
HISTORY = "what was counted in eight days"
LINK = "jobs that have to do with others"

# Name of the key → what bounds it, and which of its fields have no owner.
OWNERS: dict[str, tuple[str, Unowned]] = {
    "jobs": (ARCHIVE, lambda of: of.here - of.over - of.waits - of.held),
    "ready": (LIVING, lambda of: of.ids("ready") - of.here | of.ids("ready") & of.over),
    "backlog": (LIVING, lambda of: of.of("backlog").keys() - of.rows("paged").keys()),
    "page": (LIVING, lambda of: of.ids("page") - of.here | of.ids("page") & of.over),
    "paged": (LIVING, lambda of: of.rows("paged").keys() - of.of("backlog").keys()),
    "types": (LIVING, lambda of: of.rows("types").keys() - {queue.partition(b"\x1e")[0] for queue in of.queues}),
    "keyed": (LIVING, lambda of: {each for each, count in of.rows("keyed").items() if each and int(count) <= 0}),
    "queues": (LIVING, lambda of: ids_of(of.ids("queues")) - of.waits),
    "loose": (LIVING, lambda of: ids_of(of.ids("loose")) - of.here),
    "index": (LIVING, lambda of: ids_of(of.ids("index")) - of.waits),
    "tied": (LIVING, lambda of: of.rows("tied").keys() - of.queues),
    "throttled": (LIVING, lambda of: ids_of(of.ids("throttled")) - of.waits),
    "later": (LIVING, lambda of: of.ids("later") - of.here | of.ids("later") & of.over),
    "expiring": (LIVING, lambda of: of.ids("expiring") - of.here | of.ids("expiring") & of.over),
    "aged": (LIVING, lambda of: of.ids("aged") - of.ids("members") - {b""}),  # others go by chance
    "held": (LIVING, lambda of: of.held ^ of.rows("about").keys() - {b"?"}),
    "about": (LIVING, lambda of: of.held - of.here - of.early | of.held & of.over | of.early & of.here),
    "asked": (SEAT, lambda of: of.of("asked").keys() - of.ids("members")),  # a renewal drops those that left
    "leases": (
        LIVING,
        lambda of: _marked(
            of.ids("leases") - {b"silences"}, plain=of.fences | of.ids("beats"), p=of.held | of.ids("ended")
        ),
    ),
    "beats": (LIVING, lambda of: of.ids("beats") - of.rows("leases").keys()),
    "busy": (LIMIT, lambda of: of.ids("busy") ^ of.counted),
    "tries": (HERE, lambda of: of.ids("tries") - of.here - of.note(b"sdcr")),
    "outcome": (HERE, lambda of: _ends(of, "outcome")),
    "result": (HERE, lambda of: _ends(of, "result") | of.ids("result") ^ of.ids("results")),
    "results": (HERE, lambda of: _ends(of, "results")),
    "large": (HERE, lambda of: of.ids("large") - of.ids("result")),
    "pieces": (PIECES, lambda of: of.of("pieces").keys() - set(of.rows("large").values()) - of.ids("spare")),
    "spare": (PIECES, lambda of: of.ids("spare") - of.of("pieces").keys()),
    "logs": (LOGS, lambda of: of.ids("logs") ^ of.ids("logged")),
    "logged": (LOGS, lambda of: of.ids("logged") - of.here - of.note(b"sdcr")),
    "watched": (WATCHED, lambda of: ()),
    "names": (
        HERE,
        lambda of: {
            name
            for name, row in of.rows("names").items()
            if row.split(b" ")[1] not in of.here and name not in of.note(b"n")
        },
    ),
    "generation": (
        HERE,
        lambda of: _marked(
            of.ids("generation"),
            plain=of.here | of.note(b"o"),
            c=of.here | of.note(b"c"),
            e=of.here | of.note(b"n") | {row.split(b" ")[1] for row in of.rows("names").values()},
        ),
    ),
    "deaths": (LIVING, lambda of: _of_daemons(of.ids("deaths"), b"@#", of, of.here - of.over)),
    "ended": (ARCHIVE, lambda of: of.ids("ended") - of.here),
    "dead": ("whoever deletes the dead", lambda of: of.ids("dead") - of.here),
    "tombstones": (NOTE, lambda of: {note for note in of.ids("tombstones") if note[0] not in LETTERS}),
    "counts": (
        HERE,
        lambda of: without_jobs(of.rows("counts")) | {each for each, row in of.rows("counts").items() if row == b"0"},
    ),
    "outbox": (QUOTA, lambda of: ()),
    "shelf": (QUOTA, lambda of: of.of("shelf").keys() - of.rows("shelves").keys()),
    "shelves": (QUOTA, lambda of: ()),
    "rules": (RULE, lambda of: of.ids("rules") ^ of.ids("ruled")),
    "ruled": (RULE, lambda of: ()),
    "alive": (RULE, lambda of: {each for each in of.ids("alive") if b"worker\0" + each not in of.ids("rules")}),
    "limits": (RULE, lambda of: {each for each in of.ids("limits") if b"constraint\0" + each not in of.ids("rules")}),
    "due": (LIMIT, lambda of: ()),
    "again": (LIMIT, lambda of: ()),
    "spent": (LIMIT, lambda of: ()),
    "fence": (SEAT, lambda of: ()),
    "life": (
        SEAT,
        lambda of: {each for each in of.ids("life") if each not in LIFE and not each.startswith((b"sat:", b"asked:"))},
    ),
    "members": (SEAT, lambda of: ()),
    "applied": (JOURNAL, lambda of: ()),
    "kept": (JOURNAL, lambda of: ()),
    "links": (LINK, lambda of: ()),  # take_links drops what nobody waits for
    "linked": (LINK, lambda of: of.ids("linked") - of.here - of.unique),
    "children": (LINK, lambda of: of.of("children").keys() - of.ids("linked")),
    "parents": (LINK, lambda of: of.of("parents").keys() - of.ids("linked")),
    "groups": (LINK, lambda of: of.ids("groups") ^ (of.of("grouped").keys() | of.promised)),
    "grouped": (LINK, lambda of: ()),
    "unique": (LINK, lambda of: of.unique - of.ids("linked")),
    "notices": ("what is told the administrator", lambda of: ()),
    "history": (HISTORY, lambda of: of.ids("history") ^ of.ids("historic")),
    "historic": (HISTORY, lambda of: ()),
    "died": (HISTORY, lambda of: ()),
}


def check_owners(keyspace: Keyspace, keys: Keys) -> set[str]:
    """Raises AssertionError where a field has no owner. Returns the names of the keys that there are."""
    found = Found(keyspace, keys)
    lost = {name: sorted(its) for name, (_, unowned) in OWNERS.items() if (its := unowned(found))}
    assert not lost, f"without an owner: {lost}"
    return {name for name in KINDS if found.of(name)}
