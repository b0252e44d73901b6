"""Exit codes (`interfaces.md` 1), and which error ends with which."""

import enum

from jqd.client import JqdClientError, NotFound, TimedOut, Unreachable


class Exit(enum.IntEnum):
    """What a script may rely on."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    TIMED_OUT = 5


def exit_of(error: JqdClientError) -> Exit:
    """The code for what a daemon answered, or did not."""
    match error:
        case NotFound():
            return Exit.NOT_FOUND
        case Unreachable():
            return Exit.UNREACHABLE
        case TimedOut():
            return Exit.TIMED_OUT
    return Exit.FAILED
