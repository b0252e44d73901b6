"""The page of calls, fields and errors is what the code has."""

from docs.reference import PAGE, render


def test_the_page_is_what_the_script_makes() -> None:
    assert PAGE.read_text() == render(), "run: python docs/reference.py"


def test_it_can_be_read_in_one_sitting() -> None:
    assert len(render().split()) <= 4_200
