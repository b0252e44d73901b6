"""Settings: which source wins, and what is said of a wrong one."""

import contextlib
import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.config import Config, load, store_flags
from jqd.domain.errors import ConfigError
from jqd.store import StoreConfig

SETTINGS = Path(__file__).parent.parent / "docs" / "operate" / "SETTINGS.md"


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


def test_what_kubernetes_says_of_a_service_called_jqd_is_no_setting() -> None:
    for service in ("JQD", "JQD_WORKER", "JQD_2"):
        injected = {
            f"{service}_SERVICE_HOST": "10.43.0.7",
            f"{service}_SERVICE_PORT": "7420",
            f"{service}_SERVICE_PORT_HTTP": "7420",
            f"{service}_SERVICE_PORT_HTTP_ALT": "7421",
            f"{service}_PORT": "tcp://10.43.0.7:7420",
            f"{service}_PORT_7420_TCP": "tcp://10.43.0.7:7420",
            f"{service}_PORT_7420_TCP_PROTO": "tcp",
            f"{service}_PORT_7420_TCP_PORT": "7420",
            f"{service}_PORT_7420_TCP_ADDR": "fd00::7",
        }
        assert load(environ=injected) == load(environ={})


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("JQD_PORT", "7420", ["unknown setting 'port'"]),
        ("JQD_SERVICE_HOST", "tcp://x", ["unknown setting 'service_host'"]),
        ("JQD_PORT_7420_TCP_NAME", "x", ["unknown setting"]),
        ("JQD_SERVICE_PORTS", "7420", ["unknown setting"]),
        ("JQD_STORE__URI", "x", ["JQD_STORE__URI", "store.uri", "did you mean 'JQD_STORE__URL'"]),
        ("JQD_STORR__URL", "x", ["storr.url", "did you mean 'JQD_STORE__URL'"]),
        ("JQD_STORE_URL", "x", ["store_url", "did you mean 'JQD_STORE__URL'"]),
        ("JQD_BIND", "x", ["JQD_BIND", "did you mean 'JQD_HTTP__BIND'"]),
        ("JQD_DRAIN", "x", ["'drain'", "did you mean 'JQD_DRAIN_S'"]),
        ("JQD_DATA_DIR__X", "x", ["data_dir.x", "did you mean 'JQD_DATA_DIR'"]),
        ("JQD_STORE", "redis://x", ["'store' is a section; there are store.url"]),
        ("JQD_DRAIN_S", "soon", ["JQD_DRAIN_S", "drain_s", "soon"]),
        ("JQD_DRAIN_S", "5 parsecs", ["unknown unit 'parsecs'", "ms, s, m, h, d"]),
        ("JQD_DRAIN_S", "0", ["JQD_DRAIN_S: drain_s must be 1 second to 1 day, not '0'"]),
        ("JQD_INSECURE", "perhaps", ["JQD_INSECURE", "true or false"]),
        ("JQD_STORE__CONNECTIONS_MAX", "1.5", ["JQD_STORE__CONNECTIONS_MAX", "whole number"]),
        ("JQD_API__POLL_S", "-1", ["JQD_API__POLL_S", "must be above 0"]),
        ("JQD_RETRY__CAP_S", "1e999", ["JQD_RETRY__CAP_S", "finite"]),
        (
            "JQD_LOG__LEVEL",
            "loud",
            ["JQD_LOG__LEVEL: log.level must be one of debug, info, warning, error, not 'loud'"],
        ),
        ("JQD_LOG__FORM", "pretty", ["JQD_LOG__FORM: log.form must be one of auto, console, json"]),
        ("JQD_LEASE__LEASE_S", "1", ["lease", "renew_s", "from JQD_LEASE__LEASE_S"]),
        (
            "JQD_STORE__TIMEOUT_S",
            "0",
            ["JQD_STORE__TIMEOUT_S: store.timeout_s must be above 0, and at most ten years, not '0'"],
        ),
        ("JQD_RUNNER__RESULT_BYTES_MAX", "0", ["runner.result_bytes_max must be above 0"]),
        ("JQD_JOURNAL__RETRY_S", "0", ["journal.retry_s must be above 0"]),
        ("JQD_API__POLL_S", "0", ["api.poll_s must be above 0"]),
        ("JQD_HTTP__CONNECTIONS_MAX", "0", ["http.connections_max must be 1 or more"]),
        ("JQD_HTTP__HOSTS", "a b:1", ["http.hosts must be a list of names without scheme and port"]),
        ("JQD_SCHEDULER__POLICY", "fifo", ["scheduler.policy must be one of fair, strict, random, not 'fifo'"]),
        ("JQD_SCHEDULER__WEIGHTS", "acme=0", ["scheduler.weights must be a list like", "not 'acme=0'"]),
        ("JQD_SCHEDULER__WEIGHTS", "a=1 a=2", ["names a tenant twice", "from JQD_SCHEDULER__WEIGHTS"]),
        ("JQD_HTTP__TOKENS", "no", ["JQD_HTTP__TOKENS: http.tokens must be one of auto, required, not 'no'"]),
        ("JQD_HTTP__BIND", "7420", ["host:port"]),
        ("JQD_HTTP__BIND", "127.0.0.1:99999", ["host:port"]),
        ("JQD_STORE__URLS", '["redis://a", 5]', ["JQD_STORE__URLS", "list of texts", '["a", "b"]']),
        ("JQD_STORE__URLS", '["redis://a"', ["JQD_STORE__URLS", "begins like JSON"]),
        ("JQD_JOURNAL__FRAME_BYTES_MAX", "1MiB", ["frame_bytes_max = 1048576 is less than", "JQD_JOURNAL__FRAME"]),
        ("JQD_API__ARRAY_BYTES_MAX", "32MiB", ["journal.frame_bytes_max", "from JQD_API__ARRAY_BYTES_MAX"]),
        ("JQD_STORE__URLS", "redis://a redis://a", ["twice", "store.partitions", "from JQD_STORE__URLS"]),
        ("JQD_STORE__PARTITIONS", "33", ["partitions is 1 ", "to 32", "got 33", "from JQD_STORE__PARTITIONS"]),
        ("JQD_STORE__PARTITION", "1", ["unknown setting 'store.partition'", "did you mean 'JQD_STORE__PARTITIONS'"]),
        ("JQD_STORE__NEIGHBOURS", "1", ["unknown setting 'store.neighbours'"]),
        ("JQD_XYZ__ABC__DEF", "1", ["unknown setting 'xyz.abc.def'; there are api, data_dir, drain_s, http"]),
        ("JQD_LOG__XYZZY", "1", ["unknown setting 'log.xyzzy'; there are log.level, log.form, log.job_log"]),
    ],
)
def test_a_wrong_setting_is_named_with_its_origin_and_what_was_meant(name: str, value: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        load(environ={name: value})
    for part in parts:
        assert part in str(refused.value)


@pytest.mark.parametrize("value", ['["redis://:a-secret@b", 5]', '["redis://:a-secret@b"'])
def test_a_wrong_setting_is_not_repeated_where_a_password_may_be_in_it(value: str) -> None:
    with pytest.raises(ConfigError, match=r"store\.urls = … is no list of texts") as refused:
        load(environ={"JQD_STORE__URLS": value})
    assert "a-secret" not in str(refused.value)


@pytest.mark.parametrize("text", ["master_key = 123456789", 'client_key = ["123456789"]'])
def test_a_key_of_the_wrong_type_is_not_repeated(text: str, tmp_path: Path) -> None:
    file = tmp_path / "jqd.toml"
    file.write_text(f"[api]\n{text}\n")
    with pytest.raises(ConfigError, match=r"api\.\w+_key is not of the right type") as refused:
        load(file=file, environ={})
    assert "123456789" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("drain_s = [1]", "drain_s"),
        ("bind = 5", "did you mean 'http.bind'"),
        ("x =", "no TOML"),
        ("drain_s = true", "truth"),
        ("[log]\njob_log = 5", "in quotes"),
        ("[store]\nurl = []", "store.url"),
        ("[store]\nurls = [1]", "store.urls"),
        ("[store]\nurls = 5", "list of texts"),
        ('[store]\nurls = ["redis://a", ""]', "empty URL"),
        (
            '[store]\nurls = ["redis://a", "redis://b"]\npartitions = 1',
            "store.partitions is 2 (one for each URL) to 32",
        ),
        ('[store]\nurls = ["redis://a"]\nurl = "redis://b"', "both given"),
        ("log = 5", "is a section; there are log.level"),
        ("[nonsense]\nx = 1", "nonsense.x"),
        ("drain_s = inf", "finite"),
        ('[journal]\nsegment_bytes = "-5"', "journal.segment_bytes must be above 0, and at most 2^50, not '-5'"),
        ("[store]\nended_keep_s = -1", "store.ended_keep_s must be"),
        ("[lease]\nlease_s = 4", "lease_s = 4 must be more than renew_s = 3 and margin_s = 2 together"),
        ("[api]\nbodies_bytes_max = 1024", "bodies_bytes_max = 1024 must be at least 22369622"),
        ("[api]\njob_bytes_max = '64MiB'", "must not be more than array_bytes_max = "),
    ],
)
def test_a_wrong_file_is_named(text: str, part: str, tmp_path: Path) -> None:
    file = tmp_path / "jqd.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(file=file, environ={})
    assert part in str(refused.value)
    assert str(file) in str(refused.value)


def test_the_file_in_the_page_of_installing_is_one(tmp_path: Path) -> None:
    page = (SETTINGS.parent / "INSTALL.md").read_text()
    file = tmp_path / "jqd.toml"
    file.write_text(page.partition("```toml\n")[2].partition("```")[0])
    config = load(file=file, environ={})
    assert config.journal.directory == Path("/var/lib/jqd/journal")
    assert config.store.url.startswith("redis://")
    assert config.log.job_log


@pytest.mark.parametrize(
    "said",
    ['["redis+cluster://a:1,b:2", "unix:///c d"]', '[ "redis+cluster://a:1,b:2" , "unix:///c d" ]'],
)
def test_several_servers_are_named_in_the_environment(said: str) -> None:
    assert load(environ={"JQD_STORE__URLS": said}).store.urls == ("redis+cluster://a:1,b:2", "unix:///c d")
    assert load(environ={"JQD_STORE__URLS": " redis://a  redis://b\n"}).store.urls == ("redis://a", "redis://b")


def test_one_server_takes_the_place_of_several_and_they_of_it(tmp_path: Path) -> None:
    file = tmp_path / "jqd.toml"
    file.write_text('[store]\nurls = ["redis://a", "redis://b"]\n')
    assert load(file=file, environ={}).store.urls == ("redis://a", "redis://b")
    one = load(file=file, environ={"JQD_STORE__URL": "redis://c"}).store
    assert (one.url, one.urls) == ("redis://c", ())
    flags = store_flags(["redis://d", "redis://e"])
    several = load(file=file, environ={"JQD_STORE__URL": "redis://c"}, flags=flags).store
    assert (several.url, several.urls) == ("", ("redis://d", "redis://e"))
    assert load(file=file, environ={"JQD_STORE__URL": ""}).store.urls == ("redis://a", "redis://b")
    file.write_text('[store]\nurl = "redis://a"\n')
    assert load(file=file, environ={"JQD_STORE__URLS": ""}).store == StoreConfig("redis://a")
    one = load(file=file, environ={"JQD_STORE__URL": "redis://c"}, flags=store_flags(["redis://f"])).store
    assert (one.url, one.urls) == ("redis://f", ())
    assert load(file=file, environ={"JQD_STORE__URL": "redis://c"}, flags=store_flags(None)).store == StoreConfig(
        "redis://c"
    )


def test_both_in_one_place_are_refused_with_where_they_stand() -> None:
    with pytest.raises(
        ConfigError, match=r"both given.*store\.url from JQD_STORE__URL, store\.urls from JQD_STORE__URLS"
    ):
        load(environ={"JQD_STORE__URL": "redis://a", "JQD_STORE__URLS": "redis://b"})


def test_a_store_on_one_server_is_its_one_part() -> None:
    for config in (StoreConfig("redis://a", history_max=3), StoreConfig()):
        assert config.parts() == [config]
        assert config.count == 1
    assert StoreConfig(urls=("redis://a",)).parts() == [StoreConfig("redis://a")]


def test_partitions_lie_on_the_servers_in_turn() -> None:
    parts = StoreConfig(urls=("redis://a", "redis://b"), partitions=5, history_max=3).parts()
    assert [(part.url, part.partition) for part in parts] == [(f"redis://{'ab'[p % 2]}", p) for p in range(5)]
    assert {part.neighbours for part in parts} == {(0, 2, 4), (1, 3)}
    assert {(part.count, part.history_max, part.urls) for part in parts} == {(5, 3, ())}


def test_the_store_that_a_daemon_keeps_may_have_partitions_too() -> None:
    config = load(environ={"JQD_STORE__PARTITIONS": "3"}).store
    assert config.is_own
    own = dataclasses.replace(config, url="unix:///x")
    assert not own.is_own
    assert [(part.url, part.partition, part.neighbours) for part in own.parts()] == [
        ("unix:///x", p, (0, 1, 2)) for p in range(3)
    ]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(file=tmp_path / "none.toml", environ={})


@pytest.mark.parametrize("content", ["redis://:word@a/0\n", "  redis://:word@a/0"])
def test_a_secret_may_stand_in_a_file(content: str, tmp_path: Path) -> None:
    secret = tmp_path / "store"
    secret.write_text(content)
    loaded = load(environ={"JQD_STORE__URL_FILE": str(secret), "JQD_TOKEN_FILE": "of-clients"})
    assert loaded.store.url == "redis://:word@a/0"
    assert loaded.origins == {"store.url": f"JQD_STORE__URL_FILE ({secret})"}
    assert load(environ={"JQD_STORE__URL_FILE": ""}) == load(environ={})
    several = load(environ={"JQD_STORE__URLS_FILE": str(secret)}, flags={"store.url": None}).store
    assert several.urls == ("redis://:word@a/0",)


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("JQD_STORE__URL_FILE", None, ["JQD_STORE__URL_FILE", "cannot be read", "No such file"]),
        ("JQD_STORE__URL_FILE", b"\n", ["is empty"]),
        ("JQD_STORE__URL_FILE", b"\xff", ["no UTF-8"]),
        ("JQD_STORE__URL_FILE", b"x" * (64 << 10) + b"y", ["more than 65536 bytes"]),
        ("JQD_STORE__PREFIX_FILE", b"x", ["unknown setting 'store.prefix_file'", "did you mean 'JQD_STORE__PREFIX'"]),
    ],
)
def test_a_file_that_holds_no_secret_is_named(
    name: str, content: bytes | None, parts: list[str], tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    if content is not None:
        secret.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        load(environ={name: str(secret)})
    assert [part for part in parts if part not in str(refused.value)] == []


def test_a_secret_is_said_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="JQD_STORE__URL and JQD_STORE__URL_FILE are both given"):
        load(environ={"JQD_STORE__URL": "redis://a", "JQD_STORE__URL_FILE": str(tmp_path / "x")})


def test_a_flag_of_the_wrong_kind_is_named() -> None:
    with pytest.raises(ConfigError, match=r"--log-level: log\.level"):
        load(environ={}, flags={"log.level": 7})


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "127.9.9.9:1", "localhost:7420", "[::1]:7420"])
def test_this_machine_needs_no_insistence(bind: str) -> None:
    assert load(environ={"JQD_HTTP__BIND": bind}).http.bind == bind


def test_a_command_may_have_defaults_of_its_own() -> None:
    assert load(environ={}, defaults={"log.level": "warning"}).log.level == "warning"
    assert load(environ={"JQD_LOG__LEVEL": "error"}, defaults={"log.level": "warning"}).log.level == "error"


@given(st.dictionaries(st.from_regex(r"JQD_[A-Z_]{0,12}", fullmatch=True), st.text(max_size=8), max_size=3))
def test_whatever_the_environment_holds_is_read_or_refused(environ: dict[str, str]) -> None:
    with contextlib.suppress(ConfigError):  # any other error would be a traceback for whoever made a typing mistake
        load(environ=environ | {"JQD_CONFIG": ""})


def test_other_addresses_are_allowed_to_those_who_insist() -> None:
    bound = {"JQD_HTTP__BIND": "0.0.0.0:7420"}
    asks = [bound, {**bound, "JQD_INSECURE": "1"}, {}, {"JQD_HTTP__TOKENS": "required"}]
    assert [load(environ=each).needs_tokens for each in asks] == [True, False, False, True]


def test_the_configuration_cannot_be_changed_afterwards() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().drain_s = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("bind", "advertise", "url"),
    [
        ("127.0.0.1:0", "", "http://127.0.0.1:4711"),
        ("0.0.0.0:7420", "", ""),
        ("[::]:7420", "", ""),
        ("0.0.0.0:7420", "https://jqd.example.org/", "https://jqd.example.org"),
    ],
)
def test_what_others_are_told_of_where_it_is_reached(bind: str, advertise: str, url: str) -> None:
    http = load(environ={"JQD_HTTP__BIND": bind, "JQD_HTTP__ADVERTISE": advertise, "JQD_INSECURE": "1"}).http
    assert http.advertised("http://127.0.0.1:4711") == url
    with pytest.raises(ConfigError, match="is no URL; write one like"):
        load(environ={"JQD_HTTP__ADVERTISE": "jqd.example.org:7420"})


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "jqd.toml"
    file.write_text('[lease]\nlease_s = 1\n[journal]\nretry_s = 0\n[http]\nbind = "x"\nprot = 1\n')
    with pytest.raises(ConfigError) as refused:
        load(file=file, environ={"JQD_LOG__LEVEL": "loud"})
    first, *found = str(refused.value).splitlines()
    assert (first, len(found)) == ("5 settings are wrong:", 5)
    for part in ("lease_s = 1 must", "journal.retry_s must", "host:port", "'http.prot'", "log.level must"):
        assert sum(part in one for one in found) == 1, part


def test_what_is_refused_tells_no_secret() -> None:
    flags = {"api.master_key": "a-secret", "api.client_key": "b-secret", "api.bodies_bytes_max": "1KiB"}
    with pytest.raises(ConfigError) as refused:
        load(environ={}, flags=flags)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", ["MASTER_KEY", "CLIENT_KEY"])
def test_a_key_that_can_be_guessed_is_refused_where_tokens_are_asked_for(name):
    short, whole = {f"JQD_API__{name}": "x" * 15}, {f"JQD_API__{name}": "x" * 16}
    for asks in ({"JQD_HTTP__BIND": "0.0.0.0:7420"}, {"JQD_HTTP__TOKENS": "required"}):
        with pytest.raises(ConfigError, match=f"api.{name.lower()} has less than 16 characters"):
            load(environ={**asks, **short})
        assert load(environ={**asks, **whole}).needs_tokens
    assert not load(environ=short).needs_tokens, "only this machine reaches it"
