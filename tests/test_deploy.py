"""What stands in deploy/ for Kubernetes and systemd: it can be read, and says what a durable queue needs."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import yaml

ROOT = Path(__file__).parents[1]
CHART, UNITS = ROOT / "deploy" / "helm" / "jqd", ROOT / "deploy"
EXPOSED_MAX = {"jqd.service": 2.0, "jqd-worker@.service": 7.5, "jqd-code.service": 7.1, "jqd-ui.service": 2.0}
"""Of ten. Workers run others' code, which may need the network, devices and processes of its own."""
FULL: dict[str, Any] = {
    "ui": {"enabled": True, "hosts": ["queue"], "publicUrl": "https://queue.example.org"},
    "serviceMonitor": {"enabled": True, "tokenSecret": "viewer"},
    "masterKeySecret": "master",
    "store": {"existingSecret": "store"},
    "drainS": 60,
    "workers": [{"name": "mail", "image": "shop:1", "target": "shop:app", "secretFile": "s", "tokenSecret": "t"}],
}


@pytest.fixture
def helm() -> Any:
    return pytest.importorskip("helm_python.chart", reason="helm-python-sdk does not install here")


def rendered(helm: Any, values: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    def documents() -> Iterator[dict[str, Any]]:
        with helm.Chart.load(CHART) as chart:
            for text in chart.render(values=values, name="q").values():
                for part in re.split(r"(?m)^---$", text):
                    if re.search(r"(?m)^kind:", part):
                        yield yaml.decode(part)

    return {(one["kind"], one["metadata"]["name"]): one for one in documents()}


@pytest.mark.parametrize("values", [{}, FULL])
def test_helm_has_no_complaint(helm: Any, values: dict[str, Any]) -> None:
    told = helm.lint(CHART, values)
    assert [one for one in told["messages"] if one["severity"] > 1] == told["errors"] == []


def test_a_daemon_keeps_its_journal_and_ends_in_its_own_time(helm: Any) -> None:
    found = rendered(helm, {})
    assert {kind for kind, _ in found} == {"StatefulSet", "Service", "PodDisruptionBudget"}
    daemons = found["StatefulSet", "q"]["spec"]
    assert daemons["podManagementPolicy"] == "Parallel"
    assert daemons["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert found["Service", daemons["serviceName"]]["spec"]["clusterIP"] == "None"
    assert found["PodDisruptionBudget", "q"]["spec"]["maxUnavailable"] == 1
    pod = daemons["template"]["spec"]
    (container,) = pod["containers"]
    told = {one["name"]: one.get("value") for one in container["env"]}
    assert pod["terminationGracePeriodSeconds"] > float(told["JQD_DRAIN_S"])
    assert container["startupProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz/push"
    assert told["JQD_INSECURE"] == "false"
    (claim,) = daemons["volumeClaimTemplates"]
    assert {"name": claim["metadata"]["name"], "mountPath": told["JQD_DATA_DIR"]} in container["volumeMounts"]


def test_all_that_may_be_asked_for_is_made(helm: Any) -> None:
    found = rendered(helm, FULL)
    both = "http://q-0.q-daemons:7420,http://q-1.q-daemons:7420"
    for name in ("q-ui", "q-worker-mail"):
        (container,) = found["Deployment", name]["spec"]["template"]["spec"]["containers"]
        assert {"name": "JQD_URL", "value": both} in container["env"]
    (ui,) = found["Deployment", "q-ui"]["spec"]["template"]["spec"]["containers"]
    assert ui["args"] == ["ui", "--bind=0.0.0.0:7422", "--host=queue", "--public-url=https://queue.example.org"]
    assert "--secret-file=/run/jqd/secret/secret" in container["args"]
    (container,) = found["StatefulSet", "q"]["spec"]["template"]["spec"]["containers"]
    assert "redis://" not in str(container), "its password would be seen"
    monitored = found["ServiceMonitor", "q"]["spec"]["selector"]["matchLabels"].items()
    services = {name for (kind, name), one in found.items() if kind == "Service"}
    chosen = {name for name in services if monitored <= found["Service", name]["metadata"]["labels"].items()}
    assert chosen == {"q-daemons"}, "each daemon once"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
@pytest.mark.parametrize("unit", EXPOSED_MAX)
def test_units_give_away_no_more_than_they_did(unit: str) -> None:
    told = subprocess.run(
        ["systemd-analyze", "security", "--no-pager", "--offline=true", str(UNITS / unit)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    overall = re.search(r"Overall exposure level for .*: ([\d.]+)", told.stdout)
    assert overall is not None, told.stdout + told.stderr
    assert float(overall[1]) <= EXPOSED_MAX[unit]


def test_the_unit_for_code_leaves_proc_to_bubblewrap() -> None:
    """The kernel lets nobody mount /proc in a new namespace while a part of its own is masked or read-only."""
    assigned = {line.partition("=")[0] for line in (UNITS / "jqd-code.service").read_text().splitlines()}
    masking = {"ProtectKernelTunables", "ProtectKernelLogs", "ProtectProc", "ProcSubset", "RestrictNamespaces"}
    assert assigned.isdisjoint(masking)


def test_a_worker_that_a_reload_ends_is_started_again() -> None:
    """Without --processes a SIGHUP ends it with 0, which is no failure."""
    assigned = (UNITS / "jqd-worker@.service").read_text().splitlines()
    assert {"ExecReload=/bin/kill -HUP $MAINPID", "Restart=always"} <= {*assigned}
