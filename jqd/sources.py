"""Reads settings from their sources: TOML files, environment variables, files with secrets, and flags.

The environment of a process is a bad place for a secret: child processes inherit it, and `docker inspect` shows it. So
the variable `JQD_SECTION__KEY_FILE` may name a file with the secret, which is how container platforms provide secrets.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from jqd.domain.errors import ConfigError

PREFIX = "JQD_"
FILE = "_FILE"  # at the end of a variable's name: the value is in a file
SECRET_BYTES_MAX = (
    64 << 10
)  # in such a file: a list of URLs has a few hundred bytes; a larger file was named by mistake
# Other commands read these; they are not part of the daemon's configuration.
OTHERS = frozenset(
    {
        "JQD_URL",
        "JQD_TOKEN",
        "JQD_TOKEN_FILE",
        "JQD_TENANT",
        "JQD_CONFIG",
        "JQD_WORKER_PRIORITY_MIN",
        "JQD_WORKER_PRIORITY_MAX",
        "JQD_WORKER_SECRET_FILE",
    }
)
OTHERS_PREFIX = "JQD_TEST_"
# The variables that Kubernetes (and Docker's links) set in every container if a Service is called `jqd` or `jqd-…`. The
# values are matched, too: an operator who sets JQD_PORT=7420 wants a port, and that must not be ignored silently.
_SERVICE = re.compile(
    r"JQD_(?:[A-Z0-9]+_)*?(?:SERVICE_HOST=[0-9a-fA-F.:]+|SERVICE_PORT(?:_[A-Z0-9]+)*=\d+"
    r"|PORT(?:_\d+_(?:TCP|UDP|SCTP))?=(?:tcp|udp|sctp)://\S+"
    r"|PORT_\d+_(?:TCP|UDP|SCTP)_(?:PROTO=(?:tcp|udp|sctp)|PORT=\d+|ADDR=[0-9a-fA-F.:]+))"
)
# The flags of settings, for messages; a setting that is not here has the flag that its key's last part makes.
FLAGS = {
    "http.bind": "--bind",
    "store.url": "--store",
    "store.urls": "--store",
    "drain_s": "--drain",
    "log.level": "--log-level",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting from one source. `path`: its key in parts, such as ("store", "url"). `origin`: the source, as
    messages name it."""

    path: tuple[str, ...]
    value: Any
    origin: str


def from_code(values: Mapping[str, Any]) -> Iterator[Setting]:
    """Yield the settings for which a command has other defaults. `values`: dotted key → value."""
    for key, value in values.items():
        yield Setting(tuple(key.split(".")), value, "default")


def from_flags(flags: Mapping[str, Any]) -> Iterator[Setting]:
    """Yield the settings that were given as flags. `flags`: dotted key → value; None for a flag that was not given."""
    for key, value in flags.items():
        if value is not None:
            flag = FLAGS.get(key, f"--{key.rpartition('.')[2].replace('_', '-')}")
            yield Setting(tuple(key.split(".")), value, flag)


def from_file(path: Path | None) -> Iterator[Setting]:
    """Yield the settings of a TOML file. Raises ConfigError, which names the file."""
    if path is None:
        return
    try:
        tree = msgspec.toml.decode(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"the configuration file {path} cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigError(f"{path} is no TOML: {error}") from error
    yield from _walk(tree, (), str(path))


def _walk(tree: Mapping[str, Any], path: tuple[str, ...], origin: str) -> Iterator[Setting]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _walk(value, (*path, key), origin)
        else:
            yield Setting((*path, key), value, origin)


def from_environment(environ: Mapping[str, str], secrets: Collection[str]) -> Iterator[Setting]:
    """Yield the settings in environment variables. `secrets`: dotted keys of the settings that may be given in a file.

    Raises ConfigError, which names the variable and the file.
    """
    for name, value in sorted(environ.items()):
        if not name.startswith(PREFIX) or name in OTHERS or name.startswith(OTHERS_PREFIX):
            continue
        if _SERVICE.fullmatch(f"{name}={value}"):
            continue
        bare = name.removesuffix(FILE)
        path = tuple(bare[len(PREFIX) :].lower().split("__"))
        if bare != name and ".".join(path) in secrets:
            if value:  # an empty variable counts as not set, as for other settings
                if environ.get(bare):
                    raise ConfigError(f"{bare} and {name} are both given; say it once")
                yield Setting(path, read_secret(name, Path(value)), f"{name} ({value})")
        else:
            yield Setting(tuple(name[len(PREFIX) :].lower().split("__")), value, name)


def read_secret(name: str, path: Path) -> str:
    """Return the text of a file without the white space around it.

    `name`: the environment variable that names the file, for messages. Raises ConfigError.
    """
    try:
        with path.open("rb") as file:
            data = file.read(SECRET_BYTES_MAX + 1)
        text = data.decode()
    except OSError as error:
        raise ConfigError(f"{name}: {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: {path} is no UTF-8 text") from error
    if len(data) > SECRET_BYTES_MAX:
        raise ConfigError(f"{name}: {path} has more than {SECRET_BYTES_MAX} bytes; it holds one value and nothing else")
    if not (value := text.strip()):
        raise ConfigError(f"{name}: {path} is empty; take the variable away if nothing is meant")
    return value
