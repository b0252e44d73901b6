"""How a benchmark judges its own run."""

from typing import Any

from bench.e2e import succeeded


def stats(*, succeeded: int, waiting: int = 0, in_flight: int = 0, applied: int = 900) -> dict[str, Any]:
    """What a daemon tells whose archive is full."""
    return {
        "store": {"waiting": waiting, "scheduled": 0, "running": 0, "ended": 100_000},
        "runner": {"succeeded": succeeded, "in_flight": in_flight},
        "lanes": {"jobs": {"applied": 900, "end": 900}, "outcomes": {"applied": applied, "end": 900}},
    }


def test_the_whole_way_is_over_when_all_have_succeeded_whatever_the_archive_keeps() -> None:
    assert succeeded(stats(succeeded=200_000)) == 200_000
    assert succeeded(stats(succeeded=200_000, waiting=1)) == 0
    assert succeeded(stats(succeeded=200_000, in_flight=1)) == 0
    assert succeeded(stats(succeeded=200_000, applied=800)) == 0, "an outcome the store does not know of is not the end"
