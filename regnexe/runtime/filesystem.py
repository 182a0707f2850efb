"""deepagents' file tools, without their edits of the log.

The second file that imports deepagents: its filesystem middleware replaces large messages in the
log by a preview, and a file that a model refused by a notice. Here the log is never rewritten, so this
subclass takes its place, in the agent and in every sub-agent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deepagents.middleware.filesystem import FilesystemMiddleware as DeepagentsFilesystem
from langchain.agents.middleware.types import ExtendedModelResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from deepagents.backends.protocol import BackendProtocol
    from langchain.agents.middleware.types import ModelRequest, ModelResponse

__all__ = ["LogKeepingFilesystem"]


class LogKeepingFilesystem(DeepagentsFilesystem[Any, Any]):
    """The file tools, with the log left as it is."""

    def __init__(self, *, backend: BackendProtocol) -> None:
        super().__init__(
            backend=backend, tool_token_limit_before_evict=None, human_message_token_limit_before_evict=None
        )

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
        response = await super().awrap_model_call(request, handler)
        if not isinstance(response, ExtendedModelResponse) or response.command is None:
            return response
        command = response.command
        if not isinstance(command.update, dict) or "messages" not in command.update:
            return response
        update = {key: value for key, value in command.update.items() if key != "messages"}
        return replace(response, command=replace(command, update=update))
