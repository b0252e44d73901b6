"""A daemon that is acted, for all tests here."""

from collections.abc import AsyncIterator

import pytest

from tests.harness.daemon import ScriptedDaemon, open_daemon


@pytest.fixture
async def daemon() -> AsyncIterator[ScriptedDaemon]:
    async with open_daemon() as daemon:
        yield daemon


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two tries of a buffer."""
    monkeypatch.setattr("jqd.client.send.PAUSE_S_MAX", 0.001)
