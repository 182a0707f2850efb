"""Text for terminals: it cannot steer the one that it is printed on."""

from __future__ import annotations

import codecs
import re

__all__ = ["count", "is_narrow", "printable"]

# C0 but tab and newline, DEL, C1 (among them the one-byte forms of ESC [ and ESC ]), the marks that turn the order of
# reading round (Unicode's Bidi_Control property), and lone surrogates, which no encoding takes.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_WIDE = ("utf-8", "utf-8-sig", "utf-16", "utf-32", "gb18030")


def printable(text: str) -> str:
    r"""Return the text with what a terminal would act on made visible, as `\x1b` or `\u202e`.

    Tabs, newlines and every other character stay. The result can be encoded as UTF-8.
    """
    return _STEERING.sub(_escape, text)


def is_narrow(encoding: str) -> bool:
    """Return whether there are characters that the encoding does not have."""
    return codecs.lookup(encoding).name not in _WIDE


def count(number: int, noun: str) -> str:
    """Return for example `1 message`, `1,200 messages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
