"""The command line as a whole: the commands, and what becomes of their errors."""

import sys
from collections.abc import Sequence

import cyclopts

from jqd import __version__
from jqd.cli import jobs, server
from jqd.cli.exits import Exit, exit_of
from jqd.client import JqdClientError
from jqd.errors import JqdError

app = cyclopts.App(
    name="jqd",
    help="A durable job queue: push jobs over HTTP, run them on HTTP workers.",
    version=__version__,
    backend="trio",
)
app.command(server.serve)
app.command(server.dev)
app.command(server.worker)
app.command(jobs.push)
app.command(jobs.get)
app.command(jobs.cancel)
app.command(jobs.status)


def run(argv: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    try:
        # Commands return their code; our own errors say themselves what they mean.
        code = app(list(argv), exit_on_error=False, result_action="return_value")
    except cyclopts.CycloptsError:
        return Exit.USAGE  # cyclopts has said on stderr what is wrong with the words
    except BaseExceptionGroup as group:
        return _end_of_group(group)
    except JqdError as error:
        return _end(error)
    except KeyboardInterrupt:
        return Exit.FAILED
    return code if isinstance(code, int) else Exit.DONE


def _end_of_group(group: BaseExceptionGroup[BaseException]) -> int:
    """Nurseries wrap what they end with; one weather in there is the message, a bug is raised as it is."""
    ours, others = group.split(JqdError)
    if others is not None or ours is None:
        raise group
    found: BaseException = ours
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, JqdError)
    return _end(found)


def _end(error: JqdError) -> int:
    print(f"jqd: {error}", file=sys.stderr)
    return exit_of(error) if isinstance(error, JqdClientError) else Exit.FAILED
