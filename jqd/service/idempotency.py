"""Idempotency-Keys: if the same request is sent again, its jobs are pushed once; another request with that key is
refused.

A key becomes the names (own ids) of the request's jobs. So it is as durable as names, is known at all daemons
(`id_reservations.py`), and is free again when its jobs are deleted.

    first job     <key>                      stands for the whole request: the store compares this name by the digest of
                                             the request, so any other request is refused before it is journaled
    other jobs    <key>.<digest>.<place>     no other request has such names; these jobs are journaled after the first
                                             one's name is confirmed, or with it if all or nothing is wanted (`push.py`)

Here <place> is the index of the job. If the store knows some of the names and not others, it may still be the same
request: its daemon may have died between two calls of the store.
"""

from base64 import b32encode
from hashlib import sha256

import msgspec
from msgspec import Raw, structs

from jqd.domain.errors import Fault, Invalid, JournalRefused, NotYet
from jqd.domain.job_spec import request_digest
from jqd.service.batch import Batch
from jqd.service.job_limits import KEY_STEM

KEY_LENGTH_MAX = 255  # characters of a key, as other services allow
DIGEST_BYTES = 15  # of a key, 24 characters: among 2^40 keys two are alike with a chance of 2^-41

_items_decoder = msgspec.msgpack.Decoder(list[dict[str, Raw]])
_encoder = msgspec.msgpack.Encoder()


def under_key(batch: Batch, key: str) -> Batch:
    """Name each job of a batch after an Idempotency-Key. Raises Invalid for a job that has an id or a unique key."""
    named = next((place for place, job in enumerate(batch.jobs) if job.job_id is not None), None)
    if named is not None:
        why = "a job_id does for one job what an Idempotency-Key does for a request: give one of the two"
        raise Invalid(why, batch.shown([Fault("/job_id", why, named)]))
    unique = next((place for place, job in enumerate(batch.jobs) if job.unique is not None), None)
    if unique is not None:
        why = "unique does for one job what an Idempotency-Key does for a request: give one of the two"
        raise Invalid(why, batch.shown([Fault("/unique", why, unique)]))
    # Bad jobs count for the digest only by their places: they are never taken, whatever they are.
    shape = [batch.single, batch.size, *(fault.place or 0 for fault in batch.refused)]
    request = request_digest(batch.array, shape)
    first = KEY_STEM + b32encode(sha256(key.encode()).digest()[:DIGEST_BYTES]).decode().lower()
    names = [first, *(f"{first}.{request}.{place}" for place in range(1, len(batch.jobs)))]
    items = [
        {**item, "job_id": Raw(_encoder.encode(name))}
        for item, name in zip(_items_decoder.decode(batch.array), names, strict=True)
    ]
    jobs = [structs.replace(job, job_id=name) for job, name in zip(batch.jobs, names, strict=True)]
    return structs.replace(batch, array=_encoder.encode(items), jobs=jobs, plain=False, key=first, request=request)


def expect_first(batch: Batch) -> None:
    """Raise Invalid if the first job of a batch with an Idempotency-Key was refused. That job stands for the whole
    request: without it the key has no effect."""
    if batch.key and batch.jobs[0].job_id != batch.key:
        why = "the first job stands for the whole request under its Idempotency-Key, and is refused: nothing was taken"
        raise Invalid(why, batch.shown(batch.refused))


def other_request() -> Invalid:
    """Return the error for a key that was used by another request before."""
    return Invalid(
        "this Idempotency-Key came with another request before; nothing was taken. Give a new request a new key, and "
        "send the same one again as it was"
    )


def overtaken(refused: JournalRefused | None = None) -> NotYet:
    """Return the error for a request that lost its Idempotency-Key to another request while it was written to disk. The
    error asks for a new key, since the old one now belongs to the other request.

    `refused`: why the journal refused to cancel the jobs of this request; None: they are cancelled."""
    became = (
        "nothing of this one was taken, but for what a worker had begun by then"
        if refused is None
        else f"what was written of this one could not be taken back ({refused}) and may run"
    )
    return NotYet(
        "while this request was written to disk another one came under its Idempotency-Key, and has it: "
        f"{became}. Send it under a new key"
    )
