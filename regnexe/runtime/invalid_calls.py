"""Tool calls that cannot be run: arguments that are no JSON, or that the token limit cut off."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

from langchain_core.messages import AIMessage, BaseMessage, InvalidToolCall, ToolMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import ToolCall

__all__ = ["answers_for_invalid_calls", "with_cut_off_calls_marked"]

_CUT_OFF = {"length", "max_tokens"}


def with_cut_off_calls_marked(message: BaseMessage) -> BaseMessage:
    """Return the message with each call that cannot be run among its `invalid_tool_calls`, under an id.

    A message that ended at the token limit was cut in the call it was writing, its last one. Streamed, such
    arguments still look complete: LangChain closes the brackets of what has come so far.
    """
    if not isinstance(message, AIMessage) or not (message.tool_calls or message.invalid_tool_calls):
        return message
    calls, invalid = list(message.tool_calls), list(message.invalid_tool_calls)
    if _was_cut_off(message) and calls and not invalid:
        invalid = [_as_invalid(calls.pop())]
    invalid = [{**call, "id": call["id"] or uuid.uuid4().hex} for call in invalid]
    if invalid == message.invalid_tool_calls:
        return message
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": invalid})


def answers_for_invalid_calls(messages: Sequence[BaseMessage]) -> list[ToolMessage]:
    """Return an error result for each call in these messages that cannot be run."""
    return [
        ToolMessage(
            f"The call was not made: its arguments {_problem(message)}. Call {call['name'] or 'the tool'} again "
            "with complete arguments in valid JSON, or answer without it.",
            name=call["name"],
            tool_call_id=call["id"] or "",
            status="error",
            id=uuid.uuid4().hex,
        )
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.invalid_tool_calls
    ]


def _problem(message: AIMessage) -> str:
    return "were cut off by the token limit" if _was_cut_off(message) else "are not valid JSON"


def _was_cut_off(message: AIMessage) -> bool:
    metadata = message.response_metadata
    return str(metadata.get("finish_reason") or metadata.get("stop_reason") or "").lower() in _CUT_OFF


def _as_invalid(call: ToolCall) -> InvalidToolCall:
    return InvalidToolCall(
        name=call["name"],
        args=json.dumps(call["args"], ensure_ascii=False, default=str),
        id=call["id"],
        error="cut off by the token limit",
        type="invalid_tool_call",
    )
