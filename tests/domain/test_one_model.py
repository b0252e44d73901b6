"""A job has one model: what one end says of it, each other end knows."""

from msgspec import structs

from jqd.api.v1 import responses
from jqd.client.job_info import JobInfo, job_info


def test_the_client_knows_every_field_that_the_daemon_tells():
    assert {*responses.Job.__struct_fields__} == {*JobInfo.__struct_fields__}


def test_every_date_that_is_told_arrives_as_a_date():
    dates = [field.name for field in structs.fields(responses.Job) if field.name.endswith("_at")]
    told = job_info({"job_id": "a", "name": "n", "state": "waiting", **dict.fromkeys(dates, "2030-01-01T00:00:00Z")})
    assert {getattr(told, date).year for date in dates} == {2030}
