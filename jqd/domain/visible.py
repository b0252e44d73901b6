"""Escapes text that others wrote, so that it cannot send commands to a terminal or reorder the text beside it."""

import shlex

BIDI = {code: f"\\u{code:04x}" for code in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""For `str.translate`: escapes characters that change the direction of text. With one in a message, a table's next
column may appear before it, and a name may look like another one."""
CONTROLS = BIDI | {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""For `str.translate`: escapes these, and all control characters but newline and tab."""

IN_JSON = BIDI | {code: f"\\u{code:04x}" for code in range(127, 160)}
"""For `str.translate` of JSON, which escapes the other control characters anyway. The value stays the same."""


def quoted(text: str) -> str:
    """Return a text quoted for the shell; unprintable characters are escaped as bash, zsh and ksh read them."""
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
