"""Escapes text that others wrote, so that it can neither send commands to a terminal nor reorder the text beside it."""

import shlex

BIDI = {code: f"\\u{code:04x}" for code in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Table for `str.translate`. It escapes characters that change the direction of text. Otherwise, after a message with
such a character, a table's next column may appear before it, and one name may look like another."""
CONTROLS = BIDI | {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""Table for `str.translate`. It escapes the characters of BIDI, and all control characters except newline and tab."""

IN_JSON = BIDI | {code: f"\\u{code:04x}" for code in range(127, 160)}
"""Table for `str.translate` of JSON text. It escapes the characters of BIDI and 127 to 159; JSON escapes the other
control characters itself. The value stays the same."""


def quoted(text: str) -> str:
    """Return a text quoted for the shell. Unprintable characters are escaped in the form that bash, zsh and ksh
    read."""
    if text.isprintable():
        # In double quotes if it has a single quote, and nothing that double quotes leave special.
        return f'"{text}"' if "'" in text and not set(text) & set('"$`\\!') else shlex.quote(text)
    spelled = (
        each if each.isprintable() else _spelled(ord(each)) for each in text.replace("\\", r"\\").replace("'", r"\'")
    )
    return f"$'{''.join(spelled)}'"


def operand(text: str) -> str:
    """Return an id or name quoted as the last word of a shell command; a leading hyphen does not make it an option."""
    return f"-- {quoted(text)}" if text.startswith("-") else quoted(text)


def _spelled(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x80 else f"\\U{code:08x}"
