"""Whoever started the daemon is told once, and always, when it takes jobs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from jqd import serve
from jqd.config import load
from jqd.loops.systemd import BEAT_S, Manager
from jqd.reload import Reload
from tests.loops.test_systemd import Listener


@pytest.mark.parametrize("ready_at_first", [False, True])
async def test_a_daemon_whose_journal_gets_a_new_id_says_once_that_it_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ready_at_first: bool
) -> None:
    lives: list[bytes | None] = []

    async def one_life(
        config: Any, listener: Any, ready: Any, _: Any, journal_id: bytes | None, watches: Any, seat: Any
    ) -> bytes | None:
        lives.append(journal_id)
        if journal_id is not None or ready_at_first:
            ready("http://here")
        return None if journal_id is not None else b"new"

    monkeypatch.setattr(serve, "_serve_once", one_life)
    told: list[str] = []
    config = load(environ={}, flags={"data_dir": str(tmp_path), "http.bind": "127.0.0.1:0"})
    await serve.serve(config, ready=told.append)
    assert lives == [None, b"new"]
    assert told == ["http://here"]


async def test_a_life_after_the_first_goes_on_to_be_heard_while_it_opens_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: None
) -> None:
    @asynccontextmanager
    async def slow(*_: Any, **__: Any) -> AsyncIterator[None]:
        with trio.fail_after(3.5 * BEAT_S):
            await trio.sleep(60)
        yield

    monkeypatch.setattr(serve, "open_journal", slow)
    listener = Listener(address := f"@{tmp_path}")
    config = replace(load(environ={}, flags={"data_dir": str(tmp_path)}), manager=Manager(address, 30.0))
    with pytest.raises(ExceptionGroup, match="nursery"):
        await serve._serve_once(Reload(config, None), None, print, lambda _: None, b"new", [], None)
    assert sum("WATCHDOG=1" in said for said in listener.heard()) == 4
    listener.close()
