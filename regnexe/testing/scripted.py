"""A chat model that says what a test scripts, and refuses what a provider would refuse."""

from __future__ import annotations

import inspect
import threading
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ToolCall,
    message_chunk_to_message,
)
from langchain_core.messages.tool import tool_call as langchain_tool_call
from pydantic import PrivateAttr

from regnexe.messages import history_faults, is_tool_name
from regnexe.models.chunks import estimated_usage
from regnexe.models.whole_replies import WholeReplyModel

__all__ = ["InvalidHistory", "ScriptExhausted", "ScriptedChatModel", "ScriptedRequest", "tool_call"]

Reply: TypeAlias = str | AIMessage | BaseException
Script: TypeAlias = Sequence[Reply] | Callable[[list[BaseMessage]], Reply | Awaitable[Reply]]


class InvalidHistory(ValueError):
    """The request is one that a provider answers with status 400.

    Attributes:
        faults: what is wrong, one sentence each.
    """

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("Error code: 400 - invalid request: " + "; ".join(faults))
        self.faults = tuple(faults)


class ScriptExhausted(AssertionError):
    """The model was called more often than its script has replies."""


@dataclass(frozen=True)
class ScriptedRequest:
    """One request as the model received it.

    Attributes:
        messages: the messages, copied (not deeply), the system message included.
        tools: the bound tools in OpenAI's format.
        kwargs: everything else that was bound or passed, such as `tool_choice` and `stop`.
    """

    messages: tuple[BaseMessage, ...]
    tools: tuple[dict[str, Any], ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the bound tools, in order."""
        return tuple(tool.get("function", {}).get("name", "") for tool in self.tools)


class _Recording:
    """The script, how far it is, and the requests so far; copies of the model share one."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[ScriptedRequest] = []
        self._used = 0
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> _Recording:
        return self

    def add(self, request: ScriptedRequest) -> None:
        with self._lock:
            self.requests.append(request)

    def next_reply(self, messages: list[BaseMessage]) -> Reply | Awaitable[Reply]:
        if callable(self.script):
            return self.script(messages)
        with self._lock:
            if self._used == len(self.script):
                newest = messages[-1] if messages else None
                said = f"; its newest message: {newest.type} {newest.text[:200]!r}" if newest else ""
                raise ScriptExhausted(f"the script has {self._used} replies, and one more was asked for{said}")
            self._used += 1
            return self.script[self._used - 1]


class ScriptedChatModel(WholeReplyModel):
    """A chat model that gives the scripted replies in order, and records every request.

    A reply is a text, an `AIMessage`, or an exception, which is raised. Instead of a sequence of them,
    `replies` may be a function of the messages that returns one; it may be asynchronous where the model
    is only called asynchronously. Replies are copied, so one object can be given twice; a message id is
    set only where the script sets one. A reply without usage figures gets estimated ones.

    Attributes:
        strict: raise `InvalidHistory`, without using up a reply, for a request that a provider would
            refuse.
        stream_words: when streaming, give text word by word instead of at once.
        model_name: what the replies' `response_metadata` says.

    Raises:
        InvalidHistory: see `strict`.
        ScriptExhausted: there is no reply left.
    """

    strict: bool = True
    stream_words: bool = False
    model_name: str = "scripted"
    _recording: _Recording = PrivateAttr()

    def __init__(
        self,
        replies: Script,
        *,
        strict: bool = True,
        stream_words: bool = False,
        **kwargs: Any,
    ) -> None:
        if isinstance(replies, str) or not (callable(replies) or isinstance(replies, Sequence)):
            raise TypeError(f"replies must be a sequence of replies or a function, got {replies!r}")
        super().__init__(**{**kwargs, "strict": strict, "stream_words": stream_words})
        self._recording = _Recording(replies if callable(replies) else tuple(replies))

    @property
    def requests(self) -> list[ScriptedRequest]:
        """Every request so far, the refused ones too, oldest first."""
        return self._recording.requests

    @property
    def _llm_type(self) -> str:
        return "regnexe-scripted"

    def _by_word(self) -> bool:
        return self.stream_words

    def _reply(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> AIMessage:
        request = self._record(messages, stop, kwargs)
        reply = self._recording.next_reply(list(messages))
        if inspect.isawaitable(reply):
            if inspect.iscoroutine(reply):
                reply.close()
            raise TypeError("the script is an async function; call the model asynchronously (ainvoke, astream)")
        return self._message(reply, request)

    async def _areply(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> AIMessage:
        request = self._record(messages, stop, kwargs)
        reply = self._recording.next_reply(list(messages))
        return self._message(await reply if inspect.isawaitable(reply) else reply, request)

    def _record(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> ScriptedRequest:
        rest = {key: value for key, value in kwargs.items() if key != "tools"} | ({"stop": stop} if stop else {})
        copies = tuple(message.model_copy() for message in messages)
        request = ScriptedRequest(copies, tuple(kwargs.get("tools") or ()), rest)
        self._recording.add(request)
        if self.strict and (faults := _faults(request)):
            raise InvalidHistory(faults)
        return request

    def _message(self, reply: Reply, request: ScriptedRequest) -> AIMessage:
        if isinstance(reply, BaseException):
            raise reply
        if not isinstance(reply, str | AIMessage):
            raise TypeError(f"a scripted reply must be a str, an AIMessage or an exception, got {reply!r}")
        message = AIMessage(reply) if isinstance(reply, str) else _copied(reply)
        message.response_metadata = {"model_name": self.model_name} | message.response_metadata
        if message.usage_metadata is None:
            message.usage_metadata = estimated_usage(request.messages, request.tools, message)
        return message


def tool_call(name: str, /, **args: Any) -> ToolCall:
    """Return a tool call with a fresh id, for `AIMessage("", tool_calls=[tool_call("get_weather", city="Oslo")])`."""
    return langchain_tool_call(name=name, args=args, id=f"call_{uuid.uuid4().hex}")


def _copied(message: AIMessage) -> AIMessage:
    copy = message.model_copy(deep=True)
    whole = message_chunk_to_message(copy) if isinstance(copy, AIMessageChunk) else copy
    return whole if isinstance(whole, AIMessage) else copy


def _faults(request: ScriptedRequest) -> list[str]:
    faults = [] if request.messages else ["messages is empty"]
    for name in request.tool_names:
        if not is_tool_name(name):
            faults.append(f"the tool name {name!r} does not match ^[a-zA-Z0-9_-]{{1,64}}$")
    return faults + history_faults(request.messages)
