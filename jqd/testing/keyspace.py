"""The data of a Redis server in plain Python, with only those commands that jqd's Lua functions use.

Keys, fields and values are bytes. A hash is a dict, a list a list, a string bytes, a sorted set a `SortedSet`. A value
that becomes empty is deleted, as on the server. An argument may be a number: it is stored as the server writes it.
"""

import operator
import random
import zlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping
from typing import Any

Text = bytes | int | float
Value = Any  # dict[bytes, bytes] | list[bytes] | bytes | SortedSet

TYPES: dict[type, bytes] = {dict: b"hash", list: b"list", bytes: b"string"}
_score = operator.itemgetter(0)
NOTHING: dict[bytes, bytes] = {}
WHOLE_MAX = 2.0**63  # from here on the server writes numbers with an exponent


class WrongType(Exception):
    """The error WRONGTYPE of the server: the value of the key has another type than the command needs."""


class NoSuchKey(Exception):
    """The error of the server for a command on a key that does not exist."""


class SortedSet:
    """A sorted set: members in order of their scores. Members with equal scores are in the order of their bytes."""

    __slots__ = ("rows", "scores")

    def __init__(self) -> None:
        self.scores: dict[bytes, float] = {}
        self.rows: list[tuple[float, bytes]] = []

    def put(self, member: bytes, score: float) -> None:
        """Add a member, or change its score."""
        before = self.scores.get(member)
        if before is not None:
            if before == score:
                return
            del self.rows[bisect_left(self.rows, (before, member))]
        self.scores[member] = score
        insort(self.rows, (score, member))

    def drop(self, member: bytes) -> bool:
        """Remove a member. Returns whether the set had it."""
        score = self.scores.pop(member, None)
        if score is None:
            return False
        del self.rows[bisect_left(self.rows, (score, member))]
        return True

    def between(self, low: Text, high: Text) -> tuple[int, int]:
        """Return (start, stop), the slice of `rows` that has the scores from `low` to `high`. A bound that begins with
        "(" is excluded."""
        return self._edge(low, after=False), self._edge(high, after=True)

    def _edge(self, bound: Text, *, after: bool) -> int:
        if isinstance(bound, bytes) and bound[:1] == b"(":
            after, bound = not after, bound[1:]
        find = bisect_right if after else bisect_left
        return find(self.rows, float(bound), key=_score)

    def copy(self) -> "SortedSet":
        """Return a copy that shares nothing with this set."""
        one = SortedSet()
        one.scores, one.rows = self.scores.copy(), self.rows.copy()
        return one


class Keyspace:
    """All keys of one server. Each command is a method with its name, which returns the answer of the command; False
    stands for nil."""

    def __init__(self) -> None:
        self.keys: dict[bytes, Value] = {}
        self.seed = 0
        """Determines the order in which `hscan` and `zscan` return fields. It changes with each start of the server."""
        self._random = random.Random(0)  # for ZRANDMEMBER; seeded, so that tests are repeatable

    def image(self) -> dict[bytes, Value]:
        """Return a copy of all keys and values, as a dump (snapshot) would hold them."""
        return _copied(self.keys)

    def load(self, image: Mapping[bytes, Value]) -> None:
        """Replace all keys and values by a copy of an image that `image` returned."""
        self.keys = _copied(image)

    def _of(self, key: bytes, kind: type) -> Any:
        value = self.keys.get(key)
        if value is not None and type(value) is not kind:
            raise WrongType(f"WRONGTYPE Operation against a key holding the wrong kind of value: {key!r}")
        return value

    def _hash(self, key: bytes) -> dict[bytes, bytes]:
        return self._of(key, dict) or NOTHING

    def _list(self, key: bytes) -> list[bytes]:
        return self._of(key, list) or []

    def _set(self, key: bytes) -> SortedSet:
        return self._of(key, SortedSet) or SortedSet()

    def _new(self, key: bytes, kind: type) -> Any:
        value = self._of(key, kind)
        if value is None:
            value = self.keys[key] = kind()
        return value

    # ------------------------------------------------------------ any key, strings

    def kind(self, key: bytes) -> bytes:
        """Command TYPE: return the type of the value of a key."""
        value = self.keys.get(key)
        return b"none" if value is None else TYPES.get(type(value), b"zset")

    def exists(self, *keys: bytes) -> int:
        return sum(key in self.keys for key in keys)

    def get(self, key: bytes) -> bytes | bool:
        value: bytes | None = self._of(key, bytes)
        return False if value is None else value

    def set(self, key: bytes, value: Text) -> None:
        self.keys[key] = text(value)

    def unlink(self, *keys: bytes) -> int:
        return sum(self.keys.pop(key, None) is not None for key in keys)

    def rename(self, key: bytes, name: bytes) -> None:
        if key not in self.keys:
            raise NoSuchKey("no such key")
        self.keys[name] = self.keys.pop(key)

    # ------------------------------------------------------------ hashes

    def hget(self, key: bytes, field: bytes) -> bytes | bool:
        return self._hash(key).get(field, False)

    def hmget(self, key: bytes, *fields: bytes) -> tuple[bytes | bool, ...]:
        row = self._hash(key)
        return tuple([row.get(field, False) for field in fields])

    def hexists(self, key: bytes, field: bytes) -> int:
        return 1 if field in self._hash(key) else 0

    def hstrlen(self, key: bytes, field: bytes) -> int:
        return len(self._hash(key).get(field, b""))

    def hlen(self, key: bytes) -> int:
        return len(self._hash(key))

    def hkeys(self, key: bytes) -> tuple[bytes, ...]:
        return tuple(self._hash(key))

    def hvals(self, key: bytes) -> tuple[bytes, ...]:
        return tuple(self._hash(key).values())

    def hgetall(self, key: bytes) -> tuple[bytes, ...]:
        return tuple([part for pair in self._hash(key).items() for part in pair])

    def hscan(
        self, key: bytes, cursor: bytes, match: bytes, like: bytes, option: bytes, count: Text
    ) -> tuple[bytes, ...]:
        return self._scanned(self._hash(key), cursor, match, like, option, count)

    def zscan(
        self, key: bytes, cursor: bytes, match: bytes, like: bytes, option: bytes, count: Text
    ) -> tuple[bytes, ...]:
        scores = {member: text(score) for member, score in self._set(key).scores.items()}
        return self._scanned(scores, cursor, match, like, option, count)

    def _scanned(
        self, rows: Mapping[bytes, bytes], cursor: bytes, match: bytes, like: bytes, option: bytes, count: Text
    ) -> tuple[bytes, ...]:
        """Do the commands HSCAN and ZSCAN, with the options MATCH (`like`, a prefix and "*") and COUNT. Returns a flat
        answer: the next cursor, then fields and values of `rows`, in an order that depends on `seed`."""
        assert (match, like[-1:], option) == (b"MATCH", b"*", b"COUNT"), "our functions say how much they look at"
        start, last, looked = int(cursor), 0, 0
        found: list[bytes] = []
        for at, field in sorted((zlib.crc32(field, self.seed) + 1, field) for field in rows):
            if at > start and (looked < int(count) or at == last):
                found += [field, rows[field]] if field.startswith(like[:-1]) else []
                last, looked = at, looked + 1
            elif at > start:
                return b"%d" % last, *found
        return b"0", *found

    def hset(self, key: bytes, *pairs: Text) -> int:
        row = self._new(key, dict)
        before = len(row)
        for at in range(0, len(pairs), 2):
            row[text(pairs[at])] = text(pairs[at + 1])
        return len(row) - before

    def hsetnx(self, key: bytes, field: bytes, value: Text) -> int:
        return 0 if field in self._hash(key) else self.hset(key, field, value)

    def hincrby(self, key: bytes, field: bytes, step: Text) -> int:
        number = int(self._hash(key).get(field, b"0")) + int(step)
        self.hset(key, field, number)
        return number

    def hdel(self, key: bytes, *fields: bytes) -> int:
        row = self._hash(key)
        gone = sum(row.pop(field, None) is not None for field in fields)
        self._drop_empty(key, row)
        return gone

    def _drop_empty(self, key: bytes, value: Any) -> None:
        if not value and key in self.keys:
            del self.keys[key]

    # ------------------------------------------------------------ lists

    def llen(self, key: bytes) -> int:
        return len(self._list(key))

    def lindex(self, key: bytes, at: Text) -> bytes | bool:
        rows, at = self._list(key), int(at)
        return rows[at] if -len(rows) <= at < len(rows) else False

    def lpos(self, key: bytes, value: bytes) -> int | bool:
        rows = self._list(key)
        return rows.index(value) if value in rows else False

    def lrange(self, key: bytes, first: Text, last: Text) -> tuple[bytes, ...]:
        rows = self._list(key)
        return tuple(rows[_span(int(first), int(last), len(rows))])

    def rpush(self, key: bytes, *values: Text) -> int:
        rows: list[bytes] = self._new(key, list)
        rows += map(text, values)
        return len(rows)

    def ltrim(self, key: bytes, first: Text, last: Text) -> None:
        rows = self._list(key)
        rows[:] = rows[_span(int(first), int(last), len(rows))]
        self._drop_empty(key, rows)

    def lrem(self, key: bytes, count: Text, value: bytes) -> int:
        """Command LREM with count 1: remove the first element that equals a value."""
        assert int(count) == 1, "our functions remove one"
        rows = self._list(key)
        if value not in rows:
            return 0
        rows.remove(value)
        self._drop_empty(key, rows)
        return 1

    # ------------------------------------------------------------ sorted sets

    def zcard(self, key: bytes) -> int:
        return len(self._set(key).scores)

    def zscore(self, key: bytes, member: bytes) -> bytes | bool:
        score = self._set(key).scores.get(member)
        return False if score is None else text(score)

    def zmscore(self, key: bytes, *members: bytes) -> tuple[bytes | bool, ...]:
        scores = self._set(key).scores
        return tuple([text(scores[member]) if member in scores else False for member in members])

    def zcount(self, key: bytes, low: Text, high: Text) -> int:
        first, last = self._set(key).between(low, high)
        return max(0, last - first)

    def zadd(self, key: bytes, *words: Text) -> int:
        """Command ZADD, with the options XX, LT, GT and CH."""
        at = 0
        while words[at] in (b"XX", b"LT", b"GT", b"CH"):
            at += 1
        options = words[:at]
        only_known, only_less, only_more = (option in options for option in (b"XX", b"LT", b"GT"))
        if only_known and key not in self.keys:
            return 0
        rows: SortedSet = self._new(key, SortedSet)
        before, changed = len(rows.scores), 0
        for place in range(at, len(words), 2):
            score, member = float(words[place]), text(words[place + 1])
            known = rows.scores.get(member)
            late = known is not None and ((only_less and score >= known) or (only_more and score <= known))
            if not late and not (known is None and only_known):
                rows.put(member, score)
                changed += score != known
        return changed if b"CH" in options else len(rows.scores) - before

    def zrem(self, key: bytes, *members: bytes) -> int:
        rows = self._set(key)
        gone = sum([rows.drop(member) for member in members])
        self._drop_empty(key, rows.scores)
        return gone

    def zrandmember(self, key: bytes, count: Text) -> tuple[bytes, ...]:
        """Command ZRANDMEMBER with a positive count: return different members."""
        rows = self._set(key).rows
        return tuple([member for _, member in self._random.sample(rows, min(int(count), len(rows)))])

    def zrange(self, key: bytes, low: Text, high: Text, *options: Text) -> tuple[bytes, ...]:
        """Command ZRANGE by rank, or with BYSCORE, which allows REV and LIMIT."""
        rows = self._set(key)
        if not rows.rows:
            return ()
        if b"BYSCORE" not in options:
            found = rows.rows[_span(int(low), int(high), len(rows.rows))]
        elif b"REV" in options:
            first, last = rows.between(high, low)
            found = rows.rows[first:last][::-1]
        else:
            first, last = rows.between(low, high)
            found = rows.rows[first:last]
        if b"LIMIT" in options:
            at = options.index(b"LIMIT")
            offset, count = int(options[at + 1]), int(options[at + 2])
            found = found[offset : offset + count] if count >= 0 else found[offset:]
        if b"WITHSCORES" in options:
            return tuple([part for score, member in found for part in (member, text(score))])
        return tuple([member for _, member in found])


def _named(names: str) -> dict[str, Callable[..., Any]]:
    return {name: getattr(Keyspace, name.lower()) for name in names.split()}


READS = {"TYPE": Keyspace.kind} | _named(
    "EXISTS GET HGET HMGET HEXISTS HSTRLEN HLEN HKEYS HVALS HGETALL HSCAN LLEN LINDEX LPOS LRANGE"
    " ZCARD ZSCORE ZMSCORE ZCOUNT ZRANGE ZRANDMEMBER ZSCAN"
)
WRITES = _named("SET UNLINK RENAME HSET HSETNX HINCRBY HDEL RPUSH LTRIM LREM ZADD ZREM")
ARRAYS = frozenset(
    {"HMGET", "HKEYS", "HVALS", "HGETALL", "HSCAN", "LRANGE", "ZMSCORE", "ZRANGE", "ZRANDMEMBER", "ZSCAN"}
)
"""Commands whose answer is an array, perhaps an empty one."""


def text(value: Text) -> bytes:
    """Return a number as the server writes it: a whole number without a decimal point, any other with all its digits.
    Bytes are returned unchanged."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, float) and (value % 1 or abs(value) >= WHOLE_MAX):  # of infinity `% 1` is nan, which is true
        return b"%.17g" % value
    return b"%d" % value


def _copied(keys: Mapping[bytes, Value]) -> dict[bytes, Value]:
    return {key: value if type(value) is bytes else value.copy() for key, value in keys.items()}


def _span(first: int, last: int, length: int) -> slice:
    """Return the Python slice for a range of a Redis command, which includes both ends. A negative end counts from the
    end of the list."""
    first = max(0, first + length if first < 0 else first)
    return slice(first, max(first, (last + length if last < 0 else last) + 1))
