"""What the pages say of the command line is true: each command of theirs is read by the parser that reads a user's."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import cyclopts
import pytest

from jqd.cli.app import GROUPS, _ordered, app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]*)`")
JQD = re.compile(r"(?:^|[\s;(&|])(?:\.venv/bin/)?jqd (?!=)")
COMMENT = re.compile(r"(?:^|\s)#.*")
ENDS = frozenset({"|", "&", "&&", "||", ";", ">", ">>", "2>", "2>&1", "<", ")"})
HOLES = {"…": [], "...": [], "N": ["1"]}  # for the reader to fill


def commands(text: str) -> Iterator[list[str]]:
    """The words behind each `jqd` of a line of the shell."""
    for part in JQD.split(COMMENT.sub("", text))[1:]:
        lexer = shlex.shlex(part.strip(), posix=True, punctuation_chars="|&;()<>")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words: list[str] = []
        for word in lexer:
            if word in ENDS:
                break
            words.append(word)
        yield words


def said(path: Path) -> Iterator[tuple[str, bool]]:
    """Each command of a page, and whether it is all of it: in a sentence it may only be named."""
    text = path.read_text()
    for block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            yield line, True
    for line in INLINE.findall(BLOCK.sub("", text)):
        if line.startswith("jqd "):
            yield line, False


LINES = [
    pytest.param(words, whole, id=f"{path.name}: jqd {' '.join(words)}"[:90])
    for path in PAGES
    for line, whole in said(path)
    for words in commands(line)
]


def filled(words: list[str]) -> list[str]:
    """Without what a page has in place of words: `ID…`, `[--dry-run]`, `set …`."""
    found: list[str] = []
    for word in words:
        found += HOLES.get(word, [word.strip("[]").removesuffix("…").removesuffix(",")])
    return [word for word in found if word]


@pytest.mark.parametrize(("words", "whole"), LINES)
def test_the_parser_takes_what_the_pages_say(words: list[str], whole: bool) -> None:
    try:
        app.parse_args(_ordered(filled(words)), exit_on_error=False, print_error=False)
    except cyclopts.MissingArgumentError:
        assert not whole


def test_there_are_commands_to_be_read() -> None:
    assert len(LINES) > 150


def test_options_of_all_commands_may_stand_before_each_group_of_them() -> None:
    """`jqd --url URL daemons drain NAME` was read as `jqd daemons --url URL drain NAME`."""
    groups = [name for name in app if not name.startswith("-") and any(not sub.startswith("-") for sub in app[name])]
    assert sorted(groups) == sorted(GROUPS)
    for group in groups:
        command = next(sub for sub in app[group] if not sub.startswith("-"))
        assert _ordered(["-o", "json", group, command, "x"]) == [group, command, "-o", "json", "x"]


OURS = re.compile(r"\bjqd ((?:-[\w-]+[ =])*)([\w-]+)?[\w =.-]*$")
QUOTING = re.compile(r"(shlex\.)?(quote|quoted|operand|join)\(")
# Made of what is quoted, or a word of ours; `at` stands in "jqd ui is ready at …", which is no command.
IS_QUOTED = {"words", "by_id", "flag", "whose", "right.roles[0]", "at"}


def unquoted(path: Path) -> Iterator[str]:
    """What stands in a printed command as it is, in the sentences of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.JoinedStr):
            continue
        text = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value)
                continue
            value, begun = ast.unparse(part).strip("{}"), OURS.search(text)
            is_command = begun is not None and (begun[1] != "" or (begun[2] or "") in app)
            if is_command and not QUOTING.match(value) and value not in IS_QUOTED:
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {value}"
            text += "x"


def test_what_stands_in_a_printed_command_is_quoted_for_the_shell() -> None:
    assert [fault for path in sorted((ROOT / "jqd").rglob("*.py")) for fault in unquoted(path)] == []
