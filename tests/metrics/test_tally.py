"""What is counted of jobs, and that the number of names is bounded."""

from jqd.domain.histogram import Histogram
from jqd.domain.tally import EVERYBODY, Counts
from jqd.metrics.config import MetricsConfig
from jqd.metrics.meter import STEPS_MAX, Lag
from jqd.metrics.work import OTHER, Totals

OTHERS = ("", OTHER)


def counted(**pushed: int) -> dict[str, Counts]:
    """A row, by names with `_` before the tenant's own."""
    row = {name.replace("_", "\x1f"): Counts() for name in pushed}
    for counts, number in zip(row.values(), pushed.values(), strict=True):
        counts.pushed = number
    return row


def test_a_value_falls_below_the_first_bound_that_is_no_less() -> None:
    found = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 9.0):
        found.note(value)
    assert (found.counts, found.total) == ([2, 2, 1], 13.5)


def test_jobs_count_by_their_type_whoever_pushed_them() -> None:
    totals = Totals(MetricsConfig())
    totals.add(counted(mail=2, scan=1))
    totals.add(counted(mail=1, acme_mail=1))
    assert {label: row.pushed for label, row in totals.rows.items()} == {OTHERS: 0, ("", "mail"): 4, ("", "scan"): 1}


def test_tenants_have_labels_where_that_is_asked() -> None:
    totals = Totals(MetricsConfig(tenants=True))
    totals.add(counted(acme_mail=1, mail=1))
    assert {label for label, row in totals.rows.items() if row.pushed} == {("acme", "mail"), ("", "mail")}


def test_what_comes_after_the_most_types_is_other() -> None:
    totals = Totals(MetricsConfig(types_max=2))
    totals.add({**counted(a=2, b=1), EVERYBODY: counted(x=5)["x"], **counted(c=1, d=1, other=1)})
    totals.add(counted(a=1, e=1))
    assert {label: row.pushed for label, row in totals.rows.items()} == {OTHERS: 9, ("", "a"): 3, ("", "b"): 1}


def test_a_tenant_with_many_types_leaves_labels_to_the_others() -> None:
    """Two hundred types of one tenant made all others' one `other`, and alerts by type were silent."""
    totals = Totals(MetricsConfig(types_max=20, tenants=True))
    totals.add({f"acme\x1f!{place:03}": counted(x=1)["x"] for place in range(200)})
    totals.add(counted(mail=1, other_mail=1))
    assert totals.rows["", "mail"].pushed == 1
    assert (len([1 for tenant, _ in totals.rows if tenant == "acme"]), totals.rows[OTHERS].pushed) == (10, 190)


def test_the_journal_lags_since_what_the_store_lacks_was_written() -> None:
    lag = Lag()
    told = []
    for now_s, end, applied in [(0, 10, 10), (1, 20, 10), (2, 30, 10), (3, 30, 20), (4, 30, 30), (5, 30, 30)]:
        lag.note(float(now_s), end, applied)
        told.append(lag.seconds)
    assert told == [0, 1, 2, 2, 0, 0]


def test_a_long_lag_is_told_as_an_hour() -> None:
    lag = Lag()
    for now in range(STEPS_MAX + 100):
        lag.note(float(now), now + 1, 0)
    assert lag.seconds == STEPS_MAX - 1
