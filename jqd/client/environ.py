"""Reads the environment for clients and workers: the daemons to talk to, their token, and more."""

import os
from collections.abc import Sequence
from pathlib import Path

from jqd.client.errors import WrongToken, WrongUrl
from jqd.domain.address import is_http, names_version


def checked_url(url: str) -> str:
    if not is_http(url):
        raise WrongUrl(
            f"{url!r} is no daemon's URL: it begins with http:// or https://; write one like http://127.0.0.1:7420"
        )
    if names_version(url):
        raise WrongUrl(f"{url!r} has a path; a daemon's URL ends before /v1: write one like http://127.0.0.1:7420")
    return url


def checked_urls(urls: str | Sequence[str]) -> list[str]:
    """Check the URLs of the daemons of one store, given as a list or as text with commas, and return them as a list.
    Raises WrongUrl."""
    listed = urls.split(",") if isinstance(urls, str) else urls
    urls = [checked_url(url.strip()).rstrip("/") for url in listed if url.strip()]
    return list(dict.fromkeys(urls)) or [checked_url("")]


URL_DEFAULT = "http://127.0.0.1:7420"
URL_VARIABLE = "JQD_URL"
TOKEN_VARIABLE = "JQD_TOKEN"  # noqa: S105 - a name, not a token
TOKEN_FILE_VARIABLE = "JQD_TOKEN_FILE"  # noqa: S105 - a file that holds it, as secrets are mounted


def is_from_environment(url: str | None) -> bool:
    """Return whether a URL equals JQD_URL, so that it probably was taken from there."""
    return url is not None and url == os.environ.get(URL_VARIABLE)


def daemon_urls() -> list[str]:
    """Return the URLs in JQD_URL (separated by commas); if it is not set, that of the daemon on this machine. Raises
    WrongUrl."""
    value = os.environ.get(URL_VARIABLE)
    if not value:
        return [URL_DEFAULT]
    try:
        return checked_urls(value)
    except WrongUrl as error:
        raise WrongUrl(f"{URL_VARIABLE}: {error}") from error


def daemon_token() -> str | None:
    """Return the token in `JQD_TOKEN`, or in the file that `JQD_TOKEN_FILE` names; None if neither is set. Raises
    WrongToken.

    The token is only for the daemons in `JQD_URL`: whoever gives another URL must give its token, too.
    """
    if answer := os.environ.get(TOKEN_VARIABLE):
        return answer
    path = os.environ.get(TOKEN_FILE_VARIABLE)
    if not path:
        return None
    try:
        token = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongToken(f"{TOKEN_FILE_VARIABLE}: {path} cannot be read: {error}") from error
    if not token:
        raise WrongToken(f"{TOKEN_FILE_VARIABLE}: {path} is empty; it holds the token and nothing else")
    return token


def trust_file() -> str | None:
    """Return the file with trusted certificates that SSL_CERT_FILE names; None if it names none. Python silently
    ignores a file that does not exist."""
    return os.environ.get("SSL_CERT_FILE") or None


COLLECTOR_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def has_collector() -> bool:
    """Return whether the environment names an OpenTelemetry collector and does not disable it."""
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not is_off and any(os.environ.get(name) for name in COLLECTOR_VARIABLES)


def surroundings() -> dict[str, str]:
    """Return the environment without jqd's variables, for a daemon that a test starts."""
    return {name: value for name, value in os.environ.items() if not name.startswith("JQD_")}


PASSED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables that a worker passes on to the code that it runs: paths of programs and certificates, and the locale."""


def passed_on(names: Sequence[str]) -> dict[str, str]:
    """Return the environment variables that a worker passes on to code that it runs: those in PASSED and `names`. Any
    other may be a secret, such as the worker's token."""
    return {name: os.environ[name] for name in (*PASSED, *names) if name in os.environ}
