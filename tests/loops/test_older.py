"""What an earlier version kept of workers in a file is taken over once."""

import json
from pathlib import Path

import msgspec
import pytest

from jqd.loops.older import drop_older, read_older
from jqd.runner import Workers
from jqd.runner.reach import Standing
from jqd.words.clock import ManualClock
from jqd.words.rules import Rules

OLD = {
    "id": "a",
    "name": "w",
    "url": "http://h/",
    "jobs": ["mail"],
    "max_jobs": 3,
    "batch": 2,
    "priority_min": -1,
    "priority_max": 5,
    "ttl_s": None,
    "protocol": "lightjq",
    "registered_at_ms": 7,
}  # as the first version wrote a worker


def test_the_workers_of_the_file_become_rules(tmp_path: Path) -> None:
    (tmp_path / "workers.json").write_text(json.dumps({"version": 1, "workers": [OLD, {**OLD, "id": "b"}]}))
    rules = Rules()
    workers = Workers(rules, clock=ManualClock())
    rules.take(rules.make({("worker", "b"): msgspec.msgpack.encode(None)}, now_ms=1, origin=1))
    rules.take(rules.make(read_older(tmp_path, rules), now_ms=1, origin=1))
    (worker,) = workers.list()
    assert (worker.id, worker.style, worker.jobs, worker.standing) == ("a", "lightjq", ("mail",), Standing.LOOPBACK)
    assert (worker.max_jobs, worker.batch, worker.priority_min, worker.registered_at_ms) == (3, 2, -1, 7)
    drop_older(tmp_path)
    assert read_older(tmp_path, Rules()) == {}
    assert (tmp_path / "workers.taken_over").exists()


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"[" * 100_000, b'{"version": 2, "workers": []}', b'{"version": 1, "workers": [{}]}']
)
def test_a_file_that_cannot_be_read_is_put_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "workers.json").write_bytes(content)
    assert read_older(tmp_path, Rules()) == {}
    assert (tmp_path / "workers.damaged").read_bytes() == content


def test_a_file_that_cannot_even_be_opened_stays(tmp_path: Path) -> None:
    (tmp_path / "workers.json").mkdir()
    assert read_older(tmp_path, Rules()) == {}
    assert (tmp_path / "workers.json").exists()
