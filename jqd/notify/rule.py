"""When what is told. Pure: a channel, what failed, and the time of the store.

    failure ─▶ group, untold ──first_s──▶ told ──nothing for resolved_s──▶ over, told, forgotten
                                          │  ▲
                                          └──┘ ten times as many: after change_s; more: after repeat_s

A notice tells of all groups that are due. There is one at a time: what comes while it cannot be sent is told by the
next. Groups count as told when it arrived, so a notice that is given up loses nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from jqd.domain.tenant import tenant_of
from jqd.notify.board import Channel, Failure, Group, Groups, Key, Notice, Row, alone_in
from jqd.notify.config import NotifyConfig

TENFOLD = 10  # a change that is told before the next repetition: a flood of a million is told seven times
HOUR_MS = 3_600_000
# Until a notice that a server did not take is tried again; twice as long each time, an hour at most: greylisting takes
# minutes, a server that is away hours.
AGAIN_MS = 60_000
# So often a notice is sent at most, over a quarter of an hour, where it arrived at others or may have: whoever does not
# take it, or takes it without an answer, keeps the next notices from nobody.
TRIES_MAX = 5


class Fate(Enum):
    """What became of a notice that was sent."""

    SENT = auto()
    LATER = auto()
    """Not taken now: nothing arrived."""
    UNKNOWN = auto()
    """The line broke where it may have arrived."""
    REFUSED = auto()
    """Not taken, and the same again would not be either."""


class Result(NamedTuple):
    fate: Fate
    trouble: str = ""
    """What is wrong, in words for the administrator; of what was sent, too: some recipients did not get it."""
    done: Sequence[str] = ()
    """Recipients that have the notice already."""
    was_read: bool = False
    """Whether the server had all of the notice, so that it may be its text that it does not take."""


def count(channel: Channel, failures: Iterable[Failure], now_ms: int, newest_ms: int) -> None:
    """Count failures in their groups. Of what was read before only what comes after its group's last is new.

    `newest_ms`: no failure is later, by the clock of whatever partition."""
    _set_back(channel, now_ms, newest_ms)
    groups = Groups(channel.groups)
    for failure in failures:
        group = groups.home(failure, now_ms)
        if group.count and failure.may_be_known and failure.at_ms <= group.latest_ms:
            continue
        group.count += 1
        group.since_ms = min(group.since_ms, failure.at_ms)
        if failure.at_ms >= group.latest_ms:
            group.latest_ms, group.job_id = failure.at_ms, failure.job_id
            group.example = failure.text if failure.text != group.line else ""
    channel.groups = groups.all()


def due_ms(group: Group, config: NotifyConfig, seen_ms: int) -> int | None:
    """Return when a group is due for a notice; None: not before its next failure. `seen_ms`: read up to then."""
    if not group.notified:
        return group.known_ms + _ms(config.first_s)
    if group.count >= TENFOLD * group.notified or _is_over(group, config, seen_ms):
        return group.notified_ms + _ms(config.change_s)
    return group.notified_ms + _ms(config.repeat_s) if group.count > group.notified else None


def compose(channel: Channel, config: NotifyConfig, new_id: Callable[[], str], now_ms: int, seen_ms: int) -> None:
    """Begin a notice of all that is due, if there is any and one more may be sent."""
    if channel.notice is not None or now_ms < channel.rest_until_ms:
        return
    each = [(group, due_ms(group, config, seen_ms)) for group in channel.groups]
    if not any(at_ms is not None and at_ms <= now_ms for _, at_ms in each):
        return
    due = [group for group, at_ms in each if at_ms is not None and (at_ms <= now_ms or not group.notified)]
    if (left := _left(channel, config, now_ms, alone_in(group.key for group in due))) < 1:
        channel.held_since_ms = channel.held_since_ms or now_ms
        return
    rows = [_row(group, config, seen_ms) for group in due]
    free_ms = channel.sent_ms[0] + HOUR_MS if channel.sent_ms else now_ms + HOUR_MS
    channel.notice = Notice(
        new_id(),
        now_ms,
        _sorted(rows),
        held_since_ms=channel.held_since_ms,
        is_plain=channel.is_plain,
        is_last_until_ms=free_ms if left == 1 else 0,
    )
    channel.held_since_ms = 0


def begin(channel: Channel, config: NotifyConfig, now_ms: int) -> Notice | None:
    """The notice to be sent now, which is noted; None: there is none, or not yet.

    One that is out already was cut off, by the end of its daemon perhaps. It may have arrived, so it counts as sent,
    and is sent again as the same."""
    notice = channel.notice
    if notice is None:
        return None
    if notice.is_out:
        _note_sent(channel, now_ms)
        notice.is_out = False
    if now_ms < notice.next_ms or _left(channel, config, now_ms, alone_in(row.key for row in notice.rows)) < 1:
        return None
    notice.is_out = True
    notice.tries += 1
    return notice


def settle(channel: Channel, result: Result, now_ms: int) -> None:
    """Note in the channel that its notice arrived, may have arrived, or was refused."""
    notice = channel.notice
    assert notice is not None, "there is a result, and no notice is out"
    channel.trouble, notice.is_out = result.trouble, False
    if result.fate in (Fate.SENT, Fate.UNKNOWN) or result.done:
        _note_sent(channel, now_ms)
    notice.done = [*notice.done, *result.done]
    match _fate(notice, result):
        case Fate.SENT:
            _mark_notified(channel, notice, now_ms)
            channel.notice, channel.rest_until_ms, channel.is_plain = None, 0, False
        case Fate.LATER | Fate.UNKNOWN:
            notice.next_ms = now_ms + min(AGAIN_MS << min(notice.tries - 1, 10), HOUR_MS)
        case Fate.REFUSED:  # its groups are due as before: the next notice tells all that there is by then
            # Perhaps for a text that a worker of one tenant wrote: so the next one, which comes soon, quotes none.
            channel.rest_until_ms = now_ms + (HOUR_MS if notice.is_plain else AGAIN_MS)
            channel.notice, channel.is_plain = None, True


def _fate(notice: Notice, result: Result) -> Fate:
    """Return what becomes of a notice. One that was tried often enough makes room for the next; health keeps saying
    what is wrong."""
    is_tried = notice.tries >= TRIES_MAX
    match result.fate:
        case Fate.REFUSED if notice.done:
            return Fate.SENT
        case Fate.LATER | Fate.UNKNOWN if is_tried and (notice.done or result.fate is Fate.UNKNOWN):
            return Fate.SENT
        case Fate.LATER if is_tried and result.was_read and not notice.is_plain:
            return Fate.REFUSED
    return result.fate


def resume(channel: Channel) -> None:
    """A daemon begins to act: settings may have been mended, so what was put off is tried now."""
    channel.rest_until_ms = 0
    if channel.notice is not None:
        channel.notice.next_ms = 0


def _left(channel: Channel, config: NotifyConfig, now_ms: int, tenant: str) -> int:
    """How many more may be sent now. `tenant`: whose failures alone the next one tells of: a tenant has half of them,
    so that its failures keep back nobody else's."""
    gone = sum(at_ms <= now_ms - HOUR_MS for at_ms in channel.sent_ms)
    channel.sent_ms, channel.sent_of = channel.sent_ms[gone:], channel.sent_of[gone:]
    left = config.hourly_max - len(channel.sent_ms)
    return min(left, (config.hourly_max + 1) // 2 - channel.sent_of.count(tenant)) if tenant else left


def _note_sent(channel: Channel, now_ms: int) -> None:
    assert channel.notice is not None, "none was sent"
    channel.sent_ms = [*channel.sent_ms, now_ms]
    channel.sent_of = [*channel.sent_of, alone_in(row.key for row in channel.notice.rows)]


def _mark_notified(channel: Channel, notice: Notice, now_ms: int) -> None:
    rows: dict[Key, Row] = {row.key: row for row in notice.rows}
    for group in channel.groups:
        if row := rows.get(group.key):
            group.notified, group.notified_ms = row.count, now_ms
    over = {row.key: row.count for row in notice.rows if row.is_over}
    channel.groups = [group for group in channel.groups if over.get(group.key) != group.count]


def _row(group: Group, config: NotifyConfig, seen_ms: int) -> Row:
    return Row(
        group.jobtype,
        group.line,
        group.since_ms,
        group.latest_ms,
        group.count,
        group.count - group.notified,
        group.job_id,
        is_known=group.notified > 0,
        is_over=_is_over(group, config, seen_ms),
        example=group.example,
    )


def _is_over(group: Group, config: NotifyConfig, seen_ms: int) -> bool:
    return seen_ms - group.latest_ms >= _ms(config.resolved_s)


def _sorted(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that go into the notice, the largest first. Tenants take turns, and jobtypes of a tenant."""
    ordered = sorted(rows, key=lambda row: (row.is_over, -row.new, row.key))
    ordered = _interleaved(ordered, lambda row: row.jobtype)
    ordered = _interleaved(ordered, lambda row: tenant_of(row.jobtype))
    return sorted(ordered, key=lambda row: row.is_over)


def _interleaved(rows: Sequence[Row], whose: Callable[[Row], str]) -> list[Row]:
    """The first of each, then the second of each, and so on."""
    places, found = Counter[str](), list[tuple[int, Row]]()
    for row in rows:
        found.append((places[whose(row)], row))
        places[whose(row)] += 1
    return [row for _, row in sorted(found, key=lambda one: one[0])]


def _set_back(channel: Channel, now_ms: int, newest_ms: int) -> None:
    """Move dates of the channel that lie in the future to `now_ms`: after the store's clock was set back they would
    be waited for."""
    for group in channel.groups:
        group.known_ms, group.notified_ms = min(group.known_ms, now_ms), min(group.notified_ms, now_ms)
        group.since_ms, group.latest_ms = min(group.since_ms, newest_ms), min(group.latest_ms, newest_ms)
    channel.sent_ms = [min(at_ms, now_ms) for at_ms in channel.sent_ms]
    channel.held_since_ms = min(channel.held_since_ms, now_ms)
    channel.rest_until_ms = min(channel.rest_until_ms, now_ms + HOUR_MS)
    if channel.notice is not None:
        channel.notice.next_ms = min(channel.notice.next_ms, now_ms + HOUR_MS)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
