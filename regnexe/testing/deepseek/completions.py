"""From a reply to the JSON of a completion."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regnexe.testing.deepseek.errors import Refused
from regnexe.testing.deepseek.vendors import overflow

if TYPE_CHECKING:
    from regnexe.testing.deepseek.cache import PrefixCache
    from regnexe.testing.deepseek.reply import DeepSeekRequest, Reply
    from regnexe.testing.deepseek.rules import Rules

__all__ = ["Completion", "complete", "measure"]

FINGERPRINT = "fp_0a1b2c3d4e"


@dataclass(frozen=True)
class Completion:
    """A completed answer.

    Attributes:
        head: `id`, `created`, `model` and `system_fingerprint`.
        text: the content.
        reasoning: the reasoning; `None` where the model does not think.
        calls: the tool calls as they are on the wire.
        finish_reason: why it ended.
        usage: what it used.
    """

    head: Mapping[str, Any]
    text: str | None
    reasoning: str | None
    calls: tuple[Mapping[str, Any], ...]
    finish_reason: str
    usage: Mapping[str, Any]

    @property
    def message(self) -> dict[str, Any]:
        """The assistant message."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning is not None:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = [dict(call) for call in self.calls]
        return message

    def body(self) -> bytes:
        """Return the answer in one piece."""
        choice = {"index": 0, "message": self.message, "logprobs": None, "finish_reason": self.finish_reason}
        return encoded({**self.head, "object": "chat.completion", "choices": [choice], "usage": self.usage})


def encoded(value: Any) -> bytes:
    """Return the JSON of a value, in UTF-8; with escapes where it holds what UTF-8 cannot."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def measure(request: DeepSeekRequest, rules: Rules, cache: PrefixCache) -> tuple[int, int]:
    """Return how many tokens the input has, and how many of them the cache has.

    Raises:
        Refused: input and `max_tokens` together are above the limit.
    """
    found = cache.look_up(request, rules)
    asked = request.body.get("max_tokens") or 0  # `max_completion_tokens` is not a field of DeepSeek's
    if found.tokens + asked > rules.context_limit:
        raise Refused(overflow(rules.vendor, found.tokens, asked, rules.context_limit))
    return found.tokens, found.hit


def complete(
    request: DeepSeekRequest, reply: Reply, rules: Rules, cache: PrefixCache, measured: tuple[int, int]
) -> Completion:
    """Return the completion that this reply is, and store its prefixes in the cache."""
    thinks = request.thinking and rules.vendor == "deepseek"
    reasoning = reply.reasoning if thinks else None
    calls = tuple(
        {
            "index": index,
            "id": call.id or f"call_{index:02d}_{uuid.uuid4().hex[:24]}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for index, call in enumerate(reply.tool_calls)
    )
    head = {
        "id": str(uuid.uuid4()),
        "created": int(time.time()),
        "model": request.model,
        "system_fingerprint": FINGERPRINT,
    }
    finish = reply.finish_reason or ("tool_calls" if calls else "stop")
    spoken = (reply.text or "") + "".join(call.name + call.arguments for call in reply.tool_calls)
    thought = rules.count_tokens(reasoning or "")
    usage = _usage(measured, rules.count_tokens(spoken) + thought, thought, rules) | dict(reply.usage or {})
    completion = Completion(head, reply.text, reasoning, calls, finish, usage)
    cache.store(request, completion.message)
    return completion


def _usage(measured: tuple[int, int], output: int, thought: int, rules: Rules) -> dict[str, Any]:
    tokens, hit = measured
    usage: dict[str, Any] = {
        "prompt_tokens": tokens,
        "completion_tokens": output,
        "total_tokens": tokens + output,
        "prompt_tokens_details": {"cached_tokens": hit},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }
    if rules.vendor == "deepseek":
        usage |= {"prompt_cache_hit_tokens": hit, "prompt_cache_miss_tokens": tokens - hit}
    return usage
