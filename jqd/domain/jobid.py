"""Job ids: 26 characters that sort by age and name the journal that took the job.

    0         10   14       22  25 26   Crockford base32, upper case, as in ULID
    ┌─────────┬────┬────────┬───┬─┐
    │ time    │ seq│ journal│sal│h│     time     milliseconds since 1970 (48 bits used of 50)
    └─────────┴────┴────────┴───┴─┘     seq      0 … 1,048,575 within that millisecond (20 bits)
                                        journal  number of the journal that took the job (40 bits)
                                        salt     drawn at each start (15 bits)
                                        home     says in which partition of the store the job is (5 bits)

Ids of one journal only grow. While the clock stands or steps back, further ids use the last millisecond; when its
sequence numbers are used up, they use the next millisecond. So an id greater than the journal's last applied one may be
that of a job on its way to the store. For any other id that the store does not know, there is no job. The salt keeps
a directory that was restored from a backup from giving old ids to new jobs. The home follows from the jobtype, or from
the pusher's own id, so an id alone says which partition to ask (docs/adr/0009).
"""

import re
import zlib
from base64 import b32encode
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from msgspec import Struct

from jqd.domain.clock import Clock

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ID_LENGTH = 26
TIME_LENGTH = 10  # first characters, which are the time
SEQUENCE_BITS = 20
SEQUENCES = 1 << SEQUENCE_BITS  # ids of one millisecond: no machine makes a thousandth of that
JOURNAL_BITS = 40
SALT_BITS = 15
HOME_BITS = 5
HOMES = 1 << HOME_BITS  # the most partitions that a store can have
HOMES_KEPT = 20_000  # in the cache of `home_of`: the ids of two of the largest arrays, 14 MiB at most
BATCHES_MAX = 20_000  # batches remembered by an `IdSource`, some 5 MiB; the oldest are forgotten first
ORDER_LENGTH = 14  # first characters, time and sequence, which give the order of a journal's ids

_SHAPE = re.compile(f"[0-7][{ALPHABET}]{{{ID_LENGTH - 1}}}")
# An id made by `followers.follower_id`: the parent's id, its generation if it was retried or replaced, and a place.
_MADE = re.compile(rf"[0-7][{ALPHABET}]{{{ID_LENGTH - 1}}}(\.[0-9]+){{1,2}}")
_MADE_OF_TENANT = re.compile(rf"(?:.*\x1f)?([0-7][{ALPHABET}]{{{ID_LENGTH - 1}}})(?:\.[0-9]+){{1,2}}")
_DATED = re.compile(r".+@[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3}Z")
_OURS = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", ALPHABET.encode())
FAMILY_LENGTH = 13  # characters, 65 bits, that the followers of one job have in common beside the time
# ALPHABET → the digits that `int(text, 32)` reads, in C.
_DIGITS = bytes.maketrans(ALPHABET.encode(), b"0123456789abcdefghijklmnopqrstuv")
_HOME = {letter: number for number, letter in enumerate(ALPHABET)}
# The two characters for each 10 bits, made once, as a request may need thousands of ids.
_PAIRS = [a + b for a in ALPHABET for b in ALPHABET]


class IdParts(NamedTuple):
    at_ms: int
    sequence: int
    journal: int
    salt: int
    home: int


class IdRange(Struct, frozen=True, gc=False):
    """The ids of one pushed batch, which are consecutive."""

    first: str
    size: int
    homes: str = ""
    """The last character of each id; empty if all ids end like the first one."""

    def fits(self) -> bool:
        """Return whether the range is valid: `first` has the form of an id, and there are enough sequence numbers for
        all ids in its millisecond."""
        if not _SHAPE.fullmatch(self.first):
            return False
        if self.homes and (len(self.homes) != self.size or not _HOME.keys() >= set(self.homes)):
            return False
        return self.size == 1 or _decode(self.first[10:14]) + self.size <= SEQUENCES

    def ids(self) -> list[str]:
        """Return all ids of the range, oldest first."""
        if self.size == 1:
            return [self.first]
        head, tail = self.first[:10], self.first[14:]
        start = _decode(self.first[10:14])
        if self.homes:
            head, tail = self.first[:10], tail[:-1]
            numbered = enumerate(self.homes, start)
            return [head + _PAIRS[n >> 10] + _PAIRS[n & 1023] + tail + home for n, home in numbered]
        return [head + _PAIRS[n >> 10] + _PAIRS[n & 1023] + tail for n in range(start, start + self.size)]


class IdSource:
    """Makes the ids of one journal, each greater than the one before. It also remembers the journal positions of the
    latest ids, to tell which jobs are not in the store yet. Must not be shared between journals or threads."""

    def __init__(self, *, journal: int, salt: int, clock: Clock, after_ms: int = 0) -> None:
        """`journal`: the journal's number, `salt`: a number drawn at this start; both are parts of each id. `after_ms`:
        the last millisecond for which an earlier process may have given ids."""
        if not 0 <= journal < 1 << JOURNAL_BITS or not 0 <= salt < 1 << SALT_BITS:
            raise ValueError(f"journal {journal} or salt {salt} is out of range")
        self.journal = journal
        self._tail = _encode(journal << SALT_BITS | salt, ID_LENGTH - ORDER_LENGTH - 1)
        self._clock = clock
        self.last_ms = after_ms
        self._head = _encode(after_ms, TIME_LENGTH)
        self._next_sequence = SEQUENCES  # forces a new millisecond first
        self.last_id = self._head + ALPHABET[-1] * (ID_LENGTH - TIME_LENGTH)
        """An upper bound: no id that this journal ever gave sorts after it."""
        self._firsts: list[str] = []
        self._lasts: list[str] = []
        self._ends: list[int] = []
        self._tenants: list[str] = []

    def take(self, count: int, homes: str = ALPHABET[0]) -> IdRange:
        """Return `count` consecutive new ids (1 … 1,048,576). `homes`: the last character of each id in order, which
        decides its partition; a single character is used for all ids."""
        if not 1 <= count <= SEQUENCES:
            raise ValueError(f"{count} ids asked for; 1 to {SEQUENCES} can be given at once")
        now_ms = self._clock.wall_ms()
        if now_ms > self.last_ms:
            self._begin(now_ms)
        elif self._next_sequence + count > SEQUENCES:
            self._begin(self.last_ms + 1)
        first = self._next_sequence
        self._next_sequence = first + count
        first_id = self._head + _PAIRS[first >> 10] + _PAIRS[first & 1023] + self._tail
        self.last_id = (first_id if count == 1 else self._spell(first + count - 1)) + ALPHABET[-1]
        return IdRange(first_id + homes[0], count, homes if len(homes) > 1 else "")

    def note(self, first: str, end: int, tenant: str = "") -> None:
        """Remember the ids that `take` returned last, after their jobs were written to the journal. `first`: the first
        of these ids. `end`: the journal position after the jobs."""
        self._firsts.append(first)
        self._lasts.append(self.last_id)
        self._ends.append(end)
        self._tenants.append(tenant)
        if len(self._ends) > 2 * BATCHES_MAX:
            for rows in (self._firsts, self._lasts, self._ends, self._tenants):
                del rows[:BATCHES_MAX]

    def awaits(self, job_id: str, read_point: int) -> bool:
        """Return whether the job is in the journal, but not in the store yet. False also if the job is not remembered.
        `read_point`: the position up to which the store has applied the journal."""
        index = self._batch(job_id)
        return index is not None and self._ends[index] > read_point

    def is_of(self, job_id: str, tenant: str) -> bool:
        """Return whether the id was given to a job of this tenant. False also if the id is not remembered."""
        index = self._batch(job_id)
        return index is not None and self._tenants[index] == tenant

    def is_of_another(self, job_id: str, tenant: str) -> bool:
        """Return whether the id was given to a job of another tenant. False also if the id is not remembered."""
        index = self._batch(job_id)
        return index is not None and self._tenants[index] != tenant

    def _batch(self, job_id: str) -> int | None:
        index = bisect_left(self._lasts, job_id)
        return index if index < len(self._lasts) and self._firsts[index] <= job_id else None

    def _begin(self, at_ms: int) -> None:
        self.last_ms, self._next_sequence = at_ms, 0
        high, low = at_ms >> 20, at_ms
        pairs = _PAIRS[high >> 20 & 1023], _PAIRS[high >> 10 & 1023], _PAIRS[high & 1023]
        self._head = f"{''.join(pairs)}{_PAIRS[low >> 10 & 1023]}{_PAIRS[low & 1023]}"

    def _spell(self, sequence: int) -> str:
        """Return the id with this sequence number in the present millisecond, without its last character (home)."""
        return self._head + _PAIRS[sequence >> 10] + _PAIRS[sequence & 1023] + self._tail


def is_id(text: str) -> bool:
    return _SHAPE.fullmatch(text) is not None


def is_made(text: str) -> bool:
    """Return whether a text has the form of an id that jqd makes for a follower (`followers.follower_id`). Pushers must
    not choose such an id."""
    return _MADE.fullmatch(text) is not None


def is_of_date(text: str) -> bool:
    """Return whether a text has the form of an id of a job that a schedule pushes: `<schedule>@<date>`."""
    return _DATED.fullmatch(text) is not None


def made_id(name: str) -> str:
    """Return the 26-character id for a follower's name (`followers.follower_id`). The same name always gives the same
    id.

    The id begins with the parent's time, so that followers sort next to their parent. Followers of one parent sort by
    their index.
    """
    family, _, place = name.rpartition(".")
    digest = b32encode(blake2b(family.encode(), digest_size=10).digest()).translate(_OURS).decode()
    return f"{name[:TIME_LENGTH]}{digest[:FAMILY_LENGTH]}{_PAIRS[int(place)]}{name[ID_LENGTH - 1]}"


def parse_id(text: str) -> IdParts | None:
    """Return the parts of an id; None if the text does not have the form of an id."""
    if not _SHAPE.fullmatch(text):
        return None
    digits = text.encode().translate(_DIGITS)
    tail = int(digits[14:], 32)
    salt = tail >> HOME_BITS & (1 << SALT_BITS) - 1
    return IdParts(int(digits[:10], 32), int(digits[10:14], 32), tail >> SALT_BITS + HOME_BITS, salt, tail & HOMES - 1)


@lru_cache(maxsize=HOMES_KEPT)
def home_of(name: str) -> str:
    """Return the home (one character, which decides the partition) for a jobtype, or for a pusher's own job id. A
    follower whose id jqd made has its parent's home."""
    if made := _MADE_OF_TENANT.fullmatch(name):
        return made[1][-1]
    return ALPHABET[zlib.crc32(name.encode()) & HOMES - 1]


def homes_of(names: Sequence[str]) -> str:
    """Return the homes (last characters of ids, which decide the partitions) for a batch: one for each name, or a
    single one if all are equal."""
    if len(set(names)) == 1:
        return home_of(names[0])
    homes = "".join(map(home_of, names))
    return homes[0] if homes.count(homes[0]) == len(homes) else homes


def partition_of(job_id: str, partitions: int) -> int:
    """Return the partition of a job, of `partitions` in all. `job_id`: the job's id, or the record of its cancel. Any
    other text gives 0."""
    return _HOME.get(job_id[ID_LENGTH - 1 : ID_LENGTH], 0) % partitions


def journal_number(journal_id: str) -> int:
    """Return the 40-bit number that stands for a journal in job ids, from the journal's 128-bit id (32 hexadecimal
    digits)."""
    return int(journal_id, 16) >> (128 - JOURNAL_BITS)


def partition_of_name(name: str, partitions: int) -> int:
    """Return the partition, of `partitions` in all, for the jobs of a jobtype, or for the job with a pusher's own
    id."""
    return _HOME[home_of(name)] % partitions


def _encode(value: int, width: int) -> str:
    digits = []
    for _ in range(width):
        digits.append(ALPHABET[value & 31])
        value >>= 5
    return "".join(reversed(digits))


def _decode(text: str) -> int:
    return int(text.encode().translate(_DIGITS), 32)
