"""The filter for lists of jobs, failures grouped by reason, and bulk changes. The store itself filters by state, name
and tag; `JobFilter.fits` checks the other fields."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Annotated

import msgpack
import msgspec
from msgspec import Meta

from jqd.domain import json_ext
from jqd.domain.dates import instant_ms
from jqd.domain.error_pattern import fold
from jqd.domain.error_summary import error_line
from jqd.domain.errors import Fault, Invalid
from jqd.domain.job import NIL, Code, Exit, ExitCode, Outcome, State
from jqd.domain.job_spec import Date
from jqd.domain.tenant import bare
from jqd.store import JobView

TEXT_LENGTH_MAX = 1_000  # characters of a text to be found, such as a line of a traceback
SEARCHED_BYTES_MAX = 16_384  # searched of each job's row: SEARCHED_JOBS of them are 1.6 MB, and some milliseconds
SEARCHED_JOBS = 100  # jobs searched in one step: the worst arguments take some 30 ms each
SHOWN_BYTES_MAX = 4_096  # of an error that is converted whole: some 8 ms at worst, and there are 500 in one step
LINE_LENGTH_MAX = 300  # characters shown of a failure's line
REVISIONS_PER_MS = 1_000  # the store takes a revision from its clock, in microseconds

Text = Annotated[
    str, Meta(min_length=1, max_length=TEXT_LENGTH_MAX, description=f"a text of 1 to {TEXT_LENGTH_MAX} characters")
]
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_SECONDS = re.compile(r"\d{9,12}(\.\d+)?")  # Unix seconds in a query: no ISO date is so many digits
_encode = msgspec.msgpack.Encoder().encode


class JobFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Chooses jobs: all fields that are given must match."""

    state: State | None = None
    name: str | None = None
    tag: str | None = None
    code: Code | None = None
    """Why the job's last attempt stopped."""
    exitcode: ExitCode | None = None
    """The number with which the job's last attempt stopped."""
    error: Text | None = None
    """A text in the last attempt's error or message. Case does not count."""
    search: Text | None = None
    """A text in the job's name, own id, a tag, a text or key of its argument (of the first 16 KiB or so), or the last
    attempt's error or message; or a whole number in its argument. Case does not count."""
    error_is: Text | None = None
    """The whole line that shows the job's failure, as `GET /v1/errors` has it."""
    error_like: Text | None = None
    """Such a line or its `pattern`: numbers, ids, quoted values, dates and addresses in it may differ."""
    since: Date | None = None
    """The job came into its state, or was changed, then or later; see `entered_at_ms`."""
    before: Date | None = None
    """The job came into its state, and was last changed, earlier than this."""
    cursor: str = ""
    """The cursor of the page before; empty: begin with the newest job."""

    def expect_dates(self) -> None:
        """Raise Invalid if `since` or `before` is no date."""
        for field, date in (("since", self.since), ("before", self.before)):
            if date is not None:
                instant_of(field, date)

    @property
    def is_for_store(self) -> bool:
        """Return whether the filter has only fields that the store can check."""
        given = self.since, self.before, self.code, self.exitcode
        return all(each is None for each in given) and not self.reads_values

    @property
    def reads_values(self) -> bool:
        """Return whether arguments, errors or messages are searched, which is slow."""
        return bool(self.search or self.error or self.error_is or self.error_like)

    @property
    def is_of_tried(self) -> bool:
        """Return whether the filter has a field that only jobs with at least one attempt can match."""
        given = self.code, self.exitcode, self.error, self.error_is, self.error_like
        return any(each is not None for each in given)

    @property
    def row_bytes(self) -> int:
        """Return how many bytes of each job's argument to read from the store (`Store.list_jobs`); 0 if the filter does
        not search arguments."""
        return SEARCHED_BYTES_MAX if self.search else 0

    def step(self, jobs: int) -> int:
        """Return how many jobs to read from the store in one step when `jobs` are wanted: fewer if arguments are
        searched."""
        return min(jobs, SEARCHED_JOBS) if self.search else jobs

    def fits(self, view: JobView) -> bool:
        """Return whether a job matches the filter, apart from state, name and tag, which the store checks."""
        last, at_ms = view.outcome, entered_at_ms(view)
        if self.since is not None and at_ms < instant_of("since", self.since):
            return False
        if self.before is not None and at_ms >= instant_of("before", self.before):
            return False
        status = last.status if last else None
        if self.exitcode is not None and status != self.exitcode:
            return False
        if self.code is not None and (status is None or Exit.of_status(status).code != self.code):
            return False
        if self.error_is and (last is None or last_line(last) != self.error_is):
            return False
        if self.error_like and (last is None or fold(last_line(last)) != fold(self.error_like)):
            return False
        if not self.error and not self.search:
            return True
        # With the last line: an attempt without a message is shown by its reason, and must be found by that.
        text = f"{_words_of(last)}\n{last_line(last)}" if last is not None else ""
        if self.error and self.error.casefold() not in text.casefold():
            return False
        texts = (bare(view.jobtype), bare(view.name), *view.tags, text)
        return not self.search or _finds(self.search.casefold(), texts, view.argument)


def entered_at_ms(view: JobView) -> int:
    """Return when a job came into its state or was last changed (Unix ms), as far as the store knows: the latest of its
    push, its last edit or retry, the end of its last attempt, and the date of its state. Unknown is when a job that
    waited for its parents, or that a worker gave back untried, began to wait again."""
    begun = {State.RUNNING: view.started_at_ms, State.WAITING: view.eligible_at_ms}.get(view.state, view.ended_at_ms)
    finished = view.outcome.finished_at_ms if view.outcome else 0
    return max(view.created_at_ms, view.revision // REVISIONS_PER_MS, finished, begun)


def _finds(wanted: str, texts: Sequence[str], argument: bytes) -> bool:
    if any(wanted in text.casefold() for text in texts):
        return True
    # The bytes are searched first: that takes microseconds, and decoding may take a thousand times as long. A hit may
    # span two values, so it is looked for again in the decoded ones.
    number = int(wanted) if _NUMBER.fullmatch(wanted) else None
    in_bytes = wanted in argument.decode("utf-8", "replace").casefold()
    if not in_bytes and (number is None or _encode(number) not in argument):
        return False
    return any(part == number if isinstance(part, int) else wanted in part.casefold() for part in _parts(argument))


def _parts(packed: bytes) -> Iterator[str | int]:
    """Yield the texts and integers in a MessagePack value, and the keys of its maps. Yield nothing if it cannot be
    decoded."""
    try:
        left = [msgpack.unpackb(packed, object_pairs_hook=list, strict_map_key=False, unicode_errors="replace")]
    except json_ext.NOT_HELD:
        return
    while left:
        match left.pop():
            case bool():
                continue
            case str() | int() as part:
                yield part
            case list() | tuple() as several:
                left += several


@lru_cache(maxsize=64)
def instant_of(field: str, date: Date) -> int:
    """Return a date of a filter as Unix ms. In a query string, Unix seconds are given as text. Raises Invalid if it is
    no date."""
    try:
        return instant_ms(float(date) if isinstance(date, str) and _SECONDS.fullmatch(date) else date)
    except ValueError as error:
        raise Invalid(f"{field}: {error}", [Fault(f"/{field}", str(error))]) from error


def last_line(outcome: Outcome) -> str:
    """Return the line that best shows why an attempt failed. If it has no message, that is its reason or status."""
    line = error_line(_words_of(outcome))
    return (line or outcome.reason or f"status {outcome.status}")[:LINE_LENGTH_MAX]


def _words_of(outcome: Outcome) -> str:
    """Return the error value and the message of an attempt, as text."""
    text = "" if outcome.error == NIL else _text_of(outcome.error)
    return "\n".join(each for each in (text, outcome.message) if each)


def _text_of(error: bytes) -> str:
    if len(error) > SHOWN_BYTES_MAX:
        # msgspec takes microseconds a KiB for large values, not milliseconds. It shows bytes and keys that JSON lacks
        # in another form, and some values not at all: a search finds nothing in these.
        try:
            plain = msgspec.msgpack.decode(error)
            return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
        except (*json_ext.NOT_HELD, msgspec.MsgspecError):
            return ""
    value = json_ext.show_packed(error)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
