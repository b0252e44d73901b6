"""A large array that is read in pieces is the same batch, or the same refusal, as one that is read at once."""

from collections.abc import Callable, Iterator

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jqd.domain import array_split
from jqd.domain.array_split import PIECE_ITEMS, Steps, array_head, finish
from jqd.domain.errors import ServiceError
from jqd.service.batch import DESCRIBED_MAX, Batch, read_array, read_in_pieces
from jqd.service.config import ServiceConfig

CONFIG = ServiceConfig(job_bytes_max=1_000, array_bytes_max=100_000, array_jobs_max=1_000)
pack = msgspec.msgpack.encode

names = st.sampled_from(["mail", "mail@2", "", "a\nb"])
values = st.recursive(
    st.none() | st.integers(0, 2**40) | st.binary(max_size=4) | st.sampled_from(["", "x" * 300, "y" * 1_200]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
jobs = st.fixed_dictionaries(
    {"name": names},
    optional={
        "argument": values,
        "tags": st.lists(names, max_size=3),
        "job_id": names,
        "delay": st.just(1),
        "x": values,
    },
)
deep = st.integers(250, 1_100).map(lambda levels: b"\x81\xa1n" + b"\x91" * levels + b"\xc0")
items = st.lists(st.one_of(jobs.map(pack), jobs.map(pack), values.map(pack), deep), max_size=12)
endings = st.sampled_from([b"", b"", b"", b"\x01", b"\xc1", b"\xa5abc"])


def told(read: Callable[[], Batch]) -> object:
    try:
        batch = read()
    except ServiceError as error:
        return type(error), str(error)
    return batch


@given(items, endings, st.integers(-1, 1), st.integers(1, 5), st.integers(1, 200))
@example([pack({"name": "mail"})] * 3, b"\xc1", 1, 1, 1)
@example([b"\x81\xa1n" + b"\x91" * 1_100 + b"\xc0", pack({"name": ""})], b"", 0, 1, 1)
@example([pack({"name": "mail", "x": 1})] * 2 + [pack({"name": "mail"})], b"", 0, 2, 1)
def test_it_is_the_same_in_pieces(packed, ending, more, number, size):
    data = array_head(max(0, len(packed) + more)) + b"".join(packed) + ending
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_split, "PIECE_ITEMS", number)
        patch.setattr(array_split, "PIECE_BYTES", size)
        patch.setattr(array_split, "FED_BYTES", size)
        in_pieces = told(lambda: finish(read_in_pieces(data, CONFIG)))
    assert in_pieces == told(lambda: read_array(data, False, CONFIG))


@pytest.mark.parametrize("job", [{"name": "mail", "then": {}}, {"name": "mail", "tags": [""], "delay": -1}])
def test_of_so_many_wrong_jobs_all_is_said_and_in_many_steps(job):
    data = pack([job] * (2 * DESCRIBED_MAX))
    steps = read_in_pieces(data, CONFIG)
    assert finish(steps) == read_array(data, False, CONFIG)
    assert count(read_in_pieces(data, CONFIG)) >= 2 * DESCRIBED_MAX / 3


@pytest.fixture(autouse=True, scope="module")
def cut_always() -> Iterator[None]:
    """Short arrays of good jobs are read at once; here they are cut all the same."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("jqd.service.batch.READ_JOBS", -1)
        yield


def test_pieces_have_as_many_jobs_as_take_a_millisecond():
    assert count(read_in_pieces(pack([{"name": "mail"}] * 1_000), CONFIG)) >= 2 * 1_000 / PIECE_ITEMS


def test_a_short_array_of_good_jobs_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.service.batch.READ_JOBS", 10)
    for jobs, steps in (10, 0), (11, 1):
        assert (count(read_in_pieces(pack([{"name": "mail"}] * jobs), CONFIG)) > 0) == steps
    assert count(read_in_pieces(pack([{"name": "mail"}] * 9 + [{}]), CONFIG)) > 0


def count(steps: Steps[Batch]) -> int:
    return sum(1 for _ in steps)
