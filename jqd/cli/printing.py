"""What commands say to people: names in it may be anybody's words, and command no terminal."""

import sys

from jqd.domain.visible import CONTROLS


def print_note(text: str, *, end: str = "\n") -> None:
    """Say a line on stderr, beside what is printed."""
    print(f"jqd: {text}".translate(CONTROLS), end=end, file=sys.stderr, flush=True)


def print_line(line: str) -> None:
    """Print a line for people on stdout."""
    print(line.translate(CONTROLS))
