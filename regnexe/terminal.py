"""Text that cannot steer the terminal it is printed on."""

from __future__ import annotations

import re

__all__ = ["printable"]

# C0 but tab and newline, DEL, C1 (among them the one-byte forms of ESC [ and ESC ]), the marks that turn the order of
# reading round (Unicode's Bidi_Control property), and lone surrogates, which no encoding takes.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return the text with what a terminal would act on made visible, as `\x1b` or `\u202e`.

    Tabs, newlines and every other character stay. The result can be encoded as UTF-8.
    """
    return _STEERING.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
