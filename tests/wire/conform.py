"""The API against its own OpenAPI, by schemathesis: `python -m tests.wire.conform --examples 500 --seed 7`.

Every call is asked with what its document allows and with what it does not. Every answer must be one that the document
has, and what the document forbids must be refused.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.live.harness import ROOT, Daemon, short_directory

# Left out: `positive_data_acceptance` (that a date is a date no schema says), `unsupported_method` (the door refuses
# methods that HTTP has not with 400, before any route).
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "negative_data_rejection",
)
ENV = {
    "JQD_API__WAIT_S_MAX": "0.05",  # nobody ends the jobs that are waited for
    "JQD_RUNNER__WORKER_NETWORKS": '["127.0.0.0/8"]',  # invented workers are asked for nothing elsewhere
    "JQD_LOG__LEVEL": "warning",
}


def run(url: str, base: Path, *, phases: str, examples: int, seed: int) -> tuple[int, str]:
    """Exit code and report. `base`: a directory for what it leaves behind."""
    command = [
        str(Path(sys.executable).with_name("st")),
        f"--config-file={ROOT / 'tests/wire/schemathesis.toml'}",
        "run",
        f"{url}/openapi.json",
        f"--checks={','.join(CHECKS)}",
        f"--phases={phases}",
        f"--max-examples={examples}",
        f"--seed={seed}",
        "--generation-database=none",
        "--warnings=off",
        "--no-color",
    ]
    env = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.wire.hooks", "PYTHONPATH": str(ROOT)}
    told = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, cwd=base, text=True)
    return told.returncode, told.stdout


def main() -> int:
    """Exit code 0 when every answer conforms."""
    parser = argparse.ArgumentParser(prog="python -m tests.wire.conform", description=__doc__)
    parser.add_argument("--examples", type=int, default=500, help="of each call, beside the edges of every parameter")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with short_directory() as base, Daemon(base / "d", env=ENV) as daemon:
        code, told = run(daemon.url, base, phases="coverage,fuzzing", examples=options.examples, seed=options.seed)
        daemon.stop()
    sys.stdout.write(told)
    return code


if __name__ == "__main__":
    sys.exit(main())
