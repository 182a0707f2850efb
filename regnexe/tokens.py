"""About how many tokens something is, without a tokenizer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage

__all__ = ["estimate_tokens"]


def estimate_tokens(messages: Sequence[BaseMessage] | str) -> int:
    """Return about how many tokens a text, or these messages, are: a quarter of one an ASCII character, one any other.

    Rounded up, for each text and each call. Of a message its text and its tool calls count; media do not.
    """
    if not isinstance(messages, str):
        return sum(_of_message(message) for message in messages)
    ascii_characters = len(messages) if messages.isascii() else len(messages.encode("ascii", "ignore"))
    return len(messages) - ascii_characters - (-ascii_characters // 4)


def _of_message(message: BaseMessage) -> int:
    calls = getattr(message, "tool_calls", ())
    return estimate_tokens(str(message.text)) + sum(
        estimate_tokens(call["name"] + _json(call["args"])) for call in calls
    )


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # what is no JSON is sent to no model
        return ""
