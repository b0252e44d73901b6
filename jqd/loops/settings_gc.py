"""Which rules are of no use to anybody any more. There may be 100,000: others have their turns meanwhile."""

from collections import Counter
from collections.abc import Callable, Sequence

import trio

from jqd.domain.audit import IN_A_ROW, is_old, stale
from jqd.domain.settings import AUDIT, FIRED, SCHEDULE, Setting, SettingTable
from jqd.domain.tenant import tenant_of
from jqd.domain.tokens import TOKEN, over
from jqd.runner import WorkerRegistry
from jqd.runner.handler import is_deleted
from jqd.runner.registry import HANDLER, KIND

SILENT_S = 3_600.0  # a registration with a ttl that ran out is kept so long, for a worker that comes back
DELETED_S = 7 * 86_400.0  # what a worker's leaving says is kept so long: a daemon that is away longer brings back a
# registration that holds until its ttl is over, or its worker was unreachable for 5 minutes
ENDED_S = 90 * 86_400.0  # and that of a handler, or of options, after which nothing else would take them out again
FIRED_S = 7 * 86_400.0  # what is known of the dates of a schedule is kept so long after it was deleted
SILENT_MAX = DELETED_MAX = 10_000  # of a tenant no more than so many: programs that make up names leave some with each.
# What says that one went is counted by its kind: many workers that leave must not bring back a schedule.


async def useless(settings: SettingTable, workers: WorkerRegistry, now_ms: int) -> list[Setting]:
    """Those to be dropped everywhere, the oldest of each sort first."""
    silent = sorted(workers.silent(), key=lambda one: one[0])
    deleted = sorted(await _those(settings.every(but=AUDIT), _is_deleted), key=lambda setting: setting.at_ms)
    kept, left, gone = Counter[str](), Counter(map(_sort, deleted)), list[Setting]()
    for since_s, setting in silent:
        kept[tenant_of(setting.name)] += 1
        if since_s > SILENT_S or kept[tenant_of(setting.name)] > SILENT_MAX:
            gone.append(setting)
    gone.reverse()
    # Up to which date one was fired is said by others, too, while it is deleted. The note of that goes much later.
    ended = {
        setting.name for setting in deleted if setting.kind == SCHEDULE and now_ms - setting.at_ms > FIRED_S * 1000
    }
    gone += [setting for setting in settings.all(FIRED) if setting.name in ended and not setting.is_deleted]
    gone += await stale(settings, now_ms)
    gone += [setting for setting in settings.all(TOKEN) if over(setting, now_ms)]
    for setting in deleted:
        if is_stale(setting, now_ms) or left[_sort(setting)] > DELETED_MAX:
            left[_sort(setting)] -= 1
            gone.append(setting)
    return gone


def carried(settings: SettingTable, frame: Sequence[Setting], now_ms: int) -> list[Setting]:
    """Those of a frame that are copied when its segment goes: what holds, but for what nobody needs any more."""
    return [setting for setting in frame if settings.holds(setting) and not is_stale(setting, now_ms)]


def is_stale(setting: Setting, now_ms: int) -> bool:
    """Whether it says that there is none any more, or who did what, and said so long ago; or a token is over."""
    if is_old(setting, now_ms) or over(setting, now_ms):
        return True
    kept_s = DELETED_S if setting.kind == KIND else ENDED_S
    return now_ms - setting.at_ms > kept_s * 1000 and _is_deleted(setting)


async def _those(settings: Sequence[Setting], is_so: Callable[[Setting], bool]) -> list[Setting]:
    found: list[Setting] = []
    for at in range(0, len(settings), IN_A_ROW):
        if at:
            await trio.lowlevel.checkpoint()
        found += filter(is_so, settings[at : at + IN_A_ROW])
    return found


def _sort(setting: Setting) -> tuple[str, str]:
    return setting.kind, tenant_of(setting.name)


def _is_deleted(setting: Setting) -> bool:
    return setting.is_deleted or (setting.kind == HANDLER and is_deleted(setting.body))
