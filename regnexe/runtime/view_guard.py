"""Every request to a model is a view that its provider takes, and every answer one that the log takes."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from langchain.agents.middleware.types import AgentMiddleware, ModelResponse
from langchain_core.messages import AIMessage

from regnexe.compaction.view import clip_view, repair_view
from regnexe.messages import clean_content

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from langchain.agents.middleware.types import ModelRequest
    from langchain_core.messages import AnyMessage, BaseMessage

__all__ = ["ViewGuard"]

_CHARACTERS_PER_TOKEN = 4


class ViewGuard(AgentMiddleware[Any, Any, Any]):
    """The innermost wrapper of every model call, behind whatever made the view."""

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
        response = await handler(request.override(messages=cast("list[AnyMessage]", view)))
        known = {message.id for message in request.state.get("messages", ())}
        return replace(response, result=[_storable(message, known) for message in response.result])


def _storable(message: BaseMessage, known: set[str | None]) -> BaseMessage:
    """Return the message with text that can be stored, and an id that overwrites nothing in the log."""
    update: dict[str, Any] = {}
    if message.id is not None and message.id in known:
        update["id"] = uuid.uuid4().hex
    for field in ("content", "additional_kwargs") + (("tool_calls",) if isinstance(message, AIMessage) else ()):
        value = getattr(message, field)
        cleaned = clean_content(value)
        if cleaned != value:
            update[field] = cleaned
    return message.model_copy(update=update) if update else message
