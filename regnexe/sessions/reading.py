"""Reads a session's state from the checkpointer, and says what it tells of the session."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage

from regnexe.persistence.index.base import RUNNING, SessionInfo, humans_in, title_of
from regnexe.results import RunStatus
from regnexe.runtime.fold import turn_of
from regnexe.runtime.outcome import failure_of
from regnexe.sessions.stored import moment_of

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.types import StateSnapshot

    from regnexe.identity import SessionKey

__all__ = ["ThreadState", "read_thread"]


@dataclass(frozen=True, kw_only=True)
class ThreadState:
    """A thread as it is stored now."""

    state: StateSnapshot

    @property
    def messages(self) -> list[BaseMessage]:
        """The whole log, oldest first."""
        return list(self.state.values.get("messages", ()))

    @property
    def status(self) -> str:
        """How its latest run ended, as far as that can be seen; `"running"` when something is left to do."""
        if self.state.interrupts:
            return RunStatus.INTERRUPTED.value
        if any(task.error for task in self.state.tasks):
            return RunStatus.ERROR.value
        if self.state.next:
            return RUNNING
        return (RunStatus.COMPLETED if failure_of(self.messages) is None else RunStatus.ERROR).value

    def info(self, key: SessionKey, first_id: str | None = None) -> SessionInfo:
        """Return what can be told of the session from its state.

        Args:
            key: whose it is.
            first_id: the id of its oldest checkpoint, if that is known.
        """
        messages = self.messages
        updated = datetime.fromisoformat(str(self.state.created_at)).astimezone(UTC)
        turns = turn_of(self.state.metadata)
        return SessionInfo(
            key=key,
            title=title_of(messages),
            created_at=min(moment_of(first_id) or updated, updated),
            updated_at=updated,
            turns=humans_in(messages) if turns is None else turns,
            messages=len(messages),
            tokens=sum(_tokens(message) for message in messages),
            status=self.status,
        )


async def read_thread(graph: CompiledStateGraph[Any, Any, Any, Any], thread_id: str) -> ThreadState | None:
    """Return the thread as the graph's checkpointer has it, None when nothing is stored of it."""
    state = await graph.aget_state({"configurable": {"thread_id": thread_id}})
    return None if state.created_at is None else ThreadState(state=state)


def _tokens(message: BaseMessage) -> int:
    used = message.usage_metadata if isinstance(message, AIMessage) else None
    return int(used.get("total_tokens") or 0) if used else 0
