"""Regnexe: the session layer for LangGraph and deepagents agents in Python services.

Everything public is here, and listed in `__all__`. Importing it loads no model SDK, no database driver
and not deepagents; those come with the first agent that needs them.
"""

from regnexe.agent import RegnexeAgent
from regnexe.builder import RegnexeAgentBuilder
from regnexe.capabilities.decorators import agent_tool, plugin
from regnexe.capabilities.model import Plugin
from regnexe.document import Session
from regnexe.errors import (
    AdoptionRefused,
    AgentClosed,
    AnswerCutOff,
    CheckpointerError,
    ConfigurationError,
    DatabaseBusy,
    DatabaseUnavailable,
    InvalidCursor,
    InvalidDocument,
    InvalidInput,
    InvalidSessionId,
    InvalidToolCalls,
    LoopError,
    ModelCallRefused,
    PendingApprovalError,
    PersistenceError,
    PersistenceNotOpen,
    RegnexeError,
    RunCancelled,
    RunFailed,
    RunInterrupted,
    RunLimited,
    RunTimeout,
    SessionExists,
    SessionNotFound,
    SizeUnknown,
    StructuredAnswerMissing,
    UnknownVendor,
)
from regnexe.events import (
    AgentCompleted,
    AgentStarted,
    ApprovalRequested,
    Event,
    EventType,
    LlmDelta,
    LlmEnd,
    LlmStart,
    ToolCalled,
    ToolResult,
)
from regnexe.identity import SessionKey
from regnexe.listeners import (
    AbstractEventListener,
    AgentEventListener,
    ConsoleEventListener,
    JsonLinesEventListener,
)
from regnexe.models.vendors import Vendor, chat_model
from regnexe.persistence.index.base import SessionIndex, SessionInfo, SessionPage
from regnexe.persistence.opened import OpenedPersistence
from regnexe.persistence.source import open_persistence
from regnexe.results import AgentResult, PendingApproval, RunStatus, Usage
from regnexe.runtime.portal import SyncRunStream
from regnexe.runtime.stream import RunStream
from regnexe.sessions.manager import SessionManager, SessionSize
from regnexe.sessions.sync import SyncSessionManager

__version__ = "0.1.0"

__all__ = [
    "AbstractEventListener",
    "AdoptionRefused",
    "AgentClosed",
    "AgentCompleted",
    "AgentEventListener",
    "AgentResult",
    "AgentStarted",
    "AnswerCutOff",
    "ApprovalRequested",
    "CheckpointerError",
    "ConfigurationError",
    "ConsoleEventListener",
    "DatabaseBusy",
    "DatabaseUnavailable",
    "Event",
    "EventType",
    "InvalidCursor",
    "InvalidDocument",
    "InvalidInput",
    "InvalidSessionId",
    "InvalidToolCalls",
    "JsonLinesEventListener",
    "LlmDelta",
    "LlmEnd",
    "LlmStart",
    "LoopError",
    "ModelCallRefused",
    "OpenedPersistence",
    "PendingApproval",
    "PendingApprovalError",
    "PersistenceError",
    "PersistenceNotOpen",
    "Plugin",
    "RegnexeAgent",
    "RegnexeAgentBuilder",
    "RegnexeError",
    "RunCancelled",
    "RunFailed",
    "RunInterrupted",
    "RunLimited",
    "RunStatus",
    "RunStream",
    "RunTimeout",
    "Session",
    "SessionExists",
    "SessionIndex",
    "SessionInfo",
    "SessionKey",
    "SessionManager",
    "SessionNotFound",
    "SessionPage",
    "SessionSize",
    "SizeUnknown",
    "StructuredAnswerMissing",
    "SyncRunStream",
    "SyncSessionManager",
    "ToolCalled",
    "ToolResult",
    "UnknownVendor",
    "Usage",
    "Vendor",
    "agent_tool",
    "chat_model",
    "open_persistence",
    "plugin",
]

for _name in __all__:
    if hasattr(_public := globals()[_name], "__module__") and isinstance(_public, type | type(plugin)):
        _public.__module__ = __name__  # reprs and tracebacks show the name that users import
del _name, _public
