"""Patterns of errors: what a person would group is grouped, what he would not is not, and no text costs much."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jqd.domain.error_pattern import FOLDED, LENGTH_MAX, fold

PAIRS = [
    ("no user 4711", "no user …"),
    ("no user -4,711.50 left", "no user … left"),
    ("KeyError: 'customer_17'", "KeyError: '…'"),
    ('column "name" does not exist', 'column "…" does not exist'),
    ("can't open 'a b.txt': it isn't there", "can't open '…': it isn't there"),
    ("connect to 10.0.0.17:5432: refused", "connect to …: refused"),
    ("connect to [2001:db8::1]:443 failed", "connect to … failed"),
    ("connect to 2001:db8::1 failed", "connect to … failed"),
    ("job 550e8400-e29b-41d4-a716-446655440000 is gone", "job … is gone"),
    ("job 01ARZ3NDEKTSV4RRFFQ69G5FAV is gone", "job … is gone"),
    ("commit a94a8fe5ccb19ba61c4c0873d391e987982fbbd3", "commit …"),
    ("at 0x7f3a2b: segfault", "at …: segfault"),
    ("2026-11-28T10:11:12.345Z late", "… late"),
    ("2026-11-28 10:11:12,345 late by 12:00:01", "… late by …"),
    ("timed out after 30s", "timed out after …s"),
    ("timed out after 1500ms (limit 1000 ms)", "timed out after …ms (limit … ms)"),
    ("/srv/data/2026/17/file-9.csv: not found", "/srv/data/…/…/file-….csv: not found"),
    ("user123 is locked", "user… is locked"),
    ("sha256 of s3://bucket differs", "sha256 of s3://bucket differs"),
    ("utf8 codec, node7, x509", "utf8 codec, node7, x509"),
    ("ids [1, 2, 3] are taken", "ids […] are taken"),
    ("HTTP 503 from https://a.example/v2/jobs/77?page=2", "HTTP … from https://a.example/v2/jobs/…?page=…"),
    ("std::out_of_range in a::b", "std::out_of_range in a::b"),
    ("KeyError: ''", "KeyError: ''"),
    ("no \0 in a name\0\0", "no … in a name…"),
    ("", ""),
]
HOSTILE = ["'", '"a', "'a ", "1", "1.", "a1", "a:", "0:", "::", "f", "-1", "…'", "1-", "2026-11-28T", "[1:", "é٣", "`'"]


@pytest.mark.parametrize(("line", "pattern"), PAIRS)
def test_variable_parts_are_folded_and_names_are_not(line: str, pattern: str) -> None:
    assert fold(line) == pattern


@settings(max_examples=1_000)
@given(st.text(st.sampled_from("ab1f90xé٣'\"`“”«»…-+.,:;/[]T Z_\n\0"), max_size=80) | st.text(max_size=400))
def test_a_pattern_is_its_own_and_never_longer(line: str) -> None:
    pattern = fold(line)
    assert fold(pattern) == pattern
    assert len(pattern) <= min(len(line), LENGTH_MAX)


@given(st.text("abc '\"", max_size=40), st.integers(), st.integers(), st.text("abc '\"", max_size=40))
def test_two_numbers_make_no_difference(before: str, one: int, other: int, after: str) -> None:
    assert fold(f"{before} {abs(one)} {after}") == fold(f"{before} {abs(other)} {after}")


@pytest.mark.parametrize("part", HOSTILE)
def test_no_text_costs_much(part: str) -> None:
    line, took_s = part * (65_536 // len(part)), 1.0
    for _ in range(5):
        fold.cache_clear()
        began_s = time.thread_time()
        assert FOLDED in fold(line) or not any(map(str.isdigit, line))
        took_s = min(took_s, time.thread_time() - began_s)
    assert took_s < 0.005
