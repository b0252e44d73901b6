"""How a benchmark judges its own run."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from bench import load, members, recover
from bench.__main__ import ENTRIES
from bench.cpu import by_room, cpu_s, room_of
from bench.e2e import succeeded
from bench.marks import Marks
from bench.members import Death, took_over
from bench.open_loop import BROKEN, HttpConnection, Load, open_loop
from bench.peers import command as racing
from bench.peers import install as installing
from bench.peers import race
from bench.peers.catalogue import ABSENT, NODE, PEERS, Peer
from bench.peers.figures import Spread, of, ratio, rotated
from bench.peers.install import REQUIREMENTS, NotInstalled
from bench.peers.servers import NotStarted, free_port, process, wait_port
from bench.processes import SILENT, daemon
from bench.result import percentile
from bench.soak import steady
from tests.live.harness import LEASE


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
    table = tmp_path / "figures.md"
    assert racing.main([*flags, "--plot", str(picture), "--markdown", str(table)]) == 0
    rows = table.read_text().splitlines()
    assert [row.count("|") for row in rows] == [5, 5, 5, 5], "two queues are there, of which one never came up"
    assert (rows[2], rows[3]) == ("jqd| 8.00 (8.00–8.00)| –| –| 1.00 (1.00–1.00)| –", "saq| –| –| –| –| –")
    told = json.loads(path.read_text())
    assert told["skipped"] == {"rq": "there is none", "faktory": ABSENT["faktory"]}
    assert told["failed"] == {"saq": "round 2: no port"}
    assert [list(figures) for figures in told["rounds"]] == [["jqd"], ["jqd"]]
    assert told["peers"][0]["figures"]["jobs_per_s"] == {"median": 8.0, "least": 8.0, "greatest": 8.0}
    assert told["peers"][0]["jqd_over_it"]["start_p50_ms"]["median"] == 1.0
    shown = capsys.readouterr().out
    assert all(f"{name} without figures" in shown for name in ("rq", "saq", "faktory"))
    assert picture.read_text().endswith("</svg>\n")


def test_what_was_measured_before_an_interrupt_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(peer: Peer, jobs: int) -> dict[str, float]:
        if peer.name == "rq":
            raise KeyboardInterrupt
        return {"jobs_per_s": 7_654.0}

    monkeypatch.setattr(racing, "install", lambda peer: None)
    monkeypatch.setattr(racing, "measure", measure)
    assert racing.main(["--only", "jqd,rq,saq"]) == 0
    shown = capsys.readouterr().out
    assert "7,654" in shown
    assert "interrupted" in shown


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


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with daemon() as url:
        yield url


def test_load_on_a_daemon_that_runs(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, picture = tmp_path / "figures.json", tmp_path / "figures.svg"
    flags = ["--url", url, "--rate", "100", "--duration", "0.2", "--connections", "4", "--json", str(path)]
    assert load.main([*flags, "--plot", str(picture)]) == 0
    told = json.loads(path.read_text())
    figures = told["figures"]
    assert figures["pushes"] == 20
    assert figures["not_taken"] == figures["not_begun"] == 0
    assert 0 < figures["ack_p50_ms"] <= figures["ack_max_ms"] < figures["start_max_ms"]
    assert [len(values) for values in told["permilles_ms"].values()] == [1001, 1001]
    assert "push → start" in picture.read_text()
    assert "not_begun 0.00" in capsys.readouterr().out


def test_the_race_of_this_queue_alone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The short form: a daemon, a worker and a pusher."""
    monkeypatch.setattr(race, "PUSHERS", 1)
    monkeypatch.setattr(race, "PACED", 5)
    monkeypatch.setattr(race, "SINGLE_S", 0.1)
    figures = race.measure(replace(PEERS[0], server=lambda _: nullcontext(url)), 200)
    assert figures["begun"] == 1.0
    assert figures["twice"] == 0
    assert 0 < figures["start_p50_ms"] <= figures["start_p99_ms"]
    assert all(figures[name] > 0 for name in ("jobs_per_s", "single_1_per_s", "single_64_per_s"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "jobs"), [("daemons", 2_000), ("failover", 300), ("recover", 500), ("soak", 100), ("cpu", 1_000)], ids=str
)
def test_what_operators_measure(name: str, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "MOST", 2)
    for module in (members, recover):
        monkeypatch.setattr(module, "SILENT", {**SILENT, **LEASE})
    result = ENTRIES[name](jobs)
    assert result.ok, result.line()


class Slow:
    """A connection on which a push takes a second, the third longer, and the last breaks."""

    async def push(self, number: int) -> int:
        await trio.sleep(3.0 if number == 2 else 1.0)
        return 201 if number < 4 else BROKEN


async def test_a_push_that_finds_no_connection_waits_within_its_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Two a second on one connection that takes one: a client that waited for its answers would see one second each."""
    found = await open_loop([Slow()], rate=2.0, numbers=range(5))
    assert found.ack_ms() == pytest.approx([1_000, 1_500, 4_000, 4_500])
    assert found.late_s == pytest.approx([0.0, 0.5, 1.0, 3.5, 4.0])
    assert found.statuses == {0: 201, 1: 201, 2: 201, 3: 201, 4: BROKEN}


async def test_pushes_go_out_when_they_are_due_whatever_the_others_do(autojump_clock: trio.testing.MockClock) -> None:
    seen: list[int] = []
    found = await open_loop(
        [Slow() for _ in range(8)], rate=2.0, numbers=range(-1, 4), each=lambda load: seen.append(len(load.statuses))
    )
    assert found.ack_ms() == pytest.approx([1_000, 1_000, 1_000, 1_000, 3_000])
    assert found.late_s == pytest.approx([0.0] * 5)
    assert seen == [1, 2, 3, 4, 5]


async def test_a_push_that_breaks_goes_to_the_next_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nbody"
    asked: list[str] = []
    requests: list[bytes] = []

    async def open_stream(scheme: str, host: str, port: int | None) -> trio.abc.Stream:
        asked.append(host)
        if host == "refuses":
            raise ConnectionRefusedError
        near, far = trio.testing.memory_stream_pair()

        async def reply() -> None:
            requests.append(bytes(near.send_stream.get_data_nowait()))
            await far.send_all(answer[:30])
            await (far.send_eof() if host == "hangs-up" else far.send_all(answer[30:]))

        near.send_stream.send_all_hook = reply
        return near

    monkeypatch.setattr("bench.open_loop._open", open_stream)
    connection = HttpConnection(["http://refuses:1", "http://hangs-up:2", "http://lives:3/queue/"], "noop", "secret")
    assert [await connection.push(n) for n in range(2)] == [201, 201]
    assert asked == ["refuses", "hangs-up", "lives"], "the second goes where the first was taken"
    assert requests[1].startswith(b"POST /queue/v1/jobs HTTP/1.1\r\nHost: lives:3\r\nAuthorization: Bearer secret\r\n")
    await connection.close()
    assert await HttpConnection(["http://refuses:1"], "noop").push(0) == BROKEN


def test_a_death_costs_what_ran_elsewhere_and_what_waited_for_the_return() -> None:
    found = Load(10.0, range(6), 0, dict.fromkeys(range(5), 201) | {5: BROKEN}, {n: n / 10 + 0.5 for n in range(6)})
    second = 1_000_000_000
    times_ns = {0: [0], 1: [second, 12 * second], 2: [3 * second, 9 * second], 3: [50 * second]}
    result = took_over(found, times_ns, Death(killed_ns=2 * second, restarted_ns=40 * second))
    assert not result.ok, "the fifth was taken and never began"
    assert result.figures == {
        "taken": 5.0, "lost": 1.0, "not_taken": 1.0, "began_again": 2.0, "elsewhere_s": 10.0, "longest_pause_s": 6.0,
        "waited_for_return": 1.0, "ack_max_ms": 500.0,
    }  # fmt: skip


def test_a_soak_compares_its_first_part_to_its_last() -> None:
    found = Load(100.0, range(10), 0, dict.fromkeys(range(10), 201), {n: n / 100 + 0.001 for n in range(10)})
    result = steady(found, [1.0, 1.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 3.0, 3.0], [60.0, 70.0], 1.0)
    assert result.ok
    assert (result.figures["start_p99_first_ms"], result.figures["start_p99_last_ms"]) == (1.0, 3.0)
    assert not steady(found, [1.0] * 9, [60.0], 1.0).ok


def test_time_of_what_is_built_in_counts_where_it_was_called_from() -> None:
    ours, theirs = ("/x/jqd/store/link.py", 1, "send"), ("/y/site-packages/trio/_core/_run.py", 2, "step")
    stats = {
        ours: (1, 1, 2.0, 9.0, {}),
        theirs: (1, 1, 1.0, 9.0, {}),
        ("/usr/lib/python3.11/json.py", 3, "loads"): (1, 1, 1.0, 1.0, {}),
        ("~", 0, "<built-in method len>"): (4, 4, 4.0, 4.0, {ours: (3, 3, 3.0, 3.0), theirs: (1, 1, 1.0, 1.0)}),
        ("~", 0, "<method 'poll' of 'select.epoll' objects>"): (1, 1, 90.0, 90.0, {theirs: (1, 1, 90.0, 90.0)}),
    }
    assert by_room(stats) == {"jqd/store": 5 / 8, "trio": 2 / 8, "python": 1 / 8}
    assert room_of("/x/jqd/daemon.py") == "jqd"
    assert cpu_s(os.getpid()) > 0


def test_load_is_bounded_and_judged_by_what_was_taken_and_begun(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["--duration", "0"], ["--duration", "100000"], ["--rate", "0"], ["--connections", "0"]):
        with pytest.raises(SystemExit):
            load.main(wrong)
        assert "at most 86400 s" in capsys.readouterr().err
    found = Load(
        10.0, range(4), 0, dict.fromkeys(range(4), 201), {n: n / 10 + 0.2 for n in range(4)}, [0.0, 0.0, 0.5, 0.0]
    )
    result = load.judge("load", found, [300.0] * 4)
    assert result.ok
    assert (result.figures["taken_per_s"], result.figures["late_share"]) == (8.0, 0.25)
    assert result.figures["ack_p50_ms"] == pytest.approx(200.0)
    assert not load.judge("load", found, [300.0] * 3).ok, "one was taken and did not begin"
    found.statuses[3] = BROKEN
    assert not load.judge("load", found, [300.0] * 3).ok, "one was not taken"
