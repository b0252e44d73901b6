"""What a filter asks of a job that the store does not look at: the words of its failure, and when it was."""

import json
import re
from typing import Annotated, NamedTuple

from msgspec import Meta

from jqd.desk.job import Date
from jqd.store import JobView
from jqd.words import tagged
from jqd.words.dates import instant_ms
from jqd.words.errors import Fault, Invalid
from jqd.words.job import NIL, Outcome
from jqd.words.telling import telling_line

TEXT_LENGTH_MAX = 1_000  # of a text to be found: a line of a traceback
LINE_LENGTH_MAX = 300  # shown of the line that says what went wrong

Text = Annotated[
    str, Meta(min_length=1, max_length=TEXT_LENGTH_MAX, description=f"a text of 1 to {TEXT_LENGTH_MAX} characters")
]
_SECONDS = re.compile(r"\d{9,12}(\.\d+)?")  # a date of digits in a query: so long are Unix seconds, and no ISO date is


class Narrow(NamedTuple):
    """Which jobs of those that the store finds."""

    error: str = ""
    """Stands in what its last attempt said, in capitals or not."""
    since_ms: int = 0
    before_ms: int | None = None

    def fits(self, view: JobView) -> bool:
        """By its last attempt that ended; where there was none, by when it was pushed."""
        last = view.outcome
        at_ms = last.finished_at_ms if last else view.created_at_ms
        if at_ms < self.since_ms or (self.before_ms is not None and at_ms >= self.before_ms):
            return False
        if not self.error:
            return True
        # The last line, too: an attempt without words is shown by its reason, and found by what is shown.
        said = f"{words_of(last)}\n{last_line(last)}" if last is not None else ""
        return self.error.casefold() in said.casefold()


EVERYTHING = Narrow()


def narrow(error: str | None, since: Date | None, before: Date | None) -> Narrow:
    """As it was asked for. Raises Invalid for what is no date."""
    before_ms = None if before is None else _instant_ms("before", before)
    return Narrow(error or "", 0 if since is None else _instant_ms("since", since), before_ms)


def _instant_ms(field: str, told: Date) -> int:
    try:
        return instant_ms(float(told) if isinstance(told, str) and _SECONDS.fullmatch(told) else told)
    except ValueError as error:
        raise Invalid(f"{field}: {error}", [Fault(f"/{field}", str(error))]) from error


def words_of(outcome: Outcome) -> str:
    """All that an attempt said of its failure."""
    value = "" if outcome.error == NIL else tagged.show_packed(outcome.error)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "\n".join(each for each in (text, outcome.message) if each)


def last_line(outcome: Outcome) -> str:
    """The line that says what it was; of an attempt without words its reason or status does."""
    line = telling_line(words_of(outcome))
    return (line or outcome.reason or f"status {outcome.status}")[:LINE_LENGTH_MAX]
