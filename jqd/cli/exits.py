"""Exit codes, and which error leads to which."""

import enum
import re

from jqd.client import Forbidden, Invalid, NotFound, PartlyPushed, TimedOut, Unavailable, Unreachable
from jqd.domain.errors import ConfigError, JqdError, StoreAway

_OF_THE_TOKEN = re.compile("this token is (of the role|for|not for) ")  # what it may; other refusals say what to do


class Exit(enum.IntEnum):
    """Exit codes that scripts may rely on."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    """The daemon, or the store: the command asked it itself, or the daemon says that it cannot answer without (503)."""
    TIMED_OUT = 5
    INTERRUPTED = 130
    """By Ctrl-C, as shells say it. A daemon or a worker that Ctrl-C stopped in order is DONE."""


class Usage(ConfigError):
    """The words of the command, or a setting, make no sense. Nothing was done; the user mends them."""


def exit_of(error: JqdError) -> Exit:
    match error:
        case Usage() | Invalid():  # a value that the daemon refuses is a mistake in the words, too
            return Exit.USAGE
        case NotFound():
            return Exit.NOT_FOUND
        case Unreachable() | StoreAway() | Unavailable(status=503):
            return Exit.UNREACHABLE
        case TimedOut():
            return Exit.TIMED_OUT
        case PartlyPushed() if isinstance(error.__cause__, JqdError):
            return exit_of(error.__cause__)  # why the rest was not pushed
    return Exit.FAILED


def advice_of(error: JqdError) -> str:
    """Return what to do about what a daemon refused, where its own words are for any client. Empty: they say it."""
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
