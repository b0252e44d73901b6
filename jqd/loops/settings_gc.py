"""Which rules are of no use to anybody any more. There may be 100,000: others have their turns meanwhile."""

from collections import Counter
from collections.abc import Callable, Sequence

import trio

from jqd.domain.audit import IN_A_ROW, is_old, stale
from jqd.domain.schedules import FIRED, SCHEDULE
from jqd.domain.settings import AUDIT, Rule, Rules
from jqd.domain.tenant import tenant_of
from jqd.domain.tokens import TOKEN, over
from jqd.runner import Workers
from jqd.runner.handler import is_deleted
from jqd.runner.registry import HANDLER, KIND

SILENT_S = 3_600.0  # a registration with a ttl that ran out is kept so long, for a worker that comes back
DELETED_S = 7 * 86_400.0  # what a worker's leaving says is kept so long: a daemon that is away longer brings back a
# registration that holds until its ttl is over, or its worker was unreachable for 5 minutes
ENDED_S = 90 * 86_400.0  # and that of a handler, or of options, after which nothing else would take them out again
FIRED_S = 7 * 86_400.0  # what is known of the dates of a schedule is kept so long after it was deleted
SILENT_MAX = DELETED_MAX = 10_000  # of a tenant no more than so many: programs that make up names leave some with each.
# What says that one went is counted by its kind: many workers that leave must not bring back a schedule.


async def useless(rules: Rules, workers: Workers, now_ms: int) -> list[Rule]:
    """Those to be dropped everywhere, the oldest of each sort first."""
    silent = sorted(workers.silent(), key=lambda one: one[0])
    deleted = sorted(await _those(rules.every(but=AUDIT), _is_deleted), key=lambda rule: rule.at_ms)
    kept, left, gone = Counter[str](), Counter(map(_sort, deleted)), list[Rule]()
    for since_s, rule in silent:
        kept[tenant_of(rule.name)] += 1
        if since_s > SILENT_S or kept[tenant_of(rule.name)] > SILENT_MAX:
            gone.append(rule)
    gone.reverse()
    # Up to which date one was fired is said by others, too, while it is deleted. The note of that goes much later.
    ended = {rule.name for rule in deleted if rule.kind == SCHEDULE and now_ms - rule.at_ms > FIRED_S * 1000}
    gone += [rule for rule in rules.all(FIRED) if rule.name in ended and not rule.is_deleted]
    gone += await stale(rules, now_ms)
    gone += [rule for rule in rules.all(TOKEN) if over(rule, now_ms)]
    for rule in deleted:
        if is_stale(rule, now_ms) or left[_sort(rule)] > DELETED_MAX:
            left[_sort(rule)] -= 1
            gone.append(rule)
    return gone


def carried(rules: Rules, frame: Sequence[Rule], now_ms: int) -> list[Rule]:
    """Those of a frame that are copied when its segment goes: what holds, but for what nobody needs any more."""
    return [rule for rule in frame if rules.holds(rule) and not is_stale(rule, now_ms)]


def is_stale(rule: Rule, now_ms: int) -> bool:
    """Whether it says that there is none any more, or who did what, and said so long ago; or a token is over."""
    if is_old(rule, now_ms) or over(rule, now_ms):
        return True
    kept_s = DELETED_S if rule.kind == KIND else ENDED_S
    return now_ms - rule.at_ms > kept_s * 1000 and _is_deleted(rule)


async def _those(rules: Sequence[Rule], is_so: Callable[[Rule], bool]) -> list[Rule]:
    found: list[Rule] = []
    for at in range(0, len(rules), IN_A_ROW):
        if at:
            await trio.lowlevel.checkpoint()
        found += filter(is_so, rules[at : at + IN_A_ROW])
    return found


def _sort(rule: Rule) -> tuple[str, str]:
    return rule.kind, tenant_of(rule.name)


def _is_deleted(rule: Rule) -> bool:
    return rule.is_deleted or (rule.kind == HANDLER and is_deleted(rule.body))
