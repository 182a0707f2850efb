"""Advice for those who write Python, as advice for those who type a command."""

from __future__ import annotations

import re

__all__ = ["as_options"]

# The builder's calls, and what does the same here. The longer forms come first.
_OPTIONS = (
    (r'with_default_model\(Vendor\.OFFLINE, "demo"\)', "--model offline:demo"),
    (r"with_(default_model|model_spec|model)\b", "--model"),
    (r"with_system_prompt\b", "--system"),
    (r"with_plugin\b", "--plugin"),
    (r"use with_tool\(\)", "--plugin takes a class that is decorated with @plugin, and this can be a method of it"),
    (r"with_(persistence|checkpointer)\b", "--db"),
)
_CALL = re.compile("|".join(rf"(?P<o{number}>{call})(\(\)|\(\.\.\.\))?" for number, (call, _) in enumerate(_OPTIONS)))


def as_options(text: str) -> str:
    """Return the text with the options of `regnexe chat` in place of the builder's calls that do the same."""
    return _CALL.sub(_option, text)


def _option(found: re.Match[str]) -> str:
    return next(option for number, (_, option) in enumerate(_OPTIONS) if found[f"o{number}"])
