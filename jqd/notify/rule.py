"""Decides when a notice is sent and which failures it reports, by a channel's state, new failures and the store's time.

    failure ─▶ new group ──first_s──▶ reported ──no failure for resolved_s──▶ over, reported, forgotten
                                       │  ▲
                                       └──┘ ten times as many: after change_s; more: after repeat_s

A notice reports all groups that are due. A channel has one notice at a time; failures that come before it is sent are
in the next. Groups count as reported when the notice has arrived, so a notice that is given up loses nothing."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from jqd.domain.tenant import tenant_of
from jqd.notify.board import Channel, Failure, Group, Groups, Key, Notice, Row, alone_in
from jqd.notify.config import NotifyConfig

TENFOLD = 10  # so many times as many failures are reported before the next repetition: of a million, seven times
HOUR_MS = 3_600_000
# Before a notice that a server did not take is tried again; doubled each time, an hour at most: greylisting takes
# minutes, an outage hours.
AGAIN_MS = 60_000
# Tries of a notice, over a quarter of an hour, that the server refuses for the recipients who are left, that may have
# delivered it, or whose text may be why it is not taken: it must not keep the next notices back. Those that reached no
# server do not count.
TRIES_MAX = 5


class Fate(Enum):
    """What became of an attempt to send a notice."""

    SENT = auto()
    LATER = auto()
    """The notice was not accepted now, and has not arrived; try again."""
    UNKNOWN = auto()
    """The connection broke at a moment when the notice may have arrived."""
    REFUSED = auto()
    """The notice was refused, and trying again would not help."""


class Result(NamedTuple):
    """The result of an attempt to send a notice, with its details."""

    fate: Fate
    trouble: str = ""
    """What is wrong, for the administrator; also set if the notice was sent, but not to all recipients."""
    done: Sequence[str] = ()
    """Recipients that have the notice, or never will."""
    was_read: bool = False
    """Whether the server got the whole notice, so that its text may be the reason for a refusal."""
    reached: bool = False
    """Whether the server answered for the recipients."""
    each_refused: bool = False
    """Whether the server refused for good each recipient that was left, by name."""


def count(channel: Channel, failures: Iterable[Failure], now_ms: int, newest_ms: int) -> None:
    """Add failures to their groups. One that may have been counted before (`may_be_known`) is added only if it is later
    than the group's last failure.

    `newest_ms`: the latest time that any partition's clock shows; no failure is later.
    """
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
    """Return when a notice that reports this group is due (Unix ms); None: none is due before the group's next failure.

    `seen_ms`: time up to which failures were read."""
    if not group.notified:
        return group.known_ms + _ms(config.first_s)
    if group.count >= TENFOLD * group.notified or _is_over(group, config, seen_ms):
        return group.notified_ms + _ms(config.change_s)
    return group.notified_ms + _ms(config.repeat_s) if group.count > group.notified else None


def compose(channel: Channel, config: NotifyConfig, new_id: Callable[[], str], now_ms: int, seen_ms: int) -> None:
    """Make a notice that reports all groups of failures that are due, and store it in the channel. Does nothing if no
    group is due, another notice is being sent, too many were sent lately, or one was refused. `new_id`: makes the
    notice's id. `seen_ms`: time up to which failures were read."""
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
    """Mark the channel's notice as being sent (`is_out`) and return it. None: there is no notice, or it has to wait.

    If the notice is already marked, sending it was interrupted, perhaps by the end of the daemon. It may have arrived,
    so it counts as sent; it is sent again unchanged."""
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
    """Record in the channel the result of sending its notice."""
    notice = channel.notice
    assert notice is not None, "there is a result, and no notice is out"
    channel.trouble, notice.is_out = result.trouble, False
    if result.fate in (Fate.SENT, Fate.UNKNOWN) or result.done:
        _note_sent(channel, now_ms)
    notice.done = [*notice.done, *result.done]
    notice.reached += result.fate is Fate.UNKNOWN or result.was_read or (result.reached and bool(notice.done))
    match _fate(notice, result):
        case Fate.SENT:
            _mark_notified(channel, notice, now_ms)
            channel.notice, channel.rest_until_ms, channel.is_plain = None, 0, False
        case Fate.LATER | Fate.UNKNOWN:
            notice.next_ms = now_ms + min(AGAIN_MS << min(notice.tries - 1, 10), HOUR_MS)
        case Fate.REFUSED:  # its groups stay due: the next notice reports all of them
            # The text of one tenant's worker may be the reason, so the next notice comes soon, and quotes none.
            channel.rest_until_ms = now_ms + (HOUR_MS if notice.is_plain else AGAIN_MS)
            channel.notice, channel.is_plain = None, True


def _fate(notice: Notice, result: Result) -> Fate:
    """Return how the channel goes on with a notice after the result of a try. Once a notice has reached a server often
    enough, it is given up to make room for the next."""
    is_tried = notice.reached >= TRIES_MAX
    match result.fate:
        case Fate.REFUSED if notice.done and result.each_refused:  # else one may take the next: its groups stay due
            return Fate.SENT
        case Fate.LATER | Fate.UNKNOWN if is_tried and (notice.done or result.fate is Fate.UNKNOWN):
            return Fate.SENT
        case Fate.LATER if is_tried and result.was_read and not notice.is_plain:
            return Fate.REFUSED
    return result.fate


def resume(channel: Channel) -> None:
    """Let delayed notices be tried at once. Called when another daemon takes over: its settings may be corrected."""
    channel.rest_until_ms = 0
    if channel.notice is not None:
        channel.notice.next_ms = 0


def _left(channel: Channel, config: NotifyConfig, now_ms: int, tenant: str) -> int:
    """Return how many more notices the channel may send now. `tenant`: set if the next notice reports only this
    tenant's failures. One tenant may use at most half of all notices, so that its failures do not hold back those of
    others."""
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
    """Return the rows (groups of failures) in the order of the notice: most new failures first, but tenants take turns,
    and so do the jobtypes of a tenant. Groups whose failures are over come last."""
    ordered = sorted(rows, key=lambda row: (row.is_over, -row.new, row.key))
    ordered = _interleaved(ordered, lambda row: row.jobtype)
    ordered = _interleaved(ordered, lambda row: tenant_of(row.jobtype))
    return sorted(ordered, key=lambda row: row.is_over)


def _interleaved(rows: Sequence[Row], whose: Callable[[Row], str]) -> list[Row]:
    """Return the first row of each owner, then the second of each, and so on. `whose`: returns a row's owner: its
    tenant, say."""
    places, found = Counter[str](), list[tuple[int, Row]]()
    for row in rows:
        found.append((places[whose(row)], row))
        places[whose(row)] += 1
    return [row for _, row in sorted(found, key=lambda one: one[0])]


def _set_back(channel: Channel, now_ms: int, newest_ms: int) -> None:
    """Set times of the channel that lie in the future to `now_ms`. Needed after the store's clock was set back."""
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
