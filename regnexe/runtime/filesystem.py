"""deepagents' file tools, without their edits of the log.

The second file that imports deepagents: its filesystem middleware replaces large messages in the
log by a preview, and a file that a model refused by a notice. Here the log is never rewritten, so this
subclass takes its place, in the agent and in every sub-agent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from deepagents.middleware.filesystem import FilesystemMiddleware as DeepagentsFilesystem
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.messages import AIMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from deepagents.backends import StateBackend
    from langchain.agents.middleware.types import ModelRequest, ModelResponse
    from langchain_core.messages import AnyMessage
    from langchain_core.tools import BaseTool

__all__ = ["LogKeepingFilesystem"]


class LogKeepingFilesystem(DeepagentsFilesystem[Any, Any]):
    """The file tools, with the log left as it is."""

    def __init__(self, *, backend: StateBackend) -> None:
        super().__init__(
            backend=backend, tool_token_limit_before_evict=None, human_message_token_limit_before_evict=None
        )
        # What deepagents does before each model call where nothing can be executed, done once: each time it
        # makes a new tool, whose schema is then built anew (a fifth of a turn's own cost).
        tools = self._with_filtered_grep_description(list(self.tools), include_execution=False)
        self.tools = cast("list[BaseTool]", tools)

    @property
    def name(self) -> str:
        """Deepagents' name for it: it takes that place in the stack."""
        return DeepagentsFilesystem.__name__

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | ExtendedModelResponse:
        """Call the model, and keep back any edit of messages that are already in the log."""
        # It looks through every message for what the last tools have read. In front of the last answer there is
        # nothing new, and results stand behind their calls in the view that the model gets.
        older, recent = _at_last_answer(request.messages)

        async def with_older(inner: ModelRequest[Any]) -> ModelResponse[Any]:
            return await handler(inner.override(messages=[*older, *inner.messages]))

        response = await super().awrap_model_call(request.override(messages=recent), with_older)
        if not isinstance(response, ExtendedModelResponse) or response.command is None:
            return response
        command = response.command
        if not isinstance(command.update, dict) or "messages" not in command.update:
            return response
        update = {key: value for key, value in command.update.items() if key != "messages"}
        return replace(response, command=replace(command, update=update))


def _at_last_answer(messages: list[AnyMessage]) -> tuple[list[AnyMessage], list[AnyMessage]]:
    """Return the messages in front of the last one from the model, and the rest."""
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], AIMessage):
            return messages[:index], messages[index:]
    return [], messages
