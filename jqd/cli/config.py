"""`jqd config`: shows the settings that a daemon would have here, and checks whether it could start with them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
import trio
from cyclopts import Parameter

from jqd.cli.common import ConfigFile, Flag, OutputFlag, worded
from jqd.cli.exits import Exit
from jqd.cli.printing import print_note
from jqd.cli.render import console, table
from jqd.cli.render import show as show_answer
from jqd.config import Config, HttpConfig, load, settings, store_flags, value_of
from jqd.domain.descriptors import open_files_max, share_out
from jqd.domain.errors import ConfigError
from jqd.domain.setting_text import SECRET, masked, text_of, unit
from jqd.http import tls_context
from jqd.reload import reloads
from jqd.store import StoreConfig, open_store


def daemon_settings(file: Path | None, stores: list[str] | None, data_dir: Path | None) -> Config:
    """Load the settings that a daemon started here with these flags would have. Settings without tokens are accepted,
    as nothing is served. Raises Usage."""
    with worded():
        return load(file=file, flags={**store_flags(stores), "data_dir": data_dir})


# The shipped copy of docs/operate/SETTINGS.md, the only place that explains the settings.
PAGE = "settings.md"
_ROW = re.compile(r"^`([a-z_.]+)`\| (?:none|`[^`]*`)\| (?P<allowed>.*?)\| (?P<why>.*)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


class SettingOrigin(msgspec.Struct):
    """A setting, where its value was set, and what it is for."""

    setting: str
    value: Any
    unit: str
    """Unit of a number: s, ms, bytes; empty: none."""
    default: Any
    origin: str
    """Where the value was set: the file, environment variable or flag; `default` if nowhere."""
    reloads: bool
    """Whether SIGHUP applies a new value; otherwise the daemon has to be restarted."""
    allowed: str
    why: str


@Parameter(name="*")
@dataclass(frozen=True)
class GivenSettings:
    config: ConfigFile = None
    store: Annotated[list[str] | None, Parameter(negative="")] = None
    """URL of the store, as for `jqd serve`."""
    bind: str | None = None
    """HOST:PORT to listen on, as for `jqd serve`."""
    data_dir: Path | None = None
    """Data directory, as for `jqd serve`."""
    insecure: Annotated[bool | None, Parameter(negative="")] = None
    """As for `jqd serve`: listen on another address than loopback although no token is required."""

    def load(self) -> Config:
        flags = {"http.bind": self.bind, "data_dir": self.data_dir, "insecure": self.insecure}
        return load(file=self.config, flags={**flags, **store_flags(self.store)})


def show(
    *,
    origin: Flag = False,
    changed: Flag = False,
    given: GivenSettings | None = None,
    output: OutputFlag = "table",
) -> int:
    """Show every setting with its unit and what it is for, as a daemon started here would have it.

    Values that may be passwords are not shown.

    Parameters
    ----------
    origin
        Also show where each setting was set: the file, the environment variable, the flag, or `default`.
    changed
        Show only settings that the file, the environment or a flag sets.
    """
    with worded():
        config = (given or GivenSettings()).load()
    rows = [row for row in _rows(config) if not changed or row.origin != "default"]
    if output != "table":
        show_answer(rows, output)
        return Exit.DONE
    headings = ("SETTING", "VALUE", *(("ORIGIN",) if origin else ()), "WHAT FOR")
    cells = [(row.setting, _words(row), *((row.origin,) if origin else ()), row.why) for row in rows]
    marked = {number: "bold" for number, row in enumerate(rows) if row.origin != "default"}
    console().print(table(headings, cells, marked), end="")
    return Exit.DONE


def check(*, given: GivenSettings | None = None) -> int:
    """Say whether a daemon could start with this configuration; `jqd doctor` looks at its store and its disk.

    Ends with 0 if it could, with 1 if something is wrong: an unknown key, an invalid value, values that contradict
    each other, a file that cannot be read, an invalid certificate. Warns of limits that cannot all be reached.
    """
    try:
        config = (given or GivenSettings()).load()
        incoming = share_out(open_files_max(), partitions=len(config.store.parts())).incoming
        trio.run(_open, config.store)
        if config.http.certificate:
            tls_context(*config.http.certificate, config.http.tls_clients)
    except ConfigError as error:
        print_note(str(error))
        return Exit.FAILED
    places = sorted(set(config.origins.values()))
    text = f"{len(config.origins)} settings said by {', '.join(places)}" if places else "all settings are the defaults"
    doubts = [*_doubts(config.http, incoming)]
    for doubt in doubts:
        print_note(doubt)
    with_these = ", with these warnings" if doubts else ""
    print_note(f"a daemon could start with this{with_these}: {text}")
    return Exit.DONE


async def _open(config: StoreConfig) -> None:
    """Make the objects for the store without connecting, to check its URLs. Raises ConfigError."""
    for part in config.parts():
        if part.url:
            async with open_store(part):
                continue


def _doubts(http: HttpConfig, incoming: int) -> Iterator[str]:
    most, of_one = http.connections_max, http.address_connections_max
    if most is not None and most > incoming:
        yield (
            f"http.connections_max is {most}, and there may be {incoming}: so many the limit of open files leaves for"
            " them here; raise that (ulimit -n, LimitNOFILE=)"
        )
    total = min(most or incoming, incoming)
    if of_one is not None and of_one > total:
        yield (
            f"http.address_connections_max is {of_one}, and there may be {total} connections in all: one address may"
            " have every one of them, and none is kept for others"
        )


def _rows(config: Config) -> list[SettingOrigin]:
    page, default = _page(), Config()
    rows = []
    for key, field in settings(Config):
        section, _, name = key.rpartition(".")
        value, usual = value_of(config, key), value_of(default, key)
        if SECRET in field.metadata:
            value, usual = masked(value, field.metadata[SECRET]), masked(usual, field.metadata[SECRET])
        hint = get_type_hints(type(value_of(default, section)), include_extras=True)[name]
        origin, about = config.origins.get(key, "default"), page.get(key, ("", ""))
        rows.append(SettingOrigin(key, _plain(value), unit(hint, name), _plain(usual), origin, reloads(key), *about))
    return rows


def _words(row: SettingOrigin) -> str:
    return text_of(tuple(row.value) if isinstance(row.value, list) else row.value, row.setting)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value


@cache
def _page() -> Mapping[str, tuple[str, str]]:
    text = (files("jqd") / PAGE).read_text()
    return {row[1]: (_bare(row["allowed"]), _bare(row["why"])) for row in _ROW.finditer(text)}


def _bare(text: str) -> str:
    return _LINK.sub(r"\1", text).replace("`", "").replace("**", "")
