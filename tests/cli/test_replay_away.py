"""What `jqd journal replay` does when the store is away, or loses its answers."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jqd.cli import replay as replaying
from jqd.cli import run
from jqd.cli.replay import count, replay
from jqd.domain.backoff import Backoff
from jqd.domain.errors import PositionMismatch, StoreAway, StoreRefused
from jqd.journal import Files
from jqd.journal.inspect import snapshot
from tests.cli.books import Ids, write
from tests.cli.replayed import Told, into, views
from tests.valkey import Valkey, fresh_valkey, valkey_server

__all__ = ["fresh_valkey", "valkey_server"]


class Failing:
    """A store whose calls fail a number of times, after they were done: the answer is lost."""

    def __init__(self, store: Any, error: Exception, times: int, method: str) -> None:
        self._store, self._error, self.left, self._method = store, error, times, method

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **options: Any) -> Any:
            answer = await getattr(self._store, name)(*arguments, **options)
            if name == self._method and self.left:
                self.left -= 1
                raise self._error
            return answer

        return call


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "AWAY_BACKOFF", Backoff(first_s=1e-6, cap_s=1e-6))


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("method", ["apply_cancels", "applied", "apply_outcomes", "apply_jobs", "forget_journal"])
def test_an_answer_that_is_lost_is_asked_for_again(method: str, fresh_valkey: Valkey, tmp_path: Path) -> None:
    told, files = Told(tmp_path), Files()

    async def work(store: Any) -> None:
        away: Any = Failing(store, StoreAway("away"), replaying.AWAY_TRIES - 1, method)
        await replay(files, snapshot(files, told.directory), [away])
        assert away.left == 0

    into(fresh_valkey.url, work)
    assert told.states(fresh_valkey.url) == told.expected()
    twice = views(fresh_valkey.url, [told.twice])[told.twice]
    assert twice is not None
    assert len(twice.history) == 2, "an attempt was counted again"


@pytest.mark.usefixtures("hasty")
def test_a_store_that_is_not_there_is_what_could_not_be_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "AWAY_TRIES", 1)
    write(tmp_path, Ids().jobs({"name": "a"}))
    assert run(["journal", "replay", "--data-dir", str(tmp_path), "--store", "redis://127.0.0.1:1"]) == 4
    assert "jqd: the store does not answer: " in capsys.readouterr().err


@pytest.mark.usefixtures("hasty")
def test_a_store_that_stays_away_ends_it_and_it_can_be_done_again(fresh_valkey: Valkey, tmp_path: Path) -> None:
    told, files = Told(tmp_path), Files()

    async def work(store: Any, error: Exception, raised: type[Exception], method: str) -> None:
        away: Any = Failing(store, error, 1_000, method)
        with pytest.raises(raised):
            await replay(files, snapshot(files, told.directory), [away])

    taken = PositionMismatch("somebody was here", stored=5)
    into(fresh_valkey.url, partial(work, error=taken, raised=StoreRefused, method="apply_outcomes"))
    into(fresh_valkey.url, partial(work, error=StoreAway("away"), raised=StoreAway, method="apply_jobs"))
    into(fresh_valkey.url, lambda store: replay(files, snapshot(files, told.directory), [store]))
    assert told.states(fresh_valkey.url) == told.expected()


def test_a_store_that_fails_while_it_is_asked_is_said(fresh_valkey: Valkey, tmp_path: Path) -> None:
    told, files = Told(tmp_path), Files()

    async def work(store: Any) -> None:
        refusing: Any = Failing(store, StoreRefused("no"), 1, "get_job")
        with pytest.raises(StoreRefused):
            await count(files, snapshot(files, told.directory), [refusing])

    into(fresh_valkey.url, work)
