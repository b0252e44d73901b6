"""The word count example, whole, against a scripted daemon."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import trio

from examples.wordcount import run
from examples.wordcount.count import Counts, count
from examples.wordcount.worker import app
from jqd import App
from jqd.worker.serve import serve
from tests.harness.daemon import open_daemon

FILES = 25


async def exit_code(app: App, *arguments: str) -> int:
    """Run the example with a worker of `app`; its exit code."""
    stop = trio.Event()
    async with open_daemon() as daemon, trio.open_nursery() as nursery:
        await nursery.start(partial(serve, app, daemons=[daemon.url], signals=False, stop=stop))
        given: Sequence[str] = ["--url", daemon.url, "--timeout", "30", *arguments]
        code = await trio.to_thread.run_sync(run.main, given)
        stop.set()
    return code


async def test_every_file_is_counted_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert await exit_code(app, "--files", str(FILES)) == 0
    assert f"{FILES} of {FILES} files right" in capsys.readouterr().out


async def test_wrong_answers_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    wrong, second = App(), str(run.stdlib_files(2)[1])

    @wrong.job("wordcount.file", keep_result=True)
    def miscount(path: str, /) -> Counts:
        counts = count(Path(path))
        counts["words"] += path == second
        return counts

    assert await exit_code(wrong, "--files", "3") == 1
    assert "2 of 3 files right" in capsys.readouterr().out


async def test_a_file_that_is_gone_fails_for_good(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run, "stdlib_files", lambda files_max: [tmp_path / "gone.py"])
    assert await exit_code(app) == 1


def test_without_a_daemon_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--url", "http://127.0.0.1:1", "--files", "1"]) == 1
    assert "no daemon answers" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        run.main(["--files", "0"])
    assert caught.value.code == 2


def test_the_standard_library_is_large_enough_to_be_of_interest() -> None:
    assert len(run.stdlib_files()) > 500
    assert len(run.stdlib_files(3)) == 3


def test_counting(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one two\n\n three\xff\nfour")
    assert count(path) == {"path": str(path), "lines": 3, "words": 4, "bytes": 21}
