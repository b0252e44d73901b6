"""Mistakes about rules, planted as those of `bugs.py`: what was said of a worker is not known, or not for long."""

import copy
from types import SimpleNamespace
from typing import Any

import trio

from jqd.domain.settings import Setting, SettingTable
from jqd.loops import settings as settings_gc
from jqd.loops.retention import retention
from jqd.loops.settings import SettingsSync
from jqd.service import handlers, pauses
from jqd.service import workers as service_workers
from tests.simulation.mistake import Mistake, Real, in_scripts, mistake


def _always(real: Real) -> Real:
    return lambda setting, other: True


def _once(real: Real) -> Real:
    async def ask(self: SettingsSync) -> bool:
        asked, self.__dict__["asked"] = "asked" in self.__dict__, True
        return False if asked else bool(await real(self))

    return ask


def _by_clock_alone(real: Real) -> Real:
    def make(self: SettingTable, *args: Any, **named: Any) -> list[Setting]:
        self._highest = 0
        made: list[Setting] = real(self, *args, **named)
        return made

    return make


def _unsynced_services(services: Any) -> Any:
    """The same, whose journal syncs at once, it says."""
    other = copy.copy(services)
    other.journal = SimpleNamespace(write=services.journal.write, ids=services.journal.ids, wsync=_at_once)
    return other


async def _at_once(*_: Any, **__: Any) -> None:
    await trio.lowlevel.checkpoint()


def _unsynced(real: Real) -> Real:
    async def say(services: Any, *args: Any, **named: Any) -> None:
        await real(_unsynced_services(services), *args, **named)

    return say


def _nothing_carried(real: Real) -> Real:
    return lambda *_: []


def _never(real: Real) -> Real:
    return lambda setting, now_ms: False


def _young_ones_too(real: Real) -> Real:
    return lambda setting, now_ms: settings_gc._is_deleted(setting)


UNSAID: dict[str, Mistake] = {
    "view-behind-jobs": mistake(
        "workers",
        37,
        "pressed",
        "jobs that a worker refused go back before the store is told that it wants none",
        (SettingsSync, "publish_view", lambda real: _at_once),
    ),
    "claims-unheard": mistake(
        "workers",
        46,
        "pressed",
        "who has not heard which workers want nothing claims jobs for them",
        in_scripts("elseif rules_at ~= '' and", "elseif false and"),
    ),
    "last-come-holds": mistake(
        "lag,lost",
        0,
        "older,apart,newer",
        "of two rules the one that comes last holds",
        (Setting, "supersedes", _always),
        in_scripts("if tonumber(revision) > number or", "if revision or"),
        rules=True,
    ),
    "never-asked-again": mistake(
        "lost",
        0,
        "apart,newer",
        "a daemon asks the store for rules when it starts only",
        (SettingsSync, "_ask", _once),
        rules=True,
    ),
    "not-synced": mistake(
        "kill,disk",
        5,
        "older",
        "what was said is answered before it is on disk",
        (handlers, "save", _unsynced),
        (service_workers, "save", _unsynced),
        (pauses, "save", _unsynced),
        rules=True,
        pauses=True,
        dense=3,
    ),
    "not-carried": mistake(
        "trim,wipe",
        0,
        "older,apart",
        "what still holds goes with the part of a journal in which it was said",
        (retention, "carried", _nothing_carried),
        rules=True,
    ),
    "forgotten-at-once": mistake(
        "kill",
        1,
        "older",
        "that something was deleted is forgotten before all know it",
        (settings_gc, "is_stale", _young_ones_too),
        rules=True,
    ),
    "never-forgotten": mistake(
        "",
        14,
        "kept",
        "that something was deleted is never forgotten",
        (settings_gc, "is_stale", _never),
        rules=True,
    ),
    "revisions-by-clock": mistake(
        "clock",
        4,
        "newer,older",
        "a rule is numbered by the wall clock alone",
        (SettingTable, "make", _by_clock_alone),
        rules=True,
    ),
}
"""By name."""
