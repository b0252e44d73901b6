"""A job has one model: what one end says of it, each other end knows."""

from typing import Any

from msgspec import Raw, msgpack, structs

from jqd.api.v1 import responses
from jqd.client.job_info import JobInfo, job_info
from jqd.domain.job_spec import digest_of, request_digest

PLAIN: dict[str, Any] = {"name": "mail"}
FULL: dict[str, Any] = {
    "name": "mail",
    "argument": [1],
    "priority": -3,
    "max_retry": 0,
    "timeout": 2,
    "job_id": "x",
    "tags": ["a"],
    "backoff": [1, 2.5],
    "expires_in": 60,
    "keep_result": True,
    "run_at": 1_900_000_000,
    "replace": True,
}


def test_the_client_knows_every_field_that_the_daemon_tells():
    assert {*responses.Job.__struct_fields__} == {*JobInfo.__struct_fields__}


def test_every_date_that_is_told_arrives_as_a_date():
    dates = [field.name for field in structs.fields(responses.Job) if field.name.endswith("_at")]
    told = job_info({"job_id": "a", "name": "n", "state": "waiting", **dict.fromkeys(dates, "2030-01-01T00:00:00Z")})
    assert {getattr(told, date).year for date in dates} == {2030}


def test_digests_that_stores_keep_stay_as_they_are():
    assert digest_of(Raw(msgpack.encode(PLAIN))) == "cba358d9cac1e3ec833a3e2f79d23640"
    assert digest_of(Raw(msgpack.encode(FULL))) == "8803e94193cd34c708da8eba7d56469f"
    assert request_digest(msgpack.encode([PLAIN, FULL]), [1, 2]) == "b62037e7a90e34d32d78f2e5d0fb75c4"
