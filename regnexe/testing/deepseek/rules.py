"""What the server demands of a request, and how it cuts its answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Rules", "Vendor", "Wire", "estimate_tokens"]

Vendor: TypeAlias = Literal[
    "deepseek",
    "aliyun",
    "ark",
    "minimax",
    "moonshot",
    "ollama",
    "openai",
    "openai_limit",
    "openai_window",
    "qianfan",
    "zhipu",
]
Kind: TypeAlias = Literal["text", "reasoning", "arguments"]

_WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")


def estimate_tokens(text: str) -> int:
    """Return a token count of the server's own: one for each Chinese, Japanese or Korean character, one for 4 others.

    It is not DeepSeek's tokenizer; `Rules.count_tokens` takes one that is.
    """
    narrow = len(_WIDE.sub("", text))
    return len(text) - narrow + -(-narrow // 4)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the server demands of a request.

    Attributes:
        reasoning: which assistant messages must carry `reasoning_content` while thinking is enabled.
            `strict_tools`: in a request with tools, all since the first user message (DeepSeek API docs,
            thinking mode guide). `strict_calls`: those with tool calls (as of V4, April 2026). `lenient`:
            none, as observed at times (langchain#34166). An empty string counts as present, null does not.
        reasoning_text: whether that error is worded as since V4 or as for V3.2, which names the message (and went
            with `strict_calls`).
        null_content: whether a null `content` beside tool calls is accepted while thinking is enabled; the
            reference says it is, an integration page says it is not.
        models: the valid names, in the order of the error text that lists them.
        retired: names still routed to a model.
        text_only: the models that take no images.
        context_limit: the most tokens of input and `max_tokens` together.
        max_output: the largest `max_tokens`.
        body_limit: the largest body in bytes; above it comes the proxy's page with status 413.
        concurrency: the most requests at once before status 429, over all keys.
        count_tokens: the token counter.
        cache_unit: the cache stores and finds whole multiples of so many tokens. 64 is from the announcement
            of 2024; the current guide names no number.
        cache_interval: store a prefix every so many tokens too; the guide names no number for it.
        vendor: another OpenAI-compatible vendor, whose wording the error has when the context overflows. For
            those, only the key, the JSON and the context are checked, and the model does not think.
    """

    reasoning: Literal["strict_tools", "strict_calls", "lenient"] = "strict_tools"
    reasoning_text: Literal["v4", "v3.2"] = "v4"
    null_content: bool = True
    models: tuple[str, ...] = ("deepseek-flash", "deepseek-v4-pro")
    retired: tuple[str, ...] = ("deepseek-v4-flash", "deepseek-v4-flash-vision-exp")
    text_only: frozenset[str] = frozenset({"deepseek-v4-pro"})
    context_limit: int = 1_048_565
    max_output: int = 393_216
    body_limit: int | None = None
    concurrency: int | None = None
    count_tokens: Callable[[str], int] = estimate_tokens
    cache_unit: int = 64
    cache_interval: int | None = None
    vendor: Vendor = "deepseek"


@dataclass(frozen=True, kw_only=True)
class Wire:
    """How the answers are put on the wire.

    Attributes:
        usage: where a stream has its usage: on the chunk with the finish reason, in a trailing chunk
            without choices, or on both; all three occur.
        usage_unasked: whether a stream has it without `stream_options.include_usage` too.
        keep_alives: how many keep-alives come first: comments in a stream, else blank lines (DeepSeek API
            docs, rate limit).
        cut: how text, reasoning and arguments are cut into deltas: so many characters each, or a function of
            the kind and the text. Without it: a word each, and 8 characters of arguments.
        cut_body: how the bytes of a body are cut into HTTP chunks, in the same two ways. Without it: an event
            each.
        empty_deltas: whether an empty delta follows each delta.
        interleave: whether the fragments of parallel tool calls alternate instead of following call by call.
        keep_open: whether a connection serves more than one request. By default none does, so that a client
            whose answer is whole has nothing left to close, and a test run ends without open sockets.
        seed: cut everything at random places, bodies inside lines and characters too, put empty deltas and
            comments in, and mix the fragments of parallel calls; the same for the same seed and the same
            number of the request. It takes the place of the attributes for these.
    """

    usage: Literal["finish", "trailing", "both"] = "finish"
    usage_unasked: bool = False
    keep_alives: int = 0
    cut: Callable[[Kind, str], Iterable[str]] | int | None = None
    cut_body: Callable[[bytes], Iterable[bytes]] | int | None = None
    empty_deltas: bool = False
    interleave: bool = False
    keep_open: bool = False
    seed: int | None = None
