"""Constraints: limits and pauses of the jobs that an expression matches. Each is a setting; the store counts.

A job waits in a queue. The queue's name lists each constraint that matches the job, with the job's cost and the value
of the key (queue_name.py).

Where the store has several partitions, each counts its own jobs. A job's partition follows from its id or its unique
key, else from its jobtype. Many pushers give ids (clients of several daemons, buffers, schedules, `Idempotency-Key`s,
followers), so the jobs of one jobtype may lie in any partition.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from jqd.domain.clock import Clock
from jqd.domain.job import Job
from jqd.domain.job_spec import Date
from jqd.domain.queue_name import BETWEEN, FAILED, WITHIN
from jqd.domain.settings import CONSTRAINT, Setting, SettingTable
from jqd.domain.tenant import bare, tenant_of
from jqd.rate_limits.matcher import (
    ARGUMENT_BYTES_MAX,
    EXPRESSION_LENGTH_MAX,
    STEPS_MAX,
    Expression,
    NotUnderstood,
    compiled,
    only_names,
)
from jqd.rate_limits.operators import Failed, Missing, Steps

EVER_MS = 2**53 - 1  # a pause without an end
KEY_LENGTH_MAX = 64  # characters of a key that stand in the name of a queue; longer ones are hashed
STEPS_TOGETHER = 2 * STEPS_MAX  # of all constraints of a tenant on a job: some 8 ms
ITEMS_MAX = 1_000  # of a list or map in an argument that expressions read
COMPLAINTS_MAX = 10  # in health: the list of constraints has all
KINDS_CACHED = 1_000  # sets of jobs that differ in their arguments only

LIMIT_MAX = 1_000_000_000
CONCURRENCY_MAX = 10_000  # ids in one set, which is counted once a minute
PER_S_MAX = 31 * 86_400.0  # a month

KEY_TYPES = ("STRING", "INT", "BOOL", "DOUBLE", "NULL_TYPE", "NULL")

OnError = Literal["hold", "pass"]


Text = Annotated[
    str,
    Meta(min_length=1, max_length=EXPRESSION_LENGTH_MAX, description=f"1 to {EXPRESSION_LENGTH_MAX} characters of CEL"),
]


class Rate(Struct, frozen=True, forbid_unknown_fields=True):
    """The starts allowed in any `per_s` seconds, and a burst on top that refills at that rate."""

    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX, description=f"a whole number, 1 to {LIMIT_MAX}")]
    per_s: Annotated[
        float, Meta(ge=0.001, le=PER_S_MAX, description=f"a number of seconds, 0.001 to {PER_S_MAX:.0f}")
    ] = 1.0
    burst: Annotated[int, Meta(ge=0, le=LIMIT_MAX, description=f"a whole number, 0 to {LIMIT_MAX}")] = 0


def expect_understood(types: tuple[str, ...], text: str) -> None:
    """Raise ValueError if an expression is wrong, or its value has none of these types. The error's text says where."""
    try:
        compiled(text, types)
    except NotUnderstood as error:
        raise ValueError(f"{error}, at character {error.offset + 1}") from error


class Limit(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs a constraint limits, and how."""

    match: Annotated[Text, Meta(extra={"check": partial(expect_understood, ("BOOL",))})]
    rate: Rate | None = None
    concurrency: (
        Annotated[int, Meta(ge=1, le=CONCURRENCY_MAX, description=f"a whole number, 1 to {CONCURRENCY_MAX}")] | None
    ) = None
    """Jobs in flight at once; null: any number."""
    cost: Annotated[Text, Meta(extra={"check": partial(expect_understood, ("INT",))})] | None = None
    key: Annotated[Text, Meta(extra={"check": partial(expect_understood, KEY_TYPES)})] | None = None
    on_error: OnError = "hold"

    def own_fields(self) -> dict[str, Any]:
        """Return the fields that Limit itself has, as a dict, without those that a subclass adds."""
        return {name: getattr(self, name) for name in Limit.__struct_fields__}


class Limits(Limit, frozen=True, kw_only=True):
    """A constraint as a client sets it: which jobs, and one or more of rate, concurrency and pause."""

    pause: bool | Date | None = None
    """No job starts until that date, or (true) until it is set again."""
    exact: bool = False
    """Refuse the constraint if the store has several partitions: each counts by itself."""


class Constraint(Limit, frozen=True, omit_defaults=True):
    """A stored constraint: the body of the setting. The store's functions read it, too."""

    until_ms: int = 0
    """Until when no job starts (Unix ms); 0: the constraint is no pause."""
    digest: int = 0
    """Digest of the fields that decide in which queue a job waits."""
    rated_ms: int = 0
    """Since when (Unix ms) the constraint has had a rate, even if it was set again since; 0: since this revision."""


Fields = Mapping[str, Any] | Failed
"""The fields of a job as expressions see them, or the error that says why they cannot be read."""


class KnownConstraint:
    """A stored constraint with its compiled expressions."""

    def __init__(self, name: str, constraint: Constraint, changed_ms: int) -> None:
        self.name = name
        self.constraint = constraint
        self.changed_ms = changed_ms
        self.matched = 0
        """Jobs that this daemon matched since it started."""
        self.failed = 0
        self.error = ""
        """The last error of an expression; empty: there was none."""
        self.tenant = tenant_of(name)
        self._trouble = ""  # why this daemon cannot evaluate it
        try:
            self._match = compiled(constraint.match, ("BOOL",))
            self._cost = compiled(constraint.cost, ("INT",)) if constraint.cost else None
            self._key = compiled(constraint.key, KEY_TYPES) if constraint.key else None
        except (NotUnderstood, ImportError) as error:
            self._trouble = f"this daemon cannot read it: {error}"
        self._only_names = only_names(constraint.match)

    @property
    def complaint(self) -> str:
        """A sentence for the health report, if the constraint failed on jobs and so holds them back; else ""."""
        if not self.failed or self.constraint.on_error == "pass":
            return ""
        whose = f" of tenant {self.tenant!r}" if self.tenant else ""
        return (
            f"constraint {bare(self.name)!r}{whose} fails on jobs, and holds them up until it is said otherwise or"
            f" deleted: {self.error}"
        )

    @property
    def reads_argument(self) -> bool:
        """Whether the expressions may read the argument of a job."""
        expressions = () if self._trouble else (self._match, self._cost, self._key)
        return any(expression is not None and expression.reads_argument for expression in expressions)

    def concerns(self, tenant: str, name: str) -> bool:
        """Return whether this constraint can match any job of this tenant and jobtype."""
        return (self._only_names is None or name in self._only_names) and self.tenant in ("", tenant)

    def item_of(self, fields: Fields, steps: Steps) -> str:
        """Evaluate the constraint for a job. Return what the name of the job's queue contains for this constraint: its
        name, the job's cost and key, or that the evaluation failed. Return "" if it does not limit the job."""
        try:
            asked = self.ask(fields, steps)
        except Failed as error:
            self.failed += 1
            self.error = str(error)
            if self.constraint.on_error == "pass":
                return ""
            return f"{BETWEEN}{self.name}{WITHIN}{WITHIN}{FAILED}"
        if asked is None:
            return ""
        self.matched += 1
        cost, key = asked
        return f"{BETWEEN}{self.name}{WITHIN}{cost}{WITHIN}{key}"

    def ask(self, fields: Fields, steps: Steps) -> tuple[int, str] | None:
        """Evaluate the constraint for a job. Return the job's cost and the text of its key; None if the constraint does
        not match the job. Raises Failed, which says whether `match`, `cost` or `key` failed."""
        if self._trouble:
            raise Failed(self._trouble)
        if isinstance(fields, Failed):
            raise fields
        if not self._matches(fields, steps):
            return None
        cost = 1 if self._cost is None else self._cost_of(_value("cost", self._cost, fields, steps))
        return cost, "" if self._key is None else key_text(_value("key", self._key, fields, steps))

    def _matches(self, fields: Mapping[str, Any], steps: Steps) -> bool:
        """Return whether the constraint matches a job. A job without a field that `match` reads does not match:
        otherwise the constraint would hold back all other jobtypes."""
        try:
            return bool(self._match.value(fields, steps))
        except Missing:
            return False
        except Failed as error:
            raise Failed(f"match: {error}") from error

    def _cost_of(self, cost: int) -> int:
        rate = self.constraint.rate
        if cost < 0:
            raise Failed(f"cost: {self.constraint.cost} is {cost}, and must be 0 or more")
        if rate is not None and (most := rate.limit + rate.burst) < cost:
            raise Failed(f"cost: {self.constraint.cost} is {cost}, more than limit and burst, {most}, allow at all")
        return cost


def _value(field: str, expression: Expression, fields: Mapping[str, Any], steps: Steps) -> Any:
    """Return the value of an expression for a job. `field`: which expression of the constraint it is, for the error.
    Raises Failed."""
    try:
        return expression.value(fields, steps)
    except Missing as error:
        raise Failed(f"{field}: {expression.shown}: {error}") from error
    except Failed as error:
        raise Failed(f"{field}: {error}") from error


def key_text(value: Any) -> str:
    """Return a key's value as text for the name of a queue. Two texts are equal exactly if CEL calls the values equal.

    A text value follows "=", any other value follows its type: `int:1` is a number, `=int:1` a text.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 1.0 is 1, and -0.0 is 0
    text = f"={value}" if isinstance(value, str) else f"{type(value).__name__}:{value}"
    if len(text) > KEY_LENGTH_MAX or not text.isprintable():
        return "#" + hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12).hexdigest()
    return text


def digest_of(name: str, constraint: Constraint) -> int:
    """Return a digest of 32 bits of all that decides which queue a job waits in: the constraint's name, expressions,
    `on_error`, and the highest cost."""
    rate = constraint.rate
    most = rate.limit + rate.burst if rate and constraint.cost else 0
    decides = (name, constraint.match, constraint.key or "", constraint.cost or "", constraint.on_error, most)
    return int.from_bytes(hashlib.blake2b(_encoder.encode(decides), digest_size=4).digest(), "big")


def with_digest(name: str, constraint: Constraint) -> Constraint:
    return msgspec.structs.replace(constraint, digest=digest_of(name, constraint))


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Constraint)
_argument_decoder = msgspec.msgpack.Decoder()


def body_of(constraint: Constraint) -> bytes:
    return _encoder.encode(constraint)


class Constraints:
    """All constraints that this daemon knows."""

    def __init__(self, settings: SettingTable, clock: Clock | None = None) -> None:
        self.known: dict[str, KnownConstraint] = {}
        """Name → constraint."""
        self.version = ""
        """Version of all constraints together, computed in the same way as in the store; empty if there are none."""
        self._alike = lru_cache(maxsize=KINDS_CACHED)(self._items_alike)
        settings.read(CONSTRAINT, _read)
        settings.watch(CONSTRAINT, self._ruled)

    def complaints(self) -> list[str]:
        """Return sentences for `/readyz` about constraints that fail on jobs and hold them back."""
        return [*islice((why for known in self.known.values() if (why := known.complaint)), COMPLAINTS_MAX)]

    def queue_of(self, job: Job) -> str:
        """Return the part of the name of a job's queue that follows the jobtype: which constraints match the job. Empty
        while there is no constraint."""
        if not self.known:
            return ""
        tenant, name = tenant_of(job.jobtype), bare(job.jobtype)
        items = self._alike(tenant, name, job.priority, job.tags)
        if self._readers:
            items += self._items(self._readers, tenant, name, job)
        return f"{BETWEEN}{self.version}{''.join(sorted(items))}"

    def failure_of(self, name: str, job: Job) -> str:
        """Return why the constraint `name` fails on this job now; "" if it does not fail. Failures found here are not
        counted."""
        tenant, jobtype = tenant_of(job.jobtype), bare(job.jobtype)
        known = self.known.get(name)
        if known is None or not known.concerns(tenant, jobtype):
            return ""
        try:
            known.ask(fields_of(tenant, jobtype, job, with_argument=known.reads_argument), Steps(STEPS_TOGETHER))
        except Failed as error:
            return str(error)
        return ""

    def is_current(self, queue: str) -> bool:
        """Return whether the name of a queue was computed from the present constraints."""
        if not self.version:
            return not queue
        version = f"{BETWEEN}{self.version}"
        return queue == version or queue.startswith(version + BETWEEN)

    def _items_alike(self, tenant: str, name: str, priority: int, tags: tuple[str, ...]) -> tuple[str, ...]:
        return self._items(self._others, tenant, name, Job("", name, priority=priority, tags=tags))

    def _items(self, constraints: Sequence[KnownConstraint], tenant: str, name: str, job: Job) -> tuple[str, ...]:
        constraints = [known for known in constraints if known.concerns(tenant, name)]
        if not constraints:
            return ()
        fields: Fields
        try:
            fields = fields_of(tenant, name, job, with_argument=constraints[0].reads_argument)
        except Failed as error:
            fields = error
        # A tenant's constraints have a budget of their own, beside that of the constraints of all.
        steps = defaultdict[str, Steps](lambda: Steps(STEPS_TOGETHER))
        return tuple(item for known in constraints if (item := known.item_of(fields, steps[known.tenant])))

    def _ruled(self, setting: Setting) -> None:
        self.known.pop(setting.name, None)
        if not setting.is_deleted:
            self.known[setting.name] = KnownConstraint(setting.name, _read(setting), setting.at_ms)
        total = sum(known.constraint.digest for known in self.known.values()) % 2**32
        self.version = str(total) if self.known else ""
        every = [self.known[name] for name in sorted(self.known)]  # the same order at all daemons
        self._readers = [known for known in every if known.reads_argument]
        self._others = [known for known in every if not known.reads_argument]
        self._alike.cache_clear()


def fields_of(tenant: str, name: str, job: Job, *, with_argument: bool) -> Mapping[str, Any]:
    """Return the fields of a job that expressions read. Raises Failed if the argument is too large or cannot be
    decoded."""
    fields: dict[str, Any] = {"name": name, "tenant": tenant, "priority": job.priority, "tags": list(job.tags)}
    if with_argument:
        if len(job.argument) > ARGUMENT_BYTES_MAX:
            raise Failed(f"its argument has more than {ARGUMENT_BYTES_MAX} bytes")
        try:
            fields["argument"] = _plain(_argument_decoder.decode(job.argument))
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            raise Failed(f"its argument cannot be read: {error}"[:200]) from error
    return fields


def _plain(value: Any) -> Any:
    """Convert a decoded value to the types that CEL has. Other values become null, and map keys of other types are left
    out. Raises Failed for a list or map with too many items."""
    if isinstance(value, (dict, list, tuple)) and len(value) > ITEMS_MAX:
        raise Failed(f"a list or map in its argument has more than {ITEMS_MAX} items")
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if isinstance(key, (str, int, bool))}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(value)
    return value if isinstance(value, (str, int, float, bool, bytes, type(None))) else None


def _read(setting: Setting) -> Constraint:
    return _decoder.decode(setting.body)


def counted_apart(limit: Limit, partitions: int) -> str | None:
    """Return, as a sentence, what all partitions together may let through; None if they let through just what was
    set."""
    if partitions == 1 or (limit.rate is None and limit.concurrency is None):
        return None
    return f"each of the store's {partitions} partitions counts by itself: together up to {partitions} times as much"


def why_not_exact(limit: Limit, partitions: int) -> str | None:
    """Return why a limit is not exact with this many partitions, and what to do about it; None if it is exact."""
    apart = counted_apart(limit, partitions)
    return apart and f"{apart}; leave out `exact` and set limits {partitions} times as low"
