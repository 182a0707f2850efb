"""A stand-in for a language model that needs no key and no network: the vendor `offline`, model `demo`."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from langchain_core.messages.tool import tool_call

from regnexe.models.chunks import estimated_usage
from regnexe.models.offline_answers import answer, digest, newest_request, results_since, transcript_in
from regnexe.models.offline_matching import PlannedCall, Tool, call_anyway, plan_calls
from regnexe.models.whole_replies import WholeReplyModel

__all__ = ["OfflineChatModel"]

_FORCED = {"any", "required", True}


class OfflineChatModel(WholeReplyModel):
    """A deterministic stand-in for a language model, for examples and tests.

    It calls the tool whose name and description share words with the newest request, in English or
    Chinese, fills the arguments from the text, answers from the results, and answers follow-up
    questions from what the conversation that it is sent holds. Asked to summarise a transcript, it
    returns a digest. Every answer says what it is. Only the ids of its tool calls differ between two
    calls with the same input.

    Attributes:
        model_name: the name it reports; any name behaves the same.
    """

    model_name: str = "demo"

    @property
    def _llm_type(self) -> str:
        return "regnexe-offline"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return LangSmithParams(ls_provider="offline", ls_model_name=self.model_name, ls_model_type="chat")

    def _reply(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> AIMessage:
        bound = kwargs.get("tools") or []
        calls, text = _calls_or_text(messages, [Tool.of(tool) for tool in bound], kwargs.get("tool_choice"))
        for mark in stop or ():
            text = text.partition(mark)[0] if mark else text
        reply = AIMessage(
            text,
            tool_calls=[tool_call(name=call.name, args=call.args, id=f"call_{uuid.uuid4().hex}") for call in calls],
            response_metadata={"model_name": self.model_name, "finish_reason": "tool_calls" if calls else "stop"},
        )
        reply.usage_metadata = estimated_usage(messages, bound, reply)
        return reply


def _calls_or_text(
    messages: Sequence[BaseMessage], tools: Sequence[Tool], choice: Any
) -> tuple[list[PlannedCall], str]:
    transcript = transcript_in(messages)
    if transcript is not None:
        return [], digest(transcript)
    calls = _calls(messages, tools, choice)
    return calls, "" if calls else answer(messages)


def _calls(messages: Sequence[BaseMessage], tools: Sequence[Tool], choice: Any) -> list[PlannedCall]:
    """Return the tools to call now: what the request asks for, once, and at the end what must be called."""
    if not tools or choice == "none":
        return []
    index = newest_request(messages)
    request = messages[index].text if index >= 0 else ""
    made = _tool_calls(messages[index + 1 :])
    last = _must_call(tools, choice)
    if not made and (last is None or last is tools[-1]):
        before = [call["name"] for call in _tool_calls(messages)]
        planned = plan_calls(request, [tool for tool in tools if tool is not last], before)
        if planned:
            return planned
    if last is None or last.name in {call["name"] for call in made}:
        return []
    facts = "\n".join(result.text for _, result in results_since(messages, index))
    return [call_anyway(last, request, facts)]


def _tool_calls(messages: Sequence[BaseMessage]) -> list[ToolCall]:
    return [call for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]


def _must_call(tools: Sequence[Tool], choice: Any) -> Tool | None:
    """Return the tool that the choice names; of "any", the last, where LangChain puts the answer's schema."""
    if isinstance(choice, dict):
        choice = (choice.get("function") or {}).get("name", choice.get("name"))
    if choice in _FORCED:
        return tools[-1]
    return next((tool for tool in tools if tool.name == choice), None)
