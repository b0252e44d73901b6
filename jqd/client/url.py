"""What can be a daemon's URL."""

from collections.abc import Sequence

from jqd.client.errors import WrongUrl
from jqd.domain.address import is_http, names_version


def checked_url(url: str) -> str:
    """`url`, if it can be a daemon's; raises WrongUrl otherwise."""
    if not is_http(url):
        raise WrongUrl(
            f"{url!r} is no daemon's URL: it begins with http:// or https://; write one like http://127.0.0.1:7420"
        )
    if names_version(url):
        raise WrongUrl(f"{url!r} has a path; a daemon's URL ends before /v1: write one like http://127.0.0.1:7420")
    return url


def checked_urls(said: str | Sequence[str]) -> list[str]:
    """The URLs of the daemons of one store: a list, or a text with commas between them. Raises WrongUrl."""
    listed = said.split(",") if isinstance(said, str) else said
    urls = [checked_url(url.strip()).rstrip("/") for url in listed if url.strip()]
    return list(dict.fromkeys(urls)) or [checked_url("")]
