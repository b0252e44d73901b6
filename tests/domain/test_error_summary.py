"""The line of a failure that tells what it was."""

import time

import pytest

from jqd.domain.error_summary import error_line, readable

NODE = """/srv/hook.js:3
  throw new Error('no such order')
  ^

Error: no such order: 17
    at handle (/srv/hook.js:3:9)
    at Server.emit (node:events:519:28)

Node.js v20.11.1
"""
JAVA = """java.lang.RuntimeException: outer
\tat a.B.c(B.java:1)
Caused by: java.io.IOException: disk full
\tat a.B.d(B.java:2)
\t... 12 more
"""
MODULE = """starting
Error: Cannot find module 'nothing'
Require stack:
- /srv/home-1/noop.js
    at Function._resolveFilename (node:internal/modules/cjs/loader:1207:15)
    at require (node:internal/modules/helpers:177:18)
"""
PAGE = """HTTP 502: <!DOCTYPE html><html><head><style>h1 { color: red }</style><title>502 Bad Gateway</title></head>
<body><center><h1>502 Bad Gateway</h1></center><hr>nginx &amp; co</body></html>"""
PYTHON = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: no\n'
MARKED = """Traceback (most recent call last):
  File "a.py", line 7, in outer
    return inner(x)
           ^^^^^^^^
  File "a.py", line 3, in inner
    return 1 / x
           ~~^~~
ZeroDivisionError: division by zero
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (PYTHON, "ValueError: no"),
        (MARKED, "ZeroDivisionError: division by zero"),
        (NODE, "Error: no such order: 17"),
        (JAVA, "Caused by: java.io.IOException: disk full"),
        (MODULE, "Error: Cannot find module 'nothing'"),
        (PAGE, "502 Bad Gateway"),
        ("<html>only words</html>", "only words"),
        ("one line\n\n", "one line"),
        ("    at nothing", "at nothing"),
        ("a < b\nand <htmlx>", "and <htmlx>"),
        ("", ""),
    ],
)
def test_the_line_that_tells(text: str, line: str) -> None:
    assert error_line(text) == line


def test_a_page_is_shown_without_its_mark_up() -> None:
    assert readable(PAGE) == "HTTP 502:\n502 Bad Gateway 502 Bad Gateway nginx & co\n502 Bad Gateway"
    assert readable(PYTHON) == PYTHON


@pytest.mark.parametrize("part", ["<", "<!--", "<script>", "<title", "<h1>", "</script ", "\n  at "])
def test_whoever_wrote_it_it_is_gone_through_once(part):
    """A page of 64 KiB of them took seconds, which nobody else had meanwhile."""
    began_s = time.process_time()
    error_line("<html>" + part * (65_536 // len(part)))
    assert time.process_time() - began_s < 1
