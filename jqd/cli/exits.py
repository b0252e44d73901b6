"""Exit codes of the command line, and for each error its exit code and advice."""

import enum
import re

from jqd.client import Forbidden, Invalid, NotFound, PartlyPushed, TimedOut, Unavailable, Unreachable
from jqd.domain.errors import ConfigError, JqdError, StoreAway

_OF_THE_TOKEN = re.compile("this token is (of the role|for|not for) ")  # refusals for which another token helps


class Exit(enum.IntEnum):
    """Exit codes of all commands. Scripts may rely on them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    """The daemon or the store did not answer, or the daemon answered 503 because it needs the store."""
    TIMED_OUT = 5
    INTERRUPTED = 130
    """Ctrl-C interrupted the command; shells use the same code. A daemon or worker that stops in order at Ctrl-C ends
    with DONE."""


class Usage(ConfigError):
    """Raised for an argument or a setting that makes no sense. Nothing was done; the user has to correct it."""


def exit_of(error: JqdError) -> Exit:
    match error:
        case Usage() | Invalid():  # a value that the daemon refuses is a wrong argument, too
            return Exit.USAGE
        case NotFound():
            return Exit.NOT_FOUND
        case Unreachable() | StoreAway() | Unavailable(status=503):
            return Exit.UNREACHABLE
        case TimedOut():
            return Exit.TIMED_OUT
        case PartlyPushed() if isinstance(error.__cause__, JqdError):
            return exit_of(error.__cause__)  # the reason why the rest was not pushed
    return Exit.FAILED


def advice_of(error: JqdError) -> str:
    """Return what a user of the command line can do about an error; empty if its message says so already."""
    if isinstance(error, PartlyPushed) and isinstance(error.__cause__, JqdError):
        return advice_of(error.__cause__)
    match error:
        case Forbidden(status=401):
            return "a token is taken from --token, JQD_TOKEN or the file that JQD_TOKEN_FILE names"
        case Forbidden() if _OF_THE_TOKEN.match(str(error)):
            return (
                "`jqd tokens create ROLE` makes one that may, with a master's token (docs/operate/SECURITY.md, Roles)"
            )
        case Unavailable(status=503) if "try again" not in str(error):
            return "`jqd status` says what is wrong, and what goes on meanwhile"
    return ""
