"""The base class of the store's methods: how they call functions in Lua, and read the answers."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from jqd.domain.log import get_logger
from jqd.store import codec
from jqd.store.config import StoreConfig
from jqd.store.keys import Keys
from jqd.store.scripts import ScriptCaller
from jqd.store.types import CALL_JOBS_MAX
from jqd.store.unreadable import UnreadableJobs

STEP_JOBS = 500  # jobs in each call of a method that splits its arguments into several calls
BYTES_MAX = 4 << 20  # of rows that one function reads to move jobs: some milliseconds of copying

T = TypeVar("T")


class ScriptMethods:
    """Base of the classes that make up `Store`. Each method calls the Lua function of its own name
    (docs/build/STORE.md)."""

    def __init__(self, config: StoreConfig, keys: Keys, caller: ScriptCaller, heart: ScriptCaller) -> None:
        """Keep the connections. `caller` makes all calls but heartbeats, which `heart` makes."""
        self._config, self._keys, self._caller, self._heart = config, keys, caller, heart
        self.burial = UnreadableJobs(keys, caller)
        self.journals: set[int] = set()  # numbers of the journals that this process applies
        self._log = get_logger("store")

    # These check a part of an answer. `name`: the key that it was read from, for the message. All raise Unreadable.

    def _list(self, name: str, answer: object) -> list[object]:
        return codec.list_of(self._keys, name, answer)

    def _rows(self, name: str, answer: object, count: int) -> Iterable[tuple[object, ...]]:
        return in_rows(self._list(name, answer), count)

    def _text(self, name: str, value: object) -> str:
        return codec.text(self._keys, name, value)

    def _texts(self, name: str, answer: object) -> list[str]:
        return [self._text(name, one) for one in self._list(name, answer)]

    async def _move(self, name: str, *arguments: Any) -> int | None:
        """Call a function that applies records and moves a lane's position; return its answer, a number. None: the
        records were applied before."""
        answer = await self._caller.call_behind(name, *arguments)
        return None if answer is None else self._whole("applied", answer)

    def _whole(self, name: str, value: object) -> int:
        return codec.whole(self._keys, name, value)

    def _wholes(self, name: str, answer: object) -> list[int]:
        return [self._whole(name, one) for one in self._list(name, answer)]


def in_rows(flat: Sequence[T], count: int) -> Iterable[tuple[T, ...]]:
    """Split a flat answer into rows of `count` values. Raises ValueError if values are left over."""
    return zip(*(flat[at::count] for at in range(count)), strict=True)


def bound(records: Sequence[object]) -> None:
    """Raise ValueError if `records` are more than one call may have."""
    if len(records) > CALL_JOBS_MAX:
        raise ValueError(f"{len(records)} records in one call; {CALL_JOBS_MAX} at most, or the server stands still")


def in_steps(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
