"""Open pages over a wire between two network namespaces, as it is pulled and put back: no reset, no answer, nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.live.test_second_machine import Machine, ip
from tests.live.test_second_machine import machines as machines  # the fixture
from tests.webui.chromium import Chromium, found
from tests.webui.test_lossy import OLD_MS, SEEN_MS, STALE

SERVE = "JQD_HTTP__TOKENS=required JQD_API__MASTER_KEY={key} exec jqd serve --bind 127.0.0.1:7420"
UI = "exec jqd ui --url http://127.0.0.1:7420 --bind 10.0.0.1:7422"
KEY = "m" * 32


@pytest.fixture
def browser(machines: dict[str, Machine], tmp_path: Path) -> Iterator[Chromium]:
    """A browser on the machine B."""
    path = found()
    if path is None:
        pytest.skip("there is no Chromium on this machine: install `chromium`")
    program = tmp_path / "chromium"
    program.write_text(f'#!/bin/sh\nexec {" ".join(machines["B"].inside)} {path} "$@"\n')
    program.chmod(0o755)
    browser = Chromium(str(program))
    yield browser
    browser.close()


@pytest.mark.long
def test_an_open_page_says_that_it_is_old_where_the_wire_is_pulled(
    machines: dict[str, Machine], browser: Chromium
) -> None:
    a = machines["A"]

    def look(page: Page) -> None:
        page.goto("http://10.0.0.1:7422/types")
        page.get_by_label("Token").fill(token)
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("Types")
        for number in range(2):
            a.types(f"JQD_TOKEN={KEY} jqd push wire-{number} 1 --delay 1d")
            expect(page.locator("main")).to_contain_text(f"wire-{number}", timeout=SEEN_MS)
            expect(page.locator("#stale")).to_be_hidden(timeout=SEEN_MS)
            ip("-n", a.space, "link", "set", "wire", "down")
            assert page.evaluate(STALE) < OLD_MS
            ip("-n", a.space, "link", "set", "wire", "up")
        a.types(f"JQD_TOKEN={KEY} jqd push wire-last 1 --delay 1d")
        expect(page.locator("main")).to_contain_text("wire-last", timeout=SEEN_MS)
        expect(page.locator("#stale")).to_be_hidden(timeout=SEEN_MS)

    with a.goes_on(SERVE.format(key=KEY), "ready at"), a.goes_on(UI, "ready at"):
        token = a.types(f"JQD_TOKEN={KEY} jqd tokens create operator").strip()
        browser.run(look, strict=False)
