"""What is counted. Worker and pusher share it, so that the pusher can check the worker's answers."""

from pathlib import Path
from typing import TypedDict


class Counts(TypedDict):
    """The result of one job."""

    path: str
    lines: int
    words: int
    bytes: int


def count(path: Path) -> Counts:
    """Lines, words and bytes of a file, as `wc` counts them."""
    content = path.read_bytes()
    return Counts(path=str(path), lines=content.count(b"\n"), words=len(content.split()), bytes=len(content))
