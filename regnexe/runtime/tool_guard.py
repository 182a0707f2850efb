"""What a tool gives back always fits into the log."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import BaseMessage, ToolMessage

from regnexe.messages import clean_content
from regnexe.runtime.returned import note_result

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from langchain.agents.middleware.types import ToolCallRequest
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.types import Command

__all__ = ["ToolGuard"]

logger = logging.getLogger("regnexe")


class ToolGuard(AgentMiddleware[Any, Any, Any]):
    """The innermost wrapper of every tool call.

    The tool has run by then and can't be taken back, so nothing in its result may keep the turn from
    being stored: text is cleaned of lone surrogates, an artifact that the checkpointer's serializer
    refuses is dropped with a warning that names tool and key, and a message id of the tool's own is
    replaced, since a repeated one would overwrite an old message. The result is kept at hand for the
    case that the run is cancelled before it is stored (see `results_kept`).
    """

    def __init__(self, serde: SerializerProtocol) -> None:
        super().__init__()
        self._serde = serde

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """Run the tool, and mend its result."""
        result = await handler(request)
        tool = request.tool_call["name"]
        if isinstance(result, BaseMessage):
            return self._mend(result, tool)
        update = getattr(result, "update", None)
        if isinstance(update, dict) and isinstance(update.get("messages"), list):
            messages = [self._mend(m, tool) if isinstance(m, ToolMessage) else m for m in update["messages"]]
            return replace(result, update={**update, "messages": messages})
        return result

    def _mend(self, message: ToolMessage, tool: str) -> ToolMessage:
        mended = message.model_copy(
            update={
                "id": uuid.uuid4().hex,
                "content": clean_content(self._storable(message.content, tool, "content")),
                "artifact": self._storable(message.artifact, tool, "artifact"),
                "additional_kwargs": self._storable(message.additional_kwargs, tool, "additional_kwargs"),
                "response_metadata": self._storable(message.response_metadata, tool, "response_metadata"),
            }
        )
        note_result(mended)
        return mended

    def _storable(self, value: Any, tool: str, where: str) -> Any:
        """Return the value without the parts that cannot be stored."""
        if isinstance(value, str) or not value or self._fits(value):
            return value
        if isinstance(value, Mapping):
            kept = {
                key: self._storable(part, tool, f"{where}[{key!r}]") for key, part in value.items() if self._fits(key)
            }
            return {key: part for key, part in kept.items() if part is not None or value[key] is None}
        if isinstance(value, list):
            kept_parts = [self._storable(part, tool, f"{where}[{index}]") for index, part in enumerate(value)]
            return [part for part in kept_parts if part is not None]
        logger.warning(
            "tool %r: %s was dropped, since a %s cannot be stored in a checkpoint; the text of the result is kept",
            tool,
            where,
            type(value).__name__,
        )
        return None

    def _fits(self, value: Any) -> bool:
        try:
            self._serde.dumps_typed(value)
        except Exception:  # whatever it is, the same call would fail when the turn is stored
            return False
        return True
