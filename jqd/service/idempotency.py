"""Idempotency-Keys: the same request again counts once, another request under that key is refused.

A key is nothing but names, so it is durable and holds on all daemons, as names do (`id_reservations.py`); it is free
again when its jobs are forgotten. The first job is called after the key alone and stands for the whole request: a name
is compared by the digest of all that came with its job, so any other request under the key, and be it this one with
more jobs or fewer, meets that name before anything is journaled. The other jobs are called after the key, that digest
and their place, which no other request asks for; they are written when the first one's name stands, or
with it where all or nothing is asked for (`push.py`).

That some names are known and others are not is no sign of another request: its daemon may have died between two calls
of the store.
"""

from base64 import b32encode
from hashlib import sha256

import msgspec
from msgspec import Raw, structs

from jqd.domain.errors import Fault, Invalid, JournalRefused, NotYet
from jqd.domain.job_spec import request_digest
from jqd.service.batch import Batch
from jqd.service.job_limits import KEY_STEM

KEY_LENGTH_MAX = 255  # characters of a key: as others have it
DIGEST_BYTES = 15  # of a key: 24 characters; two of 2^40 keys are alike with a chance of 2^-41

_items_decoder = msgspec.msgpack.Decoder(list[dict[str, Raw]])
_encoder = msgspec.msgpack.Encoder()


def under_key(batch: Batch, key: str) -> Batch:
    """Name each job of a batch after the key. Raises Invalid for a job that has an id of its own."""
    named = next((place for place, job in enumerate(batch.jobs) if job.job_id is not None), None)
    if named is not None:
        why = "a job_id does for one job what an Idempotency-Key does for a request: give one of the two"
        raise Invalid(why, batch.shown([Fault("/job_id", why, named)]))
    unique = next((place for place, job in enumerate(batch.jobs) if job.unique is not None), None)
    if unique is not None:
        why = "unique does for one job what an Idempotency-Key does for a request: give one of the two"
        raise Invalid(why, batch.shown([Fault("/unique", why, unique)]))
    # What cannot be read is told by its place: none of it is ever taken, whatever it is.
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
    """Raise Invalid where the first job, which stands for the request, is refused: without it the key would protect
    nothing."""
    if batch.key and batch.jobs[0].job_id != batch.key:
        why = "the first job stands for the whole request under its Idempotency-Key, and is refused: nothing was taken"
        raise Invalid(why, batch.shown(batch.refused))


def other_request() -> Invalid:
    """Return the error where a name of the key belongs to another job."""
    return Invalid(
        "this Idempotency-Key came with another request before; nothing was taken. Give a new request a new key, and "
        "send the same one again as it was"
    )


def overtaken(refused: JournalRefused | None = None) -> NotYet:
    """Return the error where the first job's name was given away while it was written: it is cancelled, and so are the
    others, where they were written. The same request would have kept the name, so a new key is needed. `refused`: by
    the
    journal, to cancel what was written."""
    became = (
        "nothing of this one was taken, but for what a worker had begun by then"
        if refused is None
        else f"what was written of this one could not be taken back ({refused}) and may run"
    )
    return NotYet(
        "while this request was written to disk another one came under its Idempotency-Key, and has it: "
        f"{became}. Send it under a new key"
    )
