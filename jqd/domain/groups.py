"""Cuts a sequence into groups for one call, request or frame each."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def in_groups(items: Iterable[T], size_bytes: Callable[[T], int], items_max: int, bytes_max: int) -> Iterator[list[T]]:
    """Yield neighbouring items in lists of at most `items_max` items and `bytes_max` bytes. A larger item gets a list
    to itself."""
    group: list[T] = []
    group_bytes = 0
    for item in items:
        size = size_bytes(item)
        if group and (len(group) == items_max or group_bytes + size > bytes_max):
            yield group
            group, group_bytes = [], 0
        group.append(item)
        group_bytes += size
    if group:
        yield group
