"""The `jqd` command."""

import sys

from jqd.domain.extras import install_with
from jqd.domain.lossy_stream import make_lossy, open_missing

# Extra → commands that need its packages. Other commands need the first one.
EXTRAS = {
    "cli": (),
    "worker": ("worker",),
    "ui": ("ui",),
    "daemon": ("serve", "daemon", "dev", "doctor", "journal", "config", "completion"),
}


def main() -> None:
    """Run the command `jqd` with the words of the command line, and exit with its exit code."""
    words = sys.argv[1:]
    open_missing()
    make_lossy("stderr")
    try:
        from jqd.cli import run  # imported here, as its packages may be missing

        code = run(words)
    except ImportError as error:
        # cyclopts imports a command's module by name, and wraps the error of a missing package.
        cause = error if isinstance(error, ModuleNotFoundError) else error.__cause__
        lacking = cause.name if isinstance(cause, ModuleNotFoundError) else None
        if lacking is None or lacking.startswith("jqd"):
            raise  # an internal error
        code = _without(lacking.partition(".")[0], words)
    sys.exit(code)


def _without(lacking: str, words: list[str]) -> int:
    """Print that a command lacks the package `lacking`, and which extra of jqd to install. Returns the exit code.
    `words`: the words of the command line."""
    named = next((extra for extra, commands in EXTRAS.items() if {*commands} & {*words[:1]}), "cli")
    command = " ".join(["jqd", *words[:1]])
    text = f"`{command}` needs the package {lacking}, which the extra {named!r} brings: {install_with(named)}"
    sys.stderr.write(f"jqd: {text}\n")
    return 1


if __name__ == "__main__":
    main()
