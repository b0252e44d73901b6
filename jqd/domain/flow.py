"""A job's links to other jobs: what follows it, what it waits for, and which group it belongs to.

then      on success these jobs are put into the outcome, which brings them, or the outbox pushes them (followers.py)
callback  a job of type CALLBACK waits for the end of this one, and posts it to a URL
after     the job is `blocked`: its date is BLOCKED_MS until the loop `flows` has seen all of its parents end
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Literal

import msgspec
from msgspec import Raw

BLOCKED_MS = 253_402_300_800_000  # the date of a job that waits for parents, and of no other: the year 10000 begins
AFTER_MAX = 10_000  # parents of one job: some 300 kB of ids
THEN_MAX = 500  # jobs in one `then`: as many as may follow one success (followers.FOLLOWERS_MAX)

CALLBACK = "jqd.callback"
"""The jobtype of callbacks: jqd alone makes them, and every daemon runs them."""

RESULTS_TOO_LARGE = "results"  # in `Flow.failed`: the parents' results together are too large for an argument
THEN_TOO_LARGE = "THEN_TOO_LARGE"
"""Begins the message of a success whose result is too large for the jobs in `then`: those that want it fail."""
RESULTS_GONE = "gone"  # in `Flow.failed`: the result of a parent that succeeded was dropped since
NO_FIELD = "argument"  # in `Flow.failed`: the argument is no map, so `result_into` cannot be a field of it
NIL = b"\xc0"  # in MessagePack
KEY_SEPARATOR = "\x1e"  # not printable, so no jobtype or key contains it
OnFailure = Literal["run", "cancel", "fail"]
Until = Literal["waiting", "ended"]

_items_decoder = msgspec.msgpack.Decoder(list[dict[str, Raw]])
_encoder = msgspec.msgpack.Encoder()


class Flow(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A job's links; most jobs have none. A row of the store contains these fields as they are."""

    then_text: str = ""
    """`then` as Latin-1 text, as the functions of the store read no bytes."""
    result_into: str = ""
    """The argument's field that gets the results of the parents. Empty: they are the argument, if it is nil."""
    after: tuple[str, ...] = ()
    """The parents: jqd's ids, or qualified own ids."""
    on_parent_failure: OnFailure = "fail"
    group: str = ""
    """The qualified name of the job's group; empty: none."""
    unique: str = ""
    """The job's unique key, as `unique_key` makes it."""
    until: Until = "ended"
    """How long the job has its unique key: until it begins (`waiting`), or until it has ended."""
    parent: str = ""
    """The job whose outcome made this one, or whose callback this one is."""
    callback: str = ""
    """The URL to which the job's end is posted. Of a CALLBACK job: to which it posts the end of its parents."""
    not_before_ms: int = 0
    """The date before which it must not begin once its parents have ended; 0: none."""
    released: bool = False
    """Whether its parents have ended, or it does not wait for them any more."""
    failed: str = ""
    """Why the job is to fail without being run: a parent that did not succeed, or a constant above."""
    one_result: bool = False
    """Whether the job, which has one parent, gets that one's result itself instead of an array of one."""

    @property
    def then(self) -> bytes:
        """The jobs that follow a success, as a MessagePack array; empty for most jobs."""
        return self.then_text.encode("latin-1")

    @property
    def is_blocked(self) -> bool:
        return bool(self.after) and (not self.released or bool(self.failed))

    @property
    def mark(self) -> str:
        """A digest of the parents: it tells a job from a replacement that waits for others."""
        return blake2b("\n".join(self.after).encode(), digest_size=8).hexdigest()


def unique_key(jobtype: str, unique: str) -> str:
    """Return the name of a unique key in the store. With the qualified jobtype, as each type has keys of its own."""
    return f"{jobtype}{KEY_SEPARATOR}{unique}"


def unique_text(key: str) -> str:
    """Return the unique key as its pusher wrote it, without the jobtype."""
    return key.rpartition(KEY_SEPARATOR)[2]


def as_text(then: bytes) -> str:
    """Return `then` as `Flow.then_text`."""
    return then.decode("latin-1")


def as_array(then: bytes) -> bytes:
    """Return `then`, a job or an array of jobs, as a MessagePack array; empty for nil."""
    if then in (b"", NIL):
        return b""
    is_map = 0x80 <= then[0] <= 0x8F or then[0] in (0xDE, 0xDF)
    return b"\x91" + then if is_map else then


def jobs_of(then: bytes) -> list[dict[str, Raw]]:
    """Decode the array of a `then`."""
    return _items_decoder.decode(then)


def wants_result(item: Mapping[str, Raw]) -> bool:
    """Return whether a job of a `then` gets the result of its parent."""
    return bytes(item.get("argument", NIL)) == NIL or bytes(item.get("result_into", NIL)) != NIL


def waiting(item: Mapping[str, Raw], parent: str) -> dict[str, Any]:
    """Return a job of a `then` for a parent with a large result: if it gets that, it waits for the parent, and reads
    the result from the store."""
    return {**item, "after": [parent], "one_result": True} if wants_result(item) else {**item}


def with_result(item: Mapping[str, Raw], result: bytes) -> dict[str, Any]:
    """Return a job of a `then` with its parent's result: in the field that it names, or as its argument."""
    job: dict[str, Any] = {**item}
    into = job.pop("result_into", None)
    argument = bytes(item.get("argument", NIL))
    if into is not None and bytes(into) != NIL:
        job["argument"] = put_into(argument, msgspec.msgpack.decode(into, type=str), result)
    elif argument == NIL:
        job["argument"] = Raw(result)
    return job


def put_into(argument: bytes, field: str, value: bytes) -> Raw:
    """Return an argument (a map; nil counts as an empty one) with this field set. Raises msgspec.ValidationError."""
    fields = {} if argument == NIL else msgspec.msgpack.decode(argument, type=dict[str, Raw])
    return Raw(_encoder.encode({**fields, field: Raw(value)}))
