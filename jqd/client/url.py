"""What can be a daemon's URL."""

from jqd.words.address import is_http
from jqd.words.errors import ConfigError


def checked_url(url: str) -> str:
    """`url`, if it can be a daemon's; raises ConfigError otherwise."""
    if not is_http(url):
        raise ConfigError(f"{url!r} is no daemon's URL; write one like http://127.0.0.1:7420")
    return url
