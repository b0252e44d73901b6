"""What the commands that ask a daemon have in common."""

import re
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from jqd.cli.exits import Usage
from jqd.cli.render import Output
from jqd.client import Client, daemon_url
from jqd.words.errors import ConfigError

# Not config's: importing the daemon's configuration takes several times as long as a push.
DURATION_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """Options of every command that talks to a daemon."""

    output: Annotated[Output, Parameter(alias="-o")] = "table"
    """table, json or jsonl."""
    url: Annotated[str | None, Parameter(env_var="JQD_URL")] = None
    """URL of the daemon. Default http://127.0.0.1:7420."""
    token: Annotated[str | None, Parameter(env_var="JQD_TOKEN", show_default=False)] = None
    """Bearer token."""

    def client(self) -> Client:
        """A client for that daemon. Raises Usage for a URL that is none."""
        try:
            return Client(self.url or daemon_url(), token=self.token or None)
        except ConfigError as error:
            raise Usage(str(error)) from error


def duration(text: str | None, flag: str) -> float | None:
    """Seconds of 90, 30s, 5m, 2h, 1d; None stays None. Raises Usage."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]*)", text, re.ASCII)
    if match is None or match[2] not in DURATION_S:
        raise Usage(f"{flag} {text} is no duration; write 90, 30s, 5m, 2h or 1d")
    return float(match[1]) * DURATION_S[match[2]]


def age(text: str, flag: str) -> float:
    """A duration with its unit. Raises Usage: what deletes jobs does not guess whether 7 was meant as days."""
    if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII):
        raise Usage(f"{flag} {text} has no unit: {text}d is days, {text}h hours, {text}m minutes, {text}s seconds")
    seconds = duration(text, flag)
    assert seconds is not None, "a duration that is given has a meaning"
    return seconds


def checked_id(job_id: str) -> str:
    """The id, if it is one. Raises Usage."""
    if not job_id:
        raise Usage("the id of the job is empty")
    return job_id
