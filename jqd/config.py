"""The daemon's configuration: defaults < TOML file < JQD_SECTION__KEY in the environment < flags → one frozen `Config`.

Only this file reads the environment. Each component has its own frozen dataclass beside it; this file fills them with
the values that `sources.py` finds. An unknown key is an error that says where it is and what was probably meant.
"""

import dataclasses
import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints
from urllib.parse import urlsplit

from msgspec import Meta

from jqd.api import ApiConfig
from jqd.domain import address
from jqd.domain.backoff import Backoff
from jqd.domain.errors import ConfigError
from jqd.domain.followers import FOLLOWERS_BYTES_MAX
from jqd.domain.lease import LeaseConfig
from jqd.domain.process import ALONE, Process
from jqd.domain.setting_text import INTERNAL, SECRET, WHOLE, masked
from jqd.domain.setting_text import read as read_setting
from jqd.domain.units import Count
from jqd.http import Guard
from jqd.journal import JournalConfig
from jqd.loops.backpressure import BackpressureConfig
from jqd.loops.systemd import Manager
from jqd.metrics.config import MetricsConfig
from jqd.notify.config import NotifyConfig
from jqd.runner import RunnerConfig
from jqd.runner.in_flight import TAKE_BYTES_MAX
from jqd.runner.transport.post import FIELDS_BYTES
from jqd.scheduler import SchedulerConfig
from jqd.service.config import JobConfig
from jqd.sources import PREFIX, Setting, from_code, from_environment, from_file, from_flags
from jqd.store import StoreConfig

KEY_LENGTH_MIN = 16  # characters of a key if tokens are needed: then anybody may try to guess it
PROCESSES_MAX = 64  # of one machine; each takes 70 MB and more
HEAD_BYTES = 80  # that the head of a frame needs for each job: id, revisions and date
# Two keys for one thing: if a source has one of them, it removes the other one of an earlier source.
EITHER: dict[tuple[str, ...], tuple[str, ...]] = {
    ("store", "url"): ("store", "urls"),
    ("store", "urls"): ("store", "url"),
}


Hosts = Annotated[
    tuple[Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]+$(?!\n)")], ...],
    Meta(description="a list of names without scheme and port, such as jqd.example.org"),
]


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """Where clients and workers reach this daemon."""

    bind: str = "127.0.0.1:7420"
    """Where the daemon listens. `--bind`
    Allowed: host:port; port 0 is any free one"""
    advertise: str = field(default="", metadata={SECRET: True})
    """The URL by which workers on other machines reach this daemon if theirs is away. Default: by `http.bind`.
    Allowed: an http(s) URL"""
    hosts: Hosts = ()
    """Names that the header `Host` may have besides loopback's. Set it behind a proxy that passes on its own name, and
    with `insecure`, which accepts only addresses, `http.advertise`, and names without a dot, in `.local` or
    `.internal`."""
    tokens: Literal["auto", "required"] = "auto"
    """`auto`: tokens are needed unless the daemon listens on loopback, or is `insecure`; `required`: always, such as
    behind a proxy on the same machine."""
    tls_cert: Path | None = None
    """The certificate, with those that vouch for it. With it, only TLS is spoken.
    Allowed: a PEM file; together with `http.tls_key`"""
    tls_key: Path | None = None
    """The certificate's key, without a password.
    Allowed: a PEM file; together with `http.tls_cert`"""
    tls_clients: Path | None = None
    """Authorities: each client, health checks too, needs a certificate of one of them, besides a token.
    Allowed: a PEM file; with `http.tls_cert`"""
    connections_max: Count | None = None
    """Connections at once; default, and most: what the limit of open files leaves."""
    address_connections_max: Count | None = None
    """Connections at once from one address (of IPv6, one /64). Default: three quarters. Raise it behind one proxy."""

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together: set both, or neither")
        if self.tls_clients is not None and self.tls_cert is None:
            raise ValueError("tls_clients is about TLS: set tls_cert and tls_key, too")
        address.parse(self.bind)
        if self.advertise and not address.is_http(self.advertise):
            raise ValueError(
                f"advertise = {masked(self.advertise)!r} is no URL; write one like https://jqd.example.org:7420"
            )

    def advertised(self, url: str) -> str:
        """Return the URL by which workers on other machines reach the daemon, which listens at `url`; empty if there is
        none."""
        is_wildcard = address.parse(self.bind).host in address.WILDCARDS
        return self.advertise.rstrip("/") or ("" if is_wildcard else url)

    @property
    def is_loopback(self) -> bool:
        """Return whether the daemon can be reached only from this machine."""
        return address.is_loopback(address.parse(self.bind).host)

    @property
    def scheme(self) -> str:
        """Return the scheme of the daemon's URLs."""
        return "https" if self.certificate else "http"

    @property
    def certificate(self) -> tuple[Path, Path] | None:
        """Return the files of the certificate and its key; None: the daemon does not use TLS."""
        return (self.tls_cert, self.tls_key) if self.tls_cert and self.tls_key else None


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged. `--log-level`"""
    form: Literal["auto", "console", "json"] = "auto"
    """The format of log lines. `auto` is `console` on a terminal, else `json`."""
    job_log: str = ""
    """The file of the job log: a JSON line per job and event, for analytics: LOGS.md.
    Allowed: a path"""


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a daemon."""

    data_dir: Path = Path(".jqd")
    """The directory of the journal and the daemon's own store; put it on a disk that lasts. `--data-dir`"""
    drain_s: Annotated[float, Meta(ge=1, le=86_400, description="1 second to 1 day")] = 25.0
    """How long a stop may take; less than the time after which your service manager kills. `--drain`"""
    processes: Annotated[int, Meta(ge=1, le=PROCESSES_MAX, description=f"1 to {PROCESSES_MAX}")] = 1
    """Daemons on the port, each a process with a journal and limits of its own. `--processes`"""
    insecure: bool = False
    """Need no tokens, on any address; only for a network you trust (SECURITY.md).
    `--insecure`"""
    http: HttpConfig = field(default_factory=HttpConfig)
    journal: JournalConfig = field(default_factory=lambda: JournalConfig(directory=Path(".jqd/journal")))
    store: StoreConfig = field(default_factory=lambda: StoreConfig(url=""))
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    runner: RunnerConfig = field(default_factory=RunnerConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
    pressure: BackpressureConfig = field(default_factory=BackpressureConfig)
    lease: LeaseConfig = field(default_factory=LeaseConfig)
    job: JobConfig = field(default_factory=JobConfig)
    retry: Backoff = field(default_factory=Backoff)
    log: LogConfig = field(default_factory=LogConfig)
    notify: NotifyConfig = field(default_factory=NotifyConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    manager: Manager = field(default=Manager(), metadata={INTERNAL: True})
    process: Process = field(default=ALONE, metadata={INTERNAL: True})
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, metadata={INTERNAL: True})
    """Dotted key → the file, variable or flag that set it, when `load` made this. A key that is missing has its
    default."""

    @property
    def backoff(self) -> Backoff:
        """Return the back-off between attempts. After `job.retry_for_s` a job gets no further attempt."""
        return dataclasses.replace(self.retry, for_s=self.job.retry_for_s)

    @property
    def needs_tokens(self) -> bool:
        """Return whether callers need a token."""
        return self.http.tokens == "required" or not (self.http.is_loopback or self.insecure)

    @property
    def guard(self) -> Guard:
        """Return the guard that refuses requests of foreign web pages."""
        http, is_open = self.http, not self.needs_tokens
        own = (
            (urlsplit(http.advertise).hostname, address.parse(http.bind).host)
            if is_open and not http.is_loopback
            else ()
        )
        return Guard(http.is_loopback, tuple(name.lower() for name in (*http.hosts, *filter(None, own))), is_open)

    def __post_init__(self) -> None:
        if self.insecure and self.http.tokens == "required":
            raise ValueError("insecure and http.tokens = required exclude each other: leave one of them out")
        for name in ("master_key", "client_key"):
            if self.needs_tokens and 0 < len(getattr(self.api, name)) < KEY_LENGTH_MIN:
                raise ValueError(
                    f"api.{name} has less than {KEY_LENGTH_MIN} characters: it is a token, others can guess it"
                )
        settled = TAKE_BYTES_MAX + self.runner.result_bytes_max + FOLLOWERS_BYTES_MAX + FIELDS_BYTES
        least = max(self.api.array_bytes_max + HEAD_BYTES * self.api.array_jobs_max, settled)
        if self.journal.frame_bytes_max < least:
            raise ValueError(
                f"journal.frame_bytes_max = {self.journal.frame_bytes_max} is less than {least}, which a push of "
                "api.array_bytes_max and api.array_jobs_max, or the outcomes of many jobs, may have as one frame"
            )


def load(
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Config:
    """Return the configuration from `file`, `environ` and `flags` over `defaults`. Raises ConfigError with all that is
    wrong.

    `flags`: dotted key → value; None for a flag that was not given. `defaults`: dotted key → value, for a command whose
    defaults differ.
    """
    env = os.environ if environ is None else environ
    path = file or (Path(env["JQD_CONFIG"]) if env.get("JQD_CONFIG") else None)
    secrets = {key for key, field in settings(Config) if SECRET in field.metadata}
    merged: dict[str, Any] = {}
    origins: dict[tuple[str, ...], str] = {}
    wrong: list[str] = []
    for source in (
        from_code(defaults or {}),
        from_file(path),
        from_environment(env, secrets),
        from_flags(flags or {}),
    ):
        listed = list(source)
        for setting in listed:
            if setting.value:  # an empty variable removes nothing
                _take_back(merged, EITHER.get(setting.path, ()), origins)
        for setting in listed:
            try:
                _put(merged, setting, origins)
            except ConfigError as error:
                wrong.append(str(error))
    # Made absolute, as the store's server, which the daemon may start, has another working directory.
    data_dir = Path(merged.get("data_dir", Config.__dataclass_fields__["data_dir"].default)).expanduser().absolute()
    merged["data_dir"] = str(data_dir)
    merged.setdefault("journal", {}).setdefault("directory", str(data_dir / "journal"))
    merged.setdefault("store", {}).setdefault("url", "")  # by default the daemon runs its own store
    config = _build(Config, merged, (), origins, wrong)
    if wrong:
        raise ConfigError(wrong[0] if len(wrong) == 1 else "\n- ".join([f"{len(wrong)} settings are wrong:", *wrong]))
    assert isinstance(config, Config)
    set_by = {".".join(place): origin for place, origin in origins.items()}
    return dataclasses.replace(config, manager=_manager(env), origins=set_by)


def settings(kind: Any, above: str = "") -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    """Yield (dotted key, dataclass field) of each setting, without internal ones."""
    hints = get_type_hints(kind, include_extras=True)
    for each in dataclasses.fields(kind):
        if INTERNAL in each.metadata:
            continue
        if dataclasses.is_dataclass(hints[each.name]):
            yield from settings(hints[each.name], f"{above}{each.name}.")
        else:
            yield f"{above}{each.name}", each


def value_of(config: Any, key: str) -> Any:
    """Return the setting with a dotted key; a section for the key of a section, and `config` for an empty key."""
    for name in key.split(".") if key else ():
        config = getattr(config, name)
    return config


def _manager(env: Mapping[str, str]) -> Manager:
    """Return how to notify the service manager, from the environment variables that systemd sets."""
    watchdog, ours = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID") in (None, str(os.getpid()))
    return Manager(env.get("NOTIFY_SOCKET", ""), int(watchdog) / 1e6 if watchdog.isdecimal() and ours else None)


def store_flags(urls: list[str] | None) -> dict[str, Any]:
    """Convert the values of one or more `--store URL` flags to `flags` for `load`."""
    if urls and len(urls) == 1:
        return {"store.url": urls[0]}
    return {"store.urls": urls or None}


def _take_back(merged: dict[str, Any], path: tuple[str, ...], origins: dict[tuple[str, ...], str]) -> None:
    """Remove the value of the setting at `path` from `merged` and `origins`, if an earlier source set it."""
    if origins.pop(path, None) is not None:
        place = merged
        for section in path[:-1]:
            place = place[section]
        del place[path[-1]]


def _put(merged: dict[str, Any], setting: Setting, origins: dict[tuple[str, ...], str]) -> None:
    *sections, key = setting.path
    place, known = merged, _fields(Config)
    for section in sections:
        if not dataclasses.is_dataclass(known.get(section)):
            raise ConfigError(_unknown(setting))
        known = _fields(known[section])
        place = place.setdefault(section, {})
    if key not in known or dataclasses.is_dataclass(known[key]):
        raise ConfigError(_unknown(setting))
    place[key] = setting.value
    origins[setting.path] = setting.origin


def _unknown(setting: Setting) -> str:
    """Return the error message for an unknown setting: where it comes from, and which setting was probably meant."""
    given, known = ".".join(setting.path), [key for key, _ in settings(Config)]
    if any(path.startswith(f"{given}.") for path in known):
        there_are = f"is a section; there are {', '.join(path for path in known if path.startswith(f'{given}.'))}"
        return f"{setting.origin}: {given!r} {there_are}"
    # A key of the same name in another section is likelier than a similar one in this section.
    same = [path for path in known if path.rpartition(".")[2] == setting.path[-1]]
    close = same or difflib.get_close_matches(given, known, n=1) or _close_words(setting.path[-1], known)
    if not close:
        above = given.rpartition(".")[0]
        there = [path for path in known if path.rpartition(".")[0] == above] if above else []
        there = there or sorted({path.partition(".")[0] for path in known})
        return f"{setting.origin}: unknown setting {given!r}; there are {', '.join(there)}"
    from_environment = setting.origin.startswith(PREFIX)
    spelled = [PREFIX + path.upper().replace(".", "__") if from_environment else path for path in close]
    return f"{setting.origin}: unknown setting {given!r}; did you mean {' or '.join(map(repr, spelled))}?"


def _fields(kind: Any) -> dict[str, Any]:
    """Return name → type of the settings in a section, without internal ones."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if INTERNAL not in field.metadata}


def _close_words(word: str, known: Iterable[str]) -> list[str]:
    words = {path.rpartition(".")[2]: path for path in known}
    return [words[name] for name in difflib.get_close_matches(word, words, n=1)]


def _build(
    kind: Any,
    values: Mapping[str, Any],
    path: tuple[str, ...],
    origins: Mapping[tuple[str, ...], str],
    wrong: list[str],
) -> Any:
    """Build the dataclass of a section from its settings. Errors are added to `wrong`, so that all are reported
    together; the function then returns None."""
    hints, before = _fields(kind), len(wrong)
    built = {}
    whole = {field.name: field.metadata.get(SECRET) for field in dataclasses.fields(kind)}
    for name, value in values.items():
        place = (*path, name)
        if dataclasses.is_dataclass(hints[name]):
            built[name] = _build(hints[name], value, place, origins, wrong)
        else:
            try:
                built[name] = read_setting(hints[name], value, name)
            except ValueError as error:
                message = str(error)
                if whole.get(name) == WHOLE and str(value) in message:  # do not show a password of the wrong type
                    message = "is not of the right type: write one text, in quotes"
                wrong.append(f"{origins.get(place, 'default')}: {'.'.join(place)} {message}")
    if len(wrong) > before:
        return None
    try:
        return kind(**built)
    except (ValueError, TypeError, ConfigError) as error:
        section, message = ".".join(path), str(error)
        prefix = "" if message.startswith(section) else f"{section}: "
        wrong.append(f"{prefix}{message}{_named_by(path, message, origins)}")
        return None


def _named_by(path: tuple[str, ...], message: str, origins: Mapping[tuple[str, ...], str]) -> str:
    """Return the end of an error message about a section: which source set each setting that the message mentions."""
    named = [
        f"{'.'.join(place)} from {origin}"
        for place, origin in origins.items()
        if place[: len(path)] == path and place[-1] in message
    ]
    return f" ({', '.join(named)})" if named else ""
