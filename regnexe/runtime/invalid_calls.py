"""Tool calls that cannot be run: arguments that are no JSON, that were cut off, or that no log takes."""

from __future__ import annotations

import json
import math
import uuid
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, InvalidToolCall, ToolMessage

from regnexe.messages import finish_reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_core.messages import ToolCall

__all__ = ["answers_for_invalid_calls", "with_calls_in_order", "with_unstorable_calls_marked"]

_TOKEN_LIMITS = {"length", "max_tokens", "max_output_tokens", "model_context_window_exceeded"}
_CUT_OFF = _TOKEN_LIMITS | {"aborted", "content_filter", "insufficient_system_resource"}
_UNSTORABLE = "hold a value that cannot be stored, such as an integer of more than 64 bits"


def with_calls_in_order(message: BaseMessage) -> BaseMessage:
    """Return the message with each call that cannot be run among its `invalid_tool_calls`, and an id for every call.

    An answer that did not come to its own end was cut in the call it was writing: that is the last one, even if its
    arguments look complete, or one that has no arguments yet. An id that is missing or is that of another call of
    the message is replaced, since it could not be answered.
    """
    if not isinstance(message, AIMessage) or not (message.tool_calls or message.invalid_tool_calls):
        return message
    calls = [call for call in message.tool_calls if _is_json(call["args"])]
    invalid = [*message.invalid_tool_calls]
    invalid += [_as_invalid(call, None) for call in message.tool_calls if not any(call is kept for kept in calls)]
    if _was_cut_off(message) and calls:
        whole = [call for call in calls[:-1] if call["args"]]
        invalid += [_as_invalid(call, "cut off") for call in calls if not any(call is other for other in whole)]
        calls = whole
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
    if not _was_cut_off(message):
        return "are not valid JSON"
    reason = finish_reason_of(message)
    return f"were cut off by {'the token limit' if reason.lower() in _TOKEN_LIMITS else f'the provider ({reason})'}"


def _was_cut_off(message: AIMessage) -> bool:
    return finish_reason_of(message).lower() in _CUT_OFF


def _is_json(arguments: dict[str, Any]) -> bool:
    """Return whether there is neither NaN nor an infinity in the arguments, which Python reads and JSON has not."""
    try:
        return _is_finite(arguments)
    except RecursionError:  # nested too deeply for any log, which says so
        return True


def _is_finite(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case list() | tuple():
            return all(_is_finite(part) for part in value)
        case dict():
            return all(_is_finite(part) for part in value.values())
        case _:
            return True


def _is_new(call_id: str | None, used: set[str | None]) -> bool:
    new = call_id not in used
    used.add(call_id)
    return new


def _as_invalid(call: ToolCall, error: str | None) -> InvalidToolCall:
    return InvalidToolCall(
        name=call["name"], args=_json(call["args"]), id=call["id"], error=error, type="invalid_tool_call"
    )


def _json(arguments: dict[str, Any]) -> str:
    try:
        return json.dumps(arguments, ensure_ascii=False, default=str)
    except Exception:  # arguments that hold themselves, or an object that cannot be shown
        return ""
