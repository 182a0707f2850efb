"""What the server is told to answer, and what it was asked."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from regnexe.testing.scripted import ScriptExhausted

__all__ = ["DeepSeekRequest", "Reply", "Script", "ScriptedReplies", "WireCall", "wire_call"]

DEFAULT_TEXT = "ok"


@dataclass(frozen=True)
class WireCall:
    """One tool call of a reply.

    Attributes:
        name: the function.
        arguments: the JSON text as the model would write it; it may be invalid.
        id: the call id; without one the server makes one of DeepSeek's form, `call_00_` and 24 characters,
            where the number counts up within the reply.
    """

    name: str
    arguments: str = "{}"
    id: str | None = None


def wire_call(name: str, /, **arguments: Any) -> WireCall:
    """Return a tool call with these arguments, for `Reply(tool_calls=[wire_call("get_weather", city="Oslo")])`."""
    return WireCall(name, json.dumps(arguments, ensure_ascii=False))


@dataclass(frozen=True)
class Reply:
    """What the model says.

    Attributes:
        text: the answer; `None` gives a null `content` where the answer comes in one piece.
        reasoning: what the model thought; sent only where the request has thinking enabled.
        tool_calls: the calls, in the order of their indexes.
        finish_reason: instead of `tool_calls` where there are calls and `stop` where there are none.
        usage: figures to put in place of the computed ones, key by key.
    """

    text: str | None = ""
    reasoning: str = ""
    tool_calls: Sequence[WireCall] = ()
    finish_reason: str | None = None
    usage: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class DeepSeekRequest:
    """One chat request as it came in.

    Attributes:
        path: the path, such as `/v1/chat/completions`.
        headers: the headers, names in lower case.
        body: the parsed JSON body; empty where the body is no JSON object.
        raw: the bytes of the body.
        number: 0 for the first request of the server, and so on.
    """

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any] = field(default_factory=dict)
    raw: bytes = b""
    number: int = 0

    @property
    def model(self) -> Any:
        """The model asked for."""
        return self.body.get("model")

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages; empty where there are none."""
        return self.body.get("messages") or []

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools; empty where there are none."""
        return self.body.get("tools") or []

    @property
    def stream(self) -> bool:
        """Whether the answer is to come as a stream."""
        return self.body.get("stream") is True

    @property
    def include_usage(self) -> bool:
        """Whether a stream is to say what it used."""
        options = self.body.get("stream_options")
        return isinstance(options, Mapping) and options.get("include_usage") is True

    @property
    def thinking(self) -> bool:
        """Whether the model thinks; it does unless told not to (DeepSeek API docs, thinking mode guide)."""
        thinking = self.body.get("thinking")
        return not (isinstance(thinking, Mapping) and thinking.get("type") == "disabled")

    @property
    def api_key(self) -> str:
        """The key of the Authorization header; empty where the header has another form."""
        scheme, _, key = self.headers.get("authorization", "").partition(" ")
        return key.strip() if scheme.lower() == "bearer" else ""

    @property
    def user_id(self) -> str:
        """The `user_id` of the body; empty where there is none."""
        return str(self.body.get("user_id") or "")


Answerable: TypeAlias = Reply | str
Script: TypeAlias = Sequence[Answerable] | Callable[[DeepSeekRequest], Answerable | Awaitable[Answerable]]


class ScriptedReplies:
    """The replies of a script, one after the other."""

    def __init__(self, script: Script | None) -> None:
        if isinstance(script, str) or not (script is None or callable(script) or isinstance(script, Sequence)):
            raise TypeError(f"replies must be a sequence of replies or a function, got {script!r}")
        self._script = script
        self._used = 0

    async def next(self, request: DeepSeekRequest) -> Reply:
        """Return the reply to this request.

        Raises:
            ScriptExhausted: the script has no reply left.
            TypeError: the script gave something that is no reply.
        """
        given = self._given(request)
        reply = given if isinstance(given, str | Reply) else await given if isinstance(given, Awaitable) else given
        if isinstance(reply, str):
            return Reply(reply)
        if not isinstance(reply, Reply):
            raise TypeError(f"a scripted reply must be a str or a Reply, got {reply!r}")
        return reply

    def _given(self, request: DeepSeekRequest) -> Answerable | Awaitable[Answerable]:
        if self._script is None:
            return DEFAULT_TEXT
        if callable(self._script):
            return self._script(request)
        if self._used == len(self._script):
            raise ScriptExhausted(f"the script has {self._used} replies, and one more was asked for")
        self._used += 1
        return self._script[self._used - 1]
