"""A whole message as a provider streams it, and about what it would have cost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk

from regnexe.tokens import estimate_tokens

__all__ = ["estimated_usage", "message_chunks"]


def estimated_usage(messages: Sequence[BaseMessage], tools: Sequence[Any], reply: AIMessage) -> UsageMetadata:
    """Return about what a provider would count: a quarter of a token an ASCII character, one any other."""
    sent = estimate_tokens(messages) + (estimate_tokens(_json(tools)) if tools else 0)
    received = max(1, estimate_tokens([reply]))
    return UsageMetadata(input_tokens=sent, output_tokens=received, total_tokens=sent + received)


def message_chunks(message: AIMessage, *, by_word: bool = True) -> Iterator[AIMessageChunk]:
    """Yield the message in parts that add up to it: text, then each call in two parts, then usage and metadata.

    Text comes word by word, or all at once; content blocks always come at once. The last part holds
    the usage and the metadata, and no text.
    """
    if message.additional_kwargs:
        yield AIMessageChunk(content="", id=message.id, additional_kwargs=message.additional_kwargs)
    for content in _pieces(message.content, by_word=by_word):
        yield AIMessageChunk(content=content, id=message.id)
    for chunk in _call_chunks(message):
        yield AIMessageChunk(content="", id=message.id, tool_call_chunks=[chunk])
    yield AIMessageChunk(
        content="",
        id=message.id,
        response_metadata=message.response_metadata,
        usage_metadata=message.usage_metadata,
        chunk_position="last",
    )


def _pieces(content: str | list[Any], *, by_word: bool) -> list[Any]:
    if not content:
        return []
    return re.findall(r"\s*\S+|\s+$", content) if by_word and isinstance(content, str) else [content]


def _call_chunks(message: AIMessage) -> Iterator[ToolCallChunk]:
    calls = [(call["name"], _json(call["args"]), call["id"]) for call in message.tool_calls]
    calls += [(call["name"] or "", call["args"] or "", call["id"]) for call in message.invalid_tool_calls]
    for index, (name, arguments, call_id) in enumerate(calls):
        yield tool_call_chunk(name=name, args="", id=call_id, index=index)
        yield tool_call_chunk(name=None, args=arguments, id=None, index=index)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
