"""Files that are not ours are those of the list; what templates may hold."""

import hashlib
import re
import tomllib
from pathlib import Path

import pytest

from tests.webui.conftest import Site

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "jqd" / "webui" / "static"
TEMPLATES = sorted((ROOT / "jqd" / "webui" / "templates").glob("*.html"))
OURS = {"ui.css", "ui.js", "charts.js", "icon.svg"}
CSS_BYTES_MAX = 20 * 1024


@pytest.mark.parametrize("folder", [STATIC, Path(__file__).parent / "axe"], ids=["static", "axe"])
def test_foreign_files_are_the_ones_that_are_listed(folder: Path) -> None:
    listed = tomllib.loads((folder / "vendored.toml").read_text())["file"]
    for each in listed:
        assert hashlib.sha256((folder / each["name"]).read_bytes()).hexdigest() == each["sha256"], each["name"]
        assert (folder / each["licence"]).exists()
    code = {path.name for path in folder.iterdir() if path.suffix in (".js", ".css", ".svg")}
    assert code - OURS == {each["name"] for each in listed}


def test_our_style_is_small() -> None:
    assert (STATIC / "ui.css").stat().st_size <= CSS_BYTES_MAX


def test_templates_make_addresses_in_one_way_and_have_no_code_in_them() -> None:
    wrong = []
    for path in TEMPLATES:
        text = path.read_text()
        made = re.findall(r'(?:href|src|action)="([^"]*\{\{[^"]*)"', text)
        fine = r"\{\{ (link\(|visit\.link_of\(|of_row\(|asset\(|newest|older|finding\.href|again|question\.back)"
        wrong += [f"{path.name}: {each}" for each in made if not re.match(fine, each)]
        wrong += [f"{path.name}: {each}" for each in re.findall(r'\s(?:style|on[a-z]+)="', text)]
        wrong += [f"{path.name}: {each}" for each in re.findall(r"\|\s*safe\b|<script(?! src)", text)]
    assert wrong == []


def test_files_are_kept_for_ever_under_their_hash_and_found_under_no_other(site: Site) -> None:
    address = re.search(r'href="(/static/[^"]*ui\.css)"', site.get("/").text)
    assert address is not None
    answer = site.get(address[1])
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"] == "text/css; charset=utf-8"
    assert site.get("/static/0000000000000000/ui.css").status_code == 404
