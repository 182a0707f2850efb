"""What a tool gives back always fits into the log."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.types import Command

from regnexe.runtime.returned import note_result

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from langchain.agents.middleware.types import ToolCallRequest

    from regnexe.runtime.storable import Storable

__all__ = ["ToolGuard"]


class ToolGuard(AgentMiddleware[Any, Any, Any]):
    """The innermost wrapper of every tool call.

    The tool has run by then and can't be taken back, so nothing in the messages of its result may keep
    the turn from being stored: what cannot be stored is mended (see `Storable`), and a message id of the
    tool's own is replaced, since a repeated one would overwrite an old message. The result is kept at
    hand for the case that the run is cancelled before it is stored (see `results_kept`).
    """

    def __init__(self, storable: Storable) -> None:
        super().__init__()
        self._storable = storable

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """Run the tool, and mend its result."""
        result: ToolMessage | Command[Any] = self._mend(await handler(request), request.tool_call["name"])
        return result

    def _mend(self, result: Any, tool: str) -> Any:
        """Return a result with every message in it mended: a message, a command, or a list of them."""
        match result:
            case BaseMessage():
                return self._message(result, tool)
            case list() | tuple():
                return [self._mend(part, tool) for part in result]
            case Command(update={"messages": messages, **others}):
                return replace(result, update={**others, "messages": self._mend(messages, tool)})
            case _:
                return result

    def _message(self, message: BaseMessage, tool: str) -> BaseMessage:
        if not self._storable.ready(message):
            message = self._storable.mended(message, f"tool {tool!r}")
        if isinstance(message, ToolMessage):
            message = message.model_copy(update={"id": uuid.uuid4().hex})
            note_result(message)
        return message
