"""The two formats."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read_plain

from jqd.domain.histogram import Histogram
from jqd.metrics.exposition import OPEN, PLAIN, Format, chosen, render
from jqd.metrics.families import counters, gauge, histograms

PROMETHEUS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"


@pytest.mark.parametrize(
    ("accept", "form"),
    [("", PLAIN), ("*/*", PLAIN), ("text/plain", PLAIN), (PROMETHEUS, OPEN), ("Application/OpenMetrics-Text", OPEN)],
)
def test_who_names_openmetrics_gets_it(accept: str, form: Format) -> None:
    assert chosen(accept) is form


@pytest.mark.parametrize("form", [PLAIN, OPEN])
def test_each_family_is_written_with_all_its_samples(form: Format) -> None:
    rows = [((f"t{number}",), float(number)) for number in range(121)]
    timed = Histogram((0.5, 1.0))
    for value in (0.1, 0.7, 3.0):
        timed.note(value)
    families = [
        counters("jqd_a", "Told.", ("type",), rows),
        gauge("jqd_b", "Told.", 1),
        histograms("jqd_c_seconds", "Told.", ("type",), [((f"t{number}",), timed) for number in range(60)]),
        counters("jqd_none", "Told, and there is none.", ("type",), ()),
    ]
    text = render(families, form).decode()
    assert text.count("# TYPE jqd_a") == text.count("# TYPE jqd_c_seconds") == 1
    assert text.count("# EOF\n") == text.endswith("# EOF\n") == (form is OPEN)
    found = {family.name: family for family in (read_open if form is OPEN else read_plain)(text)}
    assert [(one.labels["type"], one.value) for one in found["jqd_a"].samples] == [(key, v) for (key,), v in rows]
    (buckets,) = ([s.value for s in found["jqd_c_seconds"].samples if s.labels["type"] == "t7"],)
    assert buckets == [1, 2, 3, 3, pytest.approx(3.8)]
    assert found["jqd_none"].samples == []


def test_names_are_escaped() -> None:
    odd = 'a"b\\c\nd'
    text = render([counters("jqd_a", "Told.", ("type",), [((odd,), 1.0)])], PLAIN).decode()
    (family,) = read_plain(text)
    assert family.samples[0].labels == {"type": odd}
