"""The state of notices, kept in the store for all daemons: known failures, and which were reported (docs/adr/0080).

Board    which daemon sends for all, and up to where failures were read
  └ Channel   mail, or the web hook; each has its own state
      ├ Group    jobs of one type of one tenant that failed with the same error line
      └ Notice   the notice that is being sent; one at a time
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec import Struct

from jqd.domain.tenant import annotate, bare, tenant_of

# There may be as many error lines as jobs, if they contain an id. Failures beyond these limits are counted together.
LINES_MAX = 20  # groups of a jobtype
TENANT_GROUPS_MAX = 60  # groups of a tenant
GROUPS_MAX = 300  # groups in all: 200 KB, which one daemon reads and writes whenever something is new
OTHERS = ""  # in place of a line, or of a jobtype: all others
ALL_OTHERS = ("\x1e", OTHERS)  # key of the others of all tenants: no jobtype can have that name

Key = tuple[str, str]
Place = tuple[int, str]
"""A position in a partition's list of failed jobs: (date in ms, job id). With an empty id it is before all jobs of that
date."""
NOWHERE: Place = (0, "")


class Failure(NamedTuple):
    """A job that failed for good."""

    jobtype: str
    line: str
    """The pattern of the job's error line, as in `GET /v1/errors`."""
    at_ms: int
    """When the job failed, by the store's clock, like all times in this file."""
    job_id: str
    may_be_known: bool = False
    """Whether this failure may have been read and counted before."""
    text: str = ""
    """The job's error line."""


class Group(Struct, omit_defaults=True):
    """Failures with the same jobtype and error line, which are reported together. A group is deleted when no such
    failure has come for a while."""

    jobtype: str
    line: str
    since_ms: int
    """When the first of these jobs failed; `latest_ms`: when the last one did."""
    latest_ms: int
    known_ms: int
    """When a daemon first read a failure of this group."""
    job_id: str
    """The id of the job that failed last."""
    count: int = 0
    notified: int = 0
    """How many failures the group had at its last notice; 0: there was no notice."""
    notified_ms: int = 0
    example: str = ""
    """The error line of the job that failed last; empty if it equals the pattern."""

    @property
    def key(self) -> Key:
        return self.jobtype, self.line


class Row(Struct, frozen=True, omit_defaults=True):
    """One group in a notice, as it was when the notice was made."""

    jobtype: str
    line: str
    since_ms: int
    latest_ms: int
    count: int
    new: int
    """Number of failures that no earlier notice counted."""
    job_id: str
    is_known: bool = False
    """Whether an earlier notice reported the group."""
    is_over: bool = False
    example: str = ""

    @property
    def key(self) -> Key:
        return self.jobtype, self.line


class Notice(Struct, omit_defaults=True):
    """The notice that is being sent, until it has arrived. Its rows never change, so each try sends the same text."""

    id: str
    at_ms: int
    rows: list[Row]
    held_since_ms: int = 0
    """Since when notices had been held back, as too many were sent before; 0: none was held back."""
    is_plain: bool = False
    """Whether the notice has only counts by tenant, and quotes nothing: the one before was refused, perhaps for a
    quoted text."""
    is_last_until_ms: int = 0
    """Until when no other notice may be sent, as this one is the last that the limit allows; 0: others may follow."""
    done: list[str] = []
    """Recipients that have got the notice, or never will: later tries leave them out."""
    tries: int = 0
    reached: int = 0
    """Number of tries that may have delivered the notice, that the server read, or in which it answered for the
    recipients when some had it already."""
    next_ms: int = 0
    """Earliest time of the next try."""
    is_out: bool = False
    """Whether a try to send it is in progress, or its result is unknown."""


def alone_in(keys: Iterable[Key]) -> str:
    """Return the tenant to which all these groups belong; empty if they belong to several tenants or to none."""
    tenants = {tenant_of(jobtype) for jobtype, _ in keys}
    return tenants.pop() if len(tenants) == 1 else ""


class Channel(Struct, omit_defaults=True):
    """The state of one channel (mail, or the web hook): what it sent, and the notice that it sends next."""

    groups: list[Group] = []
    sent_ms: list[int] = []
    """When the notices of the last hour were sent, in ms."""
    sent_of: list[str] = []
    """For each date in `sent_ms`: the tenant if that notice reported only this tenant's failures; else empty."""
    held_since_ms: int = 0
    """Since when notices are held back that would exceed the hourly limit; 0: none is held back."""
    rest_until_ms: int = 0
    """Until when no notice is sent, after one was refused for good; 0: there is no such pause."""
    is_plain: bool = False
    """Whether the next notice has only counts by tenant, as the last notice was refused."""
    trouble: str = ""
    """Why notices cannot be sent, for the health report; empty: they can."""
    notice: Notice | None = None


class Board(Struct, omit_defaults=True):
    """The whole state of notices: who sends them, how far failures were read, and the channels."""

    holder: str = ""
    """Sysid of the daemon that sends notices for all."""
    counted: dict[int, Place] = {}
    """Partition → the position in its list of failed jobs up to which all are counted."""
    channels: dict[str, Channel] = {}


class Groups:
    """A channel's groups, indexed by key, for counting failures."""

    def __init__(self, groups: list[Group]) -> None:
        self._known = {group.key: group for group in groups}
        self._lines = Counter(group.jobtype for group in groups)
        self._of_tenant = Counter(tenant_of(group.jobtype) for group in groups)

    def home(self, failure: Failure, now_ms: int) -> Group:
        """Return the group to count a failure in. Makes one for its jobtype and error line if needed; where there are
        too many groups, a group that collects other failures."""
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
        # A tenant gets at most half of the groups that others leave, so that some are always free for the next tenant.
        for_tenant = has_room and has < (min(TENANT_GROUPS_MAX, (left + has) // 2) if tenant else TENANT_GROUPS_MAX)
        if own in self._known or (for_tenant and self._lines[failure.jobtype] < LINES_MAX):
            return own
        if of_type in self._known or for_tenant:
            return of_type
        return of_tenant if of_tenant in self._known or has_room else ALL_OTHERS


def name_of(row: Row | Group) -> tuple[str, str]:
    """Return (tenant, jobtype) for showing a group in a notice. The jobtype is OTHERS if the group collects other
    jobtypes."""
    return ("", OTHERS) if row.key == ALL_OTHERS else (tenant_of(row.jobtype), bare(row.jobtype))


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Board).decode
