"""The `jqd` command."""

import sys

from jqd.domain.extras import install_with
from jqd.domain.lossy_stream import make_lossy, open_missing

# Which extra brings what a command needs; of all others it is the first.
EXTRAS = {
    "cli": (),
    "worker": ("worker",),
    "ui": ("ui",),
    "daemon": ("serve", "daemon", "dev", "doctor", "journal", "config", "completion"),
}


def main() -> None:
    """Run the console script."""
    words = sys.argv[1:]
    open_missing()
    make_lossy("stderr")
    try:
        from jqd.cli import run  # here: whoever only pushes from programs has nothing that it needs

        code = run(words)
    except ImportError as error:
        # What a command's module imports comes wrapped, for cyclopts imports it by name.
        cause = error if isinstance(error, ModuleNotFoundError) else error.__cause__
        lacking = cause.name if isinstance(cause, ModuleNotFoundError) else None
        if lacking is None or lacking.startswith("jqd"):
            raise  # an internal error
        code = _without(lacking.partition(".")[0], words)
    sys.exit(code)


def _without(lacking: str, words: list[str]) -> int:
    """Print what to install: this installation has the parts for pushing, or for another command."""
    named = next((extra for extra, commands in EXTRAS.items() if {*commands} & {*words[:1]}), "cli")
    command = " ".join(["jqd", *words[:1]])
    text = f"`{command}` needs the package {lacking}, which the extra {named!r} brings: {install_with(named)}"
    sys.stderr.write(f"jqd: {text}\n")
    return 1


if __name__ == "__main__":
    main()
