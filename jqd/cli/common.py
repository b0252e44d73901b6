"""What the commands that ask a daemon have in common."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from jqd.cli.exits import Usage
from jqd.cli.render import Output
from jqd.client import Client, daemon_urls
from jqd.client.environ import daemon_token
from jqd.words.errors import ConfigError
from jqd.words.units import has_unit, seconds


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
