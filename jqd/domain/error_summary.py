"""Finds the line that tells the cause of a failure, in a traceback, a stack of Node.js or an HTML page."""

import html
import re

# Each pattern goes through a text once, whatever that contains: a part that is not closed extends to the end.
_FRAME = re.compile(r"\s+at \S.*|\s*\.\.\. \d+ more")  # a line of a stack, which is below the error's line
_NAMED = re.compile(r"(?:Caused by: |Uncaught )?[\w.$]*(?:Error|Exception)\b")  # the beginning of an error's message
_PAGE = re.compile(r"<!doctype html|<html[\s>]", re.IGNORECASE)
_TITLE = re.compile(r"<(title|h1)[^<>]*>([^<]+)<", re.IGNORECASE)
_SILENT = re.compile(r"<(script|style)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")


def error_line(text: str) -> str:
    """Return the line of an error's text that says what went wrong.

    If the text contains a stack, it is the nearest line above the last stack that begins with an error's name. If no
    line above that stack does, it is the line directly above the stack. Without a stack it is the last line.
    """
    lines = [line for line in readable(text).split("\n") if line.strip()]
    above: str | None = None
    for line, below in zip(reversed(lines[:-1]), reversed(lines[1:]), strict=True):
        is_frame = _FRAME.fullmatch(line) is not None
        if above is not None and is_frame:
            break
        if above is None and not is_frame and _FRAME.fullmatch(below):
            above = line
        if above is not None and _NAMED.match(line):
            return line.strip()
    return (above or lines[-1]).strip() if lines else ""


def readable(text: str) -> str:
    """Return a text in which an HTML page is replaced by the words of the page, with the page's title as the last line.
    A text without a page is returned as it is."""
    page = _PAGE.search(text)
    if page is None:
        return text
    source = _SILENT.sub(" ", text[page.start() :])
    title = _TITLE.search(source)
    words = " ".join(html.unescape(_TAG.sub(" ", source)).split())
    parts = [words, html.unescape(title[2]).strip()] if title else [words]
    return "\n".join(filter(None, [text[: page.start()].rstrip(), *parts]))
