"""How text that others wrote is shown: it commands no terminal, and turns the order of nothing beside it. Pure."""

import shlex

BIDI = {code: f"\\u{code:04x}" for code in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Of `str.translate`: marks, overrides and isolates of direction. With one in a message, what a table has behind it may
stand before it, and a name may read as another one."""
CONTROLS = BIDI | {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""The same, and control characters but newline and tab: a worker's message must not command the terminal."""

IN_JSON = BIDI | {code: f"\\u{code:04x}" for code in range(127, 160)}
"""The same in JSON, whose other control characters are spelled out anyway: who reads it gets what was meant."""


def quoted(text: str) -> str:
    """Return a text quoted for the shell; unprintable characters are spelled out, as bash, zsh and ksh read them."""
    if text.isprintable():
        # In double quotes where single ones would have to be broken up, and nothing in it means anything to a shell.
        return f'"{text}"' if "'" in text and not set(text) & set('"$`\\!') else shlex.quote(text)
    spelled = (
        each if each.isprintable() else _spelled(ord(each)) for each in text.replace("\\", r"\\").replace("'", r"\'")
    )
    return f"$'{''.join(spelled)}'"


def operand(text: str) -> str:
    """Return an id or name quoted as the last word of a shell command, so that a leading hyphen makes it no option."""
    return f"-- {quoted(text)}" if text.startswith("-") else quoted(text)


def _spelled(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x80 else f"\\U{code:08x}"
