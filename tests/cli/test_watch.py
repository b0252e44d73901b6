"""What is watched on a terminal is drawn on until Ctrl-C."""

import io
from collections.abc import Callable, Iterator

import pytest
from rich.console import Console
from rich.text import Text

from jqd.cli import show
from jqd.cli.exits import Exit
from jqd.client import Forbidden, TimedOut, Unavailable, Unreachable

Watch = Callable[..., str]


@pytest.fixture(name="watch")
def _watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Watch what is given, one after the other, then press Ctrl-C; what was drawn."""
    monkeypatch.setattr(show, "WATCH_S", 0.0)

    def watch(*seen: str | BaseException) -> str:
        paper, looks = io.StringIO(), iter((*seen, KeyboardInterrupt()))
        monkeypatch.setattr(show, "console", lambda: Console(file=paper, force_terminal=True, width=200, height=20))
        assert show.watch_screen(lambda: _next(looks)) == Exit.DONE
        return paper.getvalue()

    return watch


def _next(looks: Iterator[str | BaseException]) -> Text:
    if isinstance(each := next(looks), BaseException):
        raise each
    return Text(each)


BUSY = Unavailable("the store does not answer (503)", status=503, retry_after=1.0)
PASSES = (BUSY, TimedOut("it did not answer within 30 s"), Unreachable("no daemon answers", sent=False))


@pytest.mark.parametrize("error", PASSES, ids=lambda error: type(error).__name__)
def test_what_passes_is_said_above_what_was_seen_last(watch: Watch, error: BaseException) -> None:
    drawn = watch("six jobs", error, "seven jobs")
    said = drawn[drawn.index(str(error)) :]
    assert said.index("six jobs") < said.index("seven jobs")


def test_a_daemon_that_answers_is_watched_from_the_first_look_on(watch: Watch) -> None:
    drawn = watch(BUSY, "six jobs")
    assert drawn.index(str(BUSY)) < drawn.index("six jobs")


@pytest.mark.parametrize(
    ("seen", "error"),
    [([], PASSES[2]), (["six jobs"], Forbidden("no such token (401)"))],
    ids=["a wrong URL", "a refusal"],
)
def test_what_does_not_pass_ends_it(watch: Watch, seen: list[str], error: Exception) -> None:
    with pytest.raises(type(error)):
        watch(*seen, error)
