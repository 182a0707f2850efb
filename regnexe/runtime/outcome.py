"""What is left of a run when it has ended, and the result that it makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, ToolMessage

from regnexe.document import Session
from regnexe.errors import AnswerCutOff, InvalidToolCalls, RegnexeError
from regnexe.messages import finish_reason_of, is_blank, text_of
from regnexe.results import AgentResult, PendingApproval, RunStatus, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_core.messages import BaseMessage
    from langgraph.types import Interrupt

    from regnexe.runtime.request import RunRequest

__all__ = ["Outcome", "failure_of", "result_of"]

# What providers call a normal end. With any other reason a blank answer is none.
_NORMAL_ENDS = {"", "stop", "end_turn", "stop_sequence", "tool_calls", "tool_use"}


@dataclass(kw_only=True)
class Outcome:
    """How a run ended, and the state it left."""

    status: RunStatus
    values: Mapping[str, Any] = field(default_factory=dict)
    interrupts: Sequence[Interrupt] = ()
    error: BaseException | None = None


def result_of(request: RunRequest, outcome: Outcome, usage: Usage) -> AgentResult:
    """Return the result of a run that has ended."""
    messages = _new_messages(outcome.values.get("messages", ()), request.message.id)
    completed = outcome.status is RunStatus.COMPLETED
    structured = outcome.values.get("structured_response") if completed else None
    pending = tuple(PendingApproval(id=found.id, value=found.value) for found in outcome.interrupts)
    ended = datetime.now(UTC)

    def session() -> Session:
        return Session(
            key=request.key,
            messages=list(outcome.values.get("messages", ())),
            files=dict(outcome.values.get("files") or {}),
            todos=list(outcome.values.get("todos") or ()),
            status=outcome.status,
            pending=list(pending),
            usage=usage,
            updated_at=ended,
        )

    return AgentResult(
        status=outcome.status,
        final_text=_final_text(messages, completed=completed, structured=structured is not None),
        session_id=request.key.session_id,
        thread_id=request.key.thread_id,
        run_id=request.run_id,
        messages=messages,
        structured=structured,
        pending=pending,
        usage=usage,
        error=outcome.error,
        metadata=_metadata(messages, pending),
        _read_session=session,
    )


def failure_of(log: Sequence[BaseMessage]) -> RegnexeError | None:
    """Return what is wrong with a run whose graph came to its end: it may have ended without an answer."""
    last = next((message for message in reversed(log) if isinstance(message, AIMessage)), None)
    if last is None or last.tool_calls:
        return None
    reason = finish_reason_of(last)
    if is_blank(last) and reason.lower() not in _NORMAL_ENDS:
        return AnswerCutOff(
            f"the answer ended before its first word, with the finish reason {reason!r}; for 'length' raise the "
            "model's max_tokens, for anything else see the provider's documentation"
        )
    if not last.invalid_tool_calls:
        return None
    tools = [call["name"] or "unknown" for call in last.invalid_tool_calls]
    return InvalidToolCalls(
        f"the model called {', '.join(tools)} with arguments that are no valid JSON, cannot be stored, or were "
        "cut off by its token limit, and did so again when told; raise the model's max_tokens, or ask for less at once",
        tools=tools,
    )


def _new_messages(log: Sequence[BaseMessage], first_id: str | None) -> tuple[BaseMessage, ...]:
    for index in range(len(log) - 1, -1, -1):
        if log[index].id == first_id:
            return tuple(log[index:])
    return ()


def _metadata(messages: Sequence[BaseMessage], pending: tuple[PendingApproval, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {"interrupt": pending} if pending else {}
    last = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
    if last is not None and (reason := finish_reason_of(last)):
        found["finish_reason"] = reason
    return found


def _final_text(messages: Sequence[BaseMessage], *, completed: bool, structured: bool) -> str:
    last = messages[-1] if messages else None
    if isinstance(last, ToolMessage) and completed and not structured:
        # A tool with `return_direct` gives the answer itself, but its failure is none.
        return "" if last.status == "error" else text_of(last)
    # What a model says beside a tool call is no answer, unless the call is the structured answer.
    answers = [
        message
        for message in messages
        if isinstance(message, AIMessage) and (structured or not (message.tool_calls or message.invalid_tool_calls))
    ]
    return text_of(answers[-1]) if answers else ""
