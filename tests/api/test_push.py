"""POST /v1/jobs through ASGI."""

import msgspec
import pytest
import trio
import trio.testing

from jqd.domain.msgpack_depth import NESTING_MAX
from jqd.service.batch import DESCRIBED_MAX
from tests.api import whole as applied
from tests.api.edge import JSON, MSGPACK, Edge

pack = msgspec.msgpack.encode


@pytest.fixture
def edge() -> Edge:
    return Edge()


# ------------------------------------------------------------ what is taken


async def test_one_job_in_messagepack(edge):
    told = await edge.call("POST", "/v1/jobs", {"name": "mail", "argument": {"to": "a"}, "tags": ["x"]})
    assert told.status == 201
    (job,) = edge.journal.jobs()
    assert told.body == {"job_id": job.id, "ack": "fsync"}
    assert told.headers["location"] == f"/v1/jobs/{job.id}"
    assert (job.jobtype, job.argument, job.tags) == ("mail", pack({"to": "a"}), ("x",))
    assert (job.priority, job.max_retry, job.timeout, job.keep_result) == (0, 5, 30.0, False)
    assert edge.journal.synced == edge.journal.written
    assert [ids for ids, _ in edge.control.acknowledged] == [[job.id]]


async def test_an_array_goes_to_the_journal_as_it_came(edge):
    # Not how our own encoder would write it: a str 8 where a fixstr would do, and an int 64 for a zero.
    odd = b"\x92" + b"\x81\xd9\x04name\xd9\x01a" + b"\x82\xa4name\xa1b\xa8argument\xd3" + b"\0" * 8
    told = await edge.call("POST", "/v1/jobs", odd)
    assert told.status == 201
    ((_, records, frame),) = edge.journal.frames
    assert records == 2
    assert frame.endswith(odd)
    assert told.body["job_ids"] == [job.id for job in edge.journal.jobs()]
    assert edge.journal.jobs()[1].argument == b"\xd3" + b"\0" * 8


@pytest.mark.parametrize("kind", ["application/x-msgpack", "application/vnd.msgpack", "Application/MsgPack; v=5"])
async def test_messagepack_by_its_other_names(edge, kind):
    told = await edge.call("POST", "/v1/jobs", pack({"name": "a"}), kind=kind)
    assert told.status == 201
    assert told.headers["content-type"] == MSGPACK


async def test_json_is_converted_once(edge):
    body = '[{"name": "a", "argument": {"n": 9007199254740993, "x": [null, true, 1.5, "\u3042"]}}, {"name": "b"}]'
    told = await edge.call("POST", "/v1/jobs", body.encode(), kind="application/json; charset=utf-8")
    assert told.status == 201
    assert told.headers["content-type"] == JSON
    first, second = edge.journal.jobs()
    assert msgspec.msgpack.decode(first.argument) == {"n": 9007199254740993, "x": [None, True, 1.5, "\u3042"]}
    assert second.argument == b"\xc0"


async def test_one_job_in_json(edge):
    told = await edge.call("POST", "/v1/jobs", b' {"name": "a"}\n', kind=JSON)
    assert told.body == {"job_id": edge.journal.jobs()[0].id, "ack": "fsync"}


async def test_ndjson_is_an_array(edge):
    told = await edge.call("POST", "/v1/jobs", b'{"name":"a"}\r\n\n{"name":"b"}', kind="application/x-ndjson")
    assert told.status == 201
    assert [job.jobtype for job in edge.journal.jobs()] == ["a", "b"]
    told = await edge.call("POST", "/v1/jobs", b'{"name":"c"}\n', kind="application/x-ndjson")
    assert list(told.body) == ["job_ids", "ack"], "lines are an array, also when there is one"


async def test_the_answer_is_in_the_language_asked_for(edge):
    told = await edge.call("POST", "/v1/jobs", {"name": "a"}, accept=JSON)
    assert told.headers["content-type"] == JSON
    told = await edge.call("POST", "/v1/jobs", {"name": "a"}, kind=JSON, accept="application/vnd.msgpack")
    assert told.headers["content-type"] == MSGPACK
    told = await edge.call("POST", "/v1/jobs", {"nam": "a"}, kind=JSON, accept=MSGPACK)
    assert told.headers["content-type"] == MSGPACK
    assert told.body["errors"] == [
        {"pointer": "/nam", "detail": "there is no field 'nam'; did you mean 'name'?"},
        {"pointer": "/name", "detail": "name is required: 1 to 128 printable characters, no blank at the ends"},
    ]
    assert (told.body["status"], told.body["title"], told.body["type"]) == (422, "Unprocessable Entity", "about:blank")
    told = await edge.call("POST", "/v1/jobs", {"nam": "a"}, kind=JSON)
    assert told.headers["content-type"] == "application/problem+json"


async def test_dates_are_resolved_at_the_edge(edge):
    now_ms = edge.clock.wall_ms()
    jobs = [{"name": "a"}, {"name": "b", "delay": 2}, {"name": "c", "run_at": "2030-03-17T17:46:40Z"}]
    assert (await edge.call("POST", "/v1/jobs", jobs)).status == 201
    assert [job.eligible_at_ms for job in edge.journal.jobs()] == [0, now_ms + 2000, 1_900_000_000_000]
    assert {job.created_at_ms for job in edge.journal.jobs()} == {now_ms}


async def test_extensions_and_dates_in_an_argument_are_opaque(edge):
    argument = b"\x92\xd6\xff\x00\x00\x00\x00\xd4\x05\x01"
    assert (await edge.call("POST", "/v1/jobs", b"\x82\xa4name\xa1a\xa8argument" + argument)).status == 201
    assert edge.journal.jobs()[0].argument == argument


# ------------------------------------------------------------ ack


async def test_fsync_answers_after_the_sync_only(edge, autojump_clock):
    edge.journal.hold = trio.Event()
    answered = trio.Event()

    async def push():
        await edge.call("POST", "/v1/jobs", {"name": "a"})
        answered.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(push)
        await edge.journal.waiting.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert not answered.is_set()
        edge.journal.hold.set()
        await answered.wait()


async def test_memory_does_not_wait_and_says_so(edge):
    told = await edge.call("POST", "/v1/jobs?ack=memory", {"name": "a"})
    assert (told.status, told.body["ack"]) == (201, "memory")
    assert edge.journal.synced == 0
    assert len(edge.journal.jobs()) == 1


async def test_store_names_the_level_reached(edge):
    assert (await edge.call("POST", "/v1/jobs?ack=store", {"name": "a"})).body["ack"] == "store"
    edge.control.applies = False
    told = await edge.call("POST", "/v1/jobs?ack=store", [{"name": "a"}])
    assert (told.status, told.body["ack"]) == (201, "fsync")
    assert edge.journal.synced == edge.journal.written


async def test_store_comes_down_to_fsync_when_the_store_would_not_survive_a_crash_with_it(edge):
    edge.store.durable = False
    told = await edge.call("POST", "/v1/jobs?ack=store", {"name": "a"})
    assert (told.status, told.body["ack"]) == (201, "fsync")
    edge.store.away = True
    told = await edge.call("POST", "/v1/jobs?ack=store", {"name": "a"})
    assert (told.status, told.body["ack"]) == (201, "fsync")


@pytest.mark.parametrize("query", ["ack=store&replicas=2", "replicas=2"])
async def test_replicas_of_the_store_are_waited_for_and_named(edge, query):
    told = await edge.call("POST", f"/v1/jobs?{query}", {"name": "a"})
    assert (told.status, told.body["ack"], told.body["replicas"]) == (201, "store", 2)
    assert edge.store.waited_for == [2]
    edge.store.durable = False
    told = await edge.call("POST", f"/v1/jobs?{query}", {"name": "a"})
    assert (told.body["ack"], "replicas" in told.body) == ("fsync", False)


@pytest.mark.parametrize(
    "query", ["ack=disk", "ack=", "replicas=x", "replicas=-1", "replicas=", "replicas=1&ack=fsync", "replicas=101"]
)
async def test_unknown_levels_are_refused(edge, query):
    assert (await edge.call("POST", f"/v1/jobs?{query}", {"name": "a"})).status == 422
    assert edge.journal.frames == []


# ------------------------------------------------------------ some are wrong


async def test_the_good_ones_of_an_array_are_taken(edge):
    jobs = [{"name": "a"}, {"name": ""}, {"name": "b", "argument": [1]}, 7, {"name": "c", "prio": 1}, {"name": "d"}]
    told = await edge.call("POST", "/v1/jobs", jobs)
    assert told.status == 207
    taken = edge.journal.jobs()
    assert [job.jobtype for job in taken] == ["a", "b", "d"]
    assert taken[1].argument == pack([1])
    assert told.body["job_ids"] == [taken[0].id, None, taken[1].id, None, None, taken[2].id]
    assert [(e["index"], e["pointer"]) for e in told.body["errors"]] == [(1, "/1/name"), (3, "/3"), (4, "/4/prio")]


async def test_of_very_many_wrong_ones_the_first_are_explained_and_the_others_have_no_id(edge):
    """What is wrong with 10,000 jobs took seconds to find out, and a request of 30 KB had an answer of 1.3 MB."""
    wrong = {"name": 5, "prioritty": 1, "timeout": "x", "tags": 5}
    told = await edge.call("POST", "/v1/jobs", [{"name": "a"}, *[wrong] * 150, {"name": "b"}, *[{"name": ""}] * 10])
    assert told.status == 207
    assert [job.jobtype for job in edge.journal.jobs()] == ["a", "b"]
    assert [place for place, job_id in enumerate(told.body["job_ids"]) if job_id is not None] == [0, 151]
    said = [error["index"] for error in told.body["errors"]]
    assert said == [index for index in range(1, DESCRIBED_MAX + 1) for _ in range(4)]


async def test_the_first_wrong_ones_are_explained_whatever_finds_them_wrong():
    """Jobs that decode, and are refused later, stand between those whose faults were found first."""
    jobs = [{"name": "a"}, *[{"name": "b", "job_id": "same"}, {"name": 5}] * DESCRIBED_MAX, *[{"name": ""}] * 300]
    told = await (await applied.Whole().begin()).call("POST", "/v1/jobs", jobs)
    assert told.status == 207
    said = [(error["index"], error["pointer"]) for error in told.body["errors"]]
    wrong = [(at, f"/{at}/name" if at % 2 == 0 else f"/{at}/job_id") for at in range(2, DESCRIBED_MAX + 2)]
    assert said == wrong


async def test_how_many_are_wrong_is_said_also_if_nothing_is_taken(edge):
    told = await edge.call("POST", "/v1/jobs?atomic=1", [{"name": "a"}, *[{"name": 5, "x": 1}] * 150])
    assert (told.status, len(told.body["errors"])) == (400, 2 * DESCRIBED_MAX)
    assert "150 are wrong" in told.body["detail"]


async def test_the_dates_of_the_good_ones_stay_theirs(edge):
    jobs = [{"name": ""}, {"name": "a"}, {"name": "b", "delay": 1}]
    assert (await edge.call("POST", "/v1/jobs", jobs)).status == 207
    assert [bool(job.eligible_at_ms) for job in edge.journal.jobs()] == [False, True]


async def test_bad_json_jobs_are_named(edge):
    lines = b'{"name":"a"}\nnonsense\n{"name":3}\n{"name":"b"}\n{"name":"c","argument":1e999}\n'
    told = await edge.call("POST", "/v1/jobs", lines, kind="application/x-ndjson")
    assert told.status == 207
    assert [job.jobtype for job in edge.journal.jobs()] == ["a", "b"]
    assert [bool(job_id) for job_id in told.body["job_ids"]] == [True, False, False, True, False]
    assert [error["index"] for error in told.body["errors"]] == [1, 2, 4]
    told = await edge.call("POST", "/v1/jobs", [{"name": "a"}, {"name": "b", "argument": 2**70}], kind=JSON)
    assert told.status == 207
    assert [error["index"] for error in told.body["errors"]] == [1]


@pytest.mark.parametrize("jobs", [[{"name": "a"}, {"name": ""}], [{"name": ""}]])
async def test_atomic_takes_all_or_nothing(edge, jobs):
    told = await edge.call("POST", "/v1/jobs?atomic=1", jobs)
    assert told.status == 400
    assert told.body["errors"][0]["index"] == len(jobs) - 1
    assert edge.journal.frames == []
    assert (await edge.call("POST", "/v1/jobs?atomic=1", [{"name": "a"}] * 2)).status == 201


@pytest.mark.parametrize("jobs", [{"name": ""}, [{"name": ""}, 3], {"argument": 1}, "text", 3, None])
async def test_nothing_is_journaled_when_nothing_is_good(edge, jobs):
    assert (await edge.call("POST", "/v1/jobs", pack(jobs))).status == 422
    assert edge.journal.frames == []


# ------------------------------------------------------------ not understood


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x90",
        b"\xc1",
        b"\x81\xa4name\xa1a\x00",
        pack({"name": "a"}) + pack({"name": "b"}),
        pack([{"name": "a"}]) + b"\x90",
        b"\x92" + pack({"name": "a"}),
        b"\xdd\xff\xff\xff\xff" + pack({"name": "a"}),
        b"\x82\xa4name\xa1a\xa8argument\xc6\xff\xff\xff\xff",
        b"\x82\xa4name\xa1a\xa8argument",
    ],
    ids=repr,
)
async def test_bytes_that_are_no_messagepack(edge, body):
    assert (await edge.call("POST", "/v1/jobs", body)).status == 400
    assert edge.journal.frames == []


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"name":"a"} {}', b"[]", b"[,]", b'{"name":"a","argument":NaN}', b'{"name":"\xff"}', b"\x81"],
    ids=repr,
)
async def test_bytes_that_are_no_json(edge, body):
    assert (await edge.call("POST", "/v1/jobs", body, kind=JSON)).status in (400, 422)
    assert edge.journal.frames == []


@pytest.mark.parametrize("levels", [NESTING_MAX + 1, 990, 2_000, 200_000])
@pytest.mark.parametrize("kind", [MSGPACK, JSON])
async def test_deep_arguments_are_refused(edge, levels, kind):
    deep = b"\x91" * levels + b"\xc0" if kind == MSGPACK else b"[" * levels + b"1" + b"]" * levels
    body = b"\x82\xa4name\xa1a\xa8argument" + deep if kind == MSGPACK else b'{"name":"a","argument":' + deep + b"}"
    for whole in (body, b"\x91" + body if kind == MSGPACK else b"[" + body + b"]"):
        assert (await edge.call("POST", "/v1/jobs", whole, kind=kind)).status in (400, 422)
    assert edge.journal.frames == []


async def test_deep_enough_is_taken_and_read_again(edge):
    deep = b"\x91" * NESTING_MAX + b"\xc0"
    told = await edge.call("POST", "/v1/jobs", b"\x91\x82\xa4name\xa1a\xa8argument" + deep)
    assert told.status == 201
    assert edge.journal.jobs()[0].argument == deep


@pytest.mark.parametrize("kind", [None, "", "text/plain", "application/xml", "multipart/form-data; boundary=x"])
async def test_other_content_types(edge, kind):
    told = await edge.call("POST", "/v1/jobs", pack({"name": "a"}), kind=kind)
    assert told.status == 415
    assert "application/msgpack" in told.body["detail"]


async def test_compressed_bodies_are_not_opened(edge):
    told = await edge.call("POST", "/v1/jobs", pack({"name": "a"}), headers={"content-encoding": "gzip"})
    assert told.status == 415
    told = await edge.call("POST", "/v1/jobs", pack({"name": "a"}), headers={"content-encoding": "identity"})
    assert told.status == 201
