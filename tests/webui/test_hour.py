"""The last hour on Now: rows of a table, and what is drawn from them."""

from playwright.sync_api import Page

from jqd.webui.picture import COLUMNS, hour_rows
from tests.webui.chromium import Chromium
from tests.webui.conftest import Site

STEP = {"pushed": 1200, "started": 3, "succeeded": 1, "failed": 1, "dead": 1}


def test_a_row_has_counts_and_below_what_half_and_most_lie() -> None:
    bounds = {"wait_bounds": [0.1, 5.0], "run_bounds": [0.01, 60.0]}
    step = {**STEP, "at": "2026-01-01T10:20:00Z", "wait": [6, 3, 1], "run": [0, 0, 0]}
    (row,) = hour_rows({"steps": [step], **bounds})
    assert len(row) == len(COLUMNS)
    assert row[0] == ("10:20", "1767262800")
    assert [cell.number for cell in row[1:]] == ["1200", "3", "1", "2", "0.1", "5", "", ""]
    assert [cell.text for cell in row[5:]] == ["≤ 100 ms", "> 5 s", "–", "–"]
    (unknown,) = hour_rows({"steps": [{**step, "at": None}], **bounds})
    assert unknown[0] == ("", "")


def test_a_browser_draws_what_stands_in_the_table(site: Site, chromium: Chromium) -> None:
    def look(page: Page) -> tuple[int, int]:
        page.goto(site.url)
        page.locator("#chart-counts canvas").wait_for()
        drawn = page.locator("#chart-counts canvas").evaluate(
            "canvas => new Set(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data).size"
        )
        page.get_by_text("The last hour as numbers").click()
        return drawn, page.locator("#hour tbody tr").count()

    colours, minutes = chromium.run(look)
    assert colours > 10
    assert minutes == 60
