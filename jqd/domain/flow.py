"""What a job has to do with others: what follows it, what it waits for, and which group it belongs to.

then      on success its jobs go into the outcome, and from there through the outbox (followers.py)
callback  a job of its own, CALLBACK, waits for this one's end and tells a URL of it
after     the job is `blocked`: its date is BLOCKED until the loop `flows` has seen all of its parents end
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Literal

import msgspec
from msgspec import Raw

BLOCKED_MS = 253_402_300_800_000  # the year 10000 begins: the date of a job that waits for parents, and of no other
AFTER_MAX = 10_000  # parents of one job: some 300 kB of ids
THEN_MAX = 500  # jobs in one `then`: as many as may follow one success (followers.FOLLOWERS_MAX)

CALLBACK = "jqd.callback"
"""The jobtype of callbacks: jqd alone makes them, and every daemon runs them."""

RESULTS_TOO_LARGE = "results"  # in `Flow.failed`: no parent failed, but their results do not fit an argument
THEN_TOO_LARGE = "THEN_TOO_LARGE"
"""Begins the message of a success whose result is too large to be handed on: who wants it fails by name."""
RESULTS_GONE = "gone"  # there: a parent succeeded and kept its result, which was dropped since
NO_FIELD = "argument"  # there: its argument is no map any more, so `result_into` names nothing
NIL = b"\xc0"  # in MessagePack
KEY_SEPARATOR = "\x1e"  # it cannot be printed, and neither jobtypes nor keys have it
OnFailure = Literal["run", "cancel", "fail"]
Until = Literal["waiting", "ended"]

_items_decoder = msgspec.msgpack.Decoder(list[dict[str, Raw]])
_encoder = msgspec.msgpack.Encoder()


class Flow(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The part of a job that most jobs have not; a row of the store has it as it stands here."""

    then_text: str = ""
    """See `then`; in base 64, for the functions of the store read no bytes."""
    result_into: str = ""
    """The field of its argument that gets the results of its parents. Empty: they are its argument if it has none."""
    after: tuple[str, ...] = ()
    """Its parents: ids of jqd's, or pushers' own with their tenant before them."""
    on_parent_failure: OnFailure = "fail"
    group: str = ""
    """The name of its group, with its tenant before it; empty: none."""
    unique: str = ""
    """A `unique_key`."""
    until: Until = "ended"
    """How long `unique` holds."""
    parent: str = ""
    """The job whose outcome made it, or whose callback it is."""
    callback: str = ""
    """The URL to which the job's end is posted; of a CALLBACK job: to which it posts the end of its parents."""
    not_before_ms: int = 0
    """The date it may begin once its parents have ended; 0: at once."""
    released: bool = False
    """Whether its parents have ended, or it does not wait for them any more."""
    failed: str = ""
    """A parent that did not succeed, for which the job is to fail without being run: it expires at once."""
    one_result: bool = False
    """It has one parent, and gets its result itself instead of an array of one."""

    @property
    def then(self) -> bytes:
        """A MessagePack array of the jobs that follow its success; nothing for most."""
        return self.then_text.encode("latin-1")

    @property
    def is_blocked(self) -> bool:
        return bool(self.after) and (not self.released or bool(self.failed))

    @property
    def mark(self) -> str:
        """The same for the same parents alone: a job may be replaced by one that waits for others."""
        return blake2b("\n".join(self.after).encode(), digest_size=8).hexdigest()


def unique_key(jobtype: str, unique: str) -> str:
    """The name of a unique key in the store: of a jobtype, a qualified name, for two types mean two things by "7"."""
    return f"{jobtype}{KEY_SEPARATOR}{unique}"


def unique_text(key: str) -> str:
    """Return the unique key as its pusher wrote it."""
    return key.rpartition(KEY_SEPARATOR)[2]


def as_text(then: bytes) -> str:
    """Return the jobs of `then` as `Flow.then_text` has them."""
    return then.decode("latin-1")


def as_array(then: bytes) -> bytes:
    """`then` as a MessagePack array: of one job, or as it stands. Empty for nil."""
    if then in (b"", NIL):
        return b""
    is_map = 0x80 <= then[0] <= 0x8F or then[0] in (0xDE, 0xDF)
    return b"\x91" + then if is_map else then


def jobs_of(then: bytes) -> list[dict[str, Raw]]:
    """The jobs of a `then`."""
    return _items_decoder.decode(then)


def wants_result(item: Mapping[str, Raw]) -> bool:
    """Whether a job of a `then` gets the result of its parent."""
    return bytes(item.get("argument", NIL)) == NIL or bytes(item.get("result_into", NIL)) != NIL


def waiting(item: Mapping[str, Raw], parent: str) -> dict[str, Any]:
    """Such a job; if it gets the result of its parent it waits for that, and reads it where it is kept."""
    return {**item, "after": [parent], "one_result": True} if wants_result(item) else {**item}


def with_result(item: Mapping[str, Raw], result: bytes) -> dict[str, Any]:
    """Such a job, with that result as its argument if it has none of its own, or in the field that it names."""
    job: dict[str, Any] = {**item}
    into = job.pop("result_into", None)
    argument = bytes(item.get("argument", NIL))
    if into is not None and bytes(into) != NIL:
        job["argument"] = put_into(argument, msgspec.msgpack.decode(into, type=str), result)
    elif argument == NIL:
        job["argument"] = Raw(result)
    return job


def put_into(argument: bytes, field: str, value: bytes) -> Raw:
    """A map, or nil for an empty one, with this field. Raises msgspec.ValidationError for anything else."""
    fields = {} if argument == NIL else msgspec.msgpack.decode(argument, type=dict[str, Raw])
    return Raw(_encoder.encode({**fields, field: Raw(value)}))
