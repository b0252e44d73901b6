"""The API against its own OpenAPI, by schemathesis: `python -m tests.wire.conform --examples 500 --seed 7`.

Every call is asked with what its document allows and with what it does not. Every answer must be one that the document
has, and what the document forbids must be refused.
The daemon asks for tokens; it is asked by its own, or with `--tenant` by that of a tenant's master.
`--of worker`: the same of a worker and the document that it serves.
`--of lightjq`: the API against LightJQ's document, which says less of what is refused: any answer that it has will do.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from jqd.domain.root_token import FILE
from tests.directories import short_directory
from tests.live.harness import ROOT, Daemon, wait_for
from tests.wire.attack import Worker

# Left out: `positive_data_acceptance` (that a date is a date no schema says), `unsupported_method` (the door refuses
# methods that it does not know with 400, before any route).
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "negative_data_rejection",
)
ANSWERS = CHECKS[:-2]  # those about answers alone
KEY = "the master key of these"
ENV = {
    "JQD_HTTP__TOKENS": "required",
    "JQD_API__MASTER_KEY": KEY,
    "JQD_API__LIGHTJQ_WAIT_S_MAX": "0.05",
    "JQD_API__WAIT_S_MAX": "0.05",  # nobody ends the jobs that are waited for
    "JQD_RUNNER__WORKER_NETWORKS": '["127.0.0.0/8"]',  # invented workers are asked for nothing elsewhere
    "JQD_LOG__LEVEL": "warning",
}
LIGHTJQ: dict[str, Any] = {"document": str(ROOT / "tests/wire/lightjq.yaml"), "checks": ANSWERS}


class Target(NamedTuple):
    """What is asked."""

    url: str
    token: str = ""


def run(
    target: Target,
    base: Path,
    *,
    phases: str,
    examples: int,
    seed: int,
    document: str = "",
    checks: Sequence[str] = CHECKS,
) -> tuple[int, str]:
    """Exit code and report. `base`: a directory for what it leaves behind. `document`: a file; else what is served."""
    command = [
        str(Path(sys.executable).with_name("st")),
        f"--config-file={ROOT / 'tests/wire/schemathesis.toml'}",
        "run",
        document or f"{target.url}/openapi.json",
        f"--url={target.url}",
        *((f"--header=Authorization: Bearer {target.token}",) if target.token else ()),
        f"--header=X-Skygear-Api-Key: {KEY}",
        f"--checks={','.join(checks)}",
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


@contextmanager
def serving(base: Path, *, worker: bool, tenant: str = "") -> Iterator[Target]:
    """What is asked. `tenant`: by whose master; else by who may do all."""
    if worker:
        with Worker(base) as process:
            wait_for(lambda: "worker.serving" in process.log.read_text(), "it does not begin to serve")
            yield Target(f"http://127.0.0.1:{process.port}")
            assert process.stop() == 0
        return
    with Daemon(base / "d", env=ENV) as daemon:
        token = json.loads((base / "d" / FILE).read_text())["token"]
        if tenant:
            made = httpx2.post(
                f"{daemon.url}/v1/tokens",
                json={"role": "master", "tenant": tenant},
                headers={"authorization": f"Bearer {token}"},
                timeout=30,
            )
            token = made.json()["token"]
        yield Target(daemon.url, token)
        assert daemon.stop() == 0


def main() -> int:
    """Exit code 0 when every answer conforms."""
    parser = argparse.ArgumentParser(prog="python -m tests.wire.conform", description=__doc__)
    parser.add_argument("--examples", type=int, default=500, help="of each call, beside the edges of every parameter")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--of", choices=("daemon", "lightjq", "worker"), default="daemon")
    parser.add_argument("--tenant", default="", help="whose master asks the daemon")
    options = parser.parse_args()
    how = LIGHTJQ if options.of == "lightjq" else {}
    with short_directory() as base, serving(base, worker=options.of == "worker", tenant=options.tenant) as target:
        code, told = run(target, base, phases="coverage,fuzzing", examples=options.examples, seed=options.seed, **how)
    sys.stdout.write(told)
    return code


if __name__ == "__main__":
    sys.exit(main())
