"""A client in TypeScript, generated from the document that a daemon serves, pushes a job and waits for its result."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.directories import short_directory
from tests.live.harness import ROOT, Daemon, Process

PACKAGES = {"openapi-fetch": "0.17.0", "openapi-typescript": "7.13.0", "typescript": "5.9.3"}
INSTALL_S = 120.0  # some ten seconds where the registry is near


def npm(*args: str, cwd: Path) -> str:
    """What it prints. An error tells all that it said."""
    told = subprocess.run(args, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_S)
    assert told.returncode == 0, f"{' '.join(args)}:\n{told.stdout}{told.stderr}"
    return told.stdout


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_generated_client_pushes_and_polls() -> None:
    if not (shutil.which("npm") and shutil.which("node")):
        pytest.skip("there is no npm, or no node")
    with short_directory() as base, Daemon(base / "d") as daemon:
        (base / "package.json").write_text(json.dumps({"type": "module", "dependencies": PACKAGES}))
        shutil.copy(ROOT / "examples/typescript/client.ts", base)
        npm("npm", "install", "--no-fund", "--no-audit", "--loglevel=error", cwd=base)
        document = f"{daemon.url}/openapi.json"
        generate = ("openapi-typescript", document, "--default-non-nullable=false", "-o", "jqd.d.ts")
        npm("npx", "--no-install", *generate, cwd=base)
        compiling = ("--strict", "--module", "nodenext", "--target", "es2022", "client.ts")
        npm("npx", "--no-install", "tsc", *compiling, cwd=base)
        with Process(["worker", "jqd.worker.demo", "--daemon", daemon.url], base / "w.log"):
            told = json.loads(npm("node", "client.js", daemon.url, cwd=base))
        assert told == {"state": "succeeded", "result": {"to": "ann", "numbers": [1, 2]}, "refused": "/name"}
        assert daemon.stop() == 0
