"""Small, pure helpers over LangChain messages."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "call_arguments",
    "clean_content",
    "clean_text",
    "finish_reason_of",
    "has_lone_surrogate",
    "history_faults",
    "is_blank",
    "is_json",
    "is_tool_name",
    "text_of",
]

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
REPLACEMENT = "\ufffd"
_NO_TEXT = {bool, bytes, float, int, type(None)}
_REASONS = ("finish_reason", "stop_reason", "stopReason", "done_reason")
_REPEATED = re.compile(r"(\w{3,}?)\1+")
_NO_ANSWER = {"text", "reasoning", "thinking", "redacted_thinking"}


def text_of(message: BaseMessage) -> str:
    """Return the readable text of a message: its string, or its text blocks joined; never a repr."""
    return str(message.text)


def is_blank(message: BaseMessage) -> bool:
    """Return whether this is a model's message that says nothing and calls nothing; reasoning does not count."""
    if not isinstance(message, AIMessage) or message.tool_calls or message.invalid_tool_calls or text_of(message):
        return False
    blocks = [] if isinstance(message.content, str) else message.content
    return all(isinstance(block, dict) and block.get("type") in _NO_ANSWER for block in blocks if block)


def finish_reason_of(message: AIMessage) -> str:
    """Return why the provider says that the answer ended, in its own word; "" when it does not say."""
    metadata = message.response_metadata
    incomplete = metadata.get("incomplete_details")  # OpenAI's Responses API
    reason = next((metadata[name] for name in _REASONS if metadata.get(name)), None)
    said = str(reason or (incomplete.get("reason") if isinstance(incomplete, dict) else None) or "")
    # LangChain adds up the texts of a stream's pieces; some providers send the reason on two.
    return found[1] if (found := _REPEATED.fullmatch(said)) else said


def call_arguments(text: str | None) -> dict[str, Any] | None:
    """Return the arguments that this text of a model gives to a tool; None when it is no JSON object.

    No text, and `null`, are a call without arguments. Strings may hold line breaks as they are, which models
    do and LangChain takes; NaN, infinities and numbers that no float holds are not JSON.
    """
    if not text:
        return {}
    try:
        given = json.loads(text, strict=False, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return {} if given is None else given if isinstance(given, dict) else None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a number of JSON")
    return number


def clean_text(text: str) -> str:
    """Return the text with each lone surrogate replaced by U+FFFD.

    No database, and no JSON on the wire, takes a lone surrogate.
    """
    return text if text.isascii() else _LONE_SURROGATE.sub(REPLACEMENT, text)


def clean_content(content: Any) -> Any:
    """Return message content (text, content blocks, tool arguments) with `clean_text` applied to every string in it."""
    match content:
        case str():
            return clean_text(content)
        case list():
            return [clean_content(part) for part in content]
        case dict():
            return {clean_content(key): clean_content(part) for key, part in content.items()}
        case _:
            return content


def has_lone_surrogate(content: Any) -> bool:
    """Return whether `clean_content` would change the content.

    Raises:
        RecursionError: the content holds itself, or is nested hundreds deep.
    """
    match content:
        case str():
            return not content.isascii() and _LONE_SURROGATE.search(content) is not None
        case list() | tuple():
            return any(has_lone_surrogate(part) for part in content if type(part) not in _NO_TEXT)
        case dict():
            return any(has_lone_surrogate(key) or has_lone_surrogate(part) for key, part in content.items())
        case _:
            return False


def is_tool_name(name: str) -> bool:
    """Return whether providers take this as the name of a tool: ^[a-zA-Z0-9_-]{1,64}$, OpenAI's rule."""
    return _TOOL_NAME.fullmatch(name) is not None


def is_json(value: Any) -> bool:
    """Return whether JSON can express the value."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def history_faults(messages: Sequence[BaseMessage]) -> list[str]:
    """Return what a chat-completions provider would refuse in this history; empty when it is valid.

    The rules are those of OpenAI-compatible providers: every tool call is answered by tool messages
    that follow it at once, every tool message answers such a call, call ids are present and unique in
    the whole history, names of tools match ^[a-zA-Z0-9_-]{1,64}$, arguments are valid JSON, and no
    message of the model is blank. One more is that of all the others (Anthropic's and Google's clients,
    many chat templates of open models): system messages come first.
    """
    faults: list[str] = []
    seen: set[str] = set()
    open_calls: dict[str, None] = {}
    for index, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in open_calls:
                faults.append(f"messages[{index}] answers {message.tool_call_id!r}, which no call next to it asks for")
            open_calls.pop(message.tool_call_id, None)
            continue
        faults += _unanswered(open_calls, index)
        open_calls = {}
        if isinstance(message, SystemMessage) and index and not isinstance(messages[index - 1], SystemMessage):
            faults.append(f"messages[{index}] is a system message that does not come first")
        if not isinstance(message, AIMessage):
            continue
        faults += _assistant_faults(message, index)
        for call_id in _call_ids(message):
            if call_id in seen:
                faults.append(f"messages[{index}] repeats the tool call id {call_id!r}")
            seen.add(call_id)
            open_calls[call_id] = None
    return faults + _unanswered(open_calls, len(messages))


def _assistant_faults(message: AIMessage, index: int) -> list[str]:
    faults: list[str] = []
    if is_blank(message):
        faults.append(f"messages[{index}] is an assistant message with neither content nor tool calls")
    for broken in message.invalid_tool_calls:
        faults.append(f"messages[{index}] calls {broken['name']!r} with arguments that are not valid JSON")
    for call in message.tool_calls:
        if not is_tool_name(call["name"]):
            faults.append(f"messages[{index}] calls {call['name']!r}, which does not match ^[a-zA-Z0-9_-]{{1,64}}$")
        if not call["id"]:
            faults.append(f"messages[{index}] calls {call['name']!r} without a call id")
        elif not is_json(call["args"]):
            faults.append(f"messages[{index}] calls {call['name']!r} with arguments that JSON cannot express")
    return faults


def _call_ids(message: AIMessage) -> list[str]:
    invalid = [call["id"] for call in message.invalid_tool_calls if call["id"]]
    return [call["id"] or "" for call in message.tool_calls] + invalid


def _unanswered(open_calls: dict[str, None], index: int) -> list[str]:
    return [f"messages[{index}] comes before the result of tool call {call_id!r}" for call_id in open_calls]
