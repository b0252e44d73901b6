"""Makes the frames that retention appends to a journal before it deletes an old segment. They are copies of the
segment's jobs that have not ended: jobs in frames of jobs, and followers in outcomes."""

import itertools
from collections.abc import Collection, Iterator

import msgspec

from jqd.domain.job import NIL
from jqd.domain.jobid import IdRange
from jqd.domain.outcome_followers import PARENT, has_jobs
from jqd.domain.record import Head, Lane, decode_outcomes, encode_jobs, encode_outcomes, job_ids, read_jobs

_encoder = msgspec.msgpack.Encoder()


def jobs_in(lane: Lane, body: bytes) -> dict[str, int]:
    """Return id → approximate bytes of each job in a frame; in a frame of outcomes, of each follower. Raises
    JournalDamaged."""
    if lane is Lane.OUTCOMES:
        return _followers_in(body) if PARENT in body else {}  # a quick check: nearly no frame has followers
    ids = job_ids(body)
    return dict.fromkeys(ids, len(body) // len(ids))


def carry(lane: Lane, body: bytes, keep: Collection[str], position: int) -> Iterator[tuple[Lane, int, bytes]]:
    """Copy those jobs of a frame whose ids are in `keep` into new frames. Yields each new frame as (lane, number of
    records, body).

    `position`: the journal position of the frame, which the copies record as their origin. Raises JournalDamaged.
    """
    return (_carry_followers if lane is Lane.OUTCOMES else carry_jobs)(body, keep, position)


def carry_jobs(body: bytes, keep: Collection[str], position: int) -> Iterator[tuple[Lane, int, bytes]]:
    """Copy those jobs of a frame of jobs whose ids are in `keep` into new frames. Yields each new frame as (lane,
    number of records, body). `position`: that of the frame, which the copies record as their origin.

    Jobs are copied byte for byte as they were pushed. A frame names only its first id, so jobs that are not neighbours
    go into separate frames."""
    head, records, ids = read_jobs(body)
    first_at = head.copied[0] if head.copied else position
    given = IdRange(head.first, len(records), head.homes).ids()
    given_to = [(options, frozenset(places)) for options, places in head.options]
    kept = (index for index, job_id in enumerate(ids) if job_id in keep)
    # Neighbours have the same difference between their place in the frame and their place among the kept jobs.
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
    """Return job id → generation (the number of its content's version) for the jobs in a frame of changes. Raises
    JournalDamaged."""
    head, _, _ = read_jobs(body)
    return {job_id: generation for job_id, _, generation, _ in head.changes.values()}


def _carry_followers(body: bytes, keep: Collection[str], position: int) -> Iterator[tuple[Lane, int, bytes]]:
    """Copy those outcomes of a frame that contain followers with an id in `keep`, with these followers alone. Yields
    the new frame as (lane, number of records, body), or nothing. `position`: that of the frame, which the copies record
    as their origin. The outcomes' results are left out, because the store has them already."""
    carried = []
    for index, outcome in enumerate(decode_outcomes(body)):
        if not has_jobs(outcome.follows):
            continue
        head, jobs, ids = read_jobs(outcome.follows)
        places = [place for place, job_id in enumerate(ids) if job_id in keep]
        if not places:
            continue
        moved = {place: to for to, place in enumerate(places)}
        theirs = ((options, [moved[place] for place in of or places if place in moved]) for options, of in head.options)
        head = msgspec.structs.replace(
            head,
            eligible={moved[place]: at_ms for place, at_ms in head.eligible.items() if place in moved},
            options=[(options, of) for options, of in theirs if of],
            copied=(head.copied[0] if head.copied else position + index, position + index),
        )
        follows = encode_jobs(head, _encoder.encode([jobs[place] for place in places]))
        carried.append(msgspec.structs.replace(outcome, result=NIL, log="", log_from=0, follows=follows))
    if carried:
        yield Lane.OUTCOMES, len(carried), encode_outcomes(carried)


def _followers_in(body: bytes) -> dict[str, int]:
    found: dict[str, int] = {}
    for outcome in decode_outcomes(body):
        if has_jobs(outcome.follows):
            ids = job_ids(outcome.follows)
            found |= dict.fromkeys(ids, len(outcome.follows) // len(ids))
    return found
