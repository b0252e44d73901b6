"""A job's links to other jobs: what follows it, what it waits for, and which group it belongs to.

then      on success these jobs are written into the outcome, or pushed later from the outbox (followers.py)
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
"""The jobtype of callbacks. Only jqd itself makes such jobs, and every daemon can run them."""

RESULTS_TOO_LARGE = "results"  # in `Flow.failed`: the parents' results together are too large for an argument
THEN_TOO_LARGE = "THEN_TOO_LARGE"
"""The beginning of the message of a success whose result is too large to be given to the jobs in `then`. Jobs in `then`
that need the result fail."""
RESULTS_GONE = "gone"  # in `Flow.failed`: the result of a parent that succeeded was dropped meanwhile
NO_FIELD = "argument"  # in `Flow.failed`: the argument is no map, so `result_into` cannot be a field of it
NIL = b"\xc0"  # in MessagePack
KEY_SEPARATOR = "\x1e"  # not printable, so no jobtype or key contains it
OnFailure = Literal["run", "cancel", "fail"]
Until = Literal["waiting", "ended"]

_items_decoder = msgspec.msgpack.Decoder(list[dict[str, Raw]])
_encoder = msgspec.msgpack.Encoder()


class Flow(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A job's links to other jobs; most jobs have none. The store keeps these fields in the job's row."""

    then_text: str = ""
    """`then` decoded as Latin-1, because functions of the store cannot read bytes."""
    result_into: str = ""
    """The field of the argument that receives the results of the parents. Empty: the results become the argument, if
    the argument is nil."""
    after: tuple[str, ...] = ()
    """The ids of the parents: ids that jqd made, or pushers' own ids with the tenant before them."""
    on_parent_failure: OnFailure = "fail"
    group: str = ""
    """The name of the job's group, with the tenant before it; empty: none."""
    unique: str = ""
    """The job's unique key, as the function `unique_key` makes it."""
    until: Until = "ended"
    """How long the job has its unique key: until it begins (`waiting`), or until it has ended."""
    parent: str = ""
    """The id of the job whose outcome created this one, or whose callback this one is."""
    callback: str = ""
    """The URL to which the end of the job is posted. For a job of type CALLBACK: the URL to which it posts the end of
    its parents."""
    not_before_ms: int = 0
    """The date (Unix ms) before which the job must not begin, even if its parents have ended; 0: none."""
    released: bool = False
    """Whether the job no longer waits for its parents, because they have ended or it was released from them."""
    failed: str = ""
    """Why the job is to fail without being run: the id of a parent that did not succeed, or one of the constants
    above."""
    one_result: bool = False
    """Whether the job, which has exactly one parent, receives the parent's result itself and not an array with it."""

    @property
    def then(self) -> bytes:
        """The jobs that follow a success, as a MessagePack array; empty for most jobs."""
        return self.then_text.encode("latin-1")

    @property
    def is_blocked(self) -> bool:
        return bool(self.after) and (not self.released or bool(self.failed))

    @property
    def mark(self) -> str:
        """A digest of the parents' ids. It distinguishes a job from a later replacement that waits for other
        parents."""
        return blake2b("\n".join(self.after).encode(), digest_size=8).hexdigest()


def unique_key(jobtype: str, unique: str) -> str:
    """Return the name of a unique key in the store. It begins with the qualified jobtype, because each jobtype has its
    own keys."""
    return f"{jobtype}{KEY_SEPARATOR}{unique}"


def unique_text(key: str) -> str:
    """Return a unique key as its pusher wrote it, from its name in the store."""
    return key.rpartition(KEY_SEPARATOR)[2]


def as_text(then: bytes) -> str:
    """Return a `then`, which is MessagePack, as text in Latin-1: the form of `Flow.then_text`."""
    return then.decode("latin-1")


def as_array(then: bytes) -> bytes:
    """Return `then`, which is one job or an array of jobs in MessagePack, as a MessagePack array; empty for nil."""
    if then in (b"", NIL):
        return b""
    is_map = 0x80 <= then[0] <= 0x8F or then[0] in (0xDE, 0xDF)
    return b"\x91" + then if is_map else then


def jobs_of(then: bytes) -> list[dict[str, Raw]]:
    """Decode a `then`: a MessagePack array of jobs."""
    return _items_decoder.decode(then)


def wants_result(item: Mapping[str, Raw]) -> bool:
    """Return whether a job in a `then` receives the result of its parent."""
    return bytes(item.get("argument", NIL)) == NIL or bytes(item.get("result_into", NIL)) != NIL


def waiting(item: Mapping[str, Raw], parent: str) -> dict[str, Any]:
    """Return a job of a `then` as it is pushed if its parent's result is too large to be copied. If the job receives
    the result, it is made to wait for the parent, and reads the result from the store when it starts."""
    return {**item, "after": [parent], "one_result": True} if wants_result(item) else {**item}


def with_result(item: Mapping[str, Raw], result: bytes) -> dict[str, Any]:
    """Return a job of a `then` with its parent's result filled in: in the field that `result_into` names, or as its
    argument."""
    job: dict[str, Any] = {**item}
    into = job.pop("result_into", None)
    argument = bytes(item.get("argument", NIL))
    if into is not None and bytes(into) != NIL:
        job["argument"] = put_into(argument, msgspec.msgpack.decode(into, type=str), result)
    elif argument == NIL:
        job["argument"] = Raw(result)
    return job


def put_into(argument: bytes, field: str, value: bytes) -> Raw:
    """Return a job's argument with one field set. The argument must be a map, or nil, which becomes a map with this
    field. Raises msgspec.ValidationError."""
    fields = {} if argument == NIL else msgspec.msgpack.decode(argument, type=dict[str, Raw])
    return Raw(_encoder.encode({**fields, field: Raw(value)}))
