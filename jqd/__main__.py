"""The `jqd` command."""

import sys

from jqd.cli import run


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
