"""Judges what a server reports of itself, by a table of settings and states that would lose jobs or deserve a warning.

docs/operate/SERVERS.md has the same table for people.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from jqd.domain.diagnostic import Diagnostic, Severity
from jqd.store.server_versions import judge_version

FULL_PART = 0.9  # share of maxmemory above which somebody should act
CLOCKS_APART_MS = 5_000  # the server's clock judges due dates; nobody notices less

REFUSE, WARN = Severity.REFUSE, Severity.WARN


class Facts(NamedTuple):
    """What a server reports of itself."""

    info: Mapping[str, Any]
    settings: Mapping[str, str] | None
    """The settings in CONFIG GET; None: the server hides them, as managed servers do."""
    denied: tuple[str, ...]
    """Commands that our functions need and the store's user may not run."""
    ahead_ms: int
    """By how many ms the server's clock is ahead of ours."""
    misplaced: tuple[Diagnostic, ...] = ()
    """What is wrong with the partitions on the server."""
    dead_above: int = 0
    """The limit for dead jobs (store.dead_jobs_warn) if there are more; else 0."""
    seal: str = ""
    """The store's seal: a key that it keeps until it is emptied; "": the store was not used yet."""
    lacks_library: bool = False
    """The server has no library of this version, and is too full to take it."""

    def has(self, setting: str, value: str) -> bool:
        return self.settings is not None and self.settings[setting] == value

    def keeps(self, *, file: bool, snapshots: bool) -> bool:
        """Return whether the server surely keeps data in just this way: with its append-only file or without (`file`),
        with snapshots or without."""
        return self.settings is not None and (self.file, bool(self.settings["save"])) == (file, snapshots)

    def failed(self, field: str) -> bool:
        return bool(self.info.get(field, "ok") != "ok")

    @property
    def file(self) -> bool:
        return bool(self.info.get("aof_enabled"))

    @property
    def policy(self) -> str:
        return str(self.info.get("maxmemory_policy", "noeviction"))

    @property
    def limit(self) -> int:
        return int(self.info.get("maxmemory", 0))

    @property
    def used(self) -> int:
        return int(self.info.get("used_memory", 0))

    @property
    def evicted(self) -> int:
        """How many keys the server evicted since its start, or since CONFIG RESETSTAT."""
        return int(self.info.get("evicted_keys", 0))

    # ------------------------------------------------------------ in words

    @property
    def commands(self) -> str:
        return ", ".join(self.denied)

    @property
    def rights(self) -> str:
        return " ".join(f"+{name.lower()}" for name in self.denied)

    @property
    def unseen(self) -> str:
        if self.file:
            return "keeps an append-only file, but whether it syncs it"
        return "has no append-only file; what it keeps"

    @property
    def evicts(self) -> str:
        now = f"above {self.limit} bytes it deletes"
        return now if self.limit else "as soon as it gets a limit (maxmemory) it would delete"

    @property
    def apart(self) -> str:
        return f"{abs(self.ahead_ms) / 1000:g} s {'ahead of' if self.ahead_ms > 0 else 'behind'}"


class Check(NamedTuple):
    """A possible finding and the condition under which it holds. The texts name facts as `{0.policy}`."""

    code: str
    severity: Severity
    holds: Callable[[Facts], object]
    what: str
    why: str
    mend: str


def judge(facts: Facts) -> list[Diagnostic]:
    """Return the findings about a server, which must be a master."""
    found = [
        Diagnostic(check.code, check.severity, *(text.format(facts) for text in check[3:]))
        for check in CHECKS
        if check.holds(facts)
    ]
    return [*facts.misplaced, *judge_version(facts.info, managed=facts.settings is None), *found]


APPEND = "CONFIG SET appendonly yes, and the same in its configuration file"
CHECKS = (
    Check(
        "acl_narrow",
        REFUSE,
        lambda facts: facts.denied,
        "the store's user may not run {0.commands}",
        "jqd's functions use these commands on its keys, and would fail half-way through a job's life",
        "allow them to that user: ACL SETUSER name {0.rights}",
    ),
    Check(
        "config_unseen",
        WARN,
        lambda facts: facts.settings is None,
        "the server does not show its settings",
        "CONFIG GET is forbidden or renamed, as on managed servers. It {0.unseen} could not be seen",
        "allow +config|get to this user, or make sure that its provider syncs what it keeps every second",
    ),
    Check(
        "no_persistence",
        REFUSE,
        lambda facts: facts.keeps(file=False, snapshots=False),
        "the server keeps nothing on disk",
        "it has neither an append-only file nor save points, so its next restart forgets every job",
        APPEND,
    ),
    # No reason to refuse: a store that comes back older is noticed, and the journals, which are kept until a later
    # snapshot succeeded, are applied again.
    Check(
        "snapshots_only",
        WARN,
        lambda facts: facts.keeps(file=False, snapshots=True),
        "the server takes snapshots only",
        "after a crash it is as old as its last one: all since then is applied again from the journals, jobs that "
        "ended meanwhile run again where their journal is gone, and journals are kept until a snapshot succeeds",
        APPEND,
    ),
    Check(
        "appendfsync_no",
        REFUSE,
        lambda facts: facts.file and facts.has("appendfsync", "no"),
        "appendfsync is no",
        "the server leaves its syncs to chance: a power cut takes what it got in the last half minute",
        "CONFIG SET appendfsync everysec, and the same in its configuration file",
    ),
    Check(
        "rewrite_without_sync",
        WARN,
        lambda facts: facts.file and facts.has("no-appendfsync-on-rewrite", "yes"),
        "no-appendfsync-on-rewrite is yes",
        "while the server rewrites its file, minutes perhaps, it syncs nothing; the journals keep all "
        "meanwhile, and apply it again after a crash",
        "CONFIG SET no-appendfsync-on-rewrite no",
    ),
    *(
        Check(
            code,
            WARN,
            partial(Facts.failed, field=field),
            f"the server's last {what} failed",
            "its disk is full or failing, or it has no memory to fork; until that is over it may refuse writes",
            "look at its log and its disk (df, dmesg)",
        )
        for code, field, what in (
            ("aof_write_failed", "aof_last_write_status", "write to its append-only file"),
            ("aof_rewrite_failed", "aof_last_bgrewrite_status", "rewrite of its append-only file"),
            ("snapshot_failed", "rdb_last_bgsave_status", "snapshot"),
        )
    ),
    Check(
        "evicting",
        REFUSE,
        lambda facts: facts.policy.startswith("allkeys"),
        "maxmemory-policy is {0.policy}",
        "{0.evicts} jobs to make room for others",
        "CONFIG SET maxmemory-policy noeviction, and the same in its configuration file",
    ),
    Check(
        "evicting_others",
        WARN,
        lambda facts: facts.policy != "noeviction" and not facts.policy.startswith("allkeys"),
        "maxmemory-policy is {0.policy}",
        "it deletes only keys with an expiry. jqd's have none, so they stay, but somebody else's may not",
        "CONFIG SET maxmemory-policy noeviction, on a server that jqd has for itself",
    ),
    Check(
        "nearly_full",
        WARN,
        lambda facts: facts.limit and facts.used > facts.limit * FULL_PART and not facts.lacks_library,
        "the server uses {0.used} of {0.limit} bytes (maxmemory)",
        "when it is full no new jobs are applied to it: they wait in the journals",
        "CONFIG SET maxmemory to more, keep ended jobs for a shorter time, or run more workers",
    ),
    Check(
        "no_library",
        WARN,
        lambda facts: facts.lacks_library,
        "the server uses {0.used} of {0.limit} bytes (maxmemory): it cannot take the functions of this version of jqd",
        "until it has them no job starts or ends there, and nothing is deleted; pushes wait in the journals",
        "CONFIG SET maxmemory to some megabytes above what it uses",
    ),
    Check(
        "many_dead",
        WARN,
        lambda facts: facts.dead_above,
        "more than {0.dead_above} jobs failed for good (store.dead_jobs_warn)",
        "they stay until somebody deals with them, and fill the memory of the store and the disks of the journals",
        "`jqd errors` says why they failed, and how to retry or delete those of one reason; "
        "`jqd delete --all --older 30d` deletes old ones",
    ),
    Check(
        "clocks_apart",
        WARN,
        lambda facts: abs(facts.ahead_ms) > CLOCKS_APART_MS,
        "the server's clock is {0.apart} this machine's",
        "dates of jobs and retries are judged by the server's clock; leases are not",
        "let both machines set their clocks by NTP",
    ),
)
