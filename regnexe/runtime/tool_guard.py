"""What a tool gives back always fits into the log."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import BaseMessage, RemoveMessage, ToolMessage
from langchain_core.tools import ToolException
from langgraph.types import Command

from regnexe.messages import text_of
from regnexe.runtime.returned import note_result

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from langchain.agents.middleware.types import ToolCallRequest

    from regnexe.runtime.storable import Storable

__all__ = ["ToolGuard"]

logger = logging.getLogger("regnexe")


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
        call = request.tool_call
        result = await _run(request, handler)
        if isinstance(result, ToolMessage) and result.tool_call_id != call["id"]:
            # A tool that makes its own message may not know its call; no other call can be meant.
            result = result.model_copy(update={"tool_call_id": call["id"], "name": call["name"]})
        if call["name"] == _SUBAGENT_TOOL:
            result = _with_an_answer(result)
        known = {message.id for message in request.state["messages"]} if isinstance(result, Command) else set()
        mended: ToolMessage | Command[Any] = self._mend(result, call["name"], known)
        return mended

    def _mend(self, result: Any, tool: str, known: set[str | None]) -> Any:
        """Return a result with every message in it mended: a message, a command, or a list of them.

        Messages that would overwrite one of the log get an id of their own, and none can remove one.
        """
        match result:
            case BaseMessage():
                return self._message(result, tool, known)
            case list() | tuple():
                kept = [part for part in result if not isinstance(part, RemoveMessage)]
                if len(kept) < len(result):
                    logger.warning("tool %r wanted to remove messages from the log, which keeps them", tool)
                return [self._mend(part, tool, known) for part in kept]
            case Command(update={"messages": messages, **others}):
                return replace(result, update={**others, "messages": self._mend(messages, tool, known)})
            case _:
                return result

    def _message(self, message: BaseMessage, tool: str, known: set[str | None]) -> BaseMessage:
        if message.id is not None and message.id in known:
            message = message.model_copy(update={"id": uuid.uuid4().hex})
        if not self._storable.ready(message):
            message = self._storable.mended(message, f"tool {tool!r}")
        if isinstance(message, ToolMessage):
            message = message.model_copy(update={"id": uuid.uuid4().hex})
            note_result(message)
        return message


def _with_an_answer(result: Any) -> Any:
    """Return what a sub-agent gave, with an error in place of nothing: it was cut off, or called tools in vain."""
    match result:
        case ToolMessage(status="success") if not text_of(result).strip():
            return result.model_copy(update={"content": _NO_ANSWER, "status": "error"})
        case Command(update={"messages": [*messages], **others}):
            return replace(result, update={**others, "messages": [_with_an_answer(part) for part in messages]})
        case _:
            return result


_SUBAGENT_TOOL = "task"
_NO_ANSWER = (
    "The sub-agent ended without an answer: what its model wrote was cut off, or blank, or called tools with arguments "
    "that are no JSON, and did so again when told. Give it a smaller task, or go on without it."
)


async def _run(
    request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
) -> ToolMessage | Command[Any]:
    try:
        return await handler(request)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Nobody cancels the run: something that the tool waited for was cancelled, which is the tool's failure.
        raise ToolException("the tool was stopped from inside: what it waited for was cancelled") from error
