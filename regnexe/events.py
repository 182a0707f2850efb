"""What a run tells the outside: frozen event classes in one closed union.

Order within a run: `AgentStarted` first and `AgentCompleted` last, each exactly once. Between them, every
`LlmStart` is followed by its `LlmDelta`s (streams only) and its `LlmEnd`; every `ToolCalled` by its
`ToolResult`. What is still open when a run is stopped ends with a `CancelledError`; only a tool that waits for
an approval stays open. What happens inside a sub-agent lies between the `ToolCalled` and the `ToolResult` that
name it, and carries its name in `path`. Parallel tool calls interleave; `sequence` is the order of happening.

Messages, arguments and pending values are copies: to change them changes neither the run nor its log. All who get
an event share its copies, and the events of one run may share those of a message. Exceptions are the objects
themselves, and so is an argument of a class that cannot be copied.

A call that never reaches a tool tells neither `ToolCalled` nor `ToolResult`: the model named a tool that does not
exist, or wrote arguments that are no JSON. It stands in the `tool_calls` or `invalid_tool_calls` of the
`LlmEnd`, and its error result among the `messages` of the next `LlmStart`. Arguments that do not fit the tool's
parameters do tell both, with the error. The `content` of such a `ToolResult` is the exception's own text; what the
model reads is LangChain's wording of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from regnexe.results import PendingApproval, RunStatus, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_core.messages import AIMessage, BaseMessage

__all__ = [
    "AgentCompleted",
    "AgentStarted",
    "ApprovalRequested",
    "Event",
    "EventType",
    "LlmDelta",
    "LlmEnd",
    "LlmStart",
    "ToolCalled",
    "ToolResult",
]


class EventType(StrEnum):
    """The kind of an event; also what listeners filter by."""

    AGENT_STARTED = "agent_started"
    LLM_START = "llm_start"
    LLM_DELTA = "llm_delta"
    LLM_END = "llm_end"
    TOOL_CALLED = "tool_called"
    TOOL_RESULT = "tool_result"
    APPROVAL_REQUESTED = "approval_requested"
    AGENT_COMPLETED = "agent_completed"


@dataclass(frozen=True, kw_only=True)
class _Event:
    """What every event carries.

    Attributes:
        name: what it is about: the agent, the model, the tool, or the sub-agent's own name.
        path: the sub-agents this happened inside, outermost first; empty for the agent itself.
        sequence: 0 for the first event of the run, then rising by one.
        time: when it happened, in UTC.
    """

    type: ClassVar[EventType]

    name: str
    app_id: str
    user_id: str
    session_id: str
    thread_id: str
    run_id: str
    sequence: int
    time: datetime
    path: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AgentStarted(_Event):
    """A run began; its message is about to be stored. `goal` is the message's text."""

    type: ClassVar[EventType] = EventType.AGENT_STARTED
    goal: str


@dataclass(frozen=True, kw_only=True)
class LlmStart(_Event):
    """A model is about to be called. `name` is the model's name.

    Attributes:
        call_id: the same in the `LlmDelta`s and the `LlmEnd` of this call.
        purpose: what the call is for: `answer`, or `summarization` when a compaction asks for a summary.
        messages: exactly what is sent, without the system prompt; copies (see above).
        system_prompt: the system prompt as sent, "" if there is none.
    """

    type: ClassVar[EventType] = EventType.LLM_START
    call_id: str
    messages: tuple[BaseMessage, ...]
    system_prompt: str
    purpose: str = "answer"


@dataclass(frozen=True, kw_only=True)
class LlmDelta(_Event):
    """A piece of a streamed answer, in order. Only streams carry these; summaries are not streamed.

    Attributes:
        text: the next piece of the answer, "" when the piece holds only reasoning.
        reasoning: the next piece of the model's reasoning, "" when there is none.
    """

    type: ClassVar[EventType] = EventType.LLM_DELTA
    call_id: str
    text: str
    reasoning: str


@dataclass(frozen=True, kw_only=True)
class LlmEnd(_Event):
    """A model call ended.

    Attributes:
        message: the model's message, None when the call failed.
        usage: the tokens of this one call, 0 where the provider reported no figure.
        error: the exception that the call raised, None when it succeeded.
        purpose: as in the `LlmStart` of this call.
    """

    type: ClassVar[EventType] = EventType.LLM_END
    call_id: str
    message: AIMessage | None
    usage: Usage
    error: BaseException | None
    purpose: str = "answer"


@dataclass(frozen=True, kw_only=True)
class ToolCalled(_Event):
    """A tool is about to run. `name` is the tool's, or the sub-agent's when the tool starts one.

    Attributes:
        tool_call_id: the model's id for this call, "" when the tool was not called by a model.
        tool: the tool's own name; `task` when it starts a sub-agent.
        arguments: what the tool is called with.
        subagent: the name of the sub-agent it starts, None for any other tool.
    """

    type: ClassVar[EventType] = EventType.TOOL_CALLED
    tool_call_id: str
    tool: str
    arguments: Mapping[str, Any]
    subagent: str | None = None


@dataclass(frozen=True, kw_only=True)
class ToolResult(_Event):
    """A tool ended.

    Attributes:
        content: its result as the model will read it, or the exception's text, which the model gets in other words.
        error: the exception that it raised, None when it returned. A tool that asks for approval has
            not ended: no `ToolResult` comes until it is resumed.
    """

    type: ClassVar[EventType] = EventType.TOOL_RESULT
    tool_call_id: str
    tool: str
    content: str
    error: BaseException | None
    subagent: str | None = None


@dataclass(frozen=True, kw_only=True)
class ApprovalRequested(_Event):
    """The run stops here until something is decided. One event for each pending approval."""

    type: ClassVar[EventType] = EventType.APPROVAL_REQUESTED
    pending: PendingApproval


@dataclass(frozen=True, kw_only=True)
class AgentCompleted(_Event):
    """The run ended, well or not; `status`, `final_text`, `usage` and `error` are its result's."""

    type: ClassVar[EventType] = EventType.AGENT_COMPLETED
    status: RunStatus
    final_text: str
    usage: Usage = field(default_factory=Usage)
    error: BaseException | None = None


Event = AgentStarted | LlmStart | LlmDelta | LlmEnd | ToolCalled | ToolResult | ApprovalRequested | AgentCompleted
"""Every event there is."""
