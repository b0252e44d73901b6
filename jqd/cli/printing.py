"""Writes text for people. Control characters are escaped, so that a job's name cannot send commands to the terminal."""

import sys

from jqd.domain.visible import CONTROLS


def print_note(text: str, *, end: str = "\n") -> None:
    """Print a note for people on stderr."""
    print(f"jqd: {text}".translate(CONTROLS), end=end, file=sys.stderr, flush=True)


def print_line(line: str) -> None:
    """Print a line for people on stdout."""
    print(line.translate(CONTROLS))
