"""What is known of failures and was told of them: one state for all daemons, in the store (docs/adr/0080).

Board    who acts for all, up to when failures were read
  └ Channel   mail, or the web hook: each is told apart from the other
      ├ Group    jobs of one type of one tenant that failed with the same line
      └ Notice   what is being told now: one at a time
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec import Struct

from jqd.domain.tenant import annotate, bare, tenant_of

# Error lines may be as many as jobs, where they hold an id. What is beyond these is counted together.
LINES_MAX = 20  # of a jobtype
TENANT_GROUPS_MAX = 60  # of a tenant
GROUPS_MAX = 300  # of all: 200 KB, read and written by one daemon at each look that finds something new
OTHERS = ""  # in place of a line, or of a jobtype: all others
ALL_OTHERS = ("\x1e", OTHERS)  # of all tenants: no jobtype can have that name

Key = tuple[str, str]
Place = tuple[int, str]
"""A place in the list of failures: the date (ms) and id of one; an empty id stands before all of that date."""
NOWHERE: Place = (0, "")


class Failure(NamedTuple):
    """A job that failed for good."""

    jobtype: str
    line: str
    """The pattern of the line that tells why, as `GET /v1/errors` has it."""
    at_ms: int
    """When the job failed, by the store's clock, as all instants here."""
    job_id: str
    may_be_known: bool = False
    """Whether it lies where failures were read before."""
    text: str = ""
    """The line as it is; `line` is its pattern."""


class Group(Struct, omit_defaults=True):
    """Failures that are reported together, until no job fails so any more."""

    jobtype: str
    line: str
    since_ms: int
    """When the first of them failed, and the last."""
    latest_ms: int
    known_ms: int
    """When the first of them was read."""
    job_id: str
    """The last of them."""
    count: int = 0
    notified: int = 0
    """How many failures the last notice reported; 0: none was sent."""
    notified_ms: int = 0
    example: str = ""
    """The line of the last of them, where it differs from their pattern."""

    @property
    def key(self) -> Key:
        return self.jobtype, self.line


class Row(Struct, frozen=True, omit_defaults=True):
    """A group, as a notice tells it."""

    jobtype: str
    line: str
    since_ms: int
    latest_ms: int
    count: int
    new: int
    """How many of them no earlier notice reported."""
    job_id: str
    is_known: bool = False
    """Whether an earlier notice reported it."""
    is_over: bool = False
    example: str = ""

    @property
    def key(self) -> Key:
        return self.jobtype, self.line


class Notice(Struct, omit_defaults=True):
    """The notice that is out, until it has arrived. Its rows never change: sent twice, it is the same."""

    id: str
    at_ms: int
    rows: list[Row]
    held_since_ms: int = 0
    """Since when notices were held back, for there had been too many; 0: none was."""
    is_plain: bool = False
    """Whether it has counts alone, by tenant: the one before was refused, perhaps for what it quoted."""
    is_last_until_ms: int = 0
    """It is the last that there may be until then; 0: others may follow."""
    done: list[str] = []
    """Recipients that have the notice already, and do not get it again."""
    tries: int = 0
    next_ms: int = 0
    """Not sent before."""
    is_out: bool = False
    """Whether it was sent, while its arrival is not known."""


def alone_in(keys: Iterable[Key]) -> str:
    """Return the tenant whose groups all of these are; empty where they are of several, or of none with a name."""
    tenants = {tenant_of(jobtype) for jobtype, _ in keys}
    return tenants.pop() if len(tenants) == 1 else ""


class Channel(Struct, omit_defaults=True):
    """The state of one way (mail, or the web hook): what was sent, and what is to be sent next."""

    groups: list[Group] = []
    sent_ms: list[int] = []
    """When the notices of the last hour were sent, in ms."""
    sent_of: list[str] = []
    """The tenant of each, where it told of no other's failures; else empty."""
    held_since_ms: int = 0
    """Since when (ms) notices are due that are held back."""
    rest_until_ms: int = 0
    """Until when (ms) no notice is sent, after one was refused for good; 0: at once."""
    is_plain: bool = False
    """Whether the next notice is, as the last one was refused."""
    trouble: str = ""
    """Why notices cannot be sent this way, for health; empty: they can."""
    notice: Notice | None = None


class Board(Struct, omit_defaults=True):
    holder: str = ""
    """The daemon that acts."""
    counted: dict[int, Place] = {}
    """Partition → the place in its list of dead jobs up to which failures are counted."""
    channels: dict[str, Channel] = {}


class Groups:
    """The groups of a channel by key, while failures are counted."""

    def __init__(self, groups: list[Group]) -> None:
        self._known = {group.key: group for group in groups}
        self._lines = Counter(group.jobtype for group in groups)
        self._of_tenant = Counter(tenant_of(group.jobtype) for group in groups)

    def home(self, failure: Failure, now_ms: int) -> Group:
        """The group that counts it: its own, or one of others where there would be too many."""
        key = self._key(failure)
        group = self._known.get(key)
        if group is None:
            at_ms = failure.at_ms
            group = self._known[key] = Group(*key, at_ms, at_ms, known_ms=now_ms, job_id=failure.job_id)
            self._lines[group.jobtype] += 1
            self._of_tenant[tenant_of(group.jobtype)] += 1
        return group

    def all(self) -> list[Group]:
        return [*self._known.values()]

    def _key(self, failure: Failure) -> Key:
        own, of_type = (failure.jobtype, failure.line), (failure.jobtype, OTHERS)
        tenant = tenant_of(failure.jobtype)
        of_tenant = annotate(tenant, OTHERS), OTHERS
        has_room = len(self._known) < GROUPS_MAX
        has, left = self._of_tenant[tenant], GROUPS_MAX - len(self._known)
        # Half of what the others leave: several tenants together leave groups to the next.
        for_tenant = has_room and has < (min(TENANT_GROUPS_MAX, (left + has) // 2) if tenant else TENANT_GROUPS_MAX)
        if own in self._known or (for_tenant and self._lines[failure.jobtype] < LINES_MAX):
            return own
        if of_type in self._known or for_tenant:
            return of_type
        return of_tenant if of_tenant in self._known or has_room else ALL_OTHERS


def name_of(row: Row | Group) -> tuple[str, str]:
    """Tenant and jobtype for people; the latter "" for others."""
    return ("", OTHERS) if row.key == ALL_OTHERS else (tenant_of(row.jobtype), bare(row.jobtype))


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Board).decode
