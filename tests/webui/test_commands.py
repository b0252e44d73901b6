"""The commands that pages show mean what the page shows, whatever others named: no name becomes an option."""

import re
import shlex
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest

from jqd.cli.app import _ordered, app
from jqd.client import Client
from jqd.webui.values import command
from tests.live.harness import ingested
from tests.webui.conftest import Site

STRANGER = "--url=127.0.0.1:9"
"""A command that took this for an option would send its token there."""
NAMES = (STRANGER, "-o", "--all", "--token", "-", "--")
SHOWN = re.compile(r"<code data-copy>(jqd .*?)</code>", re.DOTALL)


def commands(page: str) -> list[list[str]]:
    return [shlex.split(unescape(found)) for found in SHOWN.findall(page)]


def values(given: Any) -> Iterator[str]:
    """All that a command was given."""
    if isinstance(given, str):
        yield given
    elif isinstance(given, (list, tuple)):
        for each in given:
            yield from values(each)
    elif isinstance(given, dict) or hasattr(given, "__dict__"):
        yield from values(list((given if isinstance(given, dict) else vars(given)).values()))


def means(words: list[str]) -> list[str]:
    """What the command is about. It asks nobody but the daemon that the user has."""
    assert words[0] == "jqd"
    _, bound, *_ = app.parse_args(_ordered(words[1:]), exit_on_error=False, print_error=False)
    common = bound.arguments.get("common")
    assert common is None or (common.url, common.token, common.output) == (None, None, "table")
    return list(values(dict(bound.arguments)))


@pytest.mark.parametrize("name", NAMES)
def test_no_name_is_an_option_of_a_command_that_a_page_shows(
    site: Site, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for setting in ("JQD_URL", "JQD_TOKEN", "JQD_TENANT"):
        monkeypatch.delenv(setting, raising=False)
    at = quote(name, safe="")
    with Client(site.daemon) as client:
        ingested(client, client.push(name, name, job_id=name, tags=[name], group=name, delay="1d"))
        client.set_schedule(name, {"name": name, "argument": name, "tags": [name]}, cron="0 3 1 1 *")
        client.set_constraint(name, 'job.name == "nobody"', pause=True)
        client.set_handler(name, "http://127.0.0.1:9/", {})
        try:
            for page in (
                f"/job?id={at}",
                f"/flow?id={at}",
                f"/flow/confirm?act=cancel&id={at}",
                f"/group?name={at}",
                f"/group/confirm?act=cancel&name={at}",
                f"/jobs?name={at}",
                f"/jobs?tag={at}",
                f"/jobs?search={at}",
                f"/errors?name={at}",
                f"/type?name={at}",
                f"/schedule?name={at}",
                f"/constraint?name={at}",
                f"/handler?name={at}",
                f"/bulk?act=cancel&name={at}&before=2100-01-01T00:00:00Z",
                f"/audit?act={at}",
            ):
                answer = site.get(page)
                assert answer.status_code == 200, (page, answer.text)
                shown = commands(answer.text)
                assert shown, page
                for words in shown:
                    assert name in means(words), (page, words)
        finally:
            client.delete_schedule(name)
            client.delete_constraint(name)
            client.delete_handler(name)
            client.cancel(name)


@pytest.mark.parametrize("name", NAMES)
def test_no_tenant_or_text_is_an_option(name: str) -> None:
    line = command("jqd", "schedules", "set", of=("a", name, name), every=name, flow=None, tz="")
    assert shlex.split(line) == ["jqd", "schedules", "set", f"--every={name}", "--", "a", name, name]
