"""Makes metric families."""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from jqd.domain.histogram import Histogram

Labels = Sequence[str]
Samples = Iterable[tuple[Labels, float]]


def counters(name: str, help_text: str, labels: Labels, samples: Samples) -> Metric:
    """Return a family of counters. `name`: without `_total`."""
    family = CounterMetricFamily(name, help_text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def gauges(name: str, help_text: str, labels: Labels, samples: Samples) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def histograms(name: str, help_text: str, labels: Labels, samples: Iterable[tuple[Labels, Histogram]]) -> Metric:
    family = HistogramMetricFamily(name, help_text, labels=labels)
    for values, one in samples:
        names = [*map(floatToGoString, one.bounds), "+Inf"]
        family.add_metric(values, [*zip(names, accumulate(one.counts), strict=True)], one.total)
    return family


def counter(name: str, help_text: str, value: float) -> Metric:
    return counters(name, help_text, (), [((), value)])


def gauge(name: str, help_text: str, value: float) -> Metric:
    return gauges(name, help_text, (), [((), value)])
