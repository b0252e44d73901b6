"""SIGHUP: what holds at once, what waits for a restart, and what a wrong configuration does."""

from pathlib import Path

import pytest

from jqd.config import Config, load, settings
from jqd.domain.errors import ConfigError
from jqd.reload import Reload, reloads

PAGE = Path(__file__).parents[1] / "docs" / "operate" / "SETTINGS.md"


class House:
    """Where a daemon would be."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.reload = Reload(self.load(), self.load)
        self.reload.change = self.change
        self.refuses = ""
        self.changes: list[Config] = []

    def load(self) -> Config:
        return load(file=self.file, environ={})

    def change(self, config: Config) -> None:
        if self.refuses:
            raise ConfigError(self.refuses)
        self.changes.append(config)

    async def say(self, text: str) -> None:
        self.file.write_text(text)
        await self.reload.now()


@pytest.fixture
def house(tmp_path: Path) -> House:
    file = tmp_path / "jqd.toml"
    file.write_text("")
    return House(file)


async def test_what_can_be_taken_over_is_and_the_rest_is_named(house: House) -> None:
    await house.say('drain_s = 40\n[api]\njob_bytes_max = 5\n[store]\nprefix = "other"\n[journal]\nretention_s = 1\n')
    (changed,) = house.changes
    assert (changed.drain_s, changed.api.job_bytes_max, changed.journal.retention_s) == (40, 5, 1)
    assert changed.store.prefix == "jqd", "not without a restart"
    assert house.reload.config == changed
    assert list(house.reload.complaints) == ["changed, and waiting for a restart: store.prefix"]
    await house.say("drain_s = 50\n")
    assert house.reload.complaints == ()
    assert house.reload.config == Config(
        data_dir=house.reload.config.data_dir, drain_s=50, journal=house.reload.config.journal, store=changed.store
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("drain_s = 0", "drain_s must be"),
        ("dran_s = 1", "did you mean 'drain_s'"),
        ('[journal]\nframe_bytes_max = "60MiB"\n[api]\narray_bytes_max = "40MiB"', "with what needs a restart"),
        ("[api]\narray_bytes_max = 1", "must not be more than array_bytes_max = 1"),
    ],
)
async def test_what_is_wrong_changes_nothing_and_is_told(house: House, text: str, why: str) -> None:
    before = house.reload.config
    await house.say(f"{text}\n")
    assert house.changes == []
    assert house.reload.config is before
    (complaint,) = house.reload.complaints
    assert complaint.startswith("the configuration was not loaded again: ")
    assert why in complaint
    await house.say("")
    assert house.reload.complaints == ()


async def test_what_the_daemon_cannot_take_over_neither(house: House) -> None:
    before, house.refuses = house.reload.config, "the certificate is none"
    await house.say("drain_s = 40\n")
    assert house.reload.config is before
    assert "the certificate is none" in house.reload.complaints[0]


def test_without_a_place_to_load_from_there_is_nothing_to_do() -> None:
    assert Reload(Config(), None).on_signal is None


def test_the_page_says_which_they_are() -> None:
    text = PAGE.read_text().partition("**Changing settings")[2].partition("\n\n")[0]
    for key, _ in settings(Config):
        section, _, name = key.rpartition(".")
        told = f"`{key}`" in text or f"`[{section}]`" in text or f"`{section}.{name.partition('_')[0]}_*`" in text
        assert told == reloads(key), key
