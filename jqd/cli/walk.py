"""Says on a terminal how far a list was looked for that takes several answers, in a line that goes away."""

import sys

CLEAR = "\x1b[2K"  # the present line of a terminal


def looked_at(far: int, of: int | None) -> None:
    over_line(f"jqd: looked at {far} of {of or 'all'} jobs")


def over_line(text: str) -> None:
    """Print over the present line of a terminal, on stderr; nothing elsewhere."""
    if sys.stderr.isatty():
        print(f"{CLEAR}{text}", end="\r", file=sys.stderr, flush=True)
