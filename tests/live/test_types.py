"""pyright, as strict as it can be, of what users write: the page's examples are right, each wrong call is refused.

mypy says the same of `tests/worker/test_typed.py` with every `make lint`. This is basedpyright, which comes as a wheel
with all it needs; its mode "strict" is pyright's.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.harness import ROOT
from tests.live.test_flows_page import MODULES as FLOWS
from tests.live.test_python import MODULES as PYTHON

TYPED = ROOT / "tests" / "worker" / "test_typed.py"
MODULES = {**PYTHON, **FLOWS}
IGNORES = re.compile(r"  # type: ignore\[.*\]$", re.MULTILINE)
# An ignore that is not needed is an error, so that what mypy refuses is refused here as well.
CONFIG = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "reportUnnecessaryTypeIgnoreComment": "error"}
WAIT_S = 100.0  # it takes three seconds


@pytest.mark.long
def test_pyright_takes_what_is_right_and_refuses_what_is_wrong(tmp_path: Path) -> None:
    for name, code in MODULES.items():
        (tmp_path / f"{name}.py").write_text(code)
    text = TYPED.read_text()
    (tmp_path / "right.py").write_text(text)
    (tmp_path / "wrong.py").write_text(IGNORES.sub("", text))
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(CONFIG))
    told = subprocess.run(
        [sys.executable, "-m", "basedpyright", "-p", tmp_path, "--pythonpath", sys.executable, "--outputjson"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    answer = json.loads(told.stdout)
    found = [(Path(one["file"]).name, one["range"]["start"]["line"]) for one in answer["generalDiagnostics"]]
    wrong = [("wrong.py", number) for number, line in enumerate(text.splitlines()) if IGNORES.search(line)]
    assert len(wrong) == 16
    assert (sorted(set(found)), answer["summary"]["filesAnalyzed"]) == (wrong, len(MODULES) + 2), told.stdout
