"""`jqd config`: every setting with its origin, unit and reason; and what would keep a daemon from starting."""

import json
from pathlib import Path

import pytest

from jqd.cli import run
from jqd.config import Config, settings


def rows(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, dict[str, object]]:
    assert run(["config", "show", "-o", "json", *more]) == 0
    return {row["setting"]: row for row in json.loads(capsys.readouterr().out)}


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JQD_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)


def test_every_setting_is_shown_with_its_unit_and_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    told = rows(capsys)
    assert list(told) == [key for key, _ in settings(Config)]
    assert [key for key, row in told.items() if not row["why"] or not row["allowed"] or "`" in str(row["why"])] == []
    assert {key: row["unit"] for key, row in told.items() if key.startswith("journal.others")} == {
        "journal.others_s": "s",
        "journal.others_bytes": "bytes",
    }
    assert told["drain_s"] == {
        **told["drain_s"],
        "value": 25.0,
        "unit": "s",
        "default": 25.0,
        "origin": "default",
        "reloads": True,
        "allowed": "1 second to 1 day",
    }
    assert not told["lease.lease_s"]["reloads"]


def test_where_each_was_said_and_no_password(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, secret = tmp_path / "jqd.toml", tmp_path / "secret"
    file.write_text('drain_s = "1m"\n[api]\njob_bytes_max = "512KiB"\nlightjq_workers = ["w=http://u:s3@c@h/"]\n')
    secret.write_text("redis://me:s3@c/ret@a/0?password=other redis://b")
    monkeypatch.setenv("JQD_STORE__URLS_FILE", str(secret))
    monkeypatch.setenv("JQD_LOG__LEVEL", "error")
    secret.with_name("key").write_text("s3@c master\n")
    monkeypatch.setenv("JQD_API__MASTER_KEY_FILE", str(secret.with_name("key")))
    told = rows(capsys, "--changed", "--config", str(file), "--bind", "127.0.0.1:1")
    assert {key: (row["value"], row["origin"]) for key, row in told.items()} == {
        "drain_s": (60.0, str(file)),
        "http.bind": ("127.0.0.1:1", "--bind"),
        "store.urls": (["redis://…@a/0?password=…", "redis://b"], f"JQD_STORE__URLS_FILE ({secret})"),
        "api.job_bytes_max": (512 * 1024, str(file)),
        "api.lightjq_workers": (["w=http://…@h/"], str(file)),
        "api.master_key": ("…", f"JQD_API__MASTER_KEY_FILE ({secret.with_name('key')})"),
        "log.level": ("error", "JQD_LOG__LEVEL"),
    }
    assert run(["config", "show", "--origin", "--config", str(file)]) == 0
    page = capsys.readouterr().out
    assert "s3@c" not in page
    assert f"api.job_bytes_max 512KiB {file} The largest job;" in " ".join(page.split())


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("", 0, "all settings are the defaults"),
        ("drain_s = 5", 0, "1 settings said by "),
        ("drain = 5", 1, "did you mean 'drain_s'"),
        ('[http]\ntls_cert = "/none"\ntls_key = "/none"', 1, "http.tls_cert = /none cannot be read"),
        ('insecure = true\n[http]\ntokens = "required"', 1, "exclude each other"),
        ('[store]\nurl = "http://x"', 1, "store.url 'http://x' must begin with one of redis://"),
        ("[http]\nconnections_max = 20\naddress_connections_max = 20", 0, "could start with this: 2 settings"),
        ("[http]\nconnections_max = 20\naddress_connections_max = 21", 0, "is 21, and there may be 20 connections"),
        ("[http]\nconnections_max = 100000", 0, "http.connections_max is 100000, and there may be"),
        ("[http]\naddress_connections_max = 100000", 0, "start with this, with these warnings: 1 settings"),
    ],
)
def test_a_configuration_is_checked(
    text: str, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "jqd.toml"
    file.write_text(f"{text}\n")
    assert run(["config", "check", "--config", str(file)]) == code
    assert said in capsys.readouterr().err


def test_what_cannot_be_loaded_cannot_be_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["config", "show", "--config", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err
