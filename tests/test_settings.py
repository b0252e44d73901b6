"""All settings: each stands on its page with its default, and every number is refused or works."""

import contextlib
import dataclasses
import random
import re
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest

from docs.settings import PAGE, SHIPPED, render
from jqd.config import Config, load, settings
from jqd.domain.errors import ConfigError
from jqd.domain.setting_text import INTERNAL
from jqd.domain.setting_text import read as read_setting
from jqd.domain.units import BYTES_MAX, COUNT_MAX, SECONDS_MAX
from jqd.store.methods import milliseconds


def _settings(config: Any, above: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every setting that somebody may say: dotted key, type, default."""
    hints = get_type_hints(type(config), include_extras=True)
    for one in dataclasses.fields(config):
        default = getattr(config, one.name)
        if INTERNAL in one.metadata:
            continue
        if dataclasses.is_dataclass(default):
            yield from _settings(default, f"{above}{one.name}.")
        else:
            yield f"{above}{one.name}", hints[one.name], default


def test_the_page_is_what_the_script_makes_and_its_defaults_can_be_read() -> None:
    page = PAGE.read_text()
    assert page == render(page) == SHIPPED.read_text(), "run: python docs/settings.py"
    stated = dict(re.findall(r"^`([a-z_.]+)`\| (none|`[^`]+`)\|", page, re.MULTILINE))
    known = {key: (hint, default) for key, hint, default in _settings(Config())}
    assert list(known) == [key for key, _ in settings(Config)]
    assert stated.keys() == known.keys()
    for key, (hint, default) in known.items():
        if stated[key] == "none":
            assert default in (None, "", ()), key
        else:
            assert read_setting(hint, stated[key].strip("`"), key.rpartition(".")[2]) == default, key


NUMBERS = {"float": (1e-300, 1e-3, 1e3, SECONDS_MAX, 1e300), "int": (1, 1000, COUNT_MAX, BYTES_MAX, 10**30)}


def _numeric() -> list[tuple[str, float]]:
    """Every setting that is a number, at the ends of what it may be, and beyond."""
    kinds = {key: kind for key, _, default in _settings(Config()) if (kind := type(default).__name__) in NUMBERS}
    return [(key, number) for key, kind in kinds.items() for number in NUMBERS[kind]]


@pytest.mark.parametrize(("key", "number"), _numeric())
def test_a_number_is_refused_or_works(key: str, number: float) -> None:
    """What is computed from settings: waits after any number of failures, and milliseconds that stay exact."""
    name = "JQD_" + key.upper().replace(".", "__")
    config = Config()
    with contextlib.suppress(ConfigError):
        config = load(environ={name: repr(number)})
    for failures in (1, 60, 100, 1_000_000):
        assert 0 <= config.retry.delay_s(failures, random.Random(1)) <= 2 * config.retry.cap_s
    for other, _, value in _settings(config):
        if isinstance(value, float):
            assert milliseconds(value) < 2**53, other
