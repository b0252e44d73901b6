"""What an expression may not do in a loop: one of them held up a daemon for minutes."""

import pytest

from jqd.words.matcher import Expression, NotUnderstood

LIST = "job.argument.l"
SLOW = [
    f"{LIST}.all(a, ({LIST} + {LIST}) != [])",
    f"{LIST}.all(a, a in job.tags)",
    f'{LIST}.all(a, job["argument"] != a)',
    f"{LIST}.all(a, 'q'.matches(a))",
    f"{LIST}.all(a, {LIST}.//x\nall(b, b == a))",
]


@pytest.mark.parametrize("text", SLOW)
def test_what_takes_long_for_each_value_is_refused(text):
    with pytest.raises(NotUnderstood):
        Expression(text, ("BOOL",))


@pytest.mark.parametrize("body", ["a == job.name", "a.startsWith('eu')", "a.size() < job.priority"])
def test_what_takes_a_moment_for_each_is_not(body):
    Expression(f"{LIST}.exists(a, {body})", ("BOOL",))
