"""Tool calls that cannot be run: arguments that are no JSON, that the token limit cut off, or that no log takes."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, InvalidToolCall, ToolMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_core.messages import ToolCall

__all__ = ["answers_for_invalid_calls", "with_calls_in_order", "with_unstorable_calls_marked"]

_CUT_OFF = {"length", "max_tokens"}
_UNSTORABLE = "hold a value that cannot be stored, such as an integer of more than 64 bits"


def with_calls_in_order(message: BaseMessage) -> BaseMessage:
    """Return the message with each call that cannot be run among its `invalid_tool_calls`, and an id for every call.

    A message that ended at the token limit was cut in the call it was writing, its last one. Streamed, such
    arguments still look complete: LangChain closes the brackets of what has come so far. An id that is missing
    or is that of another call of the message is replaced, since it could not be answered.
    """
    if not isinstance(message, AIMessage) or not (message.tool_calls or message.invalid_tool_calls):
        return message
    calls, invalid = list(message.tool_calls), list(message.invalid_tool_calls)
    if _was_cut_off(message) and calls and not invalid:
        invalid = [_as_invalid(calls.pop(), "cut off by the token limit")]
    used: set[str | None] = {None, ""}
    calls = [call if _is_new(call["id"], used) else {**call, "id": uuid.uuid4().hex} for call in calls]
    invalid = [call if _is_new(call["id"], used) else {**call, "id": uuid.uuid4().hex} for call in invalid]
    if all(
        one is other
        for one, other in zip([*calls, *invalid], [*message.tool_calls, *message.invalid_tool_calls], strict=True)
    ):
        return message
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": invalid})


def with_unstorable_calls_marked(message: BaseMessage, fits: Callable[[Any], bool]) -> BaseMessage:
    """Return the message with each call whose arguments do not fit into the log among its `invalid_tool_calls`."""
    if not isinstance(message, AIMessage):
        return message
    bad = [call for call in message.tool_calls if not fits(call["args"])]
    if not bad:
        return message
    calls = [call for call in message.tool_calls if not any(call is other for other in bad)]
    invalid = [*message.invalid_tool_calls, *(_as_invalid(call, _UNSTORABLE) for call in bad)]
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": invalid})


def answers_for_invalid_calls(messages: Sequence[BaseMessage]) -> list[ToolMessage]:
    """Return an error result for each call in these messages that cannot be run."""
    return [
        ToolMessage(
            f"The call was not made: its arguments {_problem(message, call)}. Call {call['name'] or 'the tool'} again "
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


def _problem(message: AIMessage, call: InvalidToolCall) -> str:
    if call.get("error") == _UNSTORABLE:
        return _UNSTORABLE
    return "were cut off by the token limit" if _was_cut_off(message) else "are not valid JSON"


def _was_cut_off(message: AIMessage) -> bool:
    metadata = message.response_metadata
    return str(metadata.get("finish_reason") or metadata.get("stop_reason") or "").lower() in _CUT_OFF


def _is_new(call_id: str | None, used: set[str | None]) -> bool:
    new = call_id not in used
    used.add(call_id)
    return new


def _as_invalid(call: ToolCall, error: str) -> InvalidToolCall:
    return InvalidToolCall(
        name=call["name"], args=_json(call["args"]), id=call["id"], error=error, type="invalid_tool_call"
    )


def _json(arguments: dict[str, Any]) -> str:
    try:
        return json.dumps(arguments, ensure_ascii=False, default=str)
    except Exception:  # arguments that hold themselves, or an object that cannot be shown
        return ""
