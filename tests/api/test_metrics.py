"""What Prometheus reads: every number there is, once, under a name that says where it stands."""

import re

from jqd.api.v1.metrics import KIND, render
from tests.api.edge import Edge

LINE = re.compile(r"(# TYPE [a-z_0-9]+ untyped|[a-z_][a-z_0-9]*(\{partition=\"\d+\"\})? -?[0-9.e+-]+)")


def test_numbers_are_named_by_where_they_stand_and_partitions_are_a_label() -> None:
    told = {
        "journal": {"bytes": 5, "refusing": None, "id": "x", "mean": 0.25},
        "lanes": {"a-b": {"end": 2}},
        "ready": True,
        "workers": [{"url": "http://secret", "in_hand": 3}],
        "partitions": [{"partition": n, "lanes": {"a-b": {"end": n}}} for n in range(2)],
    }
    assert render(told).decode().splitlines() == [
        "# TYPE jqd_journal_bytes untyped",
        "jqd_journal_bytes 5",
        "# TYPE jqd_journal_mean untyped",
        "jqd_journal_mean 0.25",
        "# TYPE jqd_lanes_a_b_end untyped",
        "jqd_lanes_a_b_end 2",
        'jqd_lanes_a_b_end{partition="0"} 0',
        'jqd_lanes_a_b_end{partition="1"} 1',
        "# TYPE jqd_ready untyped",
        "jqd_ready 1",
    ]


async def test_a_daemon_tells_its_own() -> None:
    edge = Edge()
    edge.control.warned, edge.control.not_running = ["a", "b"], "the store is away"
    told = await edge.call("GET", "/metrics", accept="application/json")
    assert (told.status, told.headers["content-type"]) == (200, KIND)
    lines = told.raw.decode().splitlines()
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert {"jqd_warnings 2", "jqd_push_ready 1", "jqd_run_ready 0", "jqd_uptime_s 1.5"} <= set(lines)
    assert any(line.startswith("jqd_store_waiting ") for line in lines)
