"""A push under a key of its pusher's: the same request again counts once, another request under that key is refused.

A key is nothing but names: the first job is called after the key, the last and those between after the key and their
place. So a key is durable, and holds on all daemons, because names are and do (`names.py`); it is free again when its
jobs are forgotten. A request with another job at any place, or with another last one because it is longer or shorter,
meets a name that has other content, before anything is journaled.

That some names are known and others are not is no sign of another request: its daemon may have died between two calls
of the store.
"""

from base64 import b32encode
from hashlib import sha256

import msgspec
from msgspec import Raw, structs

from jqd.desk.batch import Batch
from jqd.words.errors import Fault, Invalid

KEY_LENGTH_MAX = 255  # characters of a key: as others have it
STEM = "idempotency-key."
DIGEST_BYTES = 15  # of a key: 24 characters; two of 2^40 keys are alike with a chance of 2^-41

_items_decoder = msgspec.msgpack.Decoder(list[dict[str, Raw]])
_encoder = msgspec.msgpack.Encoder()


def under_key(batch: Batch, key: str) -> Batch:
    """The same jobs, each named after the key. Raises Invalid for one that has a name already."""
    named = next((place for place, job in enumerate(batch.jobs) if job.job_id is not None), None)
    if named is not None:
        why = "a job_id does for one job what an Idempotency-Key does for a request: give one of the two"
        raise Invalid(why, batch.told([Fault("/job_id", why, named)]))
    first = STEM + b32encode(sha256(key.encode()).digest()[:DIGEST_BYTES]).decode().lower()
    names = [first, *(f"{first}.{place}" for place in range(1, len(batch.jobs)))]
    if len(names) > 1:
        names[-1] = f"{first}.last"
    items = [
        {**item, "job_id": Raw(_encoder.encode(name))}
        for item, name in zip(_items_decoder.decode(batch.array), names, strict=True)
    ]
    jobs = [structs.replace(job, job_id=name) for job, name in zip(batch.jobs, names, strict=True)]
    return structs.replace(batch, array=_encoder.encode(items), jobs=jobs, plain=False, key=key)


def other_request() -> Invalid:
    """What is said where a name of a key is another job's."""
    return Invalid(
        "this Idempotency-Key came with another request before; nothing was taken. Give a new request a new key, and "
        "send the same one again as it was"
    )
