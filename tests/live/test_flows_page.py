"""FLOWS.md is true: its recipes, as they stand in the page, run with a real worker and print what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.live.harness import ROOT, Daemon, Process

PAGE = (ROOT / "docs" / "use" / "FLOWS.md").read_text()
MODULES = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, re.DOTALL))
WORDS_MAX = 1_200  # of the page
WAIT_S = 60.0  # for all recipes, on a busy machine


def test_the_recipes_print_what_they_say(tmp_path: Path, shared_daemon: Daemon) -> None:
    assert [*MODULES] == ["texts", "chained", "fanned", "waiting", "once"]
    assert PAGE.count("```python") == len(MODULES)
    for name, code in MODULES.items():
        (tmp_path / f"{name}.py").write_text(code)
    args = ["worker", "texts", "--daemon", shared_daemon.url]
    with Process(args, tmp_path / "log", cwd=tmp_path):
        shared_daemon.wait_worker("reindex")
        for name, code in [*MODULES.items()][1:]:
            told = subprocess.run(
                [sys.executable, f"{name}.py"],
                cwd=tmp_path,
                env=os.environ | {"JQD_URL": shared_daemon.url},
                capture_output=True,
                text=True,
                timeout=WAIT_S,
                check=False,
            )
            said = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
            assert (told.stdout.splitlines(), told.stderr) == (said, ""), name


def test_the_page_is_read_in_a_sitting() -> None:
    assert len(PAGE.split()) <= WORDS_MAX
