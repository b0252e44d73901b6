"""`manage.py jqdworker`: runs the project's tasks."""

import sys

from django.core.management.base import BaseCommand

from jqd.cli import run


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """Runs the worker of this Django project, as `jqd worker jqd.contrib.django.worker` does."""

    help = "Run the project's tasks. It takes all options of `jqd worker`: --processes 4, --concurrency, --drain, …"

    def run_from_argv(self, argv: list[str]) -> None:
        """Handle Django's own options, and pass all others on to `jqd worker`."""
        _, others = self.create_parser(argv[0], argv[1]).parse_known_args(argv[2:])
        sys.exit(run(["worker", "jqd.contrib.django.worker", *others]))
