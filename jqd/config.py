"""Settings: defaults < TOML file < JQD_SECTION__KEY in the environment < flags → one frozen `Config`.

The only place that reads the environment. Each component's own frozen dataclass stands beside the component; this file
only fills them. A key nobody knows is an error that names it, where it came from, and what was probably meant.
"""

import dataclasses
import difflib
import os
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from jqd.api import ApiConfig
from jqd.backoff import Backoff
from jqd.errors import ConfigError
from jqd.journal import JournalConfig
from jqd.lease import LeaseConfig
from jqd.runner import RunnerConfig
from jqd.store import StoreConfig

PREFIX = "JQD_"
DURATION_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
SIZE_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}
# Read by other commands (`interfaces.md` 1), not part of the daemon's configuration.
OTHERS = frozenset({"JQD_URL", "JQD_TOKEN", "JQD_CONFIG", "JQD_WORKER_PRIORITY_MIN", "JQD_WORKER_PRIORITY_MAX"})
OTHERS_PREFIX = "JQD_TEST_"
LOOPBACK = ("127.", "localhost:", "[::1]:")


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """Where pushers and workers reach this daemon."""

    bind: str = "127.0.0.1:7420"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What is logged, and how."""

    level: str = "info"
    form: str = "auto"
    """`console`, `json`, or `auto`: console on a terminal."""
    job_log: str = ""
    """Path of the job log: one JSON line per job and event. Empty: off."""

    def __post_init__(self) -> None:
        if self.level not in ("debug", "info", "warning", "error"):
            raise ValueError(f"level is debug, info, warning or error, not {self.level!r}")
        if self.form not in ("auto", "console", "json"):
            raise ValueError(f"form is auto, console or json, not {self.form!r}")


@dataclass(frozen=True, slots=True)
class Config:
    """Everything a daemon is told."""

    data_dir: Path = Path(".jqd")
    drain_s: float = 25.0
    """Seconds a stop may take: below the 30 s after which common service managers kill."""
    insecure: bool = False
    """Listen on other addresses than loopback although nobody is asked who they are."""
    http: HttpConfig = field(default_factory=HttpConfig)
    journal: JournalConfig = field(default_factory=lambda: JournalConfig(directory=Path(".jqd/journal")))
    store: StoreConfig = field(default_factory=lambda: StoreConfig(url=""))
    runner: RunnerConfig = field(default_factory=RunnerConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
    lease: LeaseConfig = field(default_factory=LeaseConfig)
    retry: Backoff = field(default_factory=Backoff)
    log: LogConfig = field(default_factory=LogConfig)

    def __post_init__(self) -> None:
        if not 1 <= self.drain_s <= 86_400:
            raise ValueError(f"drain_s is 1 second to 1 day, not {self.drain_s}")
        if not self.http.bind.startswith(LOOPBACK) and not self.insecure:
            raise ValueError(
                f"http.bind = {self.http.bind} can be reached from other machines, and jqd does not ask yet who is "
                "there. Bind to 127.0.0.1 behind a proxy that does, or say --insecure"
            )


@dataclass(frozen=True, slots=True)
class Setting:
    """One value from somewhere: `path` as in ("store", "url"), `origin` for messages."""

    path: tuple[str, ...]
    value: Any
    origin: str


def load(
    *, file: Path | None = None, environ: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Config:
    """Fill a Config. `flags`: dotted key → value, None for a flag that was not given. Raises ConfigError."""
    env = os.environ if environ is None else environ
    path = file or (Path(env["JQD_CONFIG"]) if env.get("JQD_CONFIG") else None)
    settings = [*_from_file(path), *_from_environment(env)]
    for key, value in (flags or {}).items():
        if value is not None:
            settings.append(Setting(tuple(key.split(".")), value, f"--{key.split('.')[-1].replace('_', '-')}"))
    merged: dict[str, Any] = {}
    origins: dict[tuple[str, ...], str] = {}
    for setting in settings:
        _put(merged, setting, origins)
    # Absolute from here on: what we start (the store's server) stands elsewhere.
    data_dir = Path(merged.get("data_dir", Config.__dataclass_fields__["data_dir"].default)).expanduser().absolute()
    merged["data_dir"] = str(data_dir)
    merged.setdefault("journal", {}).setdefault("directory", str(data_dir / "journal"))
    merged.setdefault("store", {}).setdefault("url", "")  # none named: one of our own in the data directory
    config = _build(Config, merged, (), origins)
    assert isinstance(config, Config)
    return config


def environment(name: str) -> str | None:
    """One of the variables that commands other than the daemon's read."""
    assert name in OTHERS, name
    return os.environ.get(name) or None


def child_environment() -> dict[str, str]:
    """What a child process of ours is started with."""
    return dict(os.environ)


def _from_file(path: Path | None) -> Iterator[Setting]:
    if path is None:
        return
    try:
        tree = msgspec.toml.decode(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"the configuration file {path} cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigError(f"{path} is no TOML: {error}") from error
    yield from _walk(tree, (), str(path))


def _walk(tree: Mapping[str, Any], path: tuple[str, ...], origin: str) -> Iterator[Setting]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _walk(value, (*path, key), origin)
        else:
            yield Setting((*path, key), value, origin)


def _from_environment(environ: Mapping[str, str]) -> Iterator[Setting]:
    for name, value in sorted(environ.items()):
        if name.startswith(PREFIX) and name not in OTHERS and not name.startswith(OTHERS_PREFIX):
            yield Setting(tuple(name[len(PREFIX) :].lower().split("__")), value, name)


def _put(merged: dict[str, Any], setting: Setting, origins: dict[tuple[str, ...], str]) -> None:
    *sections, key = setting.path
    place, known = merged, Config
    for section in sections:
        known = _section(known, section, setting)
        place = place.setdefault(section, {})
    hints = get_type_hints(known)
    if key not in hints or dataclasses.is_dataclass(hints[key]):
        raise ConfigError(_unknown(setting, key, list(hints)))
    place[key] = setting.value
    origins[setting.path] = setting.origin


def _section(known: Any, name: str, setting: Setting) -> Any:
    hints = get_type_hints(known)
    sections = [key for key, hint in hints.items() if dataclasses.is_dataclass(hint)]
    if name not in sections:
        raise ConfigError(_unknown(setting, name, sections))
    return hints[name]


def _unknown(setting: Setting, key: str, names: list[str]) -> str:
    close = difflib.get_close_matches(key, names, n=1)
    meant = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(names)}"
    return f"{setting.origin}: unknown setting {'.'.join(setting.path)!r}{meant}"


def _build(kind: Any, values: Mapping[str, Any], path: tuple[str, ...], origins: Mapping[tuple[str, ...], str]) -> Any:
    hints = get_type_hints(kind)
    built = {}
    for name, value in values.items():
        place = (*path, name)
        if dataclasses.is_dataclass(hints[name]):
            built[name] = _build(hints[name], value, place, origins)
        else:
            built[name] = _convert(hints[name], value, place, origins.get(place, "default"))
    try:
        return kind(**built)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{'.'.join(path) or 'configuration'}: {error}") from error


def _convert(hint: Any, value: Any, path: tuple[str, ...], origin: str) -> Any:
    name = path[-1]
    if get_origin(hint) in (Union, types.UnionType):
        if value is None or value == "":
            return None
        hint = next(kind for kind in get_args(hint) if kind is not type(None))
    try:
        if hint is bool:
            return _bool(value)
        if hint is Path:
            return Path(str(value)).expanduser()
        if hint in (int, float):
            number = _number(value, name)
            if hint is int and number != int(number):
                raise ValueError("not a whole number")
            return hint(number)
        if not isinstance(value, str):
            raise ValueError("not a text")
        return value
    except (ValueError, OverflowError) as error:
        wanted = getattr(hint, "__name__", str(hint))
        raise ConfigError(f"{origin}: {'.'.join(path)} = {value!r} is no {wanted}: {error}") from error


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("1", "true", "yes", "on"):
        return True
    if str(value).lower() in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("say true or false")


def _number(value: Any, name: str) -> float:
    """A number, or for `*_s` a duration like 5m, for `*_bytes` a size like 64MiB."""
    if isinstance(value, bool):
        raise ValueError("a truth value is no number")
    if isinstance(value, (int, float)):
        return value
    match = re.fullmatch(r"\s*([+-]?[0-9][0-9_]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*([A-Za-z]*)\s*", str(value))
    if match is None:
        raise ValueError("not a number")
    number, unit = float(match.group(1).replace("_", "")), match.group(2)
    if not unit:
        return number
    units: Mapping[str, float] = SIZE_BYTES if "_bytes" in name else DURATION_S if re.search(r"_s(_|$)", name) else {}
    if unit not in units:
        raise ValueError(f"unknown unit {unit!r}" + (f"; there are {', '.join(units)}" if units else ""))
    return number * units[unit]
