"""Rows of what was counted: nothing is lost when they are bounded, added or packed."""

from collections.abc import Mapping

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from jqd.domain.shares import PART
from jqd.domain.tally import EVERYBODY, OTHER, Counts, Row
from jqd.domain.tenant import annotate, tenant_of
from jqd.history.counts import TENANTS_MAX, TYPES_MAX, added, bounded, decode, encode
from jqd.store.history import ROW_BYTES_MAX

NAMES = st.builds(annotate, st.sampled_from(["", "acme", "b"]), st.text("abc", min_size=1, max_size=3))
NUMBERS = st.integers(0, 2**40)


def counts(pushed: int, ms: int = 0) -> Counts:
    one = Counts()
    one.pushed = pushed
    one.waited(ms)
    one.ran(ms)
    return one


ROWS = st.dictionaries(NAMES, st.builds(counts, NUMBERS, NUMBERS), max_size=60)


def total(row: Row) -> tuple[int, int, int]:
    return sum(one.pushed for one in row.values()), sum(one.wait_ms for one in row.values()), sum_of_runs(row)


def sum_of_runs(row: Row) -> int:
    return sum(sum(one.run) for one in row.values())


def plain(row: Row) -> Mapping[str, object]:
    return {name: [getattr(one, field) for field in Counts.__slots__] for name, one in row.items()}


@given(ROWS, ROWS)
def test_no_number_is_lost(one: Row, other: Row) -> None:
    both = added([one, other])
    assert total(both) == tuple(map(sum, zip(total(one), total(other), strict=True)))
    few = bounded(both)
    assert total(few) == total(both)
    assert plain(bounded(few)) == plain(few)
    again = decode(encode(few))
    assert again is not None
    assert plain(again) == plain(few)


def test_the_busiest_stand_by_their_names_and_no_tenant_takes_more_than_a_tenth() -> None:
    row = {annotate("acme", f"t{number}"): counts(1_000 + number) for number in range(500)}
    row |= {f"t{number}": counts(1 + number) for number in range(TYPES_MAX)}
    row |= {annotate(f"small{number}", "x"): counts(0) for number in range(2 * TENANTS_MAX)}
    few = bounded(row)
    of_acme = [name for name in few if tenant_of(name) == "acme"]
    assert len(of_acme) == TYPES_MAX // PART + 1
    assert annotate("acme", "t499") in few
    assert annotate("acme", OTHER) in few
    assert "t199" in few
    assert EVERYBODY in few
    assert len(few) <= TYPES_MAX + TENANTS_MAX + 1
    assert total(few) == total(row)


def test_the_largest_row_fits() -> None:
    """Two hundred jobtypes with names that are as long as they may be take more; they are rare."""
    row = {f"some.usual.jobtype.{number}": counts(1_000_000, 60_000) for number in range(TYPES_MAX)}
    assert len(encode(row)) < ROW_BYTES_MAX
    assert len(encode({f"mail.{number}": counts(50, 40) for number in range(10)})) < 700


def test_a_row_that_cannot_be_read_is_none() -> None:
    row = encode({"a": counts(1)})
    later = msgspec.msgpack.encode((2, []))
    short = msgspec.msgpack.encode((1, [["a", 1, 1, [0], [0], [0], 0, 0]]))
    for data in (b"", b"\xc1", row[:-1], later, short):
        assert decode(data) is None
