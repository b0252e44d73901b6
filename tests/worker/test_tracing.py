"""A worker without the libraries of OpenTelemetry works on, and says what is missing."""

import sys

import pytest

from jqd.client import tracing
from jqd.worker.load import trace_attempts


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(tracing.NoTracing, match=r"jqd\[otel\]"):
        tracing.set_up("x")
    trace_attempts()
    assert "worker.not_traced" in capsys.readouterr().out
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    tracing.set_up("x")
    assert tracing.tracer() is None
