"""Jobtypes: found by a part of their names, paused and resumed, and what they did over time."""

from html import unescape
from typing import Any
from urllib.parse import quote

import pytest

from jqd.webui.pages.types import _chart, _shares_of
from tests.live.harness import wait_for
from tests.webui.conftest import NASTY, Push, Site


def test_a_name_is_found_by_a_part_of_it(site: Site) -> None:
    text = unescape(site.get("/types?name=%3CSCRIPT").text)
    assert NASTY in text
    assert ">echo<" not in text
    assert "No jobtype is called so" in site.get("/types?name=no-name-has-this").text


def test_a_type_is_paused_and_resumed_by_forms_alone(site: Site, push: Push) -> None:
    name = "paused/<b>\"'"
    push(name)
    at, sent = f"/type?name={quote(name, safe='')}", {"name": name, "form_token": site.form_token()}
    wait_for(lambda: "/type/pause" in site.get(at).text, "the jobtype is known")
    answer = site.post("/type/pause", {**sent, "reason": NASTY})
    assert answer.headers["location"] == f"{at}&done=pause"
    text = site.get(answer.headers["location"]).text
    assert "not begun any more" in text
    assert "/type/resume" in text
    assert NASTY in unescape(text)
    assert "<script>alert" not in text
    assert "<b>\"'" not in text
    assert "paused</span>" in site.get(f"/types?name={quote(name, safe='')}").text
    assert site.post("/type/resume", sent).status_code == 303
    assert "/type/pause" in site.get(at).text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/type", 400),
        ("/type?name=nobody-at-all", 404),
        ("/type?name=echo&minutes=soon", 400),
        ("/type?name=echo&minutes=0", 422),
        ("/types?cursor=nonsense!", 422),
    ],
)
def test_an_address_without_sense_is_refused(site: Site, path: str, status: int) -> None:
    assert site.get(path).status_code == status


def test_lines_share_a_scale_and_spreads_are_told_in_words() -> None:
    def step(pushed: int, wait: list[int]) -> dict[str, Any]:
        return {"pushed": pushed, "succeeded": 1, "failed": 1, "dead": 2, "wait": wait}

    steps = [step(0, [1, 0, 0]), step(10, [0, 2, 1])]
    lines = _chart(steps)
    assert {line.most for line in lines} == {10}
    assert [line.total for line in lines] == [10, 2, 6]
    assert _shares_of(steps, "wait", [0.1, 2.0]) == "half of 4 up to 2 s, 95 % more than 2 s"
    assert _shares_of([step(0, [0, 0, 0])], "wait", [0.1, 2.0]) == ""
    assert _shares_of([], "wait", [0.1, 2.0]) == ""


def test_what_was_done_is_said_once_and_by_no_address_alone(site: Site, push: Push) -> None:
    push("said once", delay="1d")
    at, sent = "/type?name=said%20once", {"name": "said once", "form_token": site.form_token()}
    wait_for(lambda: "/type/pause" in site.get(at).text, "the jobtype is known")
    assert "not begun any more" not in site.get(f"{at}&done=pause").text, "nobody paused it"
    onward = site.post("/type/pause", sent).headers["location"]
    assert "not begun any more" in site.get(onward).text
    assert "not begun any more" not in site.get(onward).text, "also within the second for which pages are shared"
    assert site.post("/type/resume", sent).status_code == 303
    assert "99999 jobs" not in site.get("/flow?id=held&changed=99999&done=retry").text
