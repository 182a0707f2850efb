"""The state of an agent: deepagents' own fields, in channels that stay small (see `persistence/channels.py`)."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, Required, get_type_hints

from deepagents.graph import DeepAgentState
from deepagents.middleware.filesystem import FilesystemState
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import AnyMessage
from langgraph.channels.delta import DeltaChannel

from regnexe.persistence.channels import AgingChannel, LatestChannel, LogChannel, latest

__all__ = ["RegnexeState"]


def _reducer(schema: type, field: str) -> Any:
    """Return how deepagents adds to this field."""
    hint = get_type_hints(schema, include_extras=True)[field]
    return next(part.reducer for part in _metadata(hint) if isinstance(part, DeltaChannel))


def _metadata(hint: Any) -> list[Any]:
    inner = [part for argument in getattr(hint, "__args__", ()) for part in _metadata(argument)]
    return [*getattr(hint, "__metadata__", ()), *inner]


class RegnexeState(DeepAgentState):
    """deepagents' state; the annotations here win over those of its middleware."""

    messages: Required[Annotated[list[AnyMessage], LogChannel(_reducer(DeepAgentState, "messages"))]]
    files: Annotated[NotRequired[dict[str, Any]], AgingChannel(_reducer(FilesystemState, "files"))]
    # Holds a summary of the conversation. As a plain field it would be stored with every checkpoint again.
    _summarization_event: Annotated[NotRequired[Any], PrivateStateAttr, LatestChannel(latest)]
