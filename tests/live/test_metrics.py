"""What a real Prometheus reads of two daemons with a worker; and what the alerts and the dashboard ask of it."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from jqd.client import Client
from tests.live.harness import Daemon, Worker, wait_for
from tests.live.prometheus import ROOT, needs_prometheus, needs_promtool, prometheus, promtool

RULES = ROOT / "deploy" / "prometheus"
DASHBOARD = ROOT / "deploy" / "grafana" / "jqd.json"
OPEN = "application/openmetrics-text;version=1.0.0"


def expressions() -> list[str]:
    """What the dashboard asks."""
    board = json.loads(DASHBOARD.read_text())
    panels = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    return [*panels, *(one["expr"] for one in board["annotations"]["list"])]


def spoken(expression: str) -> str:
    """With what Grafana puts into it."""
    return expression.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$type", ".*")


@contextmanager
def ran(daemons: tuple[Daemon, Daemon], book: Path) -> Iterator[None]:
    """A worker that ran a job pushed at each of them."""
    with Worker(book, *(daemon.url for daemon in daemons)):
        for daemon in daemons:
            daemon.wait_worker("square")
            with Client(daemon.url) as client:
                client.wait([client.push("square", {"n": 1})], timeout=60)
        yield


@needs_promtool
def test_promtool_has_no_complaint(shared_daemons: tuple[Daemon, Daemon], tmp_path: Path) -> None:
    with ran(shared_daemons, tmp_path / "book"):
        for daemon in shared_daemons:
            assert promtool("check", "metrics", text=daemon.get("/metrics").text) == ""


@needs_prometheus
def test_prometheus_scrapes_what_two_daemons_count(shared_daemons: tuple[Daemon, Daemon], tmp_path: Path) -> None:
    with (
        ran(shared_daemons, tmp_path / "book"),
        prometheus(tmp_path, [daemon.bind for daemon in shared_daemons]) as server,
    ):
        wait_for(lambda: server.value("sum(up)") == 2, "it does not scrape both")
        wait_for(lambda: (server.value('sum(jqd_jobs_pushed_total{type="square"})') or 0) >= 2, "pushes")
        wait_for(lambda: (server.value('sum(jqd_attempts_ended_total{outcome="succeeded"})') or 0) >= 2, "ends")
        quantile = 'histogram_quantile(0.95, sum by (le) (jqd_job_run_seconds_bucket{type="square"}))'
        wait_for(lambda: (server.value(quantile) or -1) > 0, "no quantile")
        same = 'count(count by (state) (jqd_jobs{type="square", state="waiting"}))'
        assert server.value(same) == 1
        assert (server.value('max(jqd_workers{state="ok"})') or 0) >= 1  # others may share these daemons
        assert server.value("count(jqd_journal_fsync_seconds_count > 0)") == 2
        assert server.value("min(jqd_journal_disk_free_bytes > 0)")
        assert {row["metric"]["version"] for row in server.query("jqd_build_info")}
        for expression in expressions():
            server.query(spoken(expression))  # it must be understood


def test_both_formats_say_the_same_names(shared_daemon: Daemon) -> None:
    plain = shared_daemon.get("/metrics").text
    told = httpx2.get(f"{shared_daemon.url}/metrics", headers={"accept": OPEN}, timeout=10)
    assert told.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    names = {family.name.removesuffix("_total") for family in text_string_to_metric_families(plain)}
    heads = {line.split()[2] for line in told.text.splitlines() if line.startswith("# TYPE")}
    assert names == heads
    helped = {line.split()[2] for line in plain.splitlines() if line.startswith("# HELP") and len(line.split()) > 3}
    assert {name.removesuffix("_total") for name in helped} == names


@needs_promtool
def test_the_alerts_are_rules_and_come_when_they_should() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(RULES / "alerts.yml"))
    assert "SUCCESS" in promtool("test", "rules", str(RULES / "alerts_test.yml"))


def test_what_the_dashboard_and_the_alerts_ask_is_in_a_scrape(shared_daemon: Daemon) -> None:
    named = {line.split()[2] for line in shared_daemon.get("/metrics").text.splitlines() if line.startswith("# TYPE")}
    asked = re.findall(r"\b(?:jqd|process)_\w+", " ".join(expressions()))
    asked += re.findall(
        r"\bjqd_\w+", re.sub(r"(?m)^ *(summary|description):.*$", "", (RULES / "alerts.yml").read_text())
    )
    assert len(set(asked)) > 25
    # test_one_port.py has what only a daemon of several processes says.
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in asked} - named == {"jqd_process_up"}
    board = json.loads(DASHBOARD.read_text())
    places = [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in board["panels"]]
    assert len(places) == len(set(places)), "panels lie on each other"
