"""Processes of a worker load the app of its jobs, and load it anew."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from jqd import App
from jqd.domain.backoff import Backoff
from jqd.domain.errors import ConfigError
from jqd.worker import process as processes
from jqd.worker import process_pool as crews
from jqd.worker.serve import serve
from tests.worker.exchange import Exchange, packed
from tests.worker.pooled import MODULE, PATIENCE_S, here, job, outcomes, served, wait_until, write

__all__ = ["here"]


async def test_loading_anew_changes_the_jobs_and_what_it_cannot_load_changes_nothing() -> None:
    async with served() as (service, process_pool):
        exchange = Exchange(service, packed(job("watch", "watching", timeout=9), *[job("plain", 1)] * 1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange.run)
            await wait_until(lambda: Path("watching").exists())
            write("raise ValueError('not ready')\n")
            with capture_logs() as lines:
                assert not await process_pool.reload()
            assert "stands above" in lines[0]["why"]
            assert "plain" in process_pool.jobs
            write("from jqd import App\napp = App()\n@app.job(timeout=3)\ndef other(argument, /):\n    return 'new'\n")
            assert await process_pool.reload()
            assert {name: dict(each.declared) for name, each in process_pool.jobs.items()} == {"other": {"timeout": 3}}
            new = outcomes(await Exchange(service, packed(job("other"))).run())
            assert new["other"]["result"] == "new", "while an old process still has a job"
            await Exchange(service, b"", method="DELETE", query="job_id=watch").run()
        told = outcomes(exchange)
        assert told["watch"]["message"] == "cancelled: half way", "it ended where it had begun"
        assert told["plain"]["type"] == "refused"
        assert told["plain"]["message"].startswith("not begun"), "there is no such job any more, or it waited for long"
        await wait_until(lambda: len(process_pool._all) == 1)


async def test_a_place_is_not_filled_with_other_code_before_it_is_loaded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crews, "BACKOFF", Backoff(first_s=0.01, cap_s=0.01))
    async with served() as (service, process_pool):
        write(MODULE.replace("def plain(", "def renamed(").replace("def watch(", "async def watch("))
        with capture_logs() as lines:
            told = outcomes(await Exchange(service, packed(job("leave", 7), job("plain", 1))).run())
        assert (told["leave"]["error"], told["plain"]["type"]) == ("process died", "refused")
        why = next(line["why"] for line in lines if line["event"] == "worker.process_not_started")
        assert "'plain', 'watch'" in why
        assert why in (process_pool.trouble() or "")
        write(MODULE.replace("timeout=9", "timeout=8") + "@app.job()\ndef more(): ...\n")
        await wait_until(lambda: process_pool.trouble() is None)
        told = outcomes(await Exchange(service, packed(job("plain", 1))).run())
        assert told["plain"]["type"] == "success", "it has all jobs that the others have"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import nowhere\n", "cannot be imported"),
        ("", "has no 'app'"),
        ("import os\nos._exit(1)\n", "ended before it had loaded the app: it exited with 1"),
    ],
)
async def test_an_app_that_cannot_be_loaded_is_a_mistake_of_the_command(source: str, says: str) -> None:
    write(source)
    with pytest.raises(ConfigError, match=says), trio.fail_after(PATIENCE_S):
        await serve("crewed", processes=1, signals=False, daemons=["http://127.0.0.1:9"])


async def test_processes_load_the_app_themselves_and_need_its_name() -> None:
    with pytest.raises(ConfigError, match="the app is then told as MODULE:APP"):
        await serve(App(), processes=2, signals=False)


async def test_programs_of_a_process_that_leaves_in_good_order_are_killed_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "LEAVE_S", PATIENCE_S)  # it is not killed for being slow
    source = MODULE + (
        "@app.job()\ndef leave_behind(argument, /):\n"
        "    import subprocess\n    return subprocess.Popen(['sleep', '600']).pid\n"
    )
    async with served(source=source) as (service, process_pool):
        (told,) = outcomes(await Exchange(service, packed(job("leave_behind"))).run()).values()
        assert await process_pool.reload()
        await wait_until(lambda: not process_pool._leaving)
        await wait_until(lambda: not is_alive(told["result"]))


def is_alive(pid: int) -> bool:
    """Return whether it runs; a zombie does not."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("what", ["socket.socketpair", "os.pipe"])
async def test_without_descriptors_no_process_is_started_and_nothing_else_ends(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with served() as (service, process_pool):
        before = len(os.listdir("/proc/self/fd"))
        with monkeypatch.context() as patch:
            patch.setattr(what, full)
            assert not await process_pool.reload()
        assert len(os.listdir("/proc/self/fd")) == before
        told = outcomes(await Exchange(service, packed(job("plain", 1))).run())
        assert told["plain"]["type"] == "success"


async def test_no_more_processes_import_the_app_at_once_than_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    starting: list[processes.Process] = []
    start, at_once = processes.start_process, list[int]()

    def note(*args: Any) -> processes.Process:
        starting.append(start(*args))
        at_once.append(sum(each.ready is None for each in starting))
        return starting[-1]

    monkeypatch.setattr(crews, "CORES", 2)
    monkeypatch.setattr(crews, "start_process", note)
    async with served(processes=3) as (_, process_pool):
        assert len(process_pool._process_pool) == 6
    assert (len(at_once), max(at_once)) == (6, 2)
