"""What retention copies to a journal's end: jobs that have not ended, of frames of jobs or of the outcomes that they
follow."""

import itertools
from collections.abc import Collection, Iterator

import msgspec

from jqd.domain.brought import PARENT, has_jobs
from jqd.domain.job import NIL
from jqd.domain.jobid import IdRange
from jqd.domain.record import Head, Lane, decode_outcomes, encode_jobs, encode_outcomes, job_ids, read_jobs

_encoder = msgspec.msgpack.Encoder()


def jobs_in(lane: Lane, body: bytes) -> dict[str, int]:
    """Return id → size of the jobs in a frame of that lane. Raises JournalDamaged."""
    if lane is Lane.OUTCOMES:
        return _followers_in(body) if PARENT in body else {}  # nearly none has any
    ids = job_ids(body)
    return dict.fromkeys(ids, len(body) // len(ids))


def carry(lane: Lane, body: bytes, keep: Collection[str], position: int) -> Iterator[tuple[Lane, int, bytes]]:
    """Return those whose ids are in `keep`, as (lane, records, body) of new frames. `position`: of the frame; a copy
    says where it comes from. Raises JournalDamaged."""
    return (_carry_followers if lane is Lane.OUTCOMES else carry_jobs)(body, keep, position)


def carry_jobs(body: bytes, keep: Collection[str], position: int) -> Iterator[tuple[Lane, int, bytes]]:
    """Byte for byte as pushed. One frame for each run of neighbours, because a frame names its first id only."""
    head, records, ids = read_jobs(body)
    first_at = head.copied[0] if head.copied else position
    given = IdRange(head.first, len(records), head.homes).ids()
    given_to = [(options, frozenset(places)) for options, places in head.options]
    kept = (index for index, job_id in enumerate(ids) if job_id in keep)
    # Neighbours have the same distance between their place in the frame and their place among the kept.
    for _, run in itertools.groupby(enumerate(kept), key=lambda pair: pair[1] - pair[0]):
        indexes = [index for _, index in run]
        first = indexes[0]
        eligible = {index - first: head.eligible[index] for index in indexes if index in head.eligible}
        changes = {index - first: head.changes[index] for index in indexes if index in head.changes}
        jobs = _encoder.encode(records[first : indexes[-1] + 1])
        homes = head.homes[first : indexes[-1] + 1]
        lane = Lane.CHANGES if changes else Lane.JOBS
        copied = first_at + first, position + first
        theirs = ((each, [index - first for index in indexes if not of or index in of]) for each, of in given_to)
        options = [(each, places) for each, places in theirs if places]
        released = {index - first: head.released[index] for index in indexes if index in head.released}
        carried = Head(
            given[first],
            head.at,
            eligible,
            changes,
            homes,
            head.life,
            options,
            copied,
            head.request,
            head.tenant,
            released,
        )
        yield lane, len(indexes), encode_jobs(carried, jobs)


def generations(body: bytes) -> dict[str, int]:
    """Id → generation of the jobs of a frame that are changes. Raises JournalDamaged as `decode_jobs` does."""
    head, _, _ = read_jobs(body)
    return {job_id: generation for job_id, _, generation, _ in head.changes.values()}


def _carry_followers(body: bytes, keep: Collection[str], position: int) -> Iterator[tuple[Lane, int, bytes]]:
    """With their outcomes, but without results, for these were applied before."""
    carried = []
    for index, one in enumerate(decode_outcomes(body)):
        if not has_jobs(one.follows):
            continue
        head, jobs, ids = read_jobs(one.follows)
        places = [place for place, its in enumerate(ids) if its in keep]
        if not places:
            continue
        moved = {place: to for to, place in enumerate(places)}
        theirs = ((options, [moved[place] for place in of or places if place in moved]) for options, of in head.options)
        head = msgspec.structs.replace(
            head,
            eligible={moved[place]: at_ms for place, at_ms in head.eligible.items() if place in moved},
            options=[(options, its) for options, its in theirs if its],
            copied=(head.copied[0] if head.copied else position + index, position + index),
        )
        follows = encode_jobs(head, _encoder.encode([jobs[place] for place in places]))
        carried.append(msgspec.structs.replace(one, result=NIL, log="", log_from=0, follows=follows))
    if carried:
        yield Lane.OUTCOMES, len(carried), encode_outcomes(carried)


def _followers_in(body: bytes) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in decode_outcomes(body):
        if has_jobs(one.follows):
            ids = job_ids(one.follows)
            found |= dict.fromkeys(ids, len(one.follows) // len(ids))
    return found
