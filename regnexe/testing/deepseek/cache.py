"""The context cache: which part of an input an earlier one began with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regnexe.testing.deepseek.reply import DeepSeekRequest
    from regnexe.testing.deepseek.rules import Rules

__all__ = ["PrefixCache", "rendered"]

_END = "\x1e"


@dataclass(frozen=True)
class Found:
    """How many tokens an input has, and how many of them are in the cache."""

    tokens: int
    hit: int


class PrefixCache:
    """The stored prefixes, per API key and `user_id`.

    A request hits the longest stored prefix that it begins with, in whole units. Stored are the input of
    each request, the input with the answer, and the beginning that two requests share; each at once and
    for good, where DeepSeek takes seconds and forgets after hours (DeepSeek API docs, context caching).
    """

    def __init__(self) -> None:
        self._stored: dict[tuple[str, str], dict[str, None]] = {}

    def look_up(self, request: DeepSeekRequest, rules: Rules) -> Found:
        """Return what the cache has of this request; a beginning that it shares with another is stored."""
        prompt = rendered(request.tools, request.messages)
        stored = self._partition(request)
        tokens = rules.count_tokens(prompt)
        best = max((prefix for prefix in stored if prompt.startswith(prefix)), key=len, default="")
        shared = max((_shared(prompt, prefix) for prefix in stored), default=0)
        hit = min(rules.count_tokens(best), tokens)
        if interval := rules.cache_interval:
            at_interval = rules.count_tokens(prompt[:shared]) // interval * interval
            hit = max(hit, min(at_interval, tokens))
        if shared > len(best):
            stored[prompt[:shared]] = None
        return Found(tokens, hit // rules.cache_unit * rules.cache_unit)

    def store(self, request: DeepSeekRequest, answer: Mapping[str, Any]) -> None:
        """Store the input of a request, and the input with the answer."""
        prompt = rendered(request.tools, request.messages)
        self._partition(request).update({prompt: None, prompt + rendered((), [answer]): None})

    def _partition(self, request: DeepSeekRequest) -> dict[str, None]:
        return self._stored.setdefault((request.api_key, request.user_id), {})


def rendered(tools: Sequence[Any], messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the input as one text: the tools, then the messages; what follows can only be added at its end."""
    parts = [json.dumps(tools, ensure_ascii=False) + _END] if tools else []
    return "".join([*parts, *(_message(message) for message in messages)])


def _message(message: Mapping[str, Any]) -> str:
    text = f"{message.get('role')}:{message.get('reasoning_content') or ''}:{_content(message.get('content'))}"
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        text += f"\n{call.get('id')}:{function.get('name')}({function.get('arguments')})"
    return text + str(message.get("tool_call_id") or "") + _END


def _content(content: Any) -> str:
    if isinstance(content, list):
        return "".join(_part(part) for part in content)
    return content or ""


def _part(part: Mapping[str, Any]) -> str:
    if part.get("type") == "text":
        return str(part.get("text", ""))
    return hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()


def _shared(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
