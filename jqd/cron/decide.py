"""Decides which date of a schedule is fired next, and which dates are skipped.

To *fire* a date is to push the schedule's job for it. A date is *missed* if it passed some time ago and was not fired.
A date that a daemon saw wait for the last job is not missed, however late that job ends: `watched` tells the two apart.
The end of the job cannot: after an outage it may come later than all dates of the outage. The decision depends only on
the arguments, so all daemons decide alike.
"""

from collections.abc import Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from jqd.cron.schedules import KnownSchedule, Watched

LATE_MS = 60_000  # a date that passed longer ago is missed: a restart or a failover takes less
NOTE_MS = LATE_MS // 2  # between two notes that dates wait: one for all that came meanwhile
WATCHED_MAX = 50  # spans, 1 KB: if there are more outages while dates wait, those of the further ones count as seen
AT_ONCE = 500  # the most dates in one step, some 10 ms: after an idle day a schedule of every second has 86,400


class Step(NamedTuple):
    """The next step of a schedule: fire one date, skip some dates, or both; or only note that dates wait. If it leaves
    dates that have come, another step follows."""

    through_ms: int
    """The last date that this step fires or skips, or the step before if this one only notes."""
    fires: bool = False
    """Whether the date `through_ms` is fired; else it is skipped."""
    skipped: int = 0
    """How many dates are skipped, including `through_ms` if that is not fired."""
    replaces: bool = False
    """Whether the schedule's last job, which still runs, is cancelled."""
    watched: Watched = ()
    """See `FiredDate`."""

    @property
    def is_note(self) -> bool:
        """Return whether this step only notes which dates wait for the last job to end."""
        return not self.fires and not self.skipped


class Firing(NamedTuple):
    """A schedule, and the step that it is to take."""

    one: KnownSchedule
    step: Step

    @property
    def job_id(self) -> str:
        """Return the id of the job that the step pushes if it fires."""
        return self.one.job_id(self.step.through_ms)


def decide(one: KnownSchedule, runs: bool, now_ms: int) -> Step | None:
    """Return the next step of a schedule: the date to fire, or the dates to skip, or which dates wait. None if no date
    has come, or if the schedule waits for its last job to end and nothing is to be noted.

    `runs`: whether the job that the schedule pushed last has not ended.
    """
    schedule = one.schedule
    watched = _watched(one, now_ms, NOTE_MS if runs else 0) if schedule.overlap == "queue" else ()
    if runs and schedule.overlap == "queue":
        return Step(one.fired.through_ms, watched=watched) if watched != one.fired.watched else None
    come = takewhile(lambda date_ms: date_ms <= now_ms, schedule.when.dates(one.through_ms))
    due = [*islice(come, AT_ONCE + 1)]
    if not due:
        return None
    if runs and schedule.overlap == "skip":
        return Step(due[-1], skipped=len(due))
    missed = _missed(due, now_ms, watched) if schedule.missed != "all" else ()
    if not missed:
        return Step(due[0], fires=True, replaces=runs, watched=watched)
    if schedule.missed == "skip" or len(missed) > AT_ONCE:  # more dates may follow, so the latest one is not known yet
        return Step(missed[:AT_ONCE][-1], skipped=len(missed[:AT_ONCE]), watched=watched)
    return Step(missed[-1], fires=True, skipped=len(missed) - 1, replaces=runs, watched=watched)


def _watched(one: KnownSchedule, now_ms: int, pause_ms: int) -> Watched:
    """Return the spans of time in which a daemon looked at the dates of a schedule that wait, including the present if
    one waits that was not noted yet, and the last span ended more than `pause_ms` ago."""
    spans = tuple(span for span in one.fired.watched if span[1] > one.through_ms)
    last_ms = spans[-1][1] if spans else one.through_ms
    if spans and now_ms - last_ms <= pause_ms:
        return one.fired.watched
    first_ms = one.schedule.when.after(last_ms)
    if first_ms is None or first_ms > now_ms:
        return one.fired.watched
    seen_ms = max(first_ms, last_ms + NOTE_MS)  # a daemon that stopped before its next note may have seen so much
    if spans and (now_ms - seen_ms <= LATE_MS or len(spans) == WATCHED_MAX):
        return (*spans[:-1], (spans[-1][0], now_ms))
    return (*spans, (now_ms - LATE_MS, now_ms))


def _missed(due: Sequence[int], now_ms: int, watched: Watched) -> Sequence[int]:
    """Return the missed dates with which `due` begins, up to the first that was seen or came a moment ago."""

    def is_missed(date_ms: int) -> bool:
        if now_ms - date_ms <= LATE_MS:
            return False
        return not any(begin_ms <= date_ms <= end_ms for begin_ms, end_ms in watched)

    return [*takewhile(is_missed, due)]
