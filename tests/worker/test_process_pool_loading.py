"""Processes of a worker load the app of its jobs, and load it anew."""

from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from jqd import App
from jqd.domain.backoff import Backoff
from jqd.domain.errors import ConfigError
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
