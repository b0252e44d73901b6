"""Bodies of frames that are taken apart and made anew."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, structs

from jqd.domain import array_split
from jqd.domain.array_split import finish
from jqd.domain.carried import carry_jobs, generations
from jqd.domain.errors import JournalDamaged
from jqd.domain.job import ChangeKind, Job
from jqd.domain.job_spec import JobOptions, digest_of
from jqd.domain.jobid import IdSource
from jqd.domain.record import Head, Lane, decode_in_pieces, decode_jobs, encode_jobs, job_ids
from jqd.domain.tenant import annotate, bare
from jqd.testing.clock import ManualClock

SIZE = 12


def frame(size: int = SIZE) -> tuple[list[str], bytes]:
    ids = IdSource(journal=3, salt=1, clock=ManualClock()).take(size)
    jobs = [{"name": f"t{n}", "argument": bytes([n]) * n, "priority": n} for n in range(size)]
    some = [(JobOptions(timeout=9.0), [*range(0, size, 5)]), (JobOptions(max_retry=2), list[int]())]
    head = Head(ids.first, 5_000, {n: 6_000 + n for n in range(0, size, 3)}, options=some)
    return ids.ids(), encode_jobs(head, msgspec.msgpack.encode(jobs))


@given(st.sets(st.integers(0, SIZE - 1)))
def test_carried_jobs_are_the_kept_ones_as_they_were(kept: set[int]) -> None:
    ids, body = frame()
    whole = decode_jobs(body)
    made = list(carry_jobs(body, {ids[n] for n in kept}, 700))
    carried = [job for _, _, part in made for job in decode_jobs(part)]
    assert [(job.timeout, job.max_retry) for job in whole] == [(30.0 if n % 5 else 9.0, 2) for n in range(SIZE)]
    assert carried == [structs.replace(whole[n], copied=(700 + n, 700 + n)) for n in sorted(kept)]
    assert [(lane, records) for lane, records, _ in made] == [(Lane.JOBS, len(decode_jobs(part))) for *_, part in made]
    runs = sum(n - 1 not in kept for n in kept)
    assert len(made) == runs, "neighbours share a frame"


@given(st.integers(1, 5), st.integers(1, 60), st.sampled_from(["", "acme"]), st.booleans(), st.binary(max_size=2))
def test_a_frame_is_the_same_in_pieces(number: int, size: int, tenant: str, named: bool, ending: bytes) -> None:
    ids, some = IdSource(journal=3, salt=1, clock=ManualClock()).take(SIZE).ids(), JobOptions(timeout=9.0)
    ours = [{"job_id": f"id {n}"} if named else {} for n in range(SIZE)]
    jobs = [{"name": f"t{n}", "argument": [n] * n, "expires_in": 1.5} | our for n, our in enumerate(ours)]
    changes = {n: (ids[-n], 70 + n, 0, ChangeKind.NEW) for n in range(0, SIZE * named, 2)}
    head = Head(ids[0], 5_000, {3: 6_000}, changes, options=[(some, [1, 7])], copied=(4, 8), request="r" * named)
    body = encode_jobs(structs.replace(head, tenant=tenant), msgspec.msgpack.encode(jobs)) + ending
    for torn in (body, body[:-1], body[:20], body[1:], b"\xc1" + body):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(array_split, "PIECE_ITEMS", number)
            patch.setattr(array_split, "PIECE_BYTES", size)
            patch.setattr(array_split, "FED_BYTES", size)
            in_pieces = told(lambda body: finish(decode_in_pieces(body)), torn)
        assert in_pieces == told(decode_jobs, torn)


def told(read: Callable[[bytes], list[Job]], body: bytes) -> object:
    try:
        return read(body)
    except JournalDamaged as error:
        return str(error)


def test_jobs_of_a_tenant_have_it_before_their_names_also_when_they_are_carried() -> None:
    ids, _ = frame()
    jobs = msgspec.msgpack.encode([{"name": "mail", "job_id": "order-7", "argument": 1}, {"name": "bill"}])
    changes = {0: (ids[0], 70, 0, ChangeKind.NEW)}
    plain = encode_jobs(Head(ids[0], 5_000, {}, changes), jobs)
    owned = encode_jobs(Head(ids[0], 5_000, {}, changes, tenant="acme"), jobs)
    ours, theirs = decode_jobs(plain), decode_jobs(owned)
    assert [(job.tenant, job.jobtype, job.name) for job in theirs] == [
        ("acme", annotate("acme", "mail"), annotate("acme", "order-7")),
        ("acme", annotate("acme", "bill"), ""),
    ]
    assert [structs.replace(job, jobtype=bare(job.jobtype), name=bare(job.name)) for job in theirs] == ours
    assert job_ids(owned) == job_ids(plain)
    assert generations(owned) == generations(plain)
    carried = [job for _, _, part in carry_jobs(owned, set(ids), 700) for job in decode_jobs(part)]
    assert [structs.replace(job, copied=None) for job in carried] == theirs
    more = msgspec.msgpack.decode(owned)
    more[0]["colour"] = "red"
    for bad in (
        owned.replace(b"acme", b"ACME"),
        owned[:-1],
        b"\x93" + owned[1:] + b"\xc0",
        msgspec.msgpack.encode(more),
    ):
        with pytest.raises(JournalDamaged):
            decode_jobs(bad)


def test_a_copy_of_a_copy_says_where_the_job_stood_first_and_last() -> None:
    ids, body = frame()
    ((*_, once),) = carry_jobs(body, set(ids[2:9]), 700)
    ((*_, twice),) = carry_jobs(once, set(ids[4:6]), 9_000)
    assert [job.copied for job in decode_jobs(once)] == [(700 + n, 700 + n) for n in range(2, 9)]
    assert [job.copied for job in decode_jobs(twice)] == [(700 + n, 9_000 + n - 2) for n in (4, 5)]


def test_ids_of_a_frame_are_known_without_its_arguments() -> None:
    ids, body = frame()
    assert job_ids(body) == ids


@pytest.mark.parametrize("body", [b"", b"\xc1", msgspec.msgpack.encode([{"first": "nonsense", "at": 1}, []])])
def test_a_frame_that_is_none_is_damage(body: bytes) -> None:
    with pytest.raises(JournalDamaged):
        job_ids(body)
    with pytest.raises(JournalDamaged):
        list(carry_jobs(body, set(), 0))


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({"priority": 0, "max_retry": 5, "keep_result": False, "tags": [], "run_at": None, "delay": None}, True),
        ({"replace": True}, True),
        ({"argument": None}, True),
        ({"timeout": 30}, True),
        ({"keep_result": True}, True),
        ({"timeout": 31}, False),
        ({"tags": ["a"]}, False),
    ],
)
def test_what_is_the_same_content(fields: dict[str, Any], same: bool) -> None:
    """What is left out is its default (docs/use/HTTP.md, Your own ids)."""
    job = {"name": "mail", "job_id": "mine"}
    digests = {digest_of(Raw(msgspec.msgpack.encode(each))) for each in (job, job | fields)}
    assert (len(digests) == 1) is same
