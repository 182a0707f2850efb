"""From a completion to the events of a stream, in the order of DeepSeek's own client (deepseek-harness)."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from regnexe.testing.deepseek.completions import Completion, encoded

if TYPE_CHECKING:
    from regnexe.testing.deepseek.rules import Kind, Wire

__all__ = ["body_pieces", "events", "keep_alives"]

Delta = dict[str, Any]
T = TypeVar("T", str, bytes)

DONE = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"
EMPTY: tuple[Delta, ...] = ({}, {"content": ""}, {"content": None}, {"content": "", "reasoning_content": None})


def events(completion: Completion, wire: Wire, *, usage: bool, rng: random.Random | None) -> list[bytes]:
    """Return the events of the stream, each with its framing.

    First comes the role, then reasoning, text and tool calls, then an empty delta with the finish reason,
    then `[DONE]`. With `usage`, the usage is where `wire` says.
    """
    deltas = list(_deltas(completion, wire, rng))
    chunks = [_chunk(completion, delta) for delta in deltas]
    last = _chunk(completion, {"content": ""}, completion.finish_reason)
    chunks.append({**last, "usage": completion.usage} if usage and wire.usage in ("finish", "both") else last)
    if usage and wire.usage in ("trailing", "both"):
        chunks.append({**last, "choices": [], "usage": completion.usage})
    lines = [b"data: " + encoded(chunk) + b"\n\n" for chunk in chunks]
    if rng:
        lines = [line for chunk in lines for line in ([COMMENT] if rng.random() < 0.1 else []) + [chunk]]
    return [*lines, DONE]


def keep_alives(wire: Wire, *, stream: bool) -> bytes:
    """Return what a client is sent while it waits."""
    return (COMMENT if stream else b"\n") * wire.keep_alives


def body_pieces(body: bytes, wire: Wire, rng: random.Random | None) -> list[bytes]:
    """Return the bytes of a body as the HTTP chunks that it is sent in."""
    if rng:
        return _random_pieces(body, rng, rng.choice((3, 12, 60, 400)))
    if wire.cut_body is None:
        return [body]
    if isinstance(wire.cut_body, int):
        return _sized(body, wire.cut_body)
    return _checked(body, list(wire.cut_body(body)), b"")


def _chunk(completion: Completion, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {**completion.head, "object": "chat.completion.chunk", "choices": [choice]}


def _deltas(completion: Completion, wire: Wire, rng: random.Random | None) -> Iterator[Delta]:
    thinks = completion.reasoning is not None
    yield {"role": "assistant", "content": None} | ({"reasoning_content": ""} if thinks else {})
    for delta in _content_deltas(completion, wire, rng):
        yield delta
        if rng and rng.random() < 0.1:
            yield rng.choice(EMPTY)
        elif wire.empty_deltas and not rng:
            yield {"content": ""}


def _content_deltas(completion: Completion, wire: Wire, rng: random.Random | None) -> Iterator[Delta]:
    for piece in _pieces("reasoning", completion.reasoning or "", wire, rng):
        yield {"content": None, "reasoning_content": piece}
    for piece in _pieces("text", completion.text or "", wire, rng):
        yield {"content": piece}
    fragments = [_fragments(call, wire, rng) for call in completion.calls]
    for fragment in _ordered(fragments, wire, rng):
        yield {"tool_calls": [fragment]}


def _fragments(call: Mapping[str, Any], wire: Wire, rng: random.Random | None) -> list[Delta]:
    function = {"name": call["function"]["name"], "arguments": ""}
    first = {"index": call["index"], "id": call["id"], "type": "function", "function": function}
    pieces = _pieces("arguments", call["function"]["arguments"], wire, rng)
    return [first, *({"index": call["index"], "function": {"arguments": piece}} for piece in pieces)]


def _ordered(calls: Sequence[list[Delta]], wire: Wire, rng: random.Random | None) -> Iterator[Delta]:
    """Yield the fragments of all calls; each call begins after the one before it, whatever the order is then."""
    if rng:
        waiting, begun = [list(call) for call in calls], 0
        while any(waiting):
            chosen = rng.choice([call for call in waiting[: begun + 1] if call])
            begun += begun < len(waiting) and chosen is waiting[begun]
            yield chosen.pop(0)
    elif wire.interleave:
        for fragments in itertools.zip_longest(*calls):
            yield from (fragment for fragment in fragments if fragment is not None)
    else:
        yield from itertools.chain.from_iterable(calls)


def _pieces(kind: Kind, text: str, wire: Wire, rng: random.Random | None) -> list[str]:
    if not text:
        return []
    if rng:
        return _random_pieces(text, rng, rng.choice((1, 3, 12, 100)))
    if isinstance(wire.cut, int):
        return _sized(text, wire.cut)
    if wire.cut is not None:
        return _checked(text, list(wire.cut(kind, text)), "")
    return _sized(text, 8) if kind == "arguments" else re.findall(r"\s*\S+|\s+\Z", text)


def _sized(whole: T, size: int) -> list[T]:
    return [whole[start : start + size] for start in range(0, len(whole), size)]


def _random_pieces(whole: T, rng: random.Random, size: int) -> list[T]:
    places = [0, *sorted(rng.choices(range(len(whole) + 1), k=len(whole) // size)), len(whole)]
    return [whole[start:end] for start, end in itertools.pairwise(places)]


def _checked(whole: T, pieces: Iterable[T], nothing: T) -> list[T]:
    cut = list(pieces)
    if nothing.join(cut) != whole:
        raise ValueError(f"the pieces do not add up to the whole: {cut!r} for {whole!r}")
    return cut
