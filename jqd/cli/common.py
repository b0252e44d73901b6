"""Options that several commands share, and checks of their values."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from cyclopts import Parameter

from jqd.cli.exits import Usage
from jqd.cli.render import Output
from jqd.client import Client, daemon_urls
from jqd.client.environ import daemon_token
from jqd.domain.errors import ConfigError
from jqd.domain.job_spec import DURATIONS, FIELDS, SEVERAL, SWITCHES, JobOptions, help_of
from jqd.domain.units import has_unit, seconds


def set_log(level: str, form: Any) -> None:
    """Set the log's format and level for this process. Raises Usage for an unknown level."""
    from jqd.domain import log  # here: most commands log nothing, and a push should start quickly

    try:
        log.configure(level=level, form=form)
    except ValueError as error:
        raise Usage(str(error)) from error


T = TypeVar("T")
Flag = Annotated[bool, Parameter(negative="", show_default=False)]
OutputFlag = Annotated[Output, Parameter(alias="-o", help="Output format.")]
ConfigFile = Annotated[Path | None, Parameter(help="TOML file with settings. Default: the file that JQD_CONFIG names.")]
DataDir = Annotated[
    Path | None,
    Parameter(help="Data directory of the daemon. Default ./.jqd, or what the configuration says."),
]
StoreUrls = Annotated[
    list[str] | None,
    Parameter(
        negative="",
        help="redis://, rediss:// or unix:// URL of the store; may be given several times. Default: the store that"
        " `jqd serve` would use.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """Options of every command that talks to a daemon."""

    output: OutputFlag = "table"
    url: Annotated[str | None, Parameter(env_var="JQD_URL")] = None
    """URL of the daemon, or of several daemons of one store with commas between. Default http://127.0.0.1:7420."""
    token: Annotated[str | None, Parameter(env_var="JQD_TOKEN", show_default=False)] = None
    """API token."""
    tenant: Annotated[str | None, Parameter(env_var="JQD_TENANT", show_default=False)] = None
    """Tenant to act for, if the token is for all tenants."""

    @property
    def has_token(self) -> bool:
        return bool(self.token or daemon_token())

    def client(self) -> Client:
        with worded():
            return Client(self.url or daemon_urls(), token=self.token or daemon_token(), tenant=self.tenant)


@contextmanager
def worded() -> Iterator[None]:
    """Turn a ConfigError that the block raises into Usage: an option of the command has an impossible value."""
    try:
        yield
    except ConfigError as error:
        raise Usage(str(error)) from error


def duration(text: str, flag: str) -> float:
    """Return the seconds of a duration like 90, 30s, 5m, 2h or 1d. Raises Usage, which names the flag."""
    try:
        return seconds(text)
    except ValueError:
        raise Usage(f"{flag} {text} is no duration; write 90, 30s, 5m, 2h or 1d") from None


def waits(text: str, flag: str) -> float | list[float]:
    """Return the seconds of a duration; of several durations with commas between them, a list. Raises Usage, which
    names the flag."""
    found = [duration(part, flag) for part in text.split(",") if part.strip()]
    return found if "," in text else duration(text, flag)


def _with_flags(options: type[T]) -> type[T]:
    for field in msgspec.structs.fields(JobOptions):
        kind = str if field.name in DURATIONS else int if field.name not in SWITCHES else bool
        flag = Parameter(
            help=help_of(field), allow_leading_hyphen=field.name in DURATIONS, negative="" if kind is bool else None
        )
        options.__annotations__[field.name] = Annotated[kind | None, flag]
        setattr(options, field.name, None)
    return options


@Parameter(name="*")
@dataclass(frozen=True)
@_with_flags
class Options:
    """Options of a pushed job, or of a schedule's job: all fields of `JobOptions`, `--text` and `--tag`."""

    text: Flag = False
    """Take the argument (with --lines: each line) as a string, even if it looks like JSON."""
    tag: Annotated[list[str] | None, Parameter(negative="")] = None
    """A tag by which `jqd jobs --tag` finds the job; may be given several times."""

    def given(self) -> dict[str, Any]:
        """Return the options as keyword arguments of the client. Raises Usage."""
        return {name: self._option(name) for name in FIELDS} | {"tags": self.tag}

    def _option(self, name: str) -> Any:
        value, flag = getattr(self, name), f"--{name.replace('_', '-')}"
        if value is None or name not in DURATIONS:
            return value
        return waits(value, flag) if name in SEVERAL else duration(value, flag)


def age(text: str, flag: str) -> float:
    """Return the seconds of a duration that must have a unit: commands that delete jobs must not guess whether 7 means
    days. Raises Usage."""
    found = duration(text, flag)
    if not has_unit(text):
        raise Usage(f"{flag} {text} has no unit: {text}d is days, {text}h hours, {text}m minutes, {text}s seconds")
    return found


def checked_id(job_id: str) -> str:
    """Check that the id of a job is not empty; return it. Raises Usage."""
    if not job_id:
        raise Usage("the id of the job is empty")
    return job_id
