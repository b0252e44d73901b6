"""Settings: which source wins, and what is said of a wrong one."""

import dataclasses
from pathlib import Path

import pytest

from jqd.config import Config, load
from jqd.errors import ConfigError


def test_defaults_lie_in_the_data_directory() -> None:
    config = load(environ={})
    assert config.data_dir == Path.cwd() / ".jqd"
    assert config.journal.directory == config.data_dir / "journal"
    assert config.store.url == ""


def test_flags_beat_the_environment_beats_the_file_beats_defaults(tmp_path: Path) -> None:
    file = tmp_path / "jqd.toml"
    file.write_text('drain_s = "1m"\ndata_dir = "/a"\n[lease]\nlease_s = 20\n[log]\nlevel = "debug"\n')
    environ = {"JQD_DATA_DIR": "/b", "JQD_LEASE__RENEW_S": "4s", "JQD_LOG__LEVEL": "error", "OTHER": "x"}
    config = load(file=file, environ=environ, flags={"log.level": "warning", "store.url": None})
    assert config.drain_s == 60
    assert config.data_dir == Path("/b")
    assert config.journal.directory == Path("/b/journal")
    assert (config.lease.lease_s, config.lease.renew_s) == (20, 4)
    assert config.log.level == "warning"


def test_the_file_can_be_named_by_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('[journal]\nsegment_bytes = "1MiB"\n')
    assert load(environ={"JQD_CONFIG": str(file)}).journal.segment_bytes == 1 << 20


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("JQD_DRAIN_S", "1500ms", 1.5),
        ("JQD_DRAIN_S", "2h", 7200.0),
        ("JQD_INSECURE", "yes", True),
        ("JQD_INSECURE", "off", False),
        ("JQD_DRAIN_S", "1_000", 1000.0),
    ],
)
def test_durations_and_truth_values_are_read(name: str, value: str, wanted: object) -> None:
    config = load(environ={name: value})
    assert getattr(config, name.removeprefix("JQD_").lower()) == wanted


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("JQD_STORE__URI", "x", ["JQD_STORE__URI", "store.uri", "'url'"]),
        ("JQD_STORR__URL", "x", ["storr.url", "'store'"]),
        ("JQD_DRAIN", "x", ["'drain'", "'drain_s'"]),
        ("JQD_STORE", "redis://x", ["unknown setting 'store'"]),
        ("JQD_DRAIN_S", "soon", ["JQD_DRAIN_S", "drain_s", "soon"]),
        ("JQD_DRAIN_S", "5 parsecs", ["unknown unit 'parsecs'", "ms, s, m, h, d"]),
        ("JQD_DRAIN_S", "0", ["drain_s is 1 second to 1 day"]),
        ("JQD_INSECURE", "perhaps", ["JQD_INSECURE", "true or false"]),
        ("JQD_STORE__CONNECTIONS_MAX", "1.5", ["whole number"]),
        ("JQD_LOG__LEVEL", "loud", ["log", "debug, info, warning or error"]),
        ("JQD_LOG__FORM", "pretty", ["console or json"]),
        ("JQD_LEASE__LEASE_S", "1", ["lease", "renew_s"]),
        ("JQD_STORE__TIMEOUT_S", "0", ["timeout_s"]),
        ("JQD_HTTP__BIND", "0.0.0.0:7420", ["--insecure", "0.0.0.0:7420"]),
        ("JQD_XYZ__ABC__DEF", "1", ["unknown setting 'xyz.abc.def'"]),
    ],
)
def test_a_wrong_setting_is_named_with_its_origin_and_what_was_meant(name: str, value: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        load(environ={name: value})
    for part in parts:
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [("drain_s = [1]", "drain_s"), ("bind = 5", "bind"), ("x =", "no TOML"), ("drain_s = true", "truth")],
)
def test_a_wrong_file_is_named(text: str, part: str, tmp_path: Path) -> None:
    file = tmp_path / "jqd.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(file=file, environ={})
    assert part in str(refused.value)
    assert str(file) in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(file=tmp_path / "none.toml", environ={})


def test_a_flag_of_the_wrong_kind_is_named() -> None:
    with pytest.raises(ConfigError, match="--level"):
        load(environ={}, flags={"log.level": 7})


def test_other_addresses_are_allowed_to_those_who_insist() -> None:
    assert load(environ={"JQD_HTTP__BIND": "0.0.0.0:7420", "JQD_INSECURE": "1"}).insecure


def test_the_configuration_cannot_be_changed_afterwards() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().drain_s = 3  # type: ignore[misc]
