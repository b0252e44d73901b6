"""`jqd journal ls | cat | verify | repair` on real directories: whole, damaged, and lived in."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from jqd.cli import run, segments
from jqd.cli.exits import Exit
from jqd.client import Client
from jqd.domain.clock import SystemClock
from jqd.journal.files import Files, holding
from jqd.journal.frame import HEAD_BYTES, HEADER_COPY_BYTES
from tests.cli.books import (
    AT_MS,
    VERIFY,
    Batch,
    a_bit_of_everything,
    files_of,
    flip,
    states,
    told,
    write,
    write_other,
)
from tests.cli.books import data_dir as data_dir  # the fixture
from tests.directories import short_directory
from tests.live.harness import Daemon

END_S = 60.0  # for one command on a loaded machine


def test_segments_are_listed(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = files_of(data_dir)
    assert run(["journal", "ls", "--data-dir", str(data_dir), "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["total"] == {
        "segments": 2,
        "bytes": first.stat().st_size + second.stat().st_size,
        "frames": 8,
        "process": None,
    }
    row, newest = listed["segments"]
    assert (row["name"], row["first"], row["frames"], row["state"]) == (first.name, 0, 4, "closed")
    assert row["end"] == newest["first"] == row["bytes"] - HEAD_BYTES
    assert (newest["name"], newest["state"]) == (second.name, "open")
    assert row["created"] == "2027-01-15T08:00:10.000Z"
    assert row["journal"] == newest["journal"]
    assert run(["-o", "jsonl", "journal", "ls", "--data-dir", str(data_dir / "journal")]) == 0
    assert told(capsys) == listed["segments"]


def test_a_table_is_aligned(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(files_of(data_dir)[0], 3, HEADER_COPY_BYTES + 3)
    assert run(["journal", "ls", "--data-dir", str(data_dir)]) == 0
    names, one, two, total = capsys.readouterr().out.splitlines()
    assert names.split() == ["name", "first", "end", "bytes", "frames", "created", "journal", "state"]
    assert one.index("damaged") == two.index("open") == names.index("state")
    assert " - " in one, "what is not known is not guessed"
    assert total.startswith("2 segments, ")
    assert total.endswith("nobody lives here")


def test_states_of_segments(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def state(number: int) -> str:
        assert run(["journal", "ls", "--data-dir", str(data_dir), "-o", "jsonl"]) == 0
        return str(told(capsys)[number]["state"])

    first, second = files_of(data_dir)
    whole = second.read_bytes()
    second.write_bytes(whole + b"torn")
    assert state(1) == "torn"
    second.write_bytes(whole)
    flip(second, HEAD_BYTES + 1)
    assert state(1) == "damaged"
    second.write_bytes(whole)
    os.link(first, first.with_suffix(".damaged"))
    assert state(0) == "damaged"
    first.unlink()
    assert state(0) == "kept"
    first.with_suffix(".damaged").unlink()
    newer = bytearray(whole)
    newer[8] = newer[HEADER_COPY_BYTES + 8] = 9
    second.write_bytes(newer)
    assert state(0) == "unknown version"
    second.write_bytes(whole)
    second.rename(second.with_name(f"{99_999:020d}.jqd"))
    assert state(0) == "foreign"


def test_the_journals_of_all_processes_are_looked_at(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_other(data_dir, *a_bit_of_everything())
    (data_dir / "journal" / "process-2.left").mkdir()
    (data_dir / "process-1").mkdir()  # its data directory
    where = ["--data-dir", str(data_dir)]
    names = [path.name for path in files_of(data_dir)]
    flip(other / names[0], HEADER_COPY_BYTES + 3)
    for place in (other, data_dir / "process-1"):  # the second as `jqd backup` has it
        other = other.rename(place)
        assert run(["journal", "ls", *where, "-o", "json"]) == 0
        listed = json.loads(capsys.readouterr().out)
        assert [row["name"] for row in listed["segments"]] == [*names, f"process-1/{names[0]}"]
        assert listed["total"]["frames"] == 12
        assert run(["journal", "cat", *where]) == 1
        assert len(told(capsys)) == 3 * 7
    assert run([*VERIFY, str(data_dir)]) == 1
    assert [place["file"] for place in told(capsys)] == [f"process-1/{names[0]}"]
    assert run(["journal", "repair", *where]) == 0
    assert capsys.readouterr().out.startswith(f"process-1/{names[0]}: ")
    assert run([*VERIFY, str(data_dir)]) == 0


def test_no_journal_is_mended_where_one_of_them_cannot_be(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first was mended, and only the error of the second was printed."""
    other = write_other(data_dir, *a_bit_of_everything())
    name = files_of(data_dir)[0].name
    flip(data_dir / "journal" / name, HEADER_COPY_BYTES + 3)
    before = {path: path.read_bytes() for path in (data_dir / "journal").rglob("*.jqd")}
    with holding(Files(), other):
        assert run(["journal", "repair", "--data-dir", str(data_dir)]) == 1
    assert "process-1" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in (data_dir / "journal").rglob("*.jqd")} == before
    assert run(["journal", "repair", "--data-dir", str(data_dir)]) == 0
    assert capsys.readouterr().out != ""


def test_an_empty_journal_is_listed_and_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "journal").mkdir()
    assert run(["journal", "ls", "--data-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "0 segments, 0 bytes, 0 frames; nobody lives here\n"
    assert run(["journal", "verify", "--data-dir", str(tmp_path)]) == 0


def test_records_come_in_order_of_position(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["journal", "cat", "--data-dir", str(data_dir)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    records = [json.loads(line) for line in printed.out.splitlines()]
    assert [record["lane"] for record in records] == [*["jobs"] * 4, "outcomes", "outcomes", "cancels"] * 2
    positions = [record["position"] for record in records]
    assert positions == sorted(set(positions))
    assert [record["argument"] for record in records[:4]] == ["hello", {"$bytes": "/w=="}, None, {"a": 1}]
    assert records[3]["eligible_at"] == "2027-01-15T08:01:00.000Z"
    assert [record["fate"] for record in records[4:6]] == ["succeeded", "retry"]
    assert records[6]["job_id"] == records[3]["job_id"]


@pytest.mark.parametrize(
    ("words", "number"),
    [
        (["--lane", "jobs"], 8),
        (["--lane", "outcomes", "--lane", "cancels"], 6),
        (["--type", "mail"], 4),
        (["--type", "mail", "--type", "t"], 8),
        (["--type", "nobody"], 0),
        (["--since", "2027-01-15T08:00:02Z", "--lane", "jobs"], 2),
        (["--since", "2027-01-15T08:00:02", "--lane", "jobs"], 2),
        (["--since", "2027-01-15T09:00:02+01:00", "--lane", "jobs"], 2),
        (["--until", "1800000002", "--lane", "jobs"], 6),
        (["--since", "1800000001", "--until", "1800000001.5"], 6),
        (["--since", "20300101"], 0),
        (["--since", "90s", "--until", "2000000000"], 0),
    ],
)
def test_records_can_be_chosen(
    words: list[str], number: int, data_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemClock, "wall_ms", lambda self: AT_MS + 1_000_000)
    assert run(["journal", "cat", "--data-dir", str(data_dir), *words]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == number
    assert bool(printed.err) is (number == 0), "no output at all would look like a command that failed"


def test_segments_before_a_date_are_not_read(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(files_of(data_dir)[0], HEAD_BYTES + 60)
    assert run(["journal", "cat", "--data-dir", str(data_dir), "--since", "2028-01-01"]) == 0
    assert capsys.readouterr() == ("", "jqd: the journal holds no record of that kind\n")


def test_jobs_come_as_the_seed_has_them(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["journal", "cat", "--lines", "--data-dir", str(data_dir)]) == 0
    lines = [line.split("|", 2) for line in capsys.readouterr().out.splitlines()]
    assert [line[1:] for line in lines[:4]] == [
        ["mail", "hello"],
        ["mail", '{"$bytes": "/w=="}'],
        ["log", "null"],
        ["log", '{"a": 1}'],
    ]
    assert len({line[0] for line in lines}) == 4
    assert run(["journal", "cat", "--lines", "--lane", "cancels", "--data-dir", str(data_dir)]) == Exit.USAGE


def test_what_cannot_be_read_is_said_and_the_rest_is_printed(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = files_of(data_dir)
    flip(first, HEAD_BYTES + 60)
    write(data_dir, Batch(a_bit_of_everything()[0].lane, 1, msgspec.msgpack.encode("no jobs"), []))
    flip(second, 5)
    assert run(["journal", "cat", "--data-dir", str(data_dir)]) == 1
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 4 + 7
    body, head, content = printed.err.splitlines()
    assert f"{first.name}: byte {HEAD_BYTES}: bad body" in body
    assert f"{second.name}: byte 0: bad head" in head
    assert "cannot be decoded" in content


def test_a_reader_that_left_is_no_traceback(data_dir: Path) -> None:
    words = [sys.executable, "-m", "jqd", "journal", "cat", "--data-dir", str(data_dir)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        said = child.stderr.read()
        assert child.wait(timeout=END_S) == 1
    assert said == ""


@pytest.mark.parametrize("words", [["ls"], ["cat"], ["verify"], ["replay", "--dry-run"]])
def test_looking_changes_nothing(words: list[str], data_dir: Path) -> None:
    flip(files_of(data_dir)[0], HEAD_BYTES + 60)
    with files_of(data_dir)[1].open("ab") as newest:
        newest.write(b"torn")
    before = states(data_dir / "journal")
    run(["journal", *words, "--data-dir", str(data_dir)])
    assert states(data_dir / "journal") == before
    assert [path.name for path in data_dir.iterdir()] == ["journal"]


def test_where_the_journal_is(data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "jqd.toml"
    config.write_text(f'data_dir = "{data_dir}"\n[http]\nbind = "0.0.0.0:1"\n[log]\nlevel = "error"')
    assert run(["journal", "ls", "--config", str(config), "-o", "jsonl"]) == 0
    assert len(told(capsys)) == 2
    elsewhere = tmp_path / "elsewhere"
    (data_dir / "journal").rename(elsewhere)
    config.write_text(f'data_dir = "{data_dir}"\njournal.directory = "{elsewhere}"')
    assert run(["journal", "ls", "--config", str(config), "--data-dir", str(data_dir), "-o", "jsonl"]) == 0
    assert len(told(capsys)) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ls", "--data-dir", "nowhere"], "there is no journal in nowhere/journal"),
        (["verify", "--data-dir", "project"], "no journal in project/journal; did you mean --data-dir project/.jqd?"),
        (["verify", "--config", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["cat", "--since", "yesterday"], "--since yesterday is no date"),
        (["cat", "--until", "5x"], "--until 5x is no date"),
    ],
)
def test_words_that_mean_nothing(
    words: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("project/.jqd/journal").mkdir(parents=True)
    assert run(["journal", *words]) == Exit.USAGE
    assert said in capsys.readouterr().err


def test_a_directory_that_cannot_be_read_is_an_error_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = write(tmp_path, *a_bit_of_everything())
    os.symlink("nowhere", journal / f"{5:020d}.jqd")  # what lies outside is not ours to read
    assert run(["journal", "verify", "--data-dir", str(tmp_path)]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_who_lives_there_is_asked_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locks = tmp_path / "locks"
    monkeypatch.setattr(segments, "LOCKS", locks)
    assert segments.living(tmp_path) is None, "there is no lock file"
    (tmp_path / "lock").write_text("4711\n")
    assert segments.living(tmp_path) is None, "the system does not tell"
    state = (tmp_path / "lock").stat()
    device = f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}"
    others = f"1: POSIX  ADVISORY  WRITE 5 {device}:{state.st_ino} 0 EOF\n2: -> FLOCK ADVISORY WRITE 6 00:00:1 0 EOF\n"
    others += f"3: FLOCK  ADVISORY  WRITE 7 {device}:1{state.st_ino} 0 EOF\n\n"
    locks.write_text(others + f"4: FLOCK  ADVISORY  WRITE 8 ff:ff:{state.st_ino} 0 EOF\n")
    assert segments.living(tmp_path) is None
    locks.write_text(others + f"4: FLOCK  ADVISORY  WRITE 8 {device}:{state.st_ino} 0 EOF\n")
    assert segments.living(tmp_path) == 8
    locks.write_text(others + f"4: FLOCK  ADVISORY  WRITE 4711 ff:ff:{state.st_ino} 0 EOF\n")
    assert segments.living(tmp_path) == 4711


def test_a_journal_is_looked_at_while_a_daemon_writes_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Rotating every few pushes: nothing of it is ever taken for damage, and at the end all is there."""
    with short_directory() as base:
        where = ["--data-dir", str(base / "d")]
        with Daemon(base / "d", env={"JQD_JOURNAL__SEGMENT_BYTES": "20000"}) as daemon:
            pushed: list[str] = []

            def push() -> None:
                with Client(daemon.url) as client:
                    for _ in range(20):
                        pushed.extend(client.push_many([{"name": "x", "argument": 1}] * 200))

            pusher = threading.Thread(target=push)
            pusher.start()
            looks = 0
            while pusher.is_alive() or not looks:
                assert run(["journal", "verify", *where, "-o", "json"]) == 0
                assert run(["journal", "cat", *where, "--lane", "jobs"]) == 0
                looks += 1
                capsys.readouterr()
            pusher.join()
            assert run(["journal", "cat", *where, "--lines"]) == 0
            assert [line.partition("|")[0] for line in capsys.readouterr().out.splitlines()] == pushed
            assert len(pushed) == 4_000
            assert run(["journal", "ls", *where, "-o", "json"]) == 0
            listed = json.loads(capsys.readouterr().out)
            assert listed["total"]["process"] == daemon.child.pid
            assert listed["total"]["segments"] > 3
            assert run(["journal", "repair", "--dry-run", *where]) == 1, "what is being written would look torn"
            assert run(["journal", "repair", *where]) == 1
            assert f"process {daemon.child.pid}" in capsys.readouterr().err
            newest = sorted((base / "d" / "journal").glob("*.jqd"))[-1]
            with newest.open("ab") as file:
                file.write(b"half a frame")
            assert run(["journal", "verify", *where]) == 0
            assert f"being written by process {daemon.child.pid}" in capsys.readouterr().out
            daemon.kill()
        assert run(["journal", "verify", *where]) == 0
        assert "torn tail, 12 bytes; as a rule not acknowledged" in capsys.readouterr().out
