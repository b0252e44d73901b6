"""Rules that cannot be read: each is said once and counts as deleted, whatever its kind."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw
from structlog.testing import capture_logs

from jqd.cron.schedules import Schedules
from jqd.domain.settings import NIL, Setting, SettingTable
from tests.api.whole import Whole

KINDS = (
    "audit",
    "ban",
    "callback",
    "constraint",
    "drain",
    "fired",
    "halt",
    "handler",
    "options",
    "pause",
    "quota",
    "schedule",
    "token",
    "view",
    "worker",
)


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


def bad(kind: str, revision: int = 5) -> Setting:
    return Setting(kind, "x", revision, 1_000, Raw(b"\x91\xc3"))


async def test_every_kind_that_is_taken_has_a_reader(edge: Whole) -> None:
    settings = edge.workers.settings
    assert {*KINDS} >= {*settings._readers} >= {*settings._watchers}
    with capture_logs() as log:
        for kind in settings._readers:
            assert settings.take([bad(kind)]) == [], "what nobody can read is told to nobody"
            setting = settings.get(kind, "x")
            assert setting is not None
            assert (setting.revision, bytes(setting.body)) == (5, NIL)
    said = [(row["event"], row["kind"], row["log_level"]) for row in log if row["event"] == "settings.unreadable"]
    assert said == [("settings.unreadable", kind, "error") for kind in settings._readers]
    (complaint,) = settings.complaints()
    assert complaint.endswith(f"; say it once more (and {len(said) - 1} more; the log has all)")
    for path in ("workers", "handlers", "schedules", "quotas", "constraints", "tokens", "audit", "types"):
        assert (await edge.call("GET", f"/v1/{path}")).status == 200, path


async def test_what_is_said_once_more_holds_and_is_no_complaint() -> None:
    settings, read = SettingTable(), list[Any]()
    settings.read("pause", lambda setting: msgspec.msgpack.decode(setting.body, type=str))
    settings.watch("pause", lambda setting: read.append(setting.revision if not setting.is_deleted else None))
    settings.take([bad("pause")])
    assert settings.complaints()[0].startswith("pause 'x' cannot be read, and holds for nothing: Expected `str`")
    (good,) = settings.make({("pause", "x"): msgspec.msgpack.encode("y")}, now_ms=0, origin=1)
    assert good.revision > 5
    assert settings.take([good]) == [good]
    assert settings.take([bad("pause")]) == []
    assert settings.complaints() == []
    assert read == [None, good.revision]


async def test_a_schedule_whose_job_cannot_be_pushed_is_none(edge: Whole) -> None:
    body = Raw(msgspec.msgpack.encode({"job": {"name": "n", "timeout": "1d"}, "every": 1.0}))
    edge.api._parts.services.feature(Schedules)  # as a daemon does at its start
    edge.workers.settings.take([Setting("schedule", "n", 9, 0, body)])
    assert (await edge.call("GET", "/v1/schedules")).body["schedules"] == []
    assert "timeout" in edge.workers.settings.complaints()[0]
