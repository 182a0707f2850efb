"""deepagents' notice in place of media that a model does not take, but never for the message just sent.

The third file that imports deepagents: its middleware replaces an image by a notice even in the newest message,
and the model then answers a question about a picture that it never saw. Here that message is refused, and only
older ones get the notice, so that later turns of the session work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepagents.middleware.unsupported_content import UnsupportedContentMiddleware
from langchain_core.messages import HumanMessage

from regnexe.errors import ModelCallRefused

if TYPE_CHECKING:
    from langchain.agents.middleware.types import ModelRequest

__all__ = ["MediaGuard"]


class MediaGuard(UnsupportedContentMiddleware[Any, Any]):
    """Refuses media in the newest human message that the model does not take; in older ones they become a notice."""

    @property
    def name(self) -> str:
        """Deepagents' name for it: it takes that place in the stack."""
        return UnsupportedContentMiddleware.__name__

    def _filter_request(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        newest = next((m for m in reversed(request.messages) if isinstance(m, HumanMessage)), None)
        for block in newest.content_blocks if newest is not None and isinstance(newest.content, list) else ():
            if not self._is_supported(block, model=request.model, in_tool_message=False):
                name = str(getattr(request.model, "model_name", type(request.model).__name__))
                raise ModelCallRefused(
                    f"the message was not sent to the model: {name!r} takes no content of the type {block['type']!r}; "
                    "use a model that does, or send the message without it",
                    model=name,
                    kind=block["type"],
                )
        return super()._filter_request(request)
