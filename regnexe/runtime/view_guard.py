"""Every request to a model is a view that its provider takes, and every answer one that the log takes."""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from langchain.agents.middleware.types import AgentMiddleware, ModelResponse
from langchain_core.messages import AIMessage, ToolMessage

from regnexe.compaction.view import clip_view, repair_view
from regnexe.runtime.invalid_calls import (
    answers_for_invalid_calls,
    with_calls_in_order,
    with_unstorable_calls_marked,
)
from regnexe.runtime.raw_calls import no_guessed_calls
from regnexe.runtime.structured import lacks_form, missing_form, reminder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from langchain.agents.middleware.types import ModelRequest
    from langchain_core.messages import AnyMessage, BaseMessage

    from regnexe.runtime.storable import Storable

__all__ = ["ViewGuard"]


class ViewGuard(AgentMiddleware[Any, Any, Any]):
    """The innermost wrapper of every model call, behind whatever made the view.

    A tool call that cannot be run gets an error result here, next to it, and the model is asked once more
    when it called nothing else. So it is when it answers in plain text, and a form was asked for: at most
    once for each of the two, whichever comes first.
    """

    def __init__(self, storable: Storable) -> None:
        super().__init__()
        self._storable = storable

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Call the model with a valid view, and make its answer fit to be stored."""
        profile = request.model.profile or {}
        view = clip_view(repair_view(request.messages), window_tokens=profile.get("max_input_tokens"))
        used = _UsedIds(request.state.get("messages", ()))

        async def ask(messages: list[BaseMessage]) -> ModelResponse[Any]:
            with no_guessed_calls():
                response = await handler(request.override(messages=cast("list[AnyMessage]", messages)))
            response = _without_refused_answers(
                replace(response, result=[self._kept(message, used) for message in response.result])
            )
            used.add(response.result)
            return response

        sent: list[BaseMessage] = list(view)
        result: list[BaseMessage] = []
        told_of_calls = told_of_form = False
        while True:
            response = await ask(sent)
            refusals = answers_for_invalid_calls(response.result)
            response = replace(response, result=[*response.result, *refusals])
            result += response.result
            said: list[BaseMessage] = []
            if refusals and not _calls(response) and not told_of_calls:
                # Nothing to run, and no answer: the model gets one more chance before the run ends without one.
                told_of_calls = True
            elif lacks_form(response, request.response_format):
                if told_of_form:
                    raise missing_form(response, request.response_format)
                told_of_form = True
                said = [reminder(request.response_format)]
            else:
                return replace(response, result=result)
            sent = repair_view([*sent, *response.result, *said])

    def _kept(self, message: BaseMessage, used: _UsedIds) -> BaseMessage:
        """Return the message as the log takes it, with an id that overwrites nothing there."""
        message = with_calls_in_order(message)
        if message.id is not None and message.id in used:
            message = message.model_copy(update={"id": uuid.uuid4().hex})
        if self._storable.ready(message):
            return message
        message = with_unstorable_calls_marked(message, self._storable.takes_arguments)
        return self._storable.mended(message, "the model's answer")


class _UsedIds:
    """The ids in a log, looked through only for one that may be there: that costs time where the log is long."""

    def __init__(self, log: Sequence[BaseMessage]) -> None:
        self._log = log
        self._added: set[str | None] = set()
        self._begun = time.time_ns() // 1_000_000

    def __contains__(self, message_id: str) -> bool:
        if message_id in self._added:
            return True
        # LangChain's own ids begin with the time of the model call; a cached answer has an earlier one.
        if (made := _LANGCHAIN_ID.match(message_id)) and int(made[1] + made[2], 16) >= self._begun:
            return False
        return any(message.id == message_id for message in self._log)

    def add(self, messages: Sequence[BaseMessage]) -> None:
        """Count these messages in."""
        self._added.update(message.id for message in messages)


# `lc_run--` and a UUID of version 7, which begins with milliseconds since 1970 (RFC 9562).
_LANGCHAIN_ID = re.compile("lc_run--([0-9a-f]{8})-([0-9a-f]{4})-7")


def _calls(response: ModelResponse[Any]) -> bool:
    return any(isinstance(message, AIMessage) and message.tool_calls for message in response.result)


def _without_refused_answers(response: ModelResponse[Any]) -> ModelResponse[Any]:
    """Return the response without the results, and the structured answer, of calls that turned out to be invalid."""
    invalid = {
        call["id"]
        for message in response.result
        if isinstance(message, AIMessage)
        for call in message.invalid_tool_calls
    }
    result = [m for m in response.result if not (isinstance(m, ToolMessage) and m.tool_call_id in invalid)]
    return (
        response if len(result) == len(response.result) else replace(response, result=result, structured_response=None)
    )
