"""Where the offline model finds values for arguments in the text of a request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any
from uuid import UUID

from regnexe.models.offline_text import STOP_WORDS, names, quoted, terms

__all__ = [
    "FORMATS",
    "MISSING",
    "NAME_WORDS",
    "UNKNOWN",
    "Source",
    "beside",
    "explicit",
    "fallback",
    "finders",
    "has_format",
    "names_in",
    "property_words",
]

UNKNOWN = "unknown"
"""Stands for a required text that the request does not have."""

MISSING = object()
"""Stands for "the text does not say", since None may be a value."""

_PLACE = frozenset("city location place country region town area destination origin airport station".split())
NAME_WORDS = _PLACE | frozenset(
    """name person user customer contact recipient assignee author company team to from source target currency symbol
    ticker timezone""".split()
)
_FREE = frozenset("content contents body text message note fact todo".split())
_LOWER_PLACE = re.compile(r"\b(?:in|at|near|for|of|to)\s+(?:the\s+)?([a-z][a-z'-]+)")
_AFTER_WITH = re.compile(
    r"\b(?:with|containing|saying|says?|content|text|body|that)\b:?\s+(?:the\s+)?(?:content|text)?\s*(.+)", re.S | re.I
)
_COMMAND = re.compile(
    r"^(?:(?:please|can you|could you|would you|will you|now|then|and|just|use|the|to|use the \w+ tool to)\b[\s,]*)*"
    r"(?:(?:search|look|find|ask|write|add|save|note|remember|remind me|calculate|compute|translate|send|tell me)\b"
    r"(?:\s+(?:up|down|out|for|about|that|the web for|the web))*[\s:]*)?",
    re.I,
)
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_URL = re.compile(r"https?://[^\s\"'<>，。]+[^\s\"'<>，。.,;!?)]")
_PATTERNS: tuple[tuple[frozenset[str], re.Pattern[str]], ...] = (
    (frozenset("email mail recipient to from cc address".split()), _EMAIL),
    (frozenset("url link uri website page".split()), _URL),
    (
        frozenset("path file filename filepath folder directory".split()),
        re.compile(r"(?<![\w@/.])(?:/[\w./-]*[\w/]|[\w-]+(?:/[\w.-]+)*\.[A-Za-z]\w{0,4}\b)"),
    ),
    (
        frozenset("date day when deadline due since until start end".split()),
        re.compile(
            r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}\b|\b(?:today|tomorrow|yesterday|tonight|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b"
            "|今天|明天|后天|昨天",
            re.I,
        ),
    ),
    (frozenset({"time", "at", "hour", "when"}), re.compile(r"\b[0-2]?[0-9]:[0-5][0-9]\b")),
    (
        frozenset("id number code ref reference key sku isbn order ticket invoice".split()),
        re.compile(r"(?<![A-Za-z0-9])(?:[A-Za-z]+[-_]?)?[0-9][A-Za-z0-9_-]*"),
    ),
    (
        frozenset("expression expr formula equation".split()),
        re.compile(r"[(-]*[0-9.]+(?:\s*[-+*/^%()]+\s*[0-9.]+)+\)*"),
    ),
    (frozenset("currency symbol ticker base quote".split()), re.compile(r"(?<![A-Za-z])[A-Z]{2,5}(?![A-Za-z])")),
)
FORMATS = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "user@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
"""A value of each format of JSON Schema, for a required argument that the text says nothing about."""

_CHECKS: dict[str, Callable[[str], object]] = {
    "date": date.fromisoformat,
    "date-time": datetime.fromisoformat,
    "uuid": UUID,
    "email": _EMAIL.fullmatch,
    "uri": _URL.fullmatch,
}


@dataclass
class Source:
    """The text that arguments are taken from; each piece of it is taken once.

    Attributes:
        near: the part of the request that asks for this tool.
        whole: the whole request, for what `near` does not say.
        rest: the sentences that `near` is from, for an argument that takes free text.
        topic: what the tool itself is about, which is no value for an argument.
        fixed: values that are known already, by argument name.
        invented: the required arguments that the text says nothing about.
    """

    near: str
    whole: str
    rest: str = ""
    topic: frozenset[str] = frozenset()
    fixed: dict[str, str] = field(default_factory=dict)
    invented: set[str] = field(default_factory=set)
    taken: Counter[object] = field(default_factory=Counter)

    def take(self, find: Callable[[str], list[Any]], fits: Callable[[Any], bool]) -> Any:
        """Return the first piece found that fits and was not taken yet, or `MISSING`."""
        for text in (self.near, self.whole):
            seen: Counter[object] = Counter()
            for piece in find(text):
                seen[piece] += 1
                if seen[piece] > self.taken[piece] and fits(piece):
                    self.taken[piece] += 1
                    return piece
        return MISSING


def property_words(name: str) -> set[str]:
    """Return the lower-case words of an argument's name."""
    return set(re.split(r"[\W_]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())) - {""}


def beside(name: str, source: Source) -> str:
    """Return the figures that stand next to the argument's name: "3 days", "limit 5"."""
    word = rf"{re.escape(max(property_words(name), key=len, default=name).rstrip('s'))}s?"
    match = re.search(rf"(\w+)\s+{word}\b|\b{word}\s+(\w+)", source.whole, re.I)
    return " ".join(group for group in match.groups() if group) if match else ""


def explicit(name: str, source: Source) -> str:
    """Return the value given as `name=value`, `name: value` or `name called value`, or ""."""
    spoken = re.escape(name).replace("_", "[ _]")
    match = re.search(rf"\b{spoken}\s*(?:[:=]\s*|(?:named|called)\s+)(\"[^\"]+\"|'[^']+'|[^\s,;]+)", source.whole, re.I)
    return match[1].strip("\"'").rstrip(".!?") if match else ""


def finders(words: set[str], *, required: bool) -> list[Callable[[str], list[str]]]:
    """Return what finds values for an argument whose name has these words, the most telling first."""
    found: list[Callable[[str], list[str]]] = [pattern.findall for kind, pattern in _PATTERNS if words & kind]
    if words & _FREE:
        found += [quoted, _AFTER_WITH.findall]
    if words & {"origin", "from", "source"}:
        found.append(lambda text: [name for name, before in names(text) if before == "from"])
    if words & {"destination", "to", "target"}:
        found.append(lambda text: [name for name, before in names(text) if before == "to"])
    if required:
        found.append(quoted)
    if words & NAME_WORDS:
        found.append(names_in)
    if words & _PLACE:
        found.append(lambda text: [word for word in _LOWER_PLACE.findall(text) if word not in STOP_WORDS])
    return found


def names_in(text: str) -> list[str]:
    """Return the names in the text; those after a preposition alone, where there are any."""
    found = names(text)
    placed = [name for name, before in found if before]
    return list(dict.fromkeys(placed or [name for name, _ in found]))


def has_format(name: str, value: str) -> bool:
    """Return whether the value has this format of JSON Schema; False for a format that is not known here."""
    check = _CHECKS.get(name)
    try:
        return bool(check and check(value))
    except ValueError:
        return False


def fallback(schema: dict[str, Any], words: set[str], source: Source) -> str:
    """Return a value for a required string that no finder found: what is left of the request, else "unknown"."""
    if schema.get("format") in FORMATS:
        return FORMATS[schema["format"]]
    rest = _COMMAND.sub("", (source.rest or source.near).strip()).strip(" \n,:").rstrip("?!.。？！")
    if words & NAME_WORDS:
        rest = " ".join(word for word in re.findall(r"[\w'-]+", rest) if set(terms(word)) - source.topic) or UNKNOWN
    if words & {"path", "directory", "folder"} and "file" not in words:
        rest = "/"
    text = rest or source.near.strip() or source.whole.strip() or UNKNOWN
    return text[: schema.get("maxLength", len(text))].ljust(schema.get("minLength", 0), ".")
