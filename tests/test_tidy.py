"""What linters cannot say of a tree: sizes, names, and who may touch what."""

import ast
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "jqd").rglob("*.py"))
SCRIPTS = sorted((ROOT / "jqd" / "store" / "lua").glob("*.lua"))
SHARED = sorted((ROOT / "jqd" / "store" / "lua" / "shared").glob("*.lua"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")])
LINES_MAX = 400
FUNCTION_LINES_MAX = 60
BROAD = {"Exception", "BaseException"}
HEADER = ("-- ARGV", "-- Returns", "-- Errors", "-- Cost")


def functions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Each function and its lines without its docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node) is not None:
                doc = node.body[0]
                assert doc.end_lineno is not None
                lines -= doc.end_lineno - doc.lineno + 1
            yield node.name, lines


def faults(judge: Callable[[Path], Iterator[str]], paths: Iterable[Path] = FILES) -> list[str]:
    """What is wrong with these files. One test for all of a kind: a test for each took longer than the looks."""
    return [f"{path.relative_to(ROOT)}: {fault}" for path in paths for fault in judge(path)]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def test_a_file_is_one_idea_on_a_few_pages() -> None:
    def judge(path: Path) -> Iterator[str]:
        lines = len(path.read_text().splitlines())
        if lines > LINES_MAX:
            yield f"{lines} lines"
        if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*|__init__|__main__", path.stem):
            yield "its name is not a word or a few"
        if not ast.get_docstring(tree_of(path)):
            yield "it does not begin with what it promises"
        yield from (
            f"{name} has {lines} lines" for name, lines in functions(tree_of(path)) if lines > FUNCTION_LINES_MAX
        )

    assert faults(judge) == []


def test_clocks_and_the_environment_have_one_door() -> None:
    def judge(path: Path) -> Iterator[str]:
        text = path.read_text()
        if path.name != "clock.py" and re.search(r"^\s*(import time|from time import)", text, re.MULTILINE):
            yield "only clock.py imports time"
        # The SDK knows nothing of the daemon, so it has a door of its own.
        doors = (ROOT / "jqd" / "config.py", ROOT / "jqd" / "client" / "environ.py")
        if path not in doors and re.search(r"os\.(environ|getenv)", text):
            yield "only config.py and client/environ.py read the environment"
        ours = path != ROOT / "jqd" / "worker" / "aio.py"  # users' functions may be written for it
        if ours and re.search(r"^\s*(import asyncio|from asyncio)", text, re.MULTILINE):
            yield "trio only"

    assert faults(judge) == []


def test_nothing_is_swallowed_without_a_word() -> None:
    def judge(path: Path) -> Iterator[str]:
        lines = path.read_text().splitlines()
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.ExceptHandler):
                continue
            if all(isinstance(each, ast.Pass) for each in node.body):
                yield f"line {node.lineno} only passes"
            caught = (
                {"BaseException"}
                if node.type is None
                else {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)}
            )
            last = node.body[-1]
            raises_again = isinstance(last, ast.Raise) and last.exc is None
            if caught & BROAD and not raises_again:
                reason = re.sub(r"noqa: ?[A-Z0-9, ]+", "", lines[node.lineno - 1].partition("#")[2])
                if len(reason.split()) <= 2:
                    yield f"line {node.lineno} catches everything and does not say why"

    assert faults(judge) == []


def test_only_the_command_line_prints() -> None:
    def judge(path: Path) -> Iterator[str]:
        if "cli" in path.parts:
            return
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                yield f"line {node.lineno} prints"

    assert faults(judge) == []


def test_what_only_tells_is_written_in_one_place() -> None:
    """Elsewhere a full disk, or a reader that is gone or stands still, would end or stop what it tells of."""
    unguarded = re.compile(
        r"\bsys\.__?std|(?<!LossyStream\()\bsys\.std(?:out|err)\.write|\bos\.p?writev?\(|print_exc|faulthandler"
    )
    doors = {
        "domain/lossy_stream.py",
        "journal/files.py",
        "cli/render.py",
        "cli/journal.py",
        "__main__.py",
    }  # the last has it set up

    def judge(path: Path) -> Iterator[str]:
        if str(path.relative_to(ROOT / "jqd")) in doors or "testing" in path.parts:
            return
        yield from (
            f"line {n} writes {line.strip()}"
            for n, line in enumerate(path.read_text().splitlines(), 1)
            if unguarded.search(line)
        )

    assert faults(judge, [path for path in FILES if (ROOT / "jqd") in path.parents]) == []


def test_what_workers_say_and_do_is_tried_with_two_daemons() -> None:
    """What one daemon alone hears of a worker must hold at the others, too."""
    alone = {
        "test_backup_commands.py": "a copy of one daemon",
        "test_buffer.py": "a client that keeps pushes for its one daemon",
        "test_crash.py": "what a daemon does that dies; deaths of workers have two",
        "test_events.py": "who listens to one daemon",
        "test_go.py": "a client made from a document",
        "test_http.py": "a page that is typed for one daemon",
        "test_logs.py": "what one daemon writes",
        "test_one_port.py": "one that is several daemons",
        "test_own_store.py": "a store that is one daemon's",
        "test_readme.py": "a page that is typed for one daemon",
        "test_shares.py": "the order in which one daemon claims",
        "test_typescript.py": "a client made from a document",
        "test_wheel.py": "what is installed",
    }
    works = re.compile(r"\bWorker\(|/done|/leases")
    several = re.compile(r"\b(?:pair|cluster)\(|\bas (?:two|other)\b|shared_daemons?\b")
    found = {
        path.name
        for path in (ROOT / "tests/live").glob("test_*.py")
        if works.search(text := path.read_text()) and not several.search(text)
    }
    assert found <= alone.keys(), f"{sorted(found - alone.keys())}: let it run with `pair` or `cluster`"


def test_a_function_in_lua_says_what_it_takes_and_scans_nothing() -> None:
    def judge(path: Path) -> Iterator[str]:
        text = path.read_text()
        yield from (f"its head lacks {field}" for field in HEADER if field not in text)
        if re.search(r"call\(\s*['\"](KEYS|SCAN|SSCAN)['\"]", text, re.IGNORECASE):
            yield "it scans"
        if re.search(r"call\(\s*['\"][HZ]SCAN['\"](?![^)]*'COUNT')", text):
            yield "it scans, and does not say how much at once"

    assert faults(judge, SCRIPTS) == []


def test_a_line_of_lua_fits_on_a_screen() -> None:
    def judge(path: Path) -> Iterator[str]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if len(line) > 120:
                yield f"line {number} has {len(line)} columns, and 120 are read at a glance"

    assert faults(judge, [*SCRIPTS, *SHARED]) == []


def test_a_comment_in_lua_stands_before_what_it_speaks_of() -> None:
    def judge(path: Path) -> Iterator[str]:
        for comment in re.findall(r"^(--.*)\n\s*end\b", path.read_text(), re.MULTILINE):
            yield f"{comment!r} stands before an end"

    assert faults(judge, [*SCRIPTS, *SHARED]) == []


def test_a_link_leads_somewhere() -> None:
    def judge(path: Path) -> Iterator[str]:
        links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text())
        yield from (f"{link} is not there" for link in links if "://" not in link and not (path.parent / link).exists())

    assert faults(judge, PAGES) == []


def test_no_page_has_marks_of_a_merge() -> None:
    def judge(path: Path) -> Iterator[str]:
        yield from re.findall(r"^(?:<{7} |={7}$|>{7} ).*", path.read_text(), re.MULTILINE)

    assert faults(judge, PAGES) == []


DECISIONS = {page.name[:4] for page in (ROOT / "docs" / "adr").glob("0*.md")}


def test_a_decision_that_is_named_has_a_page() -> None:
    """As `adr/0047`, in code, scripts, tests and pages: see docs/adr/README.md for what there is."""

    def judge(path: Path) -> Iterator[str]:
        named = re.findall(r"adr/(\d{4})", path.read_text())
        yield from (
            f"docs/adr/{number} is no page: see docs/adr/README.md" for number in named if number not in DECISIONS
        )

    tests = sorted((ROOT / "tests").rglob("*.py"))
    assert faults(judge, [*FILES, *SCRIPTS, *SHARED, *PAGES, *tests, ROOT / "pyproject.toml"]) == []


def anchors(text: str) -> set[str]:
    """What a link may name in a page, as GitHub makes it of headings."""
    bare = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", bare, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_a_link_into_a_page_names_a_heading_of_it() -> None:
    def judge(path: Path) -> Iterator[str]:
        for link, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", path.read_text()):
            page = path.parent / link if link else path
            if page.exists() and anchor not in anchors(page.read_text()):
                yield f"{link}#{anchor} is no heading"

    assert faults(judge, PAGES) == []


VERSIONS = re.compile(r"older (jqd|daemon|version)|earlier version|newer jqd", re.I)


def test_nothing_speaks_of_versions_that_never_were() -> None:
    """Nothing has been released: what one of another format wrote is refused by its head, and tolerated nowhere."""

    def judge(path: Path) -> Iterator[str]:
        yield from (found[0] for found in VERSIONS.finditer(path.read_text()))

    assert faults(judge, [*FILES, *SCRIPTS, *SHARED]) == []


DIALECT = re.compile(
    "barrier|beats|blame|card|carry|crew|crowd|cuts|desk|doors|gates|hands|hitch|house|keeper|keyed|ledger|looks|narrow"
    "|pace|parcel|pinned|plainly|porter|pulse|reach|renew|roll|seats?|seated|shapes|shelved|silence|spread|styles|telling|turns"
    "|underway|unheard|useless|verdict|voice|wishes|words"
)
"""Names that the table of words replaced; files and classes of the product are not called so."""


def test_files_and_classes_have_the_words_of_the_field() -> None:
    def judge(path: Path) -> Iterator[str]:
        if DIALECT.fullmatch(path.stem):
            yield "its name is of the dialect that was given up"
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef) and DIALECT.fullmatch(node.name.strip("_").lower()):
                yield f"line {node.lineno}: {node.name} is of the dialect that was given up"

    assert faults(judge) == []


SAID = re.compile(
    r"(?:.*_)?(?:told|untold|tells|telling|said|heard|hears|unheard|noted|voice|crowd|crew|porter|card|gates?|house"
    r"|parcel|hitch|pulse|beats|blame|verdicts?|wishes|lent|seats?|seated|cuts|pinned|onward|shelved|narrow"
    r"|meant|mistake|handing|came)(?:_.*)?|in_hand|jobs_in_hand|held_up|hear|tell|reach|spread|doors?|aside"
    r"|came_through|tombs?|heads"
)
"""Names that the table of words replaced, as a whole or as one of their words."""


def names_given(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each function, class, parameter, field, attribute and variable that is made in a file."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def test_no_name_is_of_the_dialect() -> None:
    def judge(path: Path) -> Iterator[str]:
        for line, name in names_given(tree_of(path)):
            if SAID.fullmatch(name.strip("_").lower()):
                yield f"line {line}: {name} is of the dialect that was given up"

    assert faults(judge) == []


def test_there_is_something_to_look_at() -> None:
    assert all(map(len, (FILES, SCRIPTS, SHARED, PAGES)))


def test_every_room_has_its_row_on_the_one_page_and_files_that_it_names_are_there() -> None:
    page = (ROOT / "docs" / "build" / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^`(\w+)/`\| \S.*$", page, re.MULTILINE)
    rooms = {path.name for path in (ROOT / "jqd").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert sorted(rows) == sorted(rooms)
    words = {path.name for path in (ROOT / "jqd").glob("*.py") if not path.name.startswith("__")}
    assert [word for word in words if f"`{word}`" not in page] == []
    named = re.findall(r"`([a-z_/\d]+\.(?:py|lua))`", page)
    assert [name for name in named if not (ROOT / "jqd" / name).exists()] == []


def test_every_error_says_when_it_comes() -> None:
    tree = ast.parse((ROOT / "jqd" / "domain" / "errors.py").read_text())
    bare = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and not ast.get_docstring(node)]
    assert bare == []


def test_a_pattern_of_a_field_ends_where_the_text_does() -> None:
    """`$` alone lets a line's end behind it pass; `$(?!\\n)` does not, and JSON Schema has it, too."""
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "jqd").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"""pattern=.*\$["']""", line)
    ]
    assert found == []


def test_the_project_names_no_machine_and_no_registry() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not in a git checkout, so what belongs to the project is not known")
    wrong = re.compile(
        r"https?://[^ ]*(/simple/?\b|registry[.]|/packages/[0-9a-f]{2}/)|--(extra-)?index-url\b"
        r"|(?<![\w.])/(home|root|work|Users)/\w"
    )
    found = []
    for line in listed.stdout.splitlines():
        path = ROOT / line
        if path.is_file() and path != Path(__file__) and wrong.search(path.read_text(errors="replace")):
            found.append(line)
    assert found == []
