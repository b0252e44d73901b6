"""Names with a blank at an end, which nobody sees, and of dots, which lead elsewhere in a URL: none is given, and what
has one from before is served as ever."""

from typing import Any

import pytest

from jqd.domain.job import Fate
from jqd.service import job_limits
from tests.api.edge import JSON
from tests.api.whole import Whole

BLANK = ["mail ", " mail", " "]
SCHEDULE = {"cron": "0 0 * * *", "job": {"name": "mail"}}
HANDLER = {"lang": "http", "body": "http://127.0.0.1:1/"}


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


def path_of(name: str) -> str:
    return name.replace(" ", "%20")


NAMINGS: list[tuple[str, str, Any]] = [
    ("POST", "/v1/jobs", {"name": "{}"}),
    ("POST", "/v1/jobs", [{"name": "{}"}]),
    ("POST", "/v1/jobs", {"name": "mail", "job_id": "{}"}),
    ("PUT", "/v1/schedules/{}", SCHEDULE),
    ("PUT", "/v1/schedules/nightly", SCHEDULE | {"job": {"name": "{}"}}),
    ("PUT", "/v1/constraints/{}", {"match": "false", "concurrency": 1}),
    ("PUT", "/v1/handlers/{}", HANDLER),
    ("POST", "/job", {"name": "{}", "argument": {}}),
]


@pytest.mark.parametrize("name", BLANK)
@pytest.mark.parametrize(("method", "path", "body"), NAMINGS)
async def test_no_new_name_begins_or_ends_with_a_blank(edge, name, method, path, body):
    async def ask(name: str) -> Any:
        said = put_in(body, name)
        return await edge.call(method, path.format(path_of(name)), said, kind=JSON, accept=JSON)

    refused = await ask(name)
    assert refused.status == (400 if path == "/job" else 422), refused.body
    assert f"begins and ends with no blank, this one is {name!r}" in str(refused.body)
    assert edge.journal.frames == []
    assert (await ask("ma il")).status in (200, 201), "one within it is seen"


def put_in(said: Any, name: str) -> Any:
    if isinstance(said, dict):
        return {field: put_in(value, name) for field, value in said.items()}
    if isinstance(said, list):
        return [put_in(each, name) for each in said]
    return name if said == "{}" else said


@pytest.mark.parametrize("name", [".", ".."])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        *NAMINGS,
        ("POST", "/v1/jobs", [{"name": "mail"}, {"name": "{}"}]),
        ("POST", "/v1/jobs", {"name": "mail", "then": {"name": "{}"}}),
        ("POST", "/v1/jobs", {"name": "mail", "group": "{}"}),
        ("POST", "/v1/types/{}/pause", None),
        ("POST", "/v1/workers", {"name": "w", "worker_id": "{}", "jobs": ["mail"], "max_jobs": 1}),
        ("POST", "/v1/workers", {"name": "w", "jobs": ["{}"], "max_jobs": 1}),
    ],
)
async def test_no_new_name_leads_elsewhere_in_a_url(edge, name, method, path, body):
    async def ask(name: str) -> Any:
        at = path.format(name.replace(".", "%2E"))
        return await edge.call(method, at, None if body is None else put_in(body, name), kind=JSON, accept=JSON)

    refused = await ask(name)
    assert "stand in URLs" in str(refused.body) or "stands in URLs" in str(refused.body), refused.body
    assert refused.status in (207, 400, 422)


async def test_what_is_called_so_from_before_is_said_anew_shown_and_deleted(edge, monkeypatch):
    settings = {
        "/v1/schedules/nightly%20": SCHEDULE,
        "/v1/constraints/one%20": {"match": "false", "concurrency": 1},
        "/v1/handlers/mail%20": HANDLER,
    }
    with monkeypatch.context() as before:
        before.setattr(job_limits, "has_bare_ends", lambda _: True)
        for path, body in settings.items():
            assert (await edge.call("PUT", path, body, kind=JSON)).status in (200, 201)
    for path, body in settings.items():
        assert (await edge.call("PUT", path, body, kind=JSON)).status in (200, 201), "it is none that is new"
        assert (await edge.call("GET", path, accept=JSON)).status == 200
        assert (await edge.call("DELETE", path)).status in (200, 204)
        assert (await edge.call("PUT", path, body, kind=JSON)).status == 422


async def test_jobs_that_are_called_so_from_before_live_on(edge, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(job_limits, "has_bare_ends", lambda _: True)
        for job_id in (" a", " b", " c"):
            await edge.push(name="mail ", job_id=job_id)
    assert (await edge.call("PATCH", "/v1/jobs/%20a", {"priority": 3})).status == 200
    assert (await edge.call("DELETE", "/v1/jobs/%20b")).status == 204
    assert len((await edge.call("GET", "/v1/jobs?name=mail%20", accept=JSON)).body["jobs"]) == 3
    for act in ("pause", "resume"):
        assert (await edge.call("POST", f"/v1/types/mail%20/{act}")).status == 200
    for held in await edge.claim("mail "):
        await edge.end(held, Fate.FAILED, jobtype="mail ")
    assert (await edge.call("POST", "/v1/jobs/%20a/retry")).status == 200
    assert (await edge.call("DELETE", "/v1/jobs/%20c?purge=1")).status == 204
