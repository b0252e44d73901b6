"""What can be a daemon's URL."""

from jqd.client.errors import WrongUrl
from jqd.words.address import is_http, names_version


def checked_url(url: str) -> str:
    """`url`, if it can be a daemon's; raises WrongUrl otherwise."""
    if not is_http(url):
        raise WrongUrl(
            f"{url!r} is no daemon's URL: it begins with http:// or https://; write one like http://127.0.0.1:7420"
        )
    if names_version(url):
        raise WrongUrl(f"{url!r} has a path; a daemon's URL ends before /v1: write one like http://127.0.0.1:7420")
    return url
