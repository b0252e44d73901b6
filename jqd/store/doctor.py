"""Examines a server: what in its settings or state would lose jobs, and how to mend it.

`examine` queries the server, on a connection of its own; `checks.judge` judges the answers. docs/operate/SERVERS.md has
the table of findings.
"""

import ssl
from dataclasses import replace
from functools import partial
from typing import Any

import redis
import trio

from jqd.domain.clock import Clock, SystemClock
from jqd.domain.diagnostic import Diagnostic
from jqd.domain.errors import StoreAway
from jqd.store.checks import REFUSE, Facts, judge
from jqd.store.config import StoreConfig
from jqd.store.connect import _client
from jqd.store.evictions import Evictions
from jqd.store.functions import call_on, shipped
from jqd.store.keys import Keys
from jqd.store.partition_check import judge_places, read_places
from jqd.store.scripts import translate

TIMEOUT_S = 2.0  # for one answer; a slower server counts as away
SETTINGS = ("save", "appendfsync", "no-appendfsync-on-rewrite")

NOT_ITS_DAY = (9, 10)  # OpenSSL's X509_V_ERR: a certificate that is not valid yet, or no longer
WORDS_MAX = 200  # characters shown of an answer that is not understood


async def examine(
    config: StoreConfig, clock: Clock | None = None, evictions: Evictions | None = None
) -> list[Diagnostic]:
    """Return findings about the server. Raises StoreAway when it does not answer, ConfigError for a bad URL.

    `evictions`: remembers earlier examinations of this server, and adds a finding if the server has deleted keys."""
    patient = replace(config, timeout_s=min(config.timeout_s, TIMEOUT_S))
    client = _client(patient, "")
    try:
        work = partial(_read, client, config, clock or SystemClock())
        found = await trio.to_thread.run_sync(work, abandon_on_cancel=False)
    finally:
        client.connection_pool.disconnect()
    if isinstance(found, list):
        return found
    return [*judge(found), *(evictions.note(found) if evictions else ())]


# ---------------------------------------------------------------- asking


def _read(client: "redis.Redis", config: StoreConfig, clock: Clock) -> Facts | list[Diagnostic]:
    """Return the server's facts, or findings if it refuses to give them. Raises StoreAway."""
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
        misplaced = tuple(judge_places(config, read_places(client, config, info)))
        settings, denied = _settings(client), () if misplaced else _denied(client, keys)
        many = not misplaced and int(client.zcard(keys["dead"])) > config.dead_jobs_warn
        seal = "" if misplaced else str(client.hget(keys["life"], "seal") or "")
        many_above = config.dead_jobs_warn if many else 0
        return Facts(info, settings, denied or (), ahead_ms, misplaced, many_above, seal, denied is None)
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


def _denied(client: "redis.Redis", keys: Keys) -> tuple[str, ...] | None:
    """Return the commands that our user may not run; None: the server lacks our library, and is too full to take it."""
    try:
        refused = call_on(client, shipped().words(keys, "allowed", (0,)))
    except redis.exceptions.OutOfMemoryError:
        return None
    return tuple(command.decode().upper() for command in refused)


# ---------------------------------------------------------------- not served: retrying does not help


def _shut_out(error: redis.RedisError) -> Diagnostic:
    """Return a finding about a server that answers but does not serve us."""
    words = str(error)
    if (failed := _by_tls(error)) is not None:
        return _tls(failed)
    if isinstance(error, redis.exceptions.NoPermissionError):
        return Diagnostic(
            "acl_narrow",
            REFUSE,
            "the store's user may not do what jqd needs",
            f"the server answers: {words}",
            "ACL SETUSER name ~{jqd:* +@read +@write +@connection +fcall +function|load +function|list "
            "+function|delete +info +time +config|get (with the prefix you use)",
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
    """Return the TLS error among the causes of an error; None if there is none."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return None if isinstance(cause, (ssl.SSLEOFError, ssl.SSLZeroReturnError)) else cause  # these: it just ended


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
