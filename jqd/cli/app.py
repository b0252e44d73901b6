"""The command-line program as a whole: all commands, and the exit codes for their errors."""

import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import cyclopts

from jqd import __version__
from jqd.cli import constraints as restraints
from jqd.cli import daemons as drains
from jqd.cli import flows, history, jobs, logs, manage, screen, show
from jqd.cli import handlers as runs
from jqd.cli import quotas as limits
from jqd.cli import schedules as dates
from jqd.cli import tokens as secrets
from jqd.cli.exits import Exit, Usage, advice_of, exit_of
from jqd.cli.printing import print_note
from jqd.domain.errors import JqdError, StoreAway

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # errors of stdout's file or terminal
# Options that may also come before the command, with their value: jqd -o json status.
GLOBALS = ("-o", "--output", "--url", "--token", "--tenant")
# Words that come before a command. Listed here, because asking the app would import everything.
GROUPS = (
    "config",
    "constraints",
    "daemons",
    "groups",
    "handlers",
    "journal",
    "mail",
    "quotas",
    "schedules",
    "tokens",
    "types",
    "workers",
)

# The groups of `jqd --help`, the most used first.
ONE, LOOK, MANY, RUN, DISK = (
    cyclopts.Group(title, sort_key=order)
    for order, title in enumerate(
        ("One job", "Lists and state", "Change jobs", "Daemons and workers", "Settings, store and disk")
    )
)

app = cyclopts.App(
    name="jqd",
    help="A durable job queue: push jobs over HTTP, run them on HTTP workers.",
    version=__version__,
    backend="trio",
    group_commands=cyclopts.Group("Other", sort_key=9),
    suppress_keyboard_interrupt=False,  # `ended` handles it
)
# Named by strings, so that they are imported when used: importing all that a daemon needs takes longer than a push.
app.command(
    "jqd.cli.server:serve",
    group=RUN,
    help="Run one daemon. Without --store it keeps its own Valkey.\n\n"
    "Every setting can also be set in the TOML file, or in the environment as JQD_SECTION__KEY.",
)
app.command(
    "jqd.cli.server:dev", group=RUN, help="Run a whole queue here: a daemon, its own store and an example worker."
)
app.command(
    "jqd.cli.worker:worker",
    group=RUN,
    help="Serve the jobs of a Python module over HTTP.\n\n"
    "At SIGTERM or Ctrl-C it takes no more jobs, waits for its jobs in flight, and ends. At a second one it gives them "
    "back at once, and no attempt is counted. At SIGHUP, with --processes, it loads the code anew. More: "
    "docs/use/PYTHON.md.",
)
app.command("jqd.cli.ui:ui", group=RUN, help="Serve the web UI, for a daemon or for several of one store.")
app.command("jqd.cli.doctor:doctor", group=DISK, help="Say which settings of the store or the disk could lose jobs.")
app.command("jqd.cli.backup:backup", group=DISK, help="Copy a running daemon's store and journal into a new directory.")
app.command("jqd.cli.backup:restore", group=DISK, help="Restore a daemon's data from a backup.")
GROUPED: Sequence[tuple[cyclopts.Group, Sequence[Callable[..., int]]]] = (
    (ONE, (jobs.push, jobs.get, jobs.why, logs.logs, flows.flow)),
    (LOOK, (screen.status, screen.top, history.history, show.jobs, show.errors, limits.tenants)),
    (MANY, (manage.cancel, manage.retry, manage.run_now, manage.delete, manage.clean)),
)
for group, commands in GROUPED:
    for command in commands:
        app.command(command, group=group)
Command = Callable[..., int]
Commands = Mapping[str | tuple[str, ...], Command]


def _group(name: str, about: str, default: Command, commands: Commands, group: cyclopts.Group | None = LOOK) -> None:
    """Add a group of commands, `jqd NAME COMMAND`. `jqd NAME` alone runs `default`. `about`: help text of the group.
    `group`: heading under which `jqd --help` lists it; None: the last one."""
    inner = cyclopts.App(name=name, group=group, help=about)
    inner.default(default)
    for word, command in commands.items():
        inner.command(command, name=word)
    app.command(inner)


about = "List the jobtypes that have jobs; pause or resume some."
_group("types", about, show.types, {"pause": manage.pause, "resume": manage.resume})
about = "List the registered workers; rm removes some."
_group("workers", about, show.workers, {"rm": manage.forget})
about = "List the handlers: URLs and code that run jobtypes without a registered worker; set or delete one."
handled: Commands = {"ls": runs.ls, "get": runs.get, "set": runs.set_, "rm": runs.rm}
_group("handlers", about, runs.ls, handled)
about = "List the daemons that share one store; drain or resume one."
_group("daemons", about, show.daemons, {"drain": drains.drain, "resume": drains.resume})
app.command(drains.drain, group=RUN)
about = "List the schedules and their next dates; set, pause, run or delete one."
# Also run-now, as for jobs and in the HTTP API.
changes: Commands = {"set": dates.set_, "next": dates.next_, ("run", "run-now"): dates.run}
acts: Commands = {"pause": dates.pause, "resume": dates.resume, "rm": dates.rm}
_group("schedules", about, dates.ls, {"ls": dates.ls, **changes, **acts})
about = "List the constraints, which limit when jobs start; set, try or delete one."
tries: Commands = {"set": restraints.set_, "dry-run": restraints.dry_run, "get": restraints.get, "rm": restraints.rm}
_group("constraints", about, restraints.ls, {"ls": restraints.ls, **tries})
about = "List the valid tokens; create, derive or revoke one."
_group(
    "tokens",
    about,
    secrets.ls,
    {"ls": secrets.ls, "create": secrets.create, "derive": secrets.derive, "revoke": secrets.revoke},
)
app.command(secrets.audit)
about = "List the quotas, how much each tenant may push; set or delete one."
_group("quotas", about, limits.ls, {"ls": limits.ls, "set": limits.set_, "rm": limits.rm}, None)
journal = cyclopts.App(name="journal", group=DISK, help="Read, check, repair or replay the journal of a daemon.")
journal.command("jqd.cli.journal:ls", help="List the segments (files) of a journal.")
journal.command("jqd.cli.journal:cat", help="Print the records of a journal, a line of JSON for each.")
journal.command("jqd.cli.journal:verify", help="Check every byte of a journal; ends with 1 if there is damage.")
journal.command("jqd.cli.journal:repair", help="Repair a journal without losing a good frame. No daemon may use it.")
journal.command("jqd.cli.journal:replay", help="Apply the records of a journal to a store.")
app.command(journal)
mail = cyclopts.App(name="mail", group=DISK, help="Test the mail to the administrator.")
mail.command("jqd.cli.mail:trial", name="test", help="Send a mail as a daemon would; say what is wrong if that fails.")
app.command(mail)
groups = cyclopts.App(name="groups", group=MANY, help="Show, close, cancel or retry a group of jobs.")
for command in (flows.get, flows.close, flows.cancel, flows.retry):
    groups.command(command)
app.command(groups)
config = cyclopts.App(name="config", group=DISK, help="Show or check the settings of a daemon that would start here.")
config.command("jqd.cli.config:show", help="Show every setting, its unit, and what it is for.")
config.command("jqd.cli.config:check", help="Say whether a daemon could start with these settings; ends with 1 if not.")
app.command(config)


@app.command
def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print the script by which a shell completes commands and options: eval "$(jqd completion bash)".

    Parameters
    ----------
    shell
        bash, zsh or fish. Run it in the shell's start-up file, or save it in the shell's folder for completions.
    """
    print(app.generate_completion(prog_name="jqd", shell=shell))
    return Exit.DONE


def run(argv: Sequence[str]) -> int:
    return ended(lambda: app(_ordered(argv), exit_on_error=False, result_action="return_value"))


def ended(command: Callable[[], object]) -> int:
    """Run a command and return its exit code. A JqdError that it raises is printed, and the exit code for that error is
    returned."""
    try:
        code = command()
        sys.stdout.flush()  # raises here, not at exit, if the reader is gone
    except cyclopts.CycloptsError:
        return Exit.USAGE  # cyclopts has printed on stderr what is wrong
    except BaseExceptionGroup as group:
        return _end_of_group(group)
    except JqdError as error:
        return _end(error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        return _end_of_output()
    except OSError as error:
        if error.errno not in UNWRITABLE or error.filename is not None:
            raise
        print_note(f"what was found cannot be written: {error.strerror}")
        return _end_of_output()
    return code if isinstance(code, int) else Exit.DONE


def _ordered(argv: Sequence[str]) -> list[str]:
    """Return the arguments of the command line with global options (GLOBALS) moved from before the command to behind
    it. Raises Usage for arguments that are not UTF-8."""
    for word in argv:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise Usage(f"{os.fsencode(word)!r} is no UTF-8 text, and jqd takes nothing else") from error
    words, before = list(argv), 0
    while before < len(words) and words[before].partition("=")[0] in GLOBALS:
        before += 1 if "=" in words[before] else 2
    grouped = words[before : before + 1] and words[before] in GROUPS
    after = before + (2 if grouped and not "".join(words[before + 1 : before + 2]).startswith("-") else 1)
    return [*words[before:after], *words[:before], *words[after:]]


def _end_of_group(group: BaseExceptionGroup[BaseException]) -> int:
    """Print the JqdError in an exception group of a nursery, and return its exit code; for a KeyboardInterrupt return
    INTERRUPTED. Raises the group again if it has an error of any other type."""
    ours, others = group.split((JqdError, KeyboardInterrupt))
    if others is not None or ours is None:
        raise group
    found: BaseException = ours
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return _end(found) if isinstance(found, JqdError) else Exit.INTERRUPTED


def _end(error: JqdError) -> int:
    print_note(error.in_full if isinstance(error, StoreAway) else str(error))
    if advice := advice_of(error):
        print_note(advice)
    return exit_of(error)


def _end_of_output() -> int:
    """Discard all further output on stdout, because its reader is gone (`| head`) or its disk is full. Returns
    Exit.FAILED."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())  # else Python's flush at exit would fail
    os.close(nowhere)
    return Exit.FAILED
