"""Python values as JSON that every parser and every JSON database column takes, and back."""

from __future__ import annotations

import base64
import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from pydantic import BaseModel

__all__ = ["from_json", "safe_repr", "safe_str", "to_json"]

TAG = "$regnexe"
"""The key of an object that stands for something JSON has no form for."""

# Parsers stop at a depth: pydantic's at 200, which this and what lies around a value stay below.
_MAX_DEPTH = 100

# Python reads and writes at most 4,300 decimal digits.
_MAX_BITS = 10_000

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_ESCAPED = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPE = re.compile(r"\\u([0-9a-f]{4})")


def to_json(value: Any) -> Any:
    r"""Return the value in the form of JSON: only dicts with text keys, lists, text, finite numbers, booleans, None.

    JSON's own values stay as they are. What JSON has no form for becomes `{"$regnexe": kind, "value": …}`,
    which `from_json` turns back: bytes (base64), NaN and infinities, tuples, sets, dicts whose keys are not all
    plain text or that hold the key `$regnexe` themselves, text with NUL or lone surrogates (`\u0000`, with `\`
    as `\u005c`: Postgres' JSONB takes neither as they are), dates and times, timedelta, Decimal, UUID,
    LangChain's Document, and nesting deeper than parsers take.

    What is not kept exactly: other pydantic models and dataclasses become a dict of their fields, an Enum its
    value, subclasses of the built-in types the type itself, a time zone its offset. Any other object, a part that
    contains itself, and what is nested deeper than Python's recursion goes (at least 100 levels) become their
    repr. Never raises for odd values.
    """
    return _Writer().write(value, 0)


def from_json(value: Any) -> Any:
    """Return what `to_json` was given.

    Raises:
        ValueError: an object with the key `$regnexe` is damaged, or of a kind that this version does not know.
    """
    if isinstance(value, list):
        return [from_json(part) for part in value]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {key: from_json(part) for key, part in value.items()}
    kind = value[TAG]
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise ValueError(f"holds a value of the kind {kind!r}, which this version of Regnexe does not know")
    try:
        return read(value["value"])
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"holds a damaged value of the kind {kind!r}: {error}") from error


def safe_repr(value: object) -> str:
    """Return `repr(value)`, or the name of its class when that raises."""
    return _safe(repr, value)


def safe_str(value: object) -> str:
    """Return `str(value)`, or the name of its class when that raises."""
    return _safe(str, value)


def _safe(text_of: Callable[[object], str], value: object) -> str:
    try:
        return text_of(value)
    except Exception:  # an object of somebody else's
        return f"<{type(value).__name__}>"


class _Writer:
    """One pass over a value; `depth` counts the levels of JSON around it."""

    def __init__(self) -> None:
        self._open: set[int] = set()

    def write(self, value: Any, depth: int, *, hashable: bool = False) -> Any:
        """Return the value as JSON; with `hashable`, as something that can be a key or in a set when read back."""
        if value is None or isinstance(value, bool):
            return value
        if type(value) in _SCALARS:
            kind, write = _SCALARS[type(value)]
            return _tagged(kind, write(value))
        try:
            if isinstance(value, str | int | float):
                return _primitive(value)
            if isinstance(value, Enum):
                return self.write(value.value, depth, hashable=hashable)
            return self._nested(value, depth, hashable=hashable)
        except Exception:  # an object of somebody else's, or deeper than Python goes
            return _text(safe_repr(value))

    def _nested(self, value: Any, depth: int, *, hashable: bool) -> Any:
        if id(value) in self._open:
            return _text(safe_repr(value))
        if depth > _MAX_DEPTH:
            return _tagged("json", json.dumps(self.write(value, 0, hashable=hashable), ensure_ascii=False))
        self._open.add(id(value))
        try:
            return self._container(value, depth, hashable=hashable)
        finally:
            self._open.discard(id(value))

    def _container(self, value: Any, depth: int, *, hashable: bool) -> Any:
        match value:
            case tuple():
                return _tagged("tuple", self._items(value, depth + 2, hashable=hashable))
            case frozenset():
                return _tagged("frozenset", self._sorted(value, depth + 2))
            case _ if hashable:
                return _text(safe_repr(value))
            case list() | deque():
                return self._items(value, depth + 1)
            case set():
                return _tagged("set", self._sorted(value, depth + 2))
            case Mapping():
                return self._mapping(value, depth)
            case BaseModel():
                found = self._mapping(_fields_of_model(value), depth)
                return _tagged("document", found) if _is_document(value) else found
            case _ if is_dataclass(value) and not isinstance(value, type):
                return self._mapping({field.name: getattr(value, field.name) for field in fields(value)}, depth)
            case _:
                return _text(safe_repr(value))

    def _items(self, items: Iterable[Any], depth: int, *, hashable: bool = False) -> list[Any]:
        return [self.write(item, depth, hashable=hashable) for item in items]

    def _sorted(self, items: Iterable[Any], depth: int) -> list[Any]:
        # A set's own order changes from process to process; the same set gives the same JSON.
        return sorted(self._items(items, depth, hashable=True), key=json.dumps)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        if TAG not in value and all(type(key) is str and not _UNSTORABLE.search(key) for key in value):
            return {key: self.write(part, depth + 1) for key, part in value.items()}
        depth += 3
        pairs = [[self.write(key, depth, hashable=True), self.write(part, depth)] for key, part in value.items()]
        return _tagged("dict", pairs)


def _primitive(value: str | int | float) -> Any:
    match value:
        case str():
            return _text(str.__str__(value))
        case int():
            number = int(value)
            return number if number.bit_length() <= _MAX_BITS else _tagged("int", hex(number))
        case _:
            return float(value) if math.isfinite(value) else _tagged("float", repr(float(value)))


def _text(text: str) -> Any:
    if not _UNSTORABLE.search(text):
        return text
    return _tagged("str", _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def _tagged(kind: str, value: Any) -> dict[str, Any]:
    return {TAG: kind, "value": value}


def _fields_of_model(model: BaseModel) -> dict[str, Any]:
    hidden = {name for name, field in type(model).model_fields.items() if field.exclude}
    return {name: value for name, value in model if name not in hidden}


def _is_document(value: object) -> bool:
    from langchain_core.documents import Document

    return type(value) is Document


def _document(value: Any) -> Any:
    from langchain_core.documents import Document

    return Document(**from_json(value))


_SCALARS: Mapping[type, tuple[str, Callable[[Any], Any]]] = {
    bytes: ("bytes", lambda value: base64.b64encode(value).decode("ascii")),
    bytearray: ("bytearray", lambda value: base64.b64encode(value).decode("ascii")),
    datetime: ("datetime", datetime.isoformat),
    date: ("date", date.isoformat),
    time: ("time", time.isoformat),
    timedelta: ("timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    Decimal: ("decimal", str),
    UUID: ("uuid", str),
}

_READERS: Mapping[str, Callable[[Any], Any]] = {
    "bytes": lambda value: base64.b64decode(value, validate=True),
    "bytearray": lambda value: bytearray(base64.b64decode(value, validate=True)),
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda value: timedelta(*value),
    "decimal": Decimal,
    "uuid": UUID,
    "int": lambda value: int(value, 16),
    "float": float,
    "str": lambda value: _ESCAPE.sub(lambda found: chr(int(found[1], 16)), value),
    "json": lambda value: from_json(json.loads(value)),
    "tuple": lambda value: tuple(from_json(value)),
    "set": lambda value: set(from_json(value)),
    "frozenset": lambda value: frozenset(from_json(value)),
    "dict": lambda value: {from_json(key): from_json(part) for key, part in value},
    "document": _document,
}
