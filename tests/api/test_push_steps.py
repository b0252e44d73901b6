"""However many jobs a push has, and whatever is wrong with them, other tasks run in between."""

from collections.abc import Callable

import msgspec
import pytest

from jqd.http import SOME_BYTES
from tests.api.edge import JSON, MSGPACK, Edge
from tests.api.work import most_calls

NDJSON = "application/x-ndjson"
CALLS_MAX = 25_000  # in one step of a task: some 4 ms
JOBS_MAX = 10_000
ANSWER_BYTES_MAX = 200_000  # of which some 130 are a fault
SORTS: dict[str, tuple[bytes, int]] = {
    "good": (b'{"name":"a"}', 201),
    "empty": (b"{}", 422),
    "no map": (b"7", 422),
    "no JSON job": (b'{"$bytes":1}', 422),
    "many faults": (b'{"name":5,' + b",".join(b'"x%d":1' % n for n in range(12)) + b"}", 422),
    "wrong within": (b'{"name":"b","then":{"name":1}}', 422),
    "decoded and wrong": (b'{"name":"a","tags":[""],"delay":-1}', 422),
}


def array(job: bytes, count: int) -> bytes:
    return b"[" + b",".join([job] * count) + b"]"


def lines(job: bytes, count: int) -> bytes:
    return b"\n".join([job] * count)


def packed(job: bytes, count: int) -> bytes:
    return msgspec.msgpack.encode([msgspec.json.decode(job)] * count)


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize(("kind", "body"), [(JSON, array), (NDJSON, lines), (MSGPACK, packed)])
@pytest.mark.parametrize("bytes_max", [SOME_BYTES, 1 << 20])
async def test_a_push_leaves_the_loop_to_others(
    monkeypatch: pytest.MonkeyPatch, sort: str, kind: str, body: Callable[[bytes, int], bytes], bytes_max: int
) -> None:
    """30 KB of empty jobs held the loop for 270 ms: decoded at once, each described, and answered with 1.3 MB."""
    job, status = SORTS[sort]
    count = min(JOBS_MAX, (bytes_max - 2) // (len(body(job, 2)) - len(body(job, 1))))
    edge, held = Edge(), list[float]()
    monkeypatch.setattr(edge.api._large, "note", lambda owner, calls: held.append(calls))
    with most_calls(monkeypatch) as counted:
        monkeypatch.setattr("jqd.api.v1.push.thread_s", lambda: counted.all)
        told = await edge.call("POST", "/v1/jobs", body(job, count), kind=kind)
    assert told.status == status
    assert len(told.raw) < (ANSWER_BYTES_MAX if status == 422 else 30 * count + 100)
    assert counted.most < CALLS_MAX
    assert max(held, default=0) <= counted.most, "its steps counted as if none had let others run"


@pytest.mark.parametrize("kind", [JSON, MSGPACK])
@pytest.mark.parametrize("job", [{"name": "a", "tags": ["t"] * 3_000}, {"name": "a", "argument": [{}] * 9_000}])
async def test_one_job_counts_with_all_of_its_reading(
    monkeypatch: pytest.MonkeyPatch, kind: str, job: dict[str, object]
) -> None:
    """A job of 250 KB holds the loop for some 8 ms at once; in MessagePack that was not counted."""
    edge, held = Edge(), list[float]()
    monkeypatch.setattr(edge.api._large, "note", lambda owner, calls: held.append(calls))
    with most_calls(monkeypatch) as counted:
        monkeypatch.setattr("jqd.api.v1.push.thread_s", lambda: counted.all)
        await edge.call("POST", "/v1/jobs", job, kind=kind)
    assert 0 < held[0] <= counted.most
