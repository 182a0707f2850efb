"""What a run gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from regnexe.errors import RunCancelled, RunFailed, RunInterrupted, RunLimited

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from langchain_core.messages import BaseMessage

    from regnexe.document import Session

__all__ = ["AgentResult", "PendingApproval", "RunStatus", "Usage"]


class RunStatus(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    """The model gave its answer."""
    INTERRUPTED = "interrupted"
    """Something waits for a decision; see `AgentResult.pending`."""
    CANCELLED = "cancelled"
    """The run was stopped on request."""
    LIMITED = "limited"
    """A limit was reached; see `AgentResult.error`."""
    ERROR = "error"
    """The run failed; see `AgentResult.error`."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a run, or one model call, used; sub-agents included.

    Figures are the provider's own; one that it does not report counts as 0.

    Attributes:
        model_calls: how often a model was called, failed calls included.
        tool_calls: how often a tool ran.
        input_tokens: tokens sent, cached ones included.
        output_tokens: tokens received, reasoning included.
        cached_tokens: the part of `input_tokens` that the provider read from its cache.
    """

    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Tokens sent and received."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            model_calls=self.model_calls + other.model_calls,
            tool_calls=self.tool_calls + other.tool_calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
        )


@dataclass(frozen=True, kw_only=True)
class PendingApproval:
    """One thing that waits for a decision.

    Attributes:
        id: the interrupt's id, unique in the session.
        value: what the interrupt carries, as LangGraph's `interrupt()` was given it.
    """

    id: str
    value: Any


@dataclass(frozen=True, kw_only=True)
class AgentResult:
    """What one run gave.

    Attributes:
        status: how the run ended.
        final_text: the text of this run's last answer, "" if it gave none. Never an earlier turn's.
        messages: the messages this run added to the log, oldest first: the user's, then the answers.
        structured: the answer in the form asked for by `with_response_format`, None without one.
        pending: what waits for a decision; also under `metadata["interrupt"]`.
        usage: model calls, tool calls and tokens of this run.
        error: the exception that ended the run, None if none did.
        session_id: the session, also when its id was made up for this call.
        thread_id: the session's LangGraph thread.
        run_id: this run, as in its events.
        metadata: more about the run: `interrupt` when something is pending, and `finish_reason`, why the model
            ended its last message, as the provider says it (`length` when its token limit cut the text).
    """

    status: RunStatus
    final_text: str
    session_id: str
    thread_id: str
    run_id: str
    messages: tuple[BaseMessage, ...] = ()
    structured: Any = None
    pending: tuple[PendingApproval, ...] = ()
    usage: Usage = field(default_factory=Usage)
    error: BaseException | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    _read_session: Callable[[], Session] = field(repr=False, compare=False)

    @cached_property
    def session(self) -> Session:
        """The whole conversation up to this run, as one document. Built on first use, without I/O."""
        return self._read_session()

    def raise_for_status(self) -> AgentResult:
        """Return this result if the run completed.

        Raises:
            RunCancelled: the run was cancelled.
            RunInterrupted: something waits for a decision.
            RunLimited: a limit was reached.
            RunFailed: the run failed; the exception that ended it is the `__cause__`.
        """
        if self.status is RunStatus.COMPLETED:
            return self
        if isinstance(self.error, RunFailed):
            raise self.error
        kind = _FAILURES.get(self.status, RunFailed)
        detail = f": {type(self.error).__name__}: {self.error}" if self.error else ""
        raise kind(f"run {self.run_id} of session {self.thread_id!r} ended as {self.status}{detail}") from self.error


_FAILURES: Mapping[RunStatus, type[RunFailed]] = {
    RunStatus.CANCELLED: RunCancelled,
    RunStatus.INTERRUPTED: RunInterrupted,
    RunStatus.LIMITED: RunLimited,
}
