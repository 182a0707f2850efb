"""Pure rules that make a view fit to send: valid, and with nothing in it too large.

They change what the model receives, never the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage

from regnexe.messages import history_faults, is_blank, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HUMAN_LIMIT", "TOOL_RESULT_LIMIT", "clip_view", "repair_view"]

TOOL_RESULT_LIMIT = 80_000
"""Longest tool result in a view, in characters: deepagents' 20,000 tokens at 4 characters each."""

HUMAN_LIMIT = 200_000
"""Longest human message in a view but for the newest, in characters: deepagents' 50,000 tokens."""

_MALFORMED = "_malformed_arguments"


def repair_view(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages as a history that a provider takes; the same ones when it would already.

    A call without a result gets an error result, a result that answers nothing is left out, results
    move next to their call, a repeated call id is made unique, arguments that are not JSON are
    wrapped so that they are, and a blank message of the model is left out.
    """
    if not history_faults(messages):
        return list(messages)
    results: dict[str, list[tuple[int, ToolMessage]]] = {}
    for index, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            results.setdefault(message.tool_call_id, []).append((index, message))
    repaired: list[BaseMessage] = []
    used: set[str] = set()
    for index, message in enumerate(messages):
        if isinstance(message, AIMessage) and (message.tool_calls or message.invalid_tool_calls):
            repaired += _exchange(message, index, results, used)
        elif not isinstance(message, ToolMessage) and not is_blank(message):
            repaired.append(message)
    return repaired


def _exchange(
    message: AIMessage, index: int, results: dict[str, list[tuple[int, ToolMessage]]], used: set[str]
) -> list[BaseMessage]:
    """Return one calling message followed by the result of each of its calls."""
    calls: list[ToolCall] = []
    answers: list[ToolMessage] = []
    for position, call in enumerate(_valid_calls(message)):
        old_id = call["id"] or ""
        new_id = _unique(old_id or f"call_{index}_{position}", used)
        calls.append({**call, "id": new_id})
        answers.append(_answer(call, old_id, new_id, index, results))
    extra = {key: value for key, value in message.additional_kwargs.items() if key != "tool_calls"}
    fixed = message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": [], "additional_kwargs": extra})
    return [fixed, *answers]


def _valid_calls(message: AIMessage) -> list[ToolCall]:
    calls = [
        call if not history_faults([AIMessage("", tool_calls=[{**call, "id": "x"}]), _RESULT]) else _wrapped(call)
        for call in message.tool_calls
    ]
    return calls + [
        ToolCall(name=call["name"] or "unknown", args={_MALFORMED: call["args"] or ""}, id=call["id"], type="tool_call")
        for call in message.invalid_tool_calls
    ]


_RESULT = ToolMessage("", tool_call_id="x")


def _wrapped(call: ToolCall) -> ToolCall:
    return {**call, "args": {_MALFORMED: repr(call["args"])}}


def _answer(
    call: ToolCall, old_id: str, new_id: str, index: int, results: dict[str, list[tuple[int, ToolMessage]]]
) -> ToolMessage:
    # With a repeated id, each call takes the first result that comes after it and is still free.
    for place, (position, result) in enumerate(results.get(old_id, ())):
        if position > index:
            del results[old_id][place]
            return result if old_id == new_id else result.model_copy(update={"tool_call_id": new_id})
    return ToolMessage(
        f"The tool call {call['name']} did not complete; it has no result.",
        name=call["name"],
        tool_call_id=new_id,
        status="error",
    )


def _unique(call_id: str, used: set[str]) -> str:
    candidate, number = call_id, 2
    while candidate in used:
        candidate, number = f"{call_id}_{number}", number + 1
    used.add(candidate)
    return candidate


def clip_view(messages: Sequence[BaseMessage], *, window_characters: int | None = None) -> list[BaseMessage]:
    """Return the messages with what is too large cut in the middle; short ones are the same objects.

    Args:
        messages: a view.
        window_characters: about how much the model takes at all. The newest human message is cut only
            when it alone is larger; None when the model's window is not known.
    """
    newest = next((i for i in range(len(messages) - 1, -1, -1) if isinstance(messages[i], HumanMessage)), None)
    return [
        _clipped(message, window_characters if index == newest else _limit(message))
        for index, message in enumerate(messages)
    ]


def _limit(message: BaseMessage) -> int | None:
    match message:
        case ToolMessage():
            return TOOL_RESULT_LIMIT
        case HumanMessage():
            return HUMAN_LIMIT
        case _:
            return None


def _clipped(message: BaseMessage, limit: int | None) -> BaseMessage:
    if limit is None or not _longer_than(message, limit):
        return message
    text = text_of(message)
    head, tail = limit * 3 // 4, limit // 4
    left_out = len(text) - head - tail
    cut = (
        f"{text[:head]}\n\n[... {left_out:,} of {len(text):,} characters are left out of this view; "
        f"the conversation's log keeps the whole text ...]\n\n{text[-tail:]}"
    )
    if isinstance(message.content, str):
        return message.model_copy(update={"content": cut})
    others = [block for block in message.content if isinstance(block, dict) and block.get("type") != "text"]
    return message.model_copy(update={"content": [{"type": "text", "text": cut}, *others]})


def _longer_than(message: BaseMessage, limit: int) -> bool:
    content = message.content
    return len(content) > limit if isinstance(content, str) else len(text_of(message)) > limit
