"""What is seen at a glance, also where one tenant has a thousand jobtypes."""

from typing import Any

import pytest

from jqd.cli import screen
from jqd.cli.screen import STUCK_SHOWN_MAX, TOP_TYPES, Glance, _some, _stats, _summary, _top
from jqd.client import JobInfo
from jqd.client.errors import Forbidden, Unavailable


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"name": f"t{number:03}", "waiting": 1, "oldest_s": float(number), "note": "no worker", **more}


def glance(rows: list[dict[str, Any]]) -> Glance:
    ready = {"push": {"ready": True}, "run": {"ready": True}}
    return Glance(ready, {"store": None}, rows, 1, [])


def test_of_many_that_wait_those_are_named_that_wait_longest_and_whose_they_are() -> None:
    rows = [row(number) for number in range(40)]
    told = str(_summary("http://here", glance([*rows, row(99, tenant="acme", name="mail"), row(98, name="sms ")])))
    lines = [line for line in told.splitlines() if line.startswith("waits ")]
    assert lines[:3] == [
        "waits     mail of tenant acme (1): no worker",
        "waits     'sms ' (1): no worker",
        "waits     t039 (1): no worker",
    ]
    assert len(lines) == STUCK_SHOWN_MAX + 1
    assert lines[-1] == "waits     and 32 more, for a shorter time: `jqd types` shows them"
    assert "more" not in str(_summary("http://here", glance(rows[:STUCK_SHOWN_MAX])))


def test_of_a_stack_the_line_with_the_error_is_seen() -> None:
    stack = "TypeError: x is not a function\n    at f (a.js:1:2)\n    at process.processTicksAndRejections (node:95:5)"
    told = str(_some("failed", [JobInfo(job_id="a", name="mail", state="failed", message=stack)]))
    assert told.splitlines()[1].endswith("TypeError: x is not a function")


HOUR = {"steps": [{"pushed": n, "succeeded": 0, "failed": 1, "dead": n} for n in range(3)]}


class Bound:
    """A client of one tenant: it is told nothing of all together."""

    def __init__(self, types: list[dict[str, Any]] | None) -> None:
        self._types = types

    def stats(self) -> dict[str, Any]:
        raise Forbidden("/v1/stats is of all tenants together", status=403)

    def types(self) -> list[dict[str, Any]]:
        if self._types is None:
            raise Unavailable("the store is away", retry_after=None, status=503)
        return self._types


def test_who_is_of_one_tenant_is_told_its_own_numbers() -> None:
    states = {"waiting": 2, "scheduled": 0, "running": 1, "retrying": 0, "succeeded": 5, "failed": 4}
    states |= {"cancelled": 3, "blocked": 6}
    rates = {"pushed": 1.0, "started": 2.0, "ended": 3.0, "failed": 0.5}
    rows = [{"name": name, **states, "per_minute": rates} for name in ("mail", "sms")]
    told = _stats(Bound(rows))  # type: ignore[arg-type]
    assert str(_summary("http://here", glance([])._replace(stats=told))).splitlines()[2:5] == [
        "jobs      4 waiting, 0 scheduled, 12 blocked, 2 running, 0 retrying, 10 succeeded, 8 failed, 6 cancelled",
        "rates     2 pushed, 4 started, 6 ended, 1 failed, jobs a minute",
        "dead      8: `jqd errors` says why, and what to do",
    ]
    assert _stats(Bound([]))["store"]["dead"] == 0, "it has no jobs, and the store is well"  # type: ignore[arg-type]
    told = _stats(Bound(None))  # type: ignore[arg-type]
    assert "store     the store is away" in str(_summary("http://here", glance([])._replace(stats=told)))
    cut = glance([])._replace(stats={**told, "runner": {"interrupted": 5}})
    assert "cut off   5 times since its start a stop interrupted a job here: `jqd why ID`" in str(_summary("", cut))


@pytest.mark.parametrize(("types", "more"), [(TOP_TYPES, ""), (TOP_TYPES + 3, "and 3 more")])
def test_a_screen_has_a_screenful_of_jobtypes(monkeypatch: pytest.MonkeyPatch, types: int, more: str) -> None:
    monkeypatch.setattr(screen, "_glance", lambda *_: glance([row(number) for number in range(types)]))

    class Nobody:
        url = "http://here"

        def ready(self) -> dict[str, Any]:
            return {"ready": True}

        def jobs(self, **_: Any) -> list[Any]:
            return []

        def history(self) -> dict[str, Any]:
            return HOUR

    nobody: Any = Nobody()
    told = str(_top(nobody))
    assert "\nLAST HOUR, a minute a bar\npushed    3  ·▅█\nsucceeded 0  ···\nfailed    6  ▃▆█\n" in told
    table = told.partition("NAME")[2]
    assert (sum(f"t{number:03}" in table for number in range(types)), more in told) == (TOP_TYPES, True)
