"""What is known of jobs in hand (`about`): of several words on one job one is right, in whatever order they come."""

from hypothesis import given
from hypothesis import strategies as st

from jqd.store.functions import Library, shipped
from jqd.testing.keyspace import Keyspace
from jqd.testing.lua import machine

JOIN = """
register('joined', {}, function()
  local told
  for _, argument in ipairs(ARGV) do
    local fence, sysid, generation, early = argument:match('^(%d+) (%S+) (%d*) (%??)$')
    told = About.join(told, About.of(tonumber(fence), sysid, generation ~= '' and generation or nil, early ~= ''))
  end
  return {told.text, digits(told.fence), told.sysid, told.generation or '', told.is_early and '?' or ''}
end)
"""
LIBRARY = Library({**shipped().files, "joined": JOIN})
HOLDS = st.tuples(
    st.integers(1, 3).map(lambda number: (1 << 53) - number),
    st.sampled_from(["one", "two", "*"]),
    st.sampled_from(["", "9", "10"]),
    st.sampled_from(["", "?"]),
)
Hold = tuple[int, str, str, str]


def joined(*holds: Hold) -> tuple[bytes, Hold]:
    """The record of what they say together, and what it says."""
    words = tuple(" ".join(map(str, hold)) for hold in holds)
    answer = machine().run(LIBRARY, "joined", Keyspace(), b"", words)
    assert isinstance(answer, list)
    text, fence, sysid, generation, early = answer
    return text, (int(fence), sysid.decode(), generation.decode(), early.decode())


@given(HOLDS)
def test_a_record_says_what_was_told(hold: Hold) -> None:
    assert joined(hold)[1] == hold
    assert joined(hold, hold) == joined(hold)


@given(st.lists(HOLDS, min_size=2, max_size=5).flatmap(lambda holds: st.tuples(st.just(holds), st.permutations(holds))))
def test_of_several_claims_the_latest_has_the_job_in_whatever_order_they_are_told(
    told: tuple[list[Hold], list[Hold]],
) -> None:
    holds, again = told
    text, found = joined(*holds)
    assert joined(*again) == joined(*holds, *again) == (text, found)
    latest = [hold for hold in holds if hold[0] == max(each[0] for each in holds)]
    assert found in latest
    assert (found[1] == "*") == any(hold[1] == "*" for hold in latest), "a worker has what was handed over to it"
    first, *others = holds
    _, rest = joined(*others)
    assert joined(first, rest)[0] == text, "in whatever groups"
