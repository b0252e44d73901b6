"""How a benchmark judges its own run."""

import json
import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.e2e import succeeded
from bench.marks import Marks
from bench.peers import command as racing
from bench.peers import install as installing
from bench.peers import race
from bench.peers.catalogue import ABSENT, NODE, PEERS, Peer
from bench.peers.figures import Spread, of, ratio, rotated
from bench.peers.install import REQUIREMENTS, NotInstalled
from bench.peers.servers import NotStarted, free_port, process, wait_port
from bench.result import percentile


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


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert (percentile(values, 0.0), percentile(values, 0.5), percentile(values, 0.99)) == (1.0, 51.0, 100.0)
    assert percentile([7.0], 0.99) == percentile([7.0], 1.0) == 7.0


def test_each_queue_begins_a_round_once_and_none_is_left_out() -> None:
    rounds = [rotated("abc", turn) for turn in range(4)]
    assert rounds == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]
    assert rotated([], 1) == []


def test_ratios_are_of_one_round_and_only_of_rounds_in_which_both_took_part() -> None:
    rounds = [{"a": {"x": 10.0}, "b": {"x": 5.0}}, {"a": {"x": 4.0}, "b": {"x": 4.0}}, {"a": {"x": 9.0}}]
    assert of(rounds, "a", "x") == Spread(9.0, 4.0, 10.0)
    assert ratio(rounds, "a", "b", "x") == Spread(1.5, 1.0, 2.0), "not 9 over 4.5"
    assert of(rounds, "b", "y") is ratio(rounds, "a", "c", "x") is None
    assert str(Spread(1234.5, 12.34, 0.123)) == "1,234 (12.3–0.12)"


def test_marks_of_several_processes_are_all_read_with_the_time_of_each(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "marks")
    program = "from bench.marks import argument, mark\nfor n in range(1000): mark(argument(n))"
    before_ns = time.monotonic_ns()
    with ExitStack() as stack:
        env = {**os.environ, "BENCH_MARKS": str(marks.path)}
        both = [stack.enter_context(subprocess.Popen([sys.executable, "-c", program], env=env)) for _ in range(2)]
    assert [process.returncode for process in both] == [0, 0]
    assert marks.wait(2_000, 30.0)
    assert not marks.wait(2_001, 0.0)
    marks.close()
    times_ns = marks.times_ns()
    assert sorted(times_ns) == list(range(1000))
    assert {len(at) for at in times_ns.values()} == {2}
    assert all(before_ns <= at[0] <= time.monotonic_ns() for at in times_ns.values())


def test_what_a_queue_needs_is_pinned_and_comes_from_no_named_host() -> None:
    for peer in PEERS:
        if peer.environment:
            pins = REQUIREMENTS / (f"{NODE}.json" if peer.environment == NODE else f"{peer.environment}.txt")
            assert re.search(r"==|\": \"\d", text := pins.read_text())
            assert "//" not in text
        name = peer.program if peer.program.endswith(".js") else f"{peer.program}.py"
        assert (REQUIREMENTS.parent / "programs" / name).exists()
    assert len({peer.name for peer in PEERS} | ABSENT.keys()) == len(PEERS) + len(ABSENT)


def test_an_environment_is_made_anew_when_a_pin_changes_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[tuple[str, ...]] = []
    monkeypatch.setattr(installing, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(installing, "REQUIREMENTS", tmp_path)
    real = installing._run

    def run(*argv: str) -> None:
        runs.append(argv)
        (tmp_path / "cache/rq").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(installing, "_run", run)
    peer = next(peer for peer in PEERS if peer.name == "rq")
    for pins in ("rq==1", "rq==1", "rq==2"):
        (tmp_path / "rq.txt").write_text(pins)
        installing.install(peer)
    assert [argv[-1] for argv in runs if "--requirement" in argv] == [str(tmp_path / "rq.txt")] * 2
    missing = replace(peer, debian=((str(tmp_path / "none"), "a-package"),))
    installing.install(missing)
    assert runs[-1] == ("sh", ".ci/packages", "a-package")
    with pytest.raises(NotInstalled, match="ended with 3: there is none"):
        real("sh", "-c", "echo there is none >&2; exit 3")
    with pytest.raises(NotInstalled, match="no-such-program"):
        real("no-such-program")


def test_a_queue_that_cannot_be_installed_says_why_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def install(peer: Peer) -> None:
        if peer.name == "rq":
            raise NotInstalled("there is none")

    def measure(peer: Peer, jobs: int) -> dict[str, float]:
        if peer.name == "saq":
            raise NotStarted("no port")
        return {"jobs_per_s": float(jobs), "start_p50_ms": 1.0}

    monkeypatch.setattr(racing, "install", install)
    monkeypatch.setattr(racing, "measure", measure)
    path, picture = tmp_path / "figures.json", tmp_path / "figures.svg"
    flags = ["--only", "jqd,rq,saq,faktory", "--rounds", "2", "--jobs", "8", "--json", str(path)]
    assert racing.main([*flags, "--plot", str(picture)]) == 0
    told = json.loads(path.read_text())
    assert told["skipped"] == {"rq": "there is none", "faktory": ABSENT["faktory"]}
    assert told["failed"] == {"saq": "round 2: no port"}
    assert [list(figures) for figures in told["rounds"]] == [["jqd"], ["jqd"]]
    assert told["peers"][0]["figures"]["jobs_per_s"] == {"median": 8.0, "least": 8.0, "greatest": 8.0}
    shown = capsys.readouterr().out
    assert all(f"{name} without figures" in shown for name in ("rq", "saq", "faktory"))
    assert picture.read_text().endswith("</svg>\n")


def test_a_queue_that_does_not_come_up_leaves_nothing_behind(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(NotStarted, match="no such thing"), process(["sh", "-c", "echo no such thing"], log) as child:
        wait_port(free_port(), child, log)
    os.mkfifo(tmp_path / "open")
    reader = os.open(tmp_path / "open", os.O_RDONLY | os.O_NONBLOCK)
    with process(["sh", "-c", f"sleep 600 >{tmp_path}/open & echo; wait"], log, pipes=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b"", "the pipe ends when the child's child has ended, too"
    os.close(reader)


def test_the_race_of_this_queue_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The short form: a real daemon, a worker and a pusher."""
    monkeypatch.setattr(race, "PUSHERS", 1)
    monkeypatch.setattr(race, "PACED", 5)
    monkeypatch.setattr(race, "SINGLE_S", 0.1)
    figures = race.measure(PEERS[0], 200)
    assert figures["begun"] == 1.0
    assert figures["twice"] == 0
    assert 0 < figures["start_p50_ms"] <= figures["start_p99_ms"]
    assert all(figures[name] > 0 for name in ("jobs_per_s", "single_1_per_s", "single_64_per_s"))
