"""Pure rules that make a view fit to send: valid, and with nothing in it too large.

They change what the model receives, never the log.
"""

from __future__ import annotations

import bisect
import json
import re
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolCall, ToolMessage

from regnexe.messages import history_faults, is_blank, is_json, is_tool_name, text_of
from regnexe.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["HUMAN_LIMIT", "TOOL_RESULT_LIMIT", "clip_view", "repair_view"]

TOOL_RESULT_LIMIT = 80_000
"""Longest tool result in a view, in characters: deepagents' 20,000 tokens at 4 characters each."""

HUMAN_LIMIT = 200_000
"""Longest human message in a view but for the newest, in characters: deepagents' 50,000 tokens."""

_MALFORMED = "_malformed_arguments"
_NOT_OF_A_NAME = re.compile("[^a-zA-Z0-9_-]")
_CALL_BLOCKS = {"tool_use", "tool_call", "tool_call_chunk", "invalid_tool_call", "function_call"}
_MEDIA_BLOCKS = {
    *("audio", "document", "file", "image", "image_url", "input_audio", "input_file", "input_image", "media"),
    *("text-plain", "video", "video_url"),
}


def repair_view(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages as a history that a provider takes; the same ones when it would already.

    A call without a result gets an error result, a result that answers nothing is left out, results
    move next to their call, a repeated call id is made unique, a tool name that no provider takes is
    mapped to one, arguments that are not JSON are wrapped so that they are, a blank message of the model
    is left out, and system messages move to the front. An empty history stays empty, and no provider
    takes it: there is nothing that could be said in the user's place.
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
    return sorted(repaired, key=lambda message: not isinstance(message, SystemMessage))


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
    if calls == message.tool_calls and not message.invalid_tool_calls:
        return [message, *answers]
    fixed = message.model_copy(
        update={
            "content": _without_calls(message.content),
            "tool_calls": calls,
            "invalid_tool_calls": [],
            "additional_kwargs": {k: v for k, v in message.additional_kwargs.items() if k != "tool_calls"},
        }
    )
    return [fixed, *answers]


def _without_calls(content: str | list[Any]) -> str | list[Any]:
    # Some providers' messages hold each call a second time, as a content block.
    if isinstance(content, str):
        return content
    return [block for block in content if not (isinstance(block, dict) and block.get("type") in _CALL_BLOCKS)]


def _valid_calls(message: AIMessage) -> list[ToolCall]:
    calls = [
        call if is_json(call["args"]) else ToolCall({**call, "args": {_MALFORMED: _shown(call["args"])}})
        for call in message.tool_calls
    ]
    calls += [
        ToolCall(name=call["name"] or "", args={_MALFORMED: call["args"] or ""}, id=call["id"], type="tool_call")
        for call in message.invalid_tool_calls
    ]
    return [call if is_tool_name(call["name"]) else {**call, "name": _tool_name(call["name"])} for call in calls]


def _tool_name(name: str) -> str:
    return _NOT_OF_A_NAME.sub("_", name)[:64] or "unknown"


def _shown(arguments: Any) -> str:
    try:
        return repr(arguments)
    except Exception:  # nested too deeply, an integer too long to write, or an object that cannot be shown
        return "arguments that cannot be written"


def _answer(
    call: ToolCall, old_id: str, new_id: str, index: int, results: dict[str, list[tuple[int, ToolMessage]]]
) -> ToolMessage:
    # With a repeated id, each call takes the first result that comes after it and is still free.
    for place, (position, result) in enumerate(results.get(old_id, ())):
        if position > index:
            del results[old_id][place]
            name = result.name if result.name is None or is_tool_name(result.name) else _tool_name(result.name)
            same = (result.tool_call_id, result.name) == (new_id, name)
            return result if same else result.model_copy(update={"tool_call_id": new_id, "name": name})
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


def clip_view(messages: Sequence[BaseMessage], *, window_tokens: int | None = None) -> list[BaseMessage]:
    """Return the messages with what is too large cut in the middle; short ones are the same objects.

    What is cut keeps as much text as its limit says, and gets a note about the rest; text that is longer
    by less than such a note stays whole. Images and other media are no text and are never cut. Other
    content blocks that together exceed the limit (data of a tool) are turned into their JSON text first.
    Clipping a clipped view again changes nothing.

    Args:
        messages: a view.
        window_tokens: how much the model takes at all. The newest human message is cut only when it
            alone is larger, by `estimate_tokens`; None when the model's window is not known.
    """
    newest = next((i for i in range(len(messages) - 1, -1, -1) if isinstance(messages[i], HumanMessage)), None)
    window = None if window_tokens is None else _Limit(window_tokens, estimate_tokens, note=_NOTE_TOKENS)
    return [_clipped(message, window if index == newest else _limit(message)) for index, message in enumerate(messages)]


_NOTE_CHARACTERS, _NOTE_TOKENS = 200, 60
"""No note about what is left out is longer."""


class _Limit:
    """How much text a message may have, by a measure of which a character counts at most 1."""

    def __init__(self, most: int, measure: Callable[[str], int], *, note: int) -> None:
        self.most = most
        """What the text and the note about what is left out may be together."""
        self.kept = most - note
        self.measure = measure

    def exceeded_by(self, text: str) -> bool:
        return self.kept > 0 and len(text) > self.most and self.measure(text) > self.most

    def head(self, text: str) -> int:
        """Return where the part that stays at the beginning ends."""
        return self._fitting(len(text), lambda end: text[:end], self.kept - self.kept // 4)

    def tail(self, text: str) -> int:
        """Return where the part that stays at the end begins."""
        length = len(text)
        return length - self._fitting(length, lambda size: text[length - size :], self.kept // 4)

    def _fitting(self, length: int, part: Callable[[int], str], most: int) -> int:
        sizes = range(min(length, 4 * most) + 1)
        return bisect.bisect_right(sizes, most, key=lambda size: self.measure(part(size))) - 1


_TOOL, _HUMAN = (
    _Limit(limit + _NOTE_CHARACTERS, len, note=_NOTE_CHARACTERS) for limit in (TOOL_RESULT_LIMIT, HUMAN_LIMIT)
)


def _limit(message: BaseMessage) -> _Limit | None:
    match message:
        case ToolMessage():
            return _TOOL
        case HumanMessage():
            return _HUMAN
        case _:
            return None


def _clipped(message: BaseMessage, limit: _Limit | None) -> BaseMessage:
    if limit is None:
        return message
    if isinstance(message.content, str):
        if not limit.exceeded_by(message.content):
            return message
        return message.model_copy(update={"content": "".join(_cut([message.content], limit))})
    blocks = _with_data_as_text(message.content, limit)
    if blocks is message.content and not limit.exceeded_by(text_of(message)):
        return message
    texts = [_text(block) for block in blocks]
    cut = iter(_cut([text for text in texts if text is not None], limit))
    content = [
        block if text is None else _with_text(block, next(cut)) for block, text in zip(blocks, texts, strict=True)
    ]
    return message.model_copy(update={"content": [block for block in content if block is not None]})


def _cut(texts: list[str], limit: _Limit) -> list[str]:
    """Return the parts of one text, cut in its middle; a part of which nothing stays is empty."""
    whole = "".join(texts)
    head, tail = limit.head(whole), limit.tail(whole)
    note = (
        f"\n\n[... {tail - head:,} of {len(whole):,} characters are left out of this view; "
        "the conversation's log keeps the whole text ...]\n\n"
    )
    kept: list[str] = []
    start = 0
    for text in texts:
        end = start + len(text)
        here = note if start < head <= end else ""
        kept.append(whole[start : min(end, head)] + here + whole[max(start, tail) : end])
        start = end
    return kept


def _with_data_as_text(content: list[Any], limit: _Limit) -> list[Any]:
    data = {
        index: text
        for index, block in enumerate(content)
        if _text(block) is None and block.get("type") not in _MEDIA_BLOCKS and (text := _json(block))
    }
    if not limit.exceeded_by("".join(data.values())):
        return content
    return [{"type": "text", "text": data[i]} if i in data else block for i, block in enumerate(content)]


def _json(block: dict[str, Any]) -> str:
    try:
        return json.dumps(block, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return ""


def _text(block: Any) -> str | None:
    if isinstance(block, str):
        return block
    text = block.get("text") if block.get("type") == "text" else None
    return text if isinstance(text, str) else None


def _with_text(block: Any, text: str) -> Any:
    """Return the block with this text, None when none of it is left."""
    if not text:
        return None
    return text if isinstance(block, str) else {**block, "text": text}
