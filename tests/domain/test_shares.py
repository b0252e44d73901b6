"""Shares: a tenant has a tenth, all but the tenant "" leave a tenth, and that one may be bounded, too."""

from collections import Counter

from jqd.domain.shares import Share


def test_the_tenant_that_runs_it_may_have_what_is_left_or_so_many() -> None:
    share = Share("things", 100)
    assert share.why_no_more("", Counter(), 100) is None
    assert share.why_no_more("", Counter({"": 100})) == "there may be 100 things, and no more; delete some"
    assert share.why_no_more("a", Counter({"": 95}), 5) is None
    assert "there may be 100 things" in str(share.why_no_more("a", Counter({"": 95}), 6))
    assert share._replace(own=5).why_no_more("", Counter({"": 4})) is None
    assert "there may be 5 things" in str(share._replace(own=5).why_no_more("", Counter({"": 5})))
