"""Who may send a form, by which name the UI goes, and what browsers are told."""

import pytest

from jqd.webui.security import is_own_form, is_own_host, local_path
from tests.webui.conftest import Push, Site

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


@pytest.mark.parametrize(
    ("headers", "own"),
    [
        ({"sec-fetch-site": "same-origin", "host": "a"}, True),
        ({"sec-fetch-site": "same-site", "origin": "http://b", "host": "a"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "http://evil", "host": "a"}, False),
        ({"origin": "http://queue.lan:7422", "host": "Queue.lan:7422"}, True),
        ({"origin": "http://queue.lan:7423", "host": "queue.lan:7422"}, False),
        ({"origin": "null", "host": "queue.lan"}, False),
        ({"host": "a"}, False),
        ({"origin": "", "host": ""}, False),
        ({"origin": "http://", "host": ""}, False),
        ({"origin": "https://queue.lan", "host": "queue.lan"}, False),
        ({"origin": "http://queue.example", "host": "a"}, False),
        ({"origin": "https://queue.example", "host": "a"}, True),
        ({"sec-fetch-site": "cross-site", "origin": "http://a", "host": "a"}, False),
        ({"sec-fetch-site": "none", "origin": "http://a", "host": "a"}, False),
    ],
)
def test_a_form_comes_from_a_page_of_ours(headers: dict[str, str], own: bool) -> None:
    assert is_own_form(headers, "http", "https://queue.example") is own


def test_a_form_of_plain_http_is_not_taken_where_the_ui_speaks_tls() -> None:
    own = {"origin": "https://queue.lan", "host": "queue.lan"}
    assert is_own_form(own, "https")
    assert not is_own_form(own | {"origin": "http://queue.lan"}, "https")


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1:7422", True),
        ("[::1]:7422", True),
        ("localhost", True),
        ("queue.lan:7422", True),
        ("evil.example", False),
        ("localhost.evil.example:7422", False),
        ("[", False),
        ("", False),
    ],
)
def test_a_name_is_ours(host: str, own: bool) -> None:
    assert is_own_host(host, ["Queue.lan"]) is own


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ("/job?id=a%2Fb", "/job?id=a%2Fb"),
        ("//evil.example/", "/"),
        ("https://evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/a\nb", "/"),
        ("", "/"),
    ],
)
def test_a_login_leads_nowhere_else(said: str, path: str) -> None:
    assert local_path(said) == path


@pytest.mark.parametrize("path", ["/", "/job?id=nobody", "/nothing", "/login"])
def test_every_answer_has_the_headers(site: Site, path: str) -> None:
    headers = site.get(path).headers
    assert headers["content-security-policy"] == CSP
    assert headers["referrer-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


def test_a_form_of_another_site_is_refused_and_does_nothing(site: Site, push: Push) -> None:
    job_id = push("echo", 1, delay="1d")
    form = {"id": job_id, "form_token": site.form_token()}
    evil = {"origin": "http://evil.example", "sec-fetch-site": "cross-site"}
    assert site.post("/job/cancel", form, **evil).status_code == 403
    assert site.post("/job/cancel", {"id": job_id}).status_code == 403, "without the token of a page"
    assert site.post("/job/cancel", {**form, "form_token": "wrong"}).status_code == 403
    assert site.get(f"/job/cancel?id={job_id}").status_code == 405, "a link does nothing"
    assert "scheduled" in site.get(f"/job?id={job_id}").text
    assert site.post("/job/cancel", form).status_code == 303


def test_a_foreign_name_for_this_machine_is_refused(site: Site) -> None:
    answer = site.get("/", host="evil.example")
    assert answer.status_code == 403
    assert "--host NAME" in answer.text
    assert site.get("/", host="localhost:1").status_code == 200


def test_a_link_from_mail_leads_in(site: Site) -> None:
    assert site.get("/jobs", **{"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}).status_code == 200


@pytest.mark.parametrize(
    ("path", "form", "status", "part"),
    [
        ("/job/priority", {"priority": "low"}, 422, "no priority"),
        ("/job/mend", {"argument": "[1,"}, 422, "no JSON"),
        ("/job/mend", {"argument": "123456789012345678901234567890"}, 422, "MessagePack"),
        ("/job/retry", {}, 409, "Not done"),
        ("/job/delete", {}, 409, "Not done"),
    ],
)
def test_what_cannot_be_done_is_said_above_the_job(
    site: Site, path: str, form: dict[str, str], status: int, part: str
) -> None:
    sent = {"id": site.jobs["scheduled"], "form_token": site.form_token(), **form}
    answer = site.post(path, sent)
    assert answer.status_code == status
    assert part in answer.text


def test_a_job_that_has_ended_cannot_be_cancelled_and_the_page_says_so(site: Site) -> None:
    answer = site.post("/job/cancel", {"id": site.jobs["succeeded"], "form_token": site.form_token()})
    assert answer.status_code == 422
    assert "ended already" in answer.text


@pytest.mark.parametrize("path", ["/job", "/job/confirm?id=x&act=explode"])
def test_an_address_without_sense_is_refused(site: Site, path: str) -> None:
    assert site.get(path).status_code == 400
