"""Every request to a model is a view that its provider takes, and every answer one that the log takes."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from langchain.agents.middleware.types import AgentMiddleware, ModelResponse
from langchain_core.messages import AIMessage

from regnexe.compaction.view import clip_view, repair_view
from regnexe.messages import clean_content
from regnexe.runtime.invalid_calls import answers_for_invalid_calls, with_cut_off_calls_marked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from langchain.agents.middleware.types import ModelRequest
    from langchain_core.messages import AnyMessage, BaseMessage

__all__ = ["ViewGuard"]

_CHARACTERS_PER_TOKEN = 4


class ViewGuard(AgentMiddleware[Any, Any, Any]):
    """The innermost wrapper of every model call, behind whatever made the view.

    A tool call that cannot be run gets an error result here, next to it, and the model is asked once more
    when it called nothing else.
    """

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Call the model with a valid view, and make its answer fit to be stored."""
        profile = request.model.profile or {}
        window = profile.get("max_input_tokens")
        view = clip_view(
            repair_view(request.messages), window_characters=window * _CHARACTERS_PER_TOKEN if window else None
        )
        known = {message.id for message in request.state.get("messages", ())}

        async def ask(messages: list[BaseMessage]) -> ModelResponse[Any]:
            response = await handler(request.override(messages=cast("list[AnyMessage]", messages)))
            result = [_storable(message, known) for message in response.result]
            known.update(message.id for message in result)
            return replace(response, result=result)

        response = await ask(view)
        refusals = answers_for_invalid_calls(response.result)
        answered = [*response.result, *refusals]
        if not refusals or any(isinstance(message, AIMessage) and message.tool_calls for message in answered):
            return replace(response, result=answered)
        # Nothing to run, and no answer: the model gets one more chance before the run ends without one.
        again = await ask(repair_view([*view, *answered]))
        return replace(again, result=[*answered, *again.result, *answers_for_invalid_calls(again.result)])


def _storable(message: BaseMessage, known: set[str | None]) -> BaseMessage:
    """Return the message with text that can be stored, and an id that overwrites nothing in the log."""
    message = with_cut_off_calls_marked(message)
    update: dict[str, Any] = {}
    if message.id is not None and message.id in known:
        update["id"] = uuid.uuid4().hex
    for field in ("content", "additional_kwargs") + (("tool_calls",) if isinstance(message, AIMessage) else ()):
        value = getattr(message, field)
        cleaned = clean_content(value)
        if cleaned != value:
            update[field] = cleaned
    return message.model_copy(update=update) if update else message
