"""A real Chromium that looks at pages, in a thread of its own: playwright brings a loop, and tests may run trio.

It judges what every page must hold: no request leaves the origin, the console is empty, axe finds nothing in light and
in dark, on a desk and on a phone.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from playwright.sync_api import Browser, Page, expect, sync_playwright

R = TypeVar("R")
NAMES = ("chromium", "chromium-browser", "google-chrome")
AXE = Path(__file__).parent / "axe" / "axe.min.js"
WAIT_S = 240.0  # for all that one test looks at: some pages, or a room of acts
WAIT_MS = 20_000  # for a page, on a loaded machine
DESKTOP = {"width": 1280, "height": 900}
SEEN = ("color-contrast", "scrollable-region-focusable", "target-size", "label", "region")
"""Rules of axe that depend on colours and sizes: the others need not be asked again."""
PHONE = {"width": 360, "height": 740}
DARK_PHONE = ("dark", PHONE, "phone")
OTHERWISE = (("dark", DESKTOP, "desk"), DARK_PHONE, ("light", PHONE, "phone"))
"""Than in light on a desk: colours, size, and where that is. The last one is on a phone."""


def found() -> str | None:
    """The browser of this machine."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """One browser process; `run` looks at pages with it."""

    def __init__(self, path: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="chromium")
        self._playwright = self._thread.submit(lambda: sync_playwright().start()).result(timeout=60)
        expect.set_options(timeout=WAIT_MS)
        launch = self._playwright.chromium.launch
        self._browser: Browser = self._thread.submit(
            lambda: launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        ).result(timeout=60)

        self._page: Page | None = None

    def close(self) -> None:
        self._thread.submit(self._browser.close).result(timeout=60)
        self._thread.submit(self._playwright.stop).result(timeout=60)
        self._thread.shutdown()

    def run(self, look: Callable[[Page], R], *, strict: bool = True, **options: Any) -> R:
        """Return what `look` returns of a fresh page; `options` of its context. `strict`: nothing may stand in the
        console, and nothing may be asked of another origin than the first."""

        def within() -> R:
            page = self._new_page(options)
            try:
                return _look(page, look, strict=strict)
            finally:
                page.context.close()

        return self._thread.submit(within).result(timeout=WAIT_S)

    def look_at(self, look: Callable[[Page], R], *, strict: bool = True) -> R:
        """As `run`, where it does not matter what the page was shown before: a fresh one takes half a second."""

        def within() -> R:
            self._page = page = self._page or self._new_page({})
            page.context.clear_cookies()
            page.emulate_media(color_scheme="light")
            page.set_viewport_size(DESKTOP)  # type: ignore[arg-type]
            try:
                return _look(page, look, strict=strict)
            finally:
                page.goto("about:blank")  # else it stays live, and is drawn anew all through the tests that follow

        return self._thread.submit(within).result(timeout=WAIT_S)

    def _new_page(self, options: dict[str, Any]) -> Page:
        context = self._browser.new_context(viewport=DESKTOP, **options)  # type: ignore[arg-type]
        context.set_default_timeout(WAIT_MS)
        return context.new_page()


def _look(page: Page, look: Callable[[Page], R], *, strict: bool) -> R:
    with watched(page) as complaints:
        result = look(page)
    assert complaints == [] or not strict, complaints
    return result


@contextmanager
def watched(page: Page) -> Iterator[list[str]]:
    """Give the list of what no page may do; it grows as that happens."""
    complaints: list[str] = []
    origins: list[str] = []

    def asked(url: str) -> None:
        origin = "/".join(url.split("/")[:3])
        origins.append(origin)
        if origin != origins[0]:
            complaints.append(f"asked {url}")

    heard: dict[Any, Callable[[Any], None]] = {
        "request": lambda request: asked(request.url),
        "console": lambda message: complaints.append(f"console: {message.text}"),
        "pageerror": lambda error: complaints.append(f"error: {error}"),
    }
    for event, hear in heard.items():
        page.on(event, hear)
    try:
        yield complaints
    finally:
        for event, hear in heard.items():
            page.remove_listener(event, hear)


def faults(page: Page, only: Sequence[str] = ()) -> list[str]:
    """What axe finds in the page as it is shown now; by all its rules, or by some."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE.read_text())  # by the debugger: the page's policy lets no other script in
    result = page.evaluate("only => axe.run(document, only.length ? {runOnly: only} : {})", list(only))
    return [
        f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes'][:3]]}"
        for each in result["violations"]
    ]


def faults_everywhere(page: Page, otherwise: Sequence[Any] = OTHERWISE) -> list[str]:
    """What axe finds in light on a desk and `otherwise`; and whether the page is wider than a phone."""
    wrong = [f"light, on a desk: {fault}" for fault in faults(page)]
    for colours, size, where in otherwise:
        page.emulate_media(color_scheme=colours)
        page.set_viewport_size(size)
        wrong += [f"{colours}, on a {where}: {fault}" for fault in faults(page, SEEN)]
    width = page.evaluate("document.documentElement.scrollWidth")
    return wrong + ([f"phone: the page is {width} wide"] if width > PHONE["width"] else [])
