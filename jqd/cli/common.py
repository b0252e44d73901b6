"""What the commands that ask a daemon have in common."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from jqd.cli.exits import Usage
from jqd.cli.render import Output
from jqd.client import Client, daemon_urls
from jqd.client.environ import daemon_token
from jqd.domain.errors import ConfigError
from jqd.domain.units import has_unit, seconds


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """Options of every command that talks to a daemon."""

    output: Annotated[Output, Parameter(alias="-o")] = "table"
    """table, json or jsonl."""
    url: Annotated[str | None, Parameter(env_var="JQD_URL")] = None
    """URL of the daemon; of several daemons of one store, with commas between them. Default http://127.0.0.1:7420."""
    token: Annotated[str | None, Parameter(env_var="JQD_TOKEN", show_default=False)] = None
    """Bearer token."""
    tenant: Annotated[str | None, Parameter(env_var="JQD_TENANT", show_default=False)] = None
    """Whom to speak for, with a token that is for all tenants."""

    @property
    def has_token(self) -> bool:
        """Whether a token goes along."""
        return bool(self.token or daemon_token())

    def client(self) -> Client:
        """A client for that daemon. Raises Usage for a wrong URL."""
        with worded():
            return Client(self.url or daemon_urls(), token=self.token or daemon_token(), tenant=self.tenant)


@contextmanager
def worded() -> Iterator[None]:
    """A setting that cannot be is a mistake in the words of the command. Raises Usage for ConfigError."""
    try:
        yield
    except ConfigError as error:
        raise Usage(str(error)) from error


def duration(text: str, flag: str) -> float:
    """Seconds of 90, 30s, 5m, 2h, 1d. Raises Usage."""
    try:
        return seconds(text)
    except ValueError:
        raise Usage(f"{flag} {text} is no duration; write 90, 30s, 5m, 2h or 1d") from None


def waits(text: str) -> float | list[float]:
    """Of `--backoff`: one wait, or with a comma all of them. Raises Usage."""
    found = [duration(part, "--backoff") for part in text.split(",") if part.strip()]
    return found if "," in text else duration(text, "--backoff")


@Parameter(name="*")
@dataclass(frozen=True)
class Options:
    """What a job is pushed with, now or at dates."""

    text: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Take the argument, or each line, as a string, also when it looks like JSON."""
    priority: int | None = None
    """Smaller runs first."""
    max_retry: int | None = None
    """Attempts after the first."""
    timeout: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    """Time one attempt may take: 90, 30s, 5m, 2h."""
    backoff: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    """Wait after the first failed attempt, growing from there: 10s; or all waits, the last one stays: 10s,1m,10m."""
    keep_result: Annotated[bool | None, Parameter(negative="")] = None
    """Keep what the worker returns for an hour; push with --wait or --result does so by itself."""
    tag: Annotated[list[str] | None, Parameter(negative="")] = None
    """A word to find it by, as `jobs --tag` does; may be given several times."""

    def said(self) -> dict[str, Any]:
        """As the client takes it. Raises Usage."""
        return {
            "priority": self.priority,
            "max_retry": self.max_retry,
            "timeout": None if self.timeout is None else duration(self.timeout, "--timeout"),
            "backoff": None if self.backoff is None else waits(self.backoff),
            "keep_result": self.keep_result,
            "tags": self.tag,
        }


def age(text: str, flag: str) -> float:
    """A duration with its unit. Raises Usage: a command that deletes jobs does not guess whether 7 means days."""
    found = duration(text, flag)
    if not has_unit(text):
        raise Usage(f"{flag} {text} has no unit: {text}d is days, {text}h hours, {text}m minutes, {text}s seconds")
    return found


def checked_id(job_id: str) -> str:
    """The id, if it is one. Raises Usage."""
    if not job_id:
        raise Usage("the id of the job is empty")
    return job_id
