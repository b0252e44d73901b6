"""What a filter asks of a job that the store does not look at: words that it holds, and when it ended."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

import msgpack
import msgspec
from msgspec import Meta

from jqd.domain import json_ext
from jqd.domain.dates import instant_ms
from jqd.domain.error_summary import telling_line
from jqd.domain.errors import Fault, Invalid
from jqd.domain.job import NIL, Outcome
from jqd.domain.job_spec import Date
from jqd.domain.tenant import bare
from jqd.store import JobView

TEXT_LENGTH_MAX = 1_000  # of a text to be found: a line of a traceback
SEARCHED_BYTES_MAX = 16_384  # of a job's row: a page of them is 1.6 MB then, and looked through in some milliseconds
SEARCHED_JOBS = 100  # in one step: the worst of arguments take some 30 ms each
SHOWN_BYTES_MAX = 4_096  # of an error that is shown whole: some 8 ms at worst, and there are 500 in one step
LINE_LENGTH_MAX = 300  # shown of the line that says what went wrong

Text = Annotated[
    str, Meta(min_length=1, max_length=TEXT_LENGTH_MAX, description=f"a text of 1 to {TEXT_LENGTH_MAX} characters")
]
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_encode = msgspec.msgpack.Encoder().encode
_SECONDS = re.compile(r"\d{9,12}(\.\d+)?")  # a date of digits in a query: so long are Unix seconds, and no ISO date is


class JobFilter(NamedTuple):
    """Which jobs of those that the store finds."""

    error: str = ""
    """Stands in what its last attempt said, in capitals or not."""
    since_ms: int = 0
    before_ms: int | None = None
    search: str = ""
    """Stands in its name, its pusher's id, a tag, a text or key of its argument or what its last attempt said, in
    capitals or not; or is a whole number in its argument."""
    error_is: str = ""
    """The line by which its failure is told (`last_line`), all of it."""

    @property
    def row_bytes(self) -> int:
        """See `EdgeStore.list_jobs`: arguments are asked for when they are looked at."""
        return SEARCHED_BYTES_MAX if self.search else 0

    @property
    def reads_values(self) -> bool:
        """Whether what workers and pushers wrote is looked through."""
        return bool(self.search or self.error or self.error_is)

    def step(self, jobs: int) -> int:
        """How many jobs are looked at in one step, of so many that are wanted."""
        return min(jobs, SEARCHED_JOBS) if self.search else jobs

    def fits(self, view: JobView) -> bool:
        """By its last attempt that ended; where there was none, by when it was pushed."""
        last = view.outcome
        at_ms = last.finished_at_ms if last else view.created_at_ms
        if at_ms < self.since_ms or (self.before_ms is not None and at_ms >= self.before_ms):
            return False
        if self.error_is and (last is None or last_line(last) != self.error_is):
            return False
        if not self.error and not self.search:
            return True
        # The last line, too: an attempt without words is shown by its reason, and found by what is shown.
        said = f"{words_of(last)}\n{last_line(last)}" if last is not None else ""
        if self.error.casefold() not in said.casefold():
            return False
        return not self.search or self._finds((bare(view.jobtype), bare(view.name), *view.tags, said), view.argument)

    def _finds(self, texts: Sequence[str], argument: bytes) -> bool:
        wanted = self.search.casefold()
        if any(wanted in text.casefold() for text in texts):
            return True
        # Looked for in the bytes first, which takes microseconds: to take an argument apart may take a thousand times
        # as long. What is found there may stand across two values, so then it is.
        number = int(wanted) if _NUMBER.fullmatch(wanted) else None
        in_bytes = wanted in argument.decode("utf-8", "replace").casefold()
        if not in_bytes and (number is None or _encode(number) not in argument):
            return False
        return any(one == number if isinstance(one, int) else wanted in one.casefold() for one in _parts(argument))


def _parts(packed: bytes) -> Iterator[str | int]:
    """The texts and whole numbers in a value, keys of maps among them; none of what Python cannot hold."""
    try:
        left = [msgpack.unpackb(packed, object_pairs_hook=list, strict_map_key=False, unicode_errors="replace")]
    except json_ext.UNTOLD:
        return
    while left:
        match left.pop():
            case str() as one:
                yield one
            case bool():
                continue
            case int() as one:
                yield one
            case list() | tuple() as several:
                left += several


EVERYTHING = JobFilter()


def make_job_filter(
    error: str | None, since: Date | None, before: Date | None, search: str | None = None, error_is: str | None = None
) -> JobFilter:
    """As it was asked for. Raises Invalid for what is no date."""
    before_ms = None if before is None else _instant_ms("before", before)
    since_ms = 0 if since is None else _instant_ms("since", since)
    return JobFilter(error or "", since_ms, before_ms, search or "", error_is or "")


def _instant_ms(field: str, told: Date) -> int:
    try:
        return instant_ms(float(told) if isinstance(told, str) and _SECONDS.fullmatch(told) else told)
    except ValueError as error:
        raise Invalid(f"{field}: {error}", [Fault(f"/{field}", str(error))]) from error


def words_of(outcome: Outcome) -> str:
    """All that an attempt said of its failure."""
    text = "" if outcome.error == NIL else _text_of(outcome.error)
    return "\n".join(each for each in (text, outcome.message) if each)


def _text_of(error: bytes) -> str:
    if len(error) > SHOWN_BYTES_MAX:
        # What is large is told in microseconds a KiB, not milliseconds: bytes and keys that JSON has not look otherwise
        # then, and in what has no plain JSON at all nobody finds anything.
        try:
            plain = msgspec.msgpack.decode(error)
            return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
        except (*json_ext.UNTOLD, msgspec.MsgspecError):
            return ""
    value = json_ext.show_packed(error)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def last_line(outcome: Outcome) -> str:
    """The line that says what it was; of an attempt without words its reason or status does."""
    line = telling_line(words_of(outcome))
    return (line or outcome.reason or f"status {outcome.status}")[:LINE_LENGTH_MAX]
