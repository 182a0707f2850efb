"""What a request must look like, whatever its history says.

Messages whose source is not a report of DeepSeek's own wording follow the wording of its other errors;
the docstring of the check says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from regnexe.testing.deepseek.errors import Refused, invalid

if TYPE_CHECKING:
    from regnexe.testing.deepseek.reply import DeepSeekRequest
    from regnexe.testing.deepseek.rules import Rules

__all__ = ["check_fields", "check_json"]

ROLES = ("system", "user", "assistant", "tool")
MOST_TOOLS = 128
MOST_STOPS = 16

_NAME = re.compile("[a-zA-Z0-9_-]+")


def check_json(request: DeepSeekRequest) -> None:
    """Refuse a body that is not a JSON object, or has no model or messages; in the server's own words."""
    if not request.body and request.raw.strip() != b"{}":
        raise invalid("Failed to parse the request body as JSON: expected value at line 1 column 1")
    for name in ("model", "messages"):
        if name not in request.body:
            raise _undeserializable(f"missing field `{name}` at line 1 column {len(request.raw)}")
    for name in ("messages", "tools"):
        _check_maps(request.body.get(name) or [], name)
    for index, message in enumerate(request.messages):
        if isinstance(message.get("content"), list):
            _check_maps(message["content"], f"messages[{index}].content")
        _check_maps(message.get("tool_calls") or [], f"messages[{index}].tool_calls")


def _check_maps(value: Any, where: str) -> None:
    """Refuse what is not a list of objects; in the server's own words."""
    if not isinstance(value, list):
        raise _undeserializable(f"{where}: invalid type, expected a sequence at line 1 column 1")
    for index, part in enumerate(value):
        if not isinstance(part, dict):
            raise _undeserializable(f"{where}[{index}]: invalid type, expected a map at line 1 column 1")


def check_fields(request: DeepSeekRequest, rules: Rules) -> None:
    """Refuse what DeepSeek refuses by looking at one field at a time.

    Raises:
        Refused: with status 400, and DeepSeek's text.
    """
    for index, message in enumerate(request.messages):
        _check_message(message, index, request, rules)
    _check_tool_types(request)
    if not request.messages:
        raise invalid("Empty input messages")
    _check_model(request, rules)
    _check_numbers(request, rules)
    _check_tools(request)
    _check_response_format(request)
    if request.thinking and request.body.get("tool_choice") not in (None, "auto", "none"):
        # DeepSeek-V3#1376: `required`, and an object that names a function
        raise invalid("Thinking mode does not support this tool_choice")


def _undeserializable(what: str) -> Refused:
    return invalid(f"Failed to deserialize the JSON body into the target type: {what}")


def _unknown_variant(where: str, variant: Any, expected: str, request: DeepSeekRequest) -> Refused:
    named = f'"{variant}"'.encode()
    column = max(request.raw.find(named), 0) + len(named)
    return _undeserializable(f"{where}: unknown variant `{variant}`, expected {expected} at line 1 column {column}")


def _check_message(message: Mapping[str, Any], index: int, request: DeepSeekRequest, rules: Rules) -> None:
    """Refuse other roles (`developer` is one) and other kinds of content than the model takes.

    An image to a text-only model: DeepSeek-Reasonix#7859. The text for a role has the same form.
    """
    if message.get("role") not in ROLES:
        expected = "one of " + ", ".join(f"`{role}`" for role in ROLES)
        raise _unknown_variant(f"messages[{index}].role", message.get("role"), expected, request)
    content = message.get("content")
    kinds = ("text",) if request.model in rules.text_only else ("text", "image_url")
    for part in content if isinstance(content, list) else ():
        if part.get("type") not in kinds:
            expected = " or ".join(f"`{kind}`" for kind in kinds)
            raise _unknown_variant(f"messages[{index}]", part.get("type"), expected, request)


def _check_tool_types(request: DeepSeekRequest) -> None:
    """Refuse tools that are no functions (litellm#30722)."""
    for index, tool in enumerate(request.tools):
        if tool.get("type") != "function":
            raise _unknown_variant(f"tools[{index}].type", tool.get("type"), "`function`", request)


def _check_model(request: DeepSeekRequest, rules: Rules) -> None:
    """Refuse unknown models (interview-coder-cn#87, September 2026)."""
    if request.model not in (*rules.models, *rules.retired):
        names = ", ".join(rules.models)
        raise invalid(f"The supported API model names are {names}, but you passed {request.model}.")


def _check_numbers(request: DeepSeekRequest, rules: Rules) -> None:
    """Refuse numbers out of their range; for all but `max_tokens` the text is the server's own."""
    body = request.body
    most = body.get("max_tokens")
    if most is not None and not (isinstance(most, int) and 1 <= most <= rules.max_output):
        raise invalid(f"Invalid max_tokens value, the valid range of max_tokens is [1, {rules.max_output}]")
    top = body.get("top_logprobs")
    if top is not None and not (isinstance(top, int) and 0 <= top <= 20):
        raise invalid("Invalid top_logprobs value, the valid range of top_logprobs is [0, 20]")
    stop = body.get("stop")
    if isinstance(stop, list) and len(stop) > MOST_STOPS:
        raise invalid(_too_long("stop", MOST_STOPS, len(stop)))


def _check_tools(request: DeepSeekRequest) -> None:
    """Refuse no tools (marimo#6108), too many (no text is published), and their names (refly#1794)."""
    if request.body.get("tools") == []:
        raise invalid(
            "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead."
        )
    if len(request.tools) > MOST_TOOLS:
        raise invalid(_too_long("tools", MOST_TOOLS, len(request.tools)))
    functions = [tool.get("function") or {} for tool in request.tools]
    for index, function in enumerate(functions):
        if not _NAME.fullmatch(str(function.get("name", ""))):
            raise invalid(
                f"Invalid 'tools[{index}].function.name': string does not match pattern. Expected a string that "
                "matches the pattern '^[a-zA-Z0-9_-]+$'."
            )
    if request.path.startswith("/beta") and any(function.get("strict") for function in functions):
        for index, function in enumerate(functions):
            _check_strict(function, index)


def _check_strict(function: Mapping[str, Any], index: int) -> None:
    """Refuse what strict mode does not take (DeepSeek API docs, tool calls guide); the text is the server's own."""
    if not function.get("strict"):
        raise invalid(f"Invalid 'tools[{index}].function.strict': all functions must set strict to true.")
    for schema in _objects(function.get("parameters") or {}):
        if set(schema.get("required") or ()) != set(schema.get("properties") or ()):
            raise invalid(f"Invalid 'tools[{index}].function.parameters': all properties must be required.")
        if schema.get("additionalProperties") is not False:
            raise invalid(f"Invalid 'tools[{index}].function.parameters': additionalProperties must be false.")


def _objects(schema: Any) -> list[Mapping[str, Any]]:
    if isinstance(schema, list):
        return [found for part in schema for found in _objects(part)]
    if not isinstance(schema, Mapping):
        return []
    below = [found for part in schema.values() for found in _objects(part)]
    return [schema, *below] if schema.get("type") == "object" else below


def _check_response_format(request: DeepSeekRequest) -> None:
    """Refuse a JSON schema (inspect_ai#4916), and JSON that the prompt does not speak of (vercel/ai#7913)."""
    wanted = (request.body.get("response_format") or {}).get("type", "text")
    if wanted not in ("text", "json_object"):
        raise invalid("This response_format type is unavailable now")
    if wanted == "json_object" and not any("json" in _words(message) for message in request.messages):
        raise invalid(
            "Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'."
        )


def _words(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(part.get("text") or "" for part in content)
    return str(content).lower()


def _too_long(name: str, most: int, length: int) -> str:
    return (
        f"Invalid '{name}': array too long. Expected an array with maximum length {most}, but got an array with "
        f"length {length} instead."
    )
