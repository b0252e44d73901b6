"""The pushes of miniq: a job for each line of text, from programs alone."""

import msgspec
import pytest

from jqd.api import ApiConfig
from tests.api.edge import JSON, Answer
from tests.api.whole import Whole

LINES = b'# what is to be sent\nann@example.org hello\n\n  bob 2 \n{"n": 1}\r\n   \n#J: none\nlast'
PAYLOADS = ["ann@example.org hello", "  bob 2 ", '{"n": 1}', "last"]
PATHS = ["/-/job/mail/add", "/add?jobtype=mail"]


@pytest.fixture
async def edge() -> Whole:
    return await Whole(ApiConfig(job_bytes_max=1_000, array_jobs_max=50)).begin()


async def add(edge: Whole, path: str, body: bytes, kind: str | None = "text/plain", **headers: str) -> Answer:
    said = {name.replace("_", "-"): value for name, value in headers.items()}
    return await edge.call("POST", path, body, kind=kind, accept=JSON, headers=said)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "kind", ["text/plain; charset=utf-8", None, "application/x-www-form-urlencoded", "application/octet-stream"]
)
async def test_each_line_is_the_payload_of_a_job(edge, path, kind):
    told = await add(edge, path, LINES, kind)
    jobs = edge.journal.jobs()
    assert (told.status, told.body) == (200, {"ok": True, "count": 4, "ids": [job.id for job in jobs]})
    assert [msgspec.msgpack.decode(job.argument) for job in jobs] == PAYLOADS
    assert {job.jobtype for job in jobs} == {"mail"}
    assert edge.journal.synced == edge.journal.written


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"good\n\xff\n", "text/plain", 400),
        (b"good\n" + b"x" * 1_001 + b"\n", "text/plain", 400),
        (b"x\n" * 51, "text/plain", 413),
        (b"x", "application/json", 415),
        (b"x", "multipart/form-data", 415),
    ],
)
async def test_all_of_a_request_is_taken_or_nothing(edge, path, body, kind, status):
    assert (await add(edge, path, body, kind)).status == status
    assert edge.journal.frames == []


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("body", [b"", b"\n \n# only that\n"])
async def test_lines_that_are_all_dropped_are_no_job(edge, path, body):
    told = await add(edge, path, body)
    assert (told.status, told.body) == (200, {"ok": True, "count": 0, "ids": []})
    assert edge.journal.frames == []


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("said", [{"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}])
async def test_no_page_pushes_lines(edge, path, said):
    assert (await add(edge, path, LINES, **said)).status == 403
    own = {"origin": "http://localhost"} if "origin" in said else {"sec-fetch-site": "same-origin"}
    assert (await add(edge, path, LINES, **own)).status == 415, "nor one of its own, which could be a form"
    assert edge.journal.frames == []


async def test_a_client_is_a_tenant(edge):
    assert (await add(edge, "/acme/job/mail/add", b"x")).status == 200
    assert (await add(edge, "/add?jobtype=mail&client=acme", b"x")).status == 200
    assert [job.tenant for job in edge.journal.jobs()] == ["acme", "acme"]
    assert (await add(edge, "/acme/job/mail/add", b"x", jqd_tenant="other")).status == 403
    assert (await add(edge, "/Not a tenant/job/mail/add", b"x")).status == 422
    assert (await add(edge, "/add", b"x")).status == 400
    assert (await add(edge, "/add?jobtype=mail&colour=red", b"x")).status == 422
