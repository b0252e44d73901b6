"""Examines a server's settings: which of them would lose jobs, and how to mend them.

`examine` asks, on a connection of its own; `judge` decides, and is pure. docs/operate/SERVERS.md has the table.
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import redis
import trio

from jqd.domain.clock import Clock, SystemClock
from jqd.domain.diagnostic import Diagnostic, Severity
from jqd.domain.errors import StoreAway
from jqd.store.config import StoreConfig
from jqd.store.connect import _client
from jqd.store.keys import Keys
from jqd.store.partition_check import judge_places, read_places
from jqd.store.scripts import load_scripts, translate
from jqd.store.server_versions import judge_version

TIMEOUT_S = 2.0  # of one answer; a slower server counts as away
SETTINGS = ("save", "appendfsync", "no-appendfsync-on-rewrite")
FULL_PART = 0.9  # of maxmemory, above which it is time to do something
CLOCKS_APART_MS = 5_000  # due dates are judged by the server's clock; less than this nobody notices

NOT_ITS_DAY = (9, 10)  # of OpenSSL's X509_V_ERR: not yet valid, has expired
WORDS_MAX = 200  # characters of an answer that is not understood

REFUSE, WARN = Severity.REFUSE, Severity.WARN


class Facts(NamedTuple):
    """What a server reports of itself."""

    info: Mapping[str, Any]
    settings: Mapping[str, str] | None
    """None: it hides them, as managed servers do."""
    denied: tuple[str, ...]
    """Commands of our scripts that this user may not run."""
    ahead_ms: int
    """How far its clock is ahead of ours."""
    misplaced: tuple[Diagnostic, ...] = ()
    """What is wrong with the partitions on it."""
    dead_above: int = 0
    """The number of dead jobs that is exceeded and worth a warning; else 0."""


async def examine(config: StoreConfig, clock: Clock | None = None) -> list[Diagnostic]:
    """Findings about the server. Raises StoreAway when it does not answer, ConfigError for a bad URL."""
    patient = replace(config, timeout_s=min(config.timeout_s, TIMEOUT_S))
    client = _client(patient, "")
    try:
        work = partial(_read, client, config, clock or SystemClock())
        found = await trio.to_thread.run_sync(work, abandon_on_cancel=False)
    finally:
        client.connection_pool.disconnect()
    return found if isinstance(found, list) else judge(found)


def judge(facts: Facts) -> list[Diagnostic]:
    """Findings from the facts of a master. Pure."""
    steps: tuple[Callable[[Facts], list[Diagnostic]], ...] = (
        _version,
        _rights,
        _persistence,
        _writing,
        _memory,
        _dead,
        _clocks,
    )
    return [*facts.misplaced, *(finding for step in steps for finding in step(facts))]


# ---------------------------------------------------------------- asking


def _read(client: "redis.Redis", config: StoreConfig, clock: Clock) -> Facts | list[Diagnostic]:
    """Return the facts, or findings when a server answers but gives none. Raises StoreAway."""
    keys = Keys(config.prefix, config.partition)
    try:
        info: dict[str, Any] = client.info("default")
        role = info.get("role")
        if role != "master":
            raise StoreAway(f"the server at the store's address is a {role}, not a master; name the master instead")
        if info.get("loading"):
            raise StoreAway("the server is loading its data, and says only then what it keeps")
        before_ms = clock.wall_ms()
        seconds, micros = client.time()
        ahead_ms = seconds * 1000 + micros // 1000 - (before_ms + clock.wall_ms()) // 2
        settings, denied = _settings(client), _denied(client, keys)
        misplaced = tuple(judge_places(config, read_places(client, config, info)))
        many = not misplaced and int(client.zcard(keys["dead"])) > config.dead_jobs_warn
        return Facts(info, settings, denied, ahead_ms, misplaced, config.dead_jobs_warn if many else 0)
    except redis.RedisError as error:
        ours = translate(error, "doctor", keys)
        if isinstance(ours, StoreAway) and not _by_tls(error):
            raise ours from error
        return [_shut_out(error)]


def _settings(client: "redis.Redis") -> dict[str, str] | None:
    try:
        return {name: str(client.config_get(name).get(name, "")) for name in SETTINGS}
    except redis.ResponseError:
        return None  # renamed, disabled or not allowed to us: reported as `config_unseen`


def _denied(client: "redis.Redis", keys: Keys) -> tuple[str, ...]:
    execute: Callable[..., Any] = client.execute_command
    return tuple(command.decode().upper() for command in execute("EVAL", _source(), len(keys.all), *keys.all, 0))


@cache
def _source() -> str:
    return load_scripts()["allowed"].source


# ---------------------------------------------------------------- not served: retrying does not help


def _shut_out(error: redis.RedisError) -> Diagnostic:
    """A finding for a server that answers but does not serve us."""
    words = str(error)
    if (failed := _by_tls(error)) is not None:
        return _tls(failed)
    if isinstance(error, redis.exceptions.NoPermissionError):
        return Diagnostic(
            "acl_narrow",
            REFUSE,
            "the store's user may not do what jqd needs",
            f"the server answers: {words}",
            "ACL SETUSER name ~{jqd:* +@read +@write +@scripting +@connection +info +time +config|get "
            "(with the prefix you use)",
        )
    if isinstance(error, (redis.AuthenticationError, redis.exceptions.AuthorizationError)):
        return Diagnostic(
            "no_entry",
            REFUSE,
            "the server does not let us in",
            f"it answers: {words}",
            "leave the password out of the URL, or give the server one (requirepass)"
            if "without any password configured" in words
            else "put user and password into the URL, as in redis://user:password@host:6379/0",
        )
    return Diagnostic(
        "no_store",
        REFUSE,
        "what answers at the store's address is of no use as a store",
        f"it says: {words[:WORDS_MAX]}",
        "look at that server, and at the URL (host, port, number of the database)",
    )


def _by_tls(error: BaseException) -> ssl.SSLError | None:
    """Return the TLS error, if that is the cause."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return None if isinstance(cause, (ssl.SSLEOFError, ssl.SSLZeroReturnError)) else cause  # those: it just ended


def _tls(error: ssl.SSLError) -> Diagnostic:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"its certificate is not trusted here: {error.verify_message.rstrip('.')}"
        mend = (
            "give that server a certificate that is valid today, unless a clock is wrong, here or there"
            if error.verify_code in NOT_ITS_DAY
            else "add ?ssl_ca_certs=/path/of/the/ca.pem to the URL, or name the server as its certificate does"
        )
    else:
        why = f"what answers there does not speak it ({error.reason or error})"
        mend = "use the port that the server has for TLS, or redis:// if it has none"
    return Diagnostic("tls", REFUSE, "the TLS connection to the server does not come about", why, mend)


# ---------------------------------------------------------------- judging


def _version(facts: Facts) -> list[Diagnostic]:
    return judge_version(facts.info, managed=facts.settings is None)


def _rights(facts: Facts) -> list[Diagnostic]:
    if not facts.denied:
        return []
    return [
        Diagnostic(
            "acl_narrow",
            REFUSE,
            f"the store's user may not run {', '.join(facts.denied)}",
            "jqd's scripts use these commands on its keys, and would fail half-way through a job's life",
            "allow them to that user: ACL SETUSER name " + " ".join(f"+{name.lower()}" for name in facts.denied),
        )
    ]


def _persistence(facts: Facts) -> list[Diagnostic]:
    file_on = bool(facts.info.get("aof_enabled"))
    if facts.settings is None:
        return [_unseen(file_on)]
    if not file_on:
        return [_snapshots_only() if facts.settings["save"] else _nothing_kept()]
    found = []
    if facts.settings["appendfsync"] == "no":
        found.append(
            Diagnostic(
                "appendfsync_no",
                REFUSE,
                "appendfsync is no",
                "the server leaves its syncs to chance: a power cut takes what it got in the last half minute",
                "CONFIG SET appendfsync everysec, and the same in its configuration file",
            )
        )
    if facts.settings["no-appendfsync-on-rewrite"] == "yes":
        found.append(
            Diagnostic(
                "rewrite_without_sync",
                WARN,
                "no-appendfsync-on-rewrite is yes",
                "while the server rewrites its file, minutes perhaps, it syncs nothing; the journals keep all "
                "meanwhile, and apply it again after a crash",
                "CONFIG SET no-appendfsync-on-rewrite no",
            )
        )
    return found


def _nothing_kept() -> Diagnostic:
    return Diagnostic(
        "no_persistence",
        REFUSE,
        "the server keeps nothing on disk",
        "it has neither an append-only file nor save points, so its next restart forgets every job",
        "CONFIG SET appendonly yes, and the same in its configuration file",
    )


def _snapshots_only() -> Diagnostic:
    # Survivable: a store that comes back older is noticed, and the journals, kept until a later snapshot succeeded,
    # are applied to it again (recovery). So no reason to refuse.
    return Diagnostic(
        "snapshots_only",
        WARN,
        "the server takes snapshots only",
        "after a crash it is as old as its last one: all since then is applied again from the journals, jobs that "
        "ended meanwhile run again where their journal is gone, and journals are kept until a snapshot succeeds",
        "CONFIG SET appendonly yes, and the same in its configuration file",
    )


def _unseen(file_on: bool) -> Diagnostic:
    file = "keeps an append-only file, but whether it syncs it" if file_on else "has no append-only file; what it keeps"
    return Diagnostic(
        "config_unseen",
        WARN,
        "the server does not show its settings",
        f"CONFIG GET is forbidden or renamed, as on managed servers. It {file} could not be seen",
        "allow +config|get to this user, or make sure that its provider syncs what it keeps every second",
    )


def _writing(facts: Facts) -> list[Diagnostic]:
    last = {
        "aof_write_failed": ("aof_last_write_status", "write to its append-only file"),
        "aof_rewrite_failed": ("aof_last_bgrewrite_status", "rewrite of its append-only file"),
        "snapshot_failed": ("rdb_last_bgsave_status", "snapshot"),
    }
    return [
        Diagnostic(
            code,
            WARN,
            f"the server's last {what} failed",
            "its disk is full or failing, or it has no memory to fork; until that is over it may refuse writes",
            "look at its log and its disk (df, dmesg)",
        )
        for code, (field, what) in last.items()
        if facts.info.get(field, "ok") != "ok"
    ]


def _memory(facts: Facts) -> list[Diagnostic]:
    limit, used = int(facts.info.get("maxmemory", 0)), int(facts.info.get("used_memory", 0))
    policy = str(facts.info.get("maxmemory_policy", "noeviction"))
    found = []
    if policy.startswith("allkeys"):
        now = f"above {limit} bytes it deletes" if limit else "as soon as it gets a limit (maxmemory) it would delete"
        found.append(
            Diagnostic(
                "evicting",
                REFUSE,
                f"maxmemory-policy is {policy}",
                f"{now} jobs to make room for others",
                "CONFIG SET maxmemory-policy noeviction, and the same in its configuration file",
            )
        )
    elif policy != "noeviction":
        found.append(
            Diagnostic(
                "evicting_others",
                WARN,
                f"maxmemory-policy is {policy}",
                "it deletes only keys with an expiry. jqd's have none, so they stay, but somebody else's may not",
                "CONFIG SET maxmemory-policy noeviction, on a server that jqd has for itself",
            )
        )
    if limit and used > limit * FULL_PART:
        found.append(
            Diagnostic(
                "nearly_full",
                WARN,
                f"the server uses {used} of {limit} bytes (maxmemory)",
                "when it is full no new jobs are applied to it: they wait in the journals",
                "CONFIG SET maxmemory to more, keep ended jobs for a shorter time, or run more workers",
            )
        )
    return found


def _dead(facts: Facts) -> list[Diagnostic]:
    if not facts.dead_above:
        return []
    return [
        Diagnostic(
            "many_dead",
            WARN,
            f"more than {facts.dead_above} jobs failed for good (store.dead_jobs_warn)",
            "they stay until somebody deals with them, and fill the memory of the store and the disks of the journals",
            "`jqd errors` says why they failed, and how to retry or delete those of one reason; "
            "`jqd delete --all --older 30d` deletes old ones",
        )
    ]


def _clocks(facts: Facts) -> list[Diagnostic]:
    if abs(facts.ahead_ms) <= CLOCKS_APART_MS:
        return []
    way = "ahead of" if facts.ahead_ms > 0 else "behind"
    return [
        Diagnostic(
            "clocks_apart",
            WARN,
            f"the server's clock is {abs(facts.ahead_ms) / 1000:g} s {way} this machine's",
            "dates of jobs and retries are judged by the server's clock; leases are not",
            "let both machines set their clocks by NTP",
        )
    ]
