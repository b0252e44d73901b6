"""Prometheus and its tool, as Debian has them. Tests that need them are skipped where they are missing."""

import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
ROOT = Path(__file__).parents[2]
TOOL_S = 60.0  # it takes a tenth of a second on an idle machine

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not here: install Debian's prometheus")
needs_prometheus = pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not here: install Debian's package")


def promtool(*words: str, text: str = "") -> str:
    """What it says; it must have no complaint."""
    assert PROMTOOL is not None
    told = subprocess.run([PROMTOOL, *words], input=text, capture_output=True, text=True, timeout=TOOL_S, cwd=ROOT)
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout + told.stderr


class Server:
    """A Prometheus that scrapes every second."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Samples of now: each its `metric` and `value`. None as long as it is starting."""
        try:
            told = httpx2.get(f"{self.url}/api/v1/query", params={"query": expression}, timeout=10)
        except httpx2.TransportError:
            return []
        if told.status_code == 503:
            return []
        body: dict[str, Any] = told.json()
        assert body["status"] == "success", body
        rows: list[dict[str, Any]] = body["data"]["result"]
        return rows

    def value(self, expression: str) -> float | None:
        """Of an expression that has one."""
        rows = self.query(expression)
        assert len(rows) < 2, rows
        return float(rows[0]["value"][1]) if rows else None


@contextmanager
def prometheus(base: Path, targets: Sequence[str], rules: Sequence[Path] = ()) -> Iterator[Server]:
    """Runs one over these daemons' host:port; ends it by its id."""
    assert PROMETHEUS is not None
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    config = base / "prometheus.yml"
    listed = ", ".join(f'"{target}"' for target in targets)
    ruled = ", ".join(f'"{path}"' for path in rules)
    config.write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{ruled}]\n"
        f"scrape_configs: [{{job_name: jqd, static_configs: [{{targets: [{listed}]}}]}}]\n"
    )
    flags = [
        f"--config.file={config}",
        f"--storage.tsdb.path={base / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (base / "prometheus.log").open("ab") as log:
        child = subprocess.Popen([PROMETHEUS, *flags], stdout=log, stderr=log, cwd=base)
        try:
            yield Server(f"http://127.0.0.1:{port}")
        finally:
            child.terminate()
            child.wait(timeout=30)
