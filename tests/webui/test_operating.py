"""Pages and acts of those who operate daemons, at real ones, as a browser without JavaScript sends them."""

import httpx2

from tests.webui.conftest import NASTY, Guarded, Site


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
    assert f"jqd audit --by {made['token_id']} --act pause" in page
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
