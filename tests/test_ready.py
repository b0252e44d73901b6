"""Whoever started the daemon is told once, and always, when it takes jobs."""

from pathlib import Path
from typing import Any

import pytest

from jqd import serve
from jqd.config import load


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
