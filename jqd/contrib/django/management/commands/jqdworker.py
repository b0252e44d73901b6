"""`manage.py jqdworker`: runs the project's tasks."""

import sys

from django.core.management.base import BaseCommand

from jqd.cli import run


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """As `jqd worker jqd.contrib.django.worker`."""

    help = "Run the project's tasks. It takes all options of `jqd worker`: --processes 4, --concurrency, --drain, …"

    def run_from_argv(self, argv: list[str]) -> None:
        """Split the options: Django's own hold for this process, all others are for `jqd worker`."""
        _, others = self.create_parser(argv[0], argv[1]).parse_known_args(argv[2:])
        sys.exit(run(["worker", "jqd.contrib.django.worker", *others]))
