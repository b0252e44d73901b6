"""Pages and acts of those who operate daemons, at real ones, as a browser without JavaScript sends them."""

import re
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from markupsafe import escape

from jqd.client import Client
from jqd.webui.app import create_app
from jqd.webui.config import UiConfig
from tests.webui.conftest import NASTY, ODD, Guarded, Site


def test_a_daemon_is_drained_and_resumed(site: Site) -> None:
    daemon = httpx2.get(f"{site.daemon}/v1/stats").json()["daemon"]
    form = {"daemon": daemon, "form_token": site.form_token()}
    assert site.post("/daemons/drain", form).headers["location"] == "/daemons?done=drain"
    page = site.get("/daemons?done=drain").text
    assert "begins no job" in page
    assert ">Resume</button>" in page
    assert site.post("/daemons/resume", form).status_code == 303
    assert ">Drain</button>" in site.get("/daemons").text
    assert site.post("/daemons/drain", form | {"daemon": ""}).status_code == 400
    assert site.post("/daemons/drain", form | {"daemon": NASTY}).status_code == 404


def test_a_daemon_that_died_is_shown_with_what_became_of_its_jobs(site: Site) -> None:
    told = httpx2.get(f"{site.daemon}/v1/daemons").json()
    (row,) = told["gone"]
    table = site.get("/daemons").text.partition("Daemons that went within the last day")[2].partition("</table>")[0]
    cells = [re.sub("<[^>]*>", "", each) for each in re.findall(r"<td[^>]*>(.*?)</td>", table, re.DOTALL)]
    name = told["daemons"][0]["daemon"]
    assert (cells[:2], cells[4:]) == ([name, "died"], [str(row["jobs"]), name, "1"]), "the process before this one"
    assert row["at"] in table


async def test_where_the_journal_is_applied_may_not_be_known_yet(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Client.ask

    def just_after_the_store_came(client: Client, path: str, **how: Any) -> dict[str, Any]:
        told: dict[str, Any] = ask(client, path, **how)
        for lane in told.get("lanes", {}).values():
            lane["applied"] = None
        return told

    monkeypatch.setattr(Client, "ask", just_after_the_store_came)
    ui = create_app(UiConfig(urls=[site.daemon]))
    answer = await ui.app.test_client().get("/daemons", headers={"host": "localhost"})
    page = await answer.get_data(as_text=True)
    assert answer.status_code == 200
    assert re.search(r"<td>settings</td><td class=\"n\">–</td><td class=\"n\">[^–]+</td><td class=\"n\">–</td>", page)
    await ui._end()


def test_the_audit_says_who_did_what_and_its_filter_is_its_address(guarded: Guarded) -> None:
    made = guarded.master.create_token("operator", note=NASTY)
    with guarded.client(made["token"]) as operator:
        operator.pause_type(NASTY)
        operator.resume_type(NASTY)
    browser = guarded.log_in(made["token"])
    page = browser.get(f"/audit?token={made['token_id']}&act=pause").text
    assert "Acts with a token, newest first" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
    assert f"jqd audit --by={made['token_id']} --act=pause" in page
    assert "pause" in page
    assert "resume" not in page.partition("<table>")[2].partition("</table>")[0]
    assert browser.get("/audit?since=nonsense").status_code == 422
    viewer = guarded.log_in(guarded.master.create_token("viewer")["token"])
    assert viewer.get("/audit").status_code == 403
    assert "disabled title=" in viewer.get("/daemons").text.partition("Drain</button>")[0]


def test_what_is_of_all_tenants_is_for_no_token_of_one(guarded: Guarded) -> None:
    browser = guarded.log_in(guarded.master.create_token("operator", tenant="acme")["token"])
    assert browser.get("/daemons").status_code == 403
    assert "Nobody did that" in browser.get("/audit?act=nothing").text


def test_a_worker_is_unregistered_after_a_question(site: Site) -> None:
    worker = {"name": NASTY, "url": "http://127.0.0.1:9/", "jobs": ["nobody-pushes-this"], "max_jobs": 3}
    with Client(site.daemon) as client:
        worker_id = client.ask("/v1/workers", method="POST", body=worker)["worker_id"]
        page = site.get("/workers").text
        assert str(escape(NASTY)) in page
        assert worker_id in page
        assert "Leave it as it is" in site.get(f"/worker/confirm?id={worker_id}").text
        form = {"id": worker_id, "form_token": site.form_token()}
        assert site.post("/worker/unregister", form).headers["location"] == "/workers?done=unregister"
        assert worker_id not in [row["worker_id"] for row in client.workers()]
        (row,) = [row for row in client.gone_workers() if row["worker_id"] == worker_id]
        assert (row["how"], row["jobs"], row["name"]) == ("left", 0, NASTY)
        gone = site.get("/workers").text.partition("Workers that went within the last day")[2]
        assert str(escape(NASTY)) in gone.partition("</table>")[0]
        assert worker_id in gone
        assert "is forgotten everywhere" in site.get("/workers?done=unregister").text
        assert site.post("/worker/unregister", form | {"id": NASTY}).status_code == 404


def test_code_is_shown_as_text_and_a_handler_is_deleted_by_who_may(guarded: Guarded) -> None:
    name, code = f"code {ODD}", "print('</pre><script>alert(1)</script>')"
    for _ in range(2):
        guarded.master.set_handler(name, code, {}, lang="python", before="x = '<i>'")
    query = urlencode({"name": name})
    viewer = guarded.log_in(guarded.master.create_token("viewer")["token"])
    page = viewer.get(f"/handler?{query}").text
    assert str(escape(code)) in page
    assert "<script>alert" not in page
    assert "Before all" in page
    assert "all new jobs" in page
    assert "waits for a code worker" in page
    assert "not now: handler is python code: waits for a code worker" in viewer.get("/workers").text
    assert "only those that name it" in viewer.get(f"/handler?{query}&version=1").text
    asks = viewer.get(f"/handler/confirm?{query}").text
    assert "disabled title=" in asks
    form = {"name": name, "form_token": form_token(asks)}
    assert viewer.post("/handler/delete", data=form).status_code == 403
    operator = guarded.log_in(guarded.master.create_token("master")["token"])
    form["form_token"] = form_token(operator.get(f"/handler/confirm?{query}").text)
    assert operator.post("/handler/delete", data=form).headers["location"] == "/workers?done=delete"
    assert operator.get(f"/handler?{query}").status_code == 404


def test_who_is_of_a_tenant_sees_and_pauses_that_alone(guarded: Guarded) -> None:
    for tenant in ("acme", "globex"):
        guarded.master.set_quota(tenant, rate=10, queued=100)
    token = guarded.master.create_token("operator", tenant="acme")["token"]
    browser = guarded.log_in(token)
    page = browser.get("/tenants").text
    assert "acme" in page
    assert "globex" not in page
    assert "of 100" in page
    form = {"form_token": form_token(page)}
    answer = browser.post("/tenants/pause", data=form)
    assert "No job of it is begun" in browser.get(answer.headers["location"]).text
    everybody = guarded.log_in(guarded.master.create_token("operator")["token"])
    page = everybody.get("/tenants").text
    assert "globex" in page
    assert "all, <time" in page
    forms = re.findall(r'<form method="post" action="/tenants/.*?</form>', page, re.DOTALL)
    assert forms
    assert all('name="tenant"' in each for each in forms), "each names whom it is about"
    answer = browser.post("/tenants/resume", data=form)
    assert "begun again" in browser.get(answer.headers["location"]).text
    assert 'action="/tenants/pause"' in browser.get("/tenants").text
    everybody.post("/tenants/pause", data={"form_token": form_token(page), "tenant": "acme"})
    page = browser.get("/tenants").text
    assert "by who runs this jqd, and resumed there" in page
    assert 'action="/tenants/' not in page, "it would be refused"
    assert browser.post("/tenants/resume", data=form).status_code == 403
    page = everybody.get("/tenants").text
    assert 'action="/tenants/resume"' in page
    everybody.post("/tenants/resume", data={"form_token": form_token(page), "tenant": "acme"})
    assert 'action="/tenants/pause"' in browser.get("/tenants").text, "other tests have that tenant, too"


def form_token(page: str) -> str:
    return page.split('name="form_token" value="')[1].split('"')[0]
