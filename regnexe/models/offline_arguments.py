"""How the offline model fills the arguments of a tool from the text of a request."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from regnexe.models.offline_text import numbers, quoted
from regnexe.models.offline_values import (
    FORMATS,
    MISSING,
    NAME_WORDS,
    UNKNOWN,
    Source,
    beside,
    explicit,
    fallback,
    finders,
    has_format,
    names_in,
    property_words,
)

__all__ = ["fill", "spread"]

_DEEPEST = 6
_AT_MOST = 5


def fill(schema: dict[str, Any], source: Source) -> dict[str, Any]:
    """Return arguments for an object schema: what is required always, the rest where the text has it."""
    return _object(schema, source, schema, 0)


def spread(schema: dict[str, Any], source: Source) -> list[dict[str, Any]]:
    """Return the arguments of each call: several when the request names several of the one thing asked for."""
    first = fill(schema, source)
    properties = {name: _resolved(one, schema) for name, one in schema.get("properties", {}).items()}
    strings = [name for name, one in properties.items() if one.get("type") == "string" and "enum" not in one]
    strings = [name for name in strings if name in schema.get("required", ())] or strings
    found = names_in(source.near)
    if len(strings) != 1 or not property_words(strings[0]) & NAME_WORDS or first.get(strings[0]) not in found:
        return [first]
    fits = _string_fits(properties[strings[0]])
    return [first | {strings[0]: value} for value in found if fits(value)][:_AT_MOST]


def _object(schema: dict[str, Any], source: Source, root: dict[str, Any], depth: int) -> dict[str, Any]:
    if depth >= _DEEPEST:
        return {}
    required = set(schema.get("required", ()))
    properties = schema.get("properties", {})
    # What names the word before it ("to Paris") chooses before what takes anything.
    order = sorted(properties, key=lambda name: not property_words(name) & {"to", "from", "origin", "destination"})
    values = {name: _value(name, properties[name], source, root, depth, required=name in required) for name in order}
    return {name: values[name] for name in properties if values.get(name, MISSING) is not MISSING}


def _value(name: str, schema: Any, source: Source, root: dict[str, Any], depth: int, *, required: bool) -> Any:
    schema = _resolved(schema, root)
    if name in source.fixed:
        return source.fixed[name]
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return _choice(schema, source, required=required)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if kind == "object":
        return _object(schema, source, root, depth + 1) if required else MISSING
    if kind == "array":
        return _array(name, schema, source, root, depth, required=required)
    make = _SCALARS.get(kind)
    return make(name, schema, source, required) if make else _default(schema, None, required=required)


def _resolved(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with references followed and the first option that is not null chosen."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, dict):
            return {}
        options = [one for key in ("anyOf", "oneOf", "allOf") for one in schema.get(key, ())]
        if "$ref" in schema:
            chosen = _referenced(schema["$ref"], root)
        elif options:
            chosen = next((one for one in options if one.get("type") != "null"), options[0])
        elif isinstance(schema.get("type"), list):
            chosen = {"type": next((one for one in schema["type"] if one != "null"), "null")}
        else:
            return schema
        schema = {k: v for k, v in schema.items() if k not in {"$ref", "anyOf", "oneOf", "allOf", "type"}} | chosen
    return schema if isinstance(schema, dict) else {}


def _referenced(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    found: Any = root
    for step in reference.removeprefix("#/").split("/"):
        found = found.get(step, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def _default(schema: dict[str, Any], value: Any, *, required: bool) -> Any:
    if not required:
        return MISSING
    return schema["default"] if "default" in schema else value


def _choice(schema: dict[str, Any], source: Source, *, required: bool) -> Any:
    text = f"{source.near}\n{source.whole}".lower()
    for value in schema["enum"]:
        word = re.escape(str(value).lower()).replace("_", "[ _-]")
        if re.search(rf"(?<![a-z0-9]){word}(?![a-z0-9])", text):
            return value
    return _default(schema, schema["enum"][0] if schema["enum"] else None, required=required)


def _array(
    name: str, schema: dict[str, Any], source: Source, root: dict[str, Any], depth: int, *, required: bool
) -> Any:
    if not required:
        return MISSING
    if depth >= _DEEPEST:
        return []
    item = _resolved(schema.get("items", {}), root)
    most = schema.get("maxItems", _AT_MOST)
    found: list[Any] = []
    if item.get("type") in {"integer", "number"}:
        while len(found) < most and (number := source.take(numbers, _number_fits(item))) is not MISSING:
            found.append(_number_as(number))
    elif item.get("type", "string") == "string" and "enum" not in item:
        pieces = quoted(source.near) or names_in(source.near)
        found = [piece for piece in pieces if _string_fits(item)(piece)][:most]
    while len(found) < max(schema.get("minItems", 0), 0 if depth else 1):
        found.append(_value(name, item, source, root, depth + 1, required=True))
    return found


def _number(name: str, schema: dict[str, Any], source: Source, required: bool) -> Any:
    named = numbers(f"{explicit(name, source)} {beside(name, source)}")
    fits = _number_fits(schema)
    found = source.take(lambda _: named, fits)
    if found is MISSING and required:
        found = source.take(numbers, fits)
    if found is not MISSING:
        return _number_as(found)
    if required and "default" not in schema:
        source.invented.add(name)
    return _default(schema, _number_as(next(filter(fits, _likely_numbers(schema)), 0.0)), required=required)


def _likely_numbers(schema: dict[str, Any]) -> list[float]:
    """Return numbers of which one is within the schema's bounds, as a rule: zero, the ends, the middle."""
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    high = schema.get("maximum", schema.get("exclusiveMaximum", low))
    return [float(number) for number in (0, low, high, low + 1, high - 1, (low + high) / 2)]


def _number_as(number: float) -> int | float:
    return int(number) if float(number).is_integer() else number


def _number_fits(schema: dict[str, Any]) -> Callable[[float], bool]:
    def fits(number: float) -> bool:
        return (
            (schema.get("type") != "integer" or number.is_integer())
            and schema.get("minimum", number) <= number <= schema.get("maximum", number)
            and schema.get("exclusiveMinimum", number - 1) < number < schema.get("exclusiveMaximum", number + 1)
        )

    return fits


def _boolean(name: str, schema: dict[str, Any], source: Source, required: bool) -> Any:
    words = re.escape(name.lower()).replace("_", "[ _-]")
    text = source.whole.lower()
    if not re.search(rf"\b{words}\b", text):
        return _default(schema, False, required=required)
    denied = rf"\b(?:no|not|without|don't)\s+(?:\w+\s+)?{words}\b|\b{words}\s*[:=]\s*(?:no|false|off)\b"
    return re.search(denied, text) is None


def _string(name: str, schema: dict[str, Any], source: Source, required: bool) -> Any:
    fits = _string_fits(schema)
    words = property_words(name)
    if (given := explicit(name, source)) and fits(given):
        source.taken[given] += 1
        return given
    for find in finders(words, required=required):
        if (found := source.take(find, fits)) is not MISSING:
            return found
    if not required or "default" in schema:
        return _default(schema, None, required=required)
    left = fallback(schema, words, source)
    if left == UNKNOWN:
        source.invented.add(name)
    return left


def _string_fits(schema: dict[str, Any]) -> Callable[[str], bool]:
    def fits(value: str) -> bool:
        if not value.strip() or len(value) > schema.get("maxLength", len(value)):
            return False
        if len(value) < schema.get("minLength", 0):
            return False
        if schema.get("format") in FORMATS and not has_format(schema["format"], value):
            return False
        try:
            return re.search(schema.get("pattern", ""), value) is not None
        except re.error:  # JSON Schema's patterns are not Python's
            return True

    return fits


_SCALARS: dict[str, Callable[[str, dict[str, Any], Source, bool], Any]] = {
    "string": _string,
    "integer": _number,
    "number": _number,
    "boolean": _boolean,
}
