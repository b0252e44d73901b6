"""What reads bytes that others wrote, each as a plain function of bytes, with the errors that it may end with.

Whatever the bytes are, a target returns or raises one of these. Any other exception is an internal error; so is taking
long, or much memory.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from hypothesis import strategies as st

from jqd.api.decode import read_body, read_query
from jqd.api.problems import Problem
from jqd.api.v1.leases import Outcome as Reported
from jqd.api.v1.push import PushQuery, _read_json
from jqd.domain.array_split import finish
from jqd.domain.errors import AnswerGarbled, JournalError, ServiceError, StoreRefused
from jqd.domain.job_spec import JobSpec
from jqd.domain.jobid import IdSource
from jqd.domain.record import DECODERS, Head, Lane, encode_jobs
from jqd.http import Refused, Request, RequestHead
from jqd.http.body import Chunked
from jqd.http.head import check_start, read_head
from jqd.journal.frame import SegmentHeader, pack_frame_header, pack_head
from jqd.journal.inspect import snapshot, walk
from jqd.journal.recover import recover
from jqd.journal.segment import name_of
from jqd.runner.protocols.lines import _Lines
from jqd.runner.protocols.stream import AnswerReader
from jqd.service import ServiceConfig
from jqd.service.batch import read_array
from jqd.service.bulk import Filter
from jqd.store import codec, views
from jqd.store.keys import Keys
from jqd.testing.clock import ManualClock
from tests.harness.files import MemoryFiles
from tests.wire.corpus import BAD_CHUNKS, REFUSED

CONFIG = ServiceConfig(job_bytes_max=100_000, array_bytes_max=1_000_000, array_jobs_max=1_000)
KEYS = Keys("jqd")
SEGMENT = b"s" * 16
PLACE = Path("/journal")
FIRST_ID = IdSource(journal=5, salt=7, clock=ManualClock()).take(1).first
pack = msgspec.msgpack.encode


class Target(NamedTuple):
    """One reader."""

    read: Callable[[bytes], object]
    refuses: tuple[type[Exception], ...]
    """What it may end with."""
    seeds: Sequence[bytes]
    """Good ones, to begin from."""

    def __call__(self, data: bytes) -> None:
        """Raises what is no refusal."""
        with suppress(*self.refuses):
            self.read(data)


def push(data: bytes) -> None:
    """What is pushed, in MessagePack and in JSON; what was taken can be read again from its frame."""
    for single in (False, True):
        with suppress(ServiceError):
            batch = read_array(b"\x91" + data if single else data, single, CONFIG)
            if batch.jobs:
                head = Head(FIRST_ID, 1)
                assert [job.jobtype for job in DECODERS[Lane.JOBS](encode_jobs(head, batch.array))] == [
                    job.name for job in batch.jobs
                ]
    for kind in ("application/json", "application/x-ndjson"):
        with suppress(ServiceError):
            finish(_read_json(kind, data, CONFIG))


def request(data: bytes) -> None:
    """Bodies and queries of other calls; the first byte says of which."""
    types: list[type[msgspec.Struct]] = [JobSpec, Reported, Filter]
    which, body = data[:1] or b"\0", data[1:]
    kind = ("application/json", "application/msgpack")[which[0] & 1]
    asked = Request(RequestHead("POST", "/", "/", body.split(b"\0")[0], {"content-type": kind}), body=body)
    with suppress(ServiceError, Problem):
        read_query(asked, PushQuery)
    read_body(asked, types[which[0] // 2 % len(types)])


def segment(data: bytes) -> None:
    """A file of the journal whose head is good, or is `data`: looked at, and recovered from."""
    header = SegmentHeader(b"j" * 16, SEGMENT, 0, 0, 1, 1)
    for content in (pack_head(header) + data, data):
        files = MemoryFiles.holding({PLACE / name_of(0): content})
        for seen in snapshot(files, PLACE):
            for _ in walk(files, seen):
                continue
        with suppress(JournalError):
            recover(files, PLACE)


def framed(data: bytes) -> None:
    """A frame whose sums are right, of any kind and content."""
    kind, body = (data[:1] or b"\0")[0], data[1:] or b"\0"
    header = pack_frame_header(SEGMENT, 0, kind=kind, records=1, back=0, seq=1, at_ms=1, body=body)
    with suppress(JournalError):
        segment(header + body + data)
    if kind in DECODERS:
        DECODERS[Lane(kind)](body)


def answer(data: bytes) -> None:
    """A worker's answer, as it comes in pieces: the first byte says how, and how long they are."""
    how, body = (data[:1] or b"\0")[0], data[1:]
    kind = ("", "application/json", "application/json-seq", "application/x-msgpack")[how & 3]
    size = 1 + (how >> 2)
    told: list[list[str]] = []
    for step in (size, len(body) or 1):
        reader = AnswerReader(kind, value_bytes_max=10_000, values_max=100)
        heard: list[str] = []
        told.append(heard)
        with suppress(AnswerGarbled):
            for at in range(0, len(body), step):
                heard += map(repr, reader.feed(body[at : at + step]))
            heard += map(repr, reader.end())
    # How it is cut on its way does not change what it says, up to where it is garbled.
    short, long = sorted(told, key=len)
    assert short == long[: len(short)]
    lines = _Lines(["a", "b"], 10_000, 200, single=bool(how & 1))
    for at in range(0, len(body), size):
        list(lines.feed(body[at : at + size]))
    list(lines.end())


def row(data: bytes) -> None:
    """What stands in the store, by every decoder there is."""
    for decode in (codec.decode_job, codec.decode_tries, views.decode_end, codec.decode_generation):
        with suppress(codec.Unreadable, StoreRefused):  # a row of another version is left for the jqd that wrote it
            decode(KEYS, FIRST_ID, data)
    for decode_value in (codec.text, codec.whole, codec.list_of):
        with suppress(codec.Unreadable):
            decode_value(KEYS, "jobs", data)
    with suppress(codec.Unreadable):
        codec.decode_members(KEYS, [data[:4], data[4:]], "x")
    pieces = [*data.split(b"|", 2), b"", b""]
    with suppress(StoreRefused):
        codec.decode_held(KEYS, FIRST_ID, 5, pieces[0], pieces[1] or None, pieces[2] or None)


def head(data: bytes) -> None:
    """A request's head and body, as a door reads them; nothing of it is read twice."""
    check_start(data)
    end = data.find(b"\r\n\r\n") + 4
    if end < 4:
        return
    found = read_head(data[:end])
    assert b"\n" not in found.raw_path + found.query
    assert found.path.startswith("/")
    buffer = bytearray(data[end:])
    before = len(buffer)
    if found.chunked:
        assert len(Chunked().take(buffer)) + len(buffer) <= before


JOB = {"name": "a", "argument": [1, {"k": b"x"}], "priority": -1, "tags": ["t"], "delay": 1.5}
ANSWERS = (
    {"job_id": "a", "type": "success", "result": 7},
    {"job_id": "b", "status": 500, "message": "no", "error": {"x": 1}},
    {"batchItemFailures": [{"itemIdentifier": "a"}]},
)
_frame = pack_frame_header(SEGMENT, 0, kind=int(Lane.JOBS), records=1, back=0, seq=1, at_ms=1, body=b"\x90")

TARGETS: dict[str, Target] = {
    "push": Target(
        push,
        (),
        [pack(JOB), pack([JOB, JOB]), b"[]", json.dumps([{"name": "a", "argument": {"$bytes": "eA=="}}]).encode()],
    ),
    "request": Target(
        request,
        (ServiceError, Problem),
        [b"\1" + pack(JOB), b"\0" + b'{"name": "a"}', b"\3" + pack(ANSWERS[0]), b"\4" + b'{"state": "failed"}'],
    ),
    "segment": Target(
        segment, (JournalError,), [b"", _frame + b"\x90", pack_head(SegmentHeader(b"j" * 16, SEGMENT, 0, 0, 1, 1))]
    ),
    "framed": Target(
        framed,
        (JournalError,),
        [
            bytes([Lane.JOBS]) + encode_jobs(Head(FIRST_ID, 1), pack([JOB])),
            bytes([Lane.CANCELS]) + pack([FIRST_ID]),
            bytes([Lane.RULES]) + pack([["worker", "w", 1, 1, {}]]),
        ],
    ),
    "answer": Target(
        answer,
        (),
        [
            *(bytes([3 + 4 * size]) + pack(one) for size, one in enumerate([*ANSWERS, [*ANSWERS]])),
            *(bytes([1 + 4 * size]) + json.dumps(one).encode() for size, one in enumerate([*ANSWERS, [*ANSWERS]])),
            b"\0200 done\n500 no\n",
        ],
    ),
    "row": Target(row, (codec.Unreadable,), [b"\x00\x00\x00\x01", b"5:6", b"c", b"12:34:x"]),
    "head": Target(
        head,
        (Refused,),
        [data for _, data in REFUSED.values()]
        + [
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
            for chunks in BAD_CHUNKS.values()
        ]
        + [b"POST /v1/jobs?a=b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n\r\n"],
    ),
}


def any_bytes(target: Target) -> st.SearchStrategy[bytes]:
    """For hypothesis: bytes, and what is not far from the seeds."""

    @st.composite
    def near(draw: st.DrawFn) -> bytes:
        body = bytearray(draw(st.sampled_from(list(target.seeds))))
        for _ in range(draw(st.integers(0, 4))):
            at = draw(st.integers(0, len(body)))
            body[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=5))
        return bytes(body)

    return near() | st.binary(max_size=200)
