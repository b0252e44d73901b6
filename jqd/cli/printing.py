"""Writes text for people. Control characters are escaped, so that a job's name cannot send commands to the terminal."""

import sys

from jqd.domain.visible import CONTROLS


def counted(number: int, what: str) -> str:
    """Return a number of things in words: 1 job, 2 jobs."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def print_note(text: str, *, end: str = "\n") -> None:
    """Print a note for people on stderr."""
    print(f"jqd: {text}".translate(CONTROLS), end=end, file=sys.stderr, flush=True)


def print_line(line: str) -> None:
    """Print a line for people on stdout."""
    print(line.translate(CONTROLS))
