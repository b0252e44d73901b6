"""A job has one model: what one end says of it, each other end knows."""

import io
import tokenize
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw, msgpack, structs

import jqd
from jqd import App
from jqd.api.v1 import responses
from jqd.cli.common import Options
from jqd.client.job_info import JobInfo, job_info, job_map
from jqd.cron.schedules import Template
from jqd.domain.job import Job
from jqd.domain.job_spec import (
    FIELDS,
    KEPT,
    JobOptions,
    JobOptionsDict,
    JobRecord,
    JobSpec,
    PushOptions,
    digest_of,
    request_digest,
)
from jqd.runner.handler import HandlerOptions
from jqd.runner.worker import DeclaredOptions
from jqd.store import JobView

ROOM = Path(jqd.__file__).parent
DECLARED = {
    "domain/job_spec.py": 2,  # its limits and default; the keyword of the SDK
    "domain/job.py": 1,  # the job that runs, and its view
    "store/codec.py": 1,  # the row in the store
}
"""Where an option is declared. A new one is named there, and wherever something is done with it."""
TOLD = {
    "api/compat/lightjq.py": 1,  # LightJQ's own form of a job
    "api/v1/responses.py": 1,
    "client/job_info.py": 1,
    "runner/protocols/native.py": 1,  # what workers are told of a job
    "code/batch.py": 1,
    "worker/wire.py": 1,
    "worker/context.py": 1,
}
"""Where `max_retry` is declared as part of what somebody is told; an option that only the daemon heeds is not."""

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


def declarations(name: str) -> dict[str, int]:
    """File → how often it has a field of that name."""
    found = dict[str, int]()
    for file in ROOM.rglob("*.py"):
        text = file.read_text()
        if name not in text:
            continue
        tokens = [one for one in tokenize.generate_tokens(io.StringIO(text).readline) if one.string.strip()]
        count = sum(
            one.string == name and after.string == ":" and one.line.lstrip().startswith(name)
            for one, after in pairwise(tokens)
        )
        if count:
            found[file.relative_to(ROOM).as_posix()] = count
    return found


def test_an_option_is_declared_in_four_places():
    assert declarations("max_retry") == DECLARED | TOLD
    assert sum(DECLARED.values()) == 4


@pytest.mark.parametrize("kind", [JobSpec, JobRecord, Template, HandlerOptions, DeclaredOptions])
def test_pushes_schedules_handlers_and_workers_know_every_option(kind):
    assert {*FIELDS} <= {*kind.__struct_fields__}


def test_the_sdk_and_the_command_line_know_every_option():
    assert {*JobOptionsDict.__annotations__} == {*FIELDS}
    assert {"name", "argument", *PushOptions.__annotations__} == {*JobSpec.__struct_fields__} - {"parent"}
    assert {*FIELDS} < {field.name for field in fields(Options)}
    told = Options(priority=-3, timeout="2s", expires_in="1m", backoff="1,2.5", tag=["a"]).given()  # type: ignore[call-arg]
    assert {name: told[name] for name in ("priority", "timeout", "expires_in", "backoff", "tags")} == {
        name: FULL[name] for name in ("priority", "timeout", "expires_in", "backoff", "tags")
    }

    @App().job(timeout="2s", expires_in="1m", backoff=["1s", 2.5], max_retry=0, priority=-3, keep_result=True)
    def declared() -> None: ...

    assert declared.declared == {name: FULL[name] for name in FIELDS}
    given = {**FULL, "timeout": "2s", "expires_in": "1m", "backoff": ["1s", 2.5]}
    assert job_map(**given) == FULL


def test_what_is_kept_of_a_job_is_told_of_it():
    assert {*FIELDS} - {*KEPT} == {"expires_in"}, "a date by then"
    for kind in (Job, JobView, responses.Job, JobInfo):
        assert {*KEPT} <= {*kind.__struct_fields__}


def test_an_option_that_came_later_changes_no_digest(monkeypatch):
    monkeypatch.setattr("jqd.domain.job_spec._DIGESTED", len(JobRecord.__struct_fields__) - 1)
    record = JobRecord(name="mail")
    assert record.expires_in is None
    without = digest_of(Raw(msgpack.encode(PLAIN)))
    assert without != "cba358d9cac1e3ec833a3e2f79d23640", "the last field is not in it"
    assert digest_of(Raw(msgpack.encode(PLAIN | {"expires_in": 60}))) != without


def test_every_option_says_for_the_command_line_what_it_is():
    assert all(meta.extra["help"] for field in structs.fields(JobOptions) for meta in field.type.__metadata__[-1:])


def test_what_may_be_given_by_position_are_the_first_three_fields_of_a_job() -> None:
    """The others may move: a call by position would go on with another field's value."""
    assert Job("id", "mail", b"\x01") == Job(id="id", jobtype="mail", argument=b"\x01")
    for make in (Job, JobView):
        with pytest.raises(TypeError, match="positional"):
            make("id", "mail", b"\x01", 7)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        JobRecord("mail")
