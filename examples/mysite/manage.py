"""The project's own commands: migrate, runserver, jqdworker."""

import os
import sys
from pathlib import Path

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))  # the example is no package that was installed
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.mysite.settings")
    execute_from_command_line(sys.argv)
