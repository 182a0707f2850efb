"""Every request to a model is a view that its provider takes, and every answer one that the log takes."""

from __future__ import annotations

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

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from langchain.agents.middleware.types import ModelRequest
    from langchain_core.messages import AnyMessage, BaseMessage

    from regnexe.runtime.storable import Storable

__all__ = ["ViewGuard"]


class ViewGuard(AgentMiddleware[Any, Any, Any]):
    """The innermost wrapper of every model call, behind whatever made the view.

    A tool call that cannot be run gets an error result here, next to it, and the model is asked once more
    when it called nothing else.
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
        known = {message.id for message in request.state.get("messages", ())}

        async def ask(messages: list[BaseMessage]) -> ModelResponse[Any]:
            response = await handler(request.override(messages=cast("list[AnyMessage]", messages)))
            response = _without_refused_answers(
                replace(response, result=[self._kept(message, known) for message in response.result])
            )
            known.update(message.id for message in response.result)
            return response

        response = await ask(view)
        refusals = answers_for_invalid_calls(response.result)
        answered = [*response.result, *refusals]
        if not refusals or any(isinstance(message, AIMessage) and message.tool_calls for message in answered):
            return replace(response, result=answered)
        # Nothing to run, and no answer: the model gets one more chance before the run ends without one.
        again = await ask(repair_view([*view, *answered]))
        return replace(again, result=[*answered, *again.result, *answers_for_invalid_calls(again.result)])

    def _kept(self, message: BaseMessage, known: set[str | None]) -> BaseMessage:
        """Return the message as the log takes it, with an id that overwrites nothing there."""
        message = with_calls_in_order(message)
        if message.id is not None and message.id in known:
            message = message.model_copy(update={"id": uuid.uuid4().hex})
        if self._storable.ready(message):
            return message
        message = with_unstorable_calls_marked(message, self._storable.takes_arguments)
        return self._storable.mended(message, "the model's answer")


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
