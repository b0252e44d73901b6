"""What is seen at a glance, also where one tenant has a thousand jobtypes."""

from typing import Any

import pytest

from jqd.cli import screen
from jqd.cli.screen import STUCK_SHOWN_MAX, TOP_TYPES, Glance, _summary, _top


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


@pytest.mark.parametrize(("types", "more"), [(TOP_TYPES, ""), (TOP_TYPES + 3, "and 3 more")])
def test_a_screen_has_a_screenful_of_jobtypes(monkeypatch: pytest.MonkeyPatch, types: int, more: str) -> None:
    monkeypatch.setattr(screen, "_glance", lambda _: glance([row(number) for number in range(types)]))

    class Nobody:
        url = "http://here"

        def jobs(self, **_: Any) -> list[Any]:
            return []

    told = str(_top(Nobody()))  # type: ignore[arg-type]
    table = told.partition("NAME")[2]
    assert (sum(f"t{number:03}" in table for number in range(types)), more in told) == (TOP_TYPES, True)
