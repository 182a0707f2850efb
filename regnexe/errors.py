"""Everything Regnexe raises, in one tree.

RegnexeError
├── ConfigurationError (ValueError)      the builder was given something that cannot work
│   └── UnknownVendor                    no such model vendor
├── InvalidInput (ValueError)            one call was given something that cannot work
│   └── InvalidSessionId                 an app, user or session id is not usable
├── AgentClosed                          the agent was closed before or during the call
├── LoopError                            the call was made from an event loop that can't serve it
├── PendingApprovalError                 the session waits for a decision, not for a message
└── RunFailed                            a run ended without an answer (see `raise_for_status`)
    ├── RunCancelled                     it was cancelled
    ├── RunInterrupted                   it waits for a decision
    ├── InvalidToolCalls                 the model kept calling tools in a way that cannot be run
    └── RunLimited                       it reached a limit
        └── RunTimeout                   the limit was its time

Misuse raises at once, before anything is stored. What happens to a run itself (a provider that is
down, a limit) comes back as `AgentResult.status` with the exception in `AgentResult.error`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "AgentClosed",
    "ConfigurationError",
    "InvalidInput",
    "InvalidSessionId",
    "InvalidToolCalls",
    "LoopError",
    "PendingApprovalError",
    "RegnexeError",
    "RunCancelled",
    "RunFailed",
    "RunInterrupted",
    "RunLimited",
    "RunTimeout",
    "UnknownVendor",
]


class RegnexeError(Exception):
    """Base class of every exception that Regnexe raises."""


class ConfigurationError(RegnexeError, ValueError):
    """The builder was given something that cannot work; the message says what to change."""


class UnknownVendor(ConfigurationError):
    """No model vendor has this name.

    Attributes:
        vendor: the name as it was given.
        known: the names that exist.
    """

    def __init__(self, message: str, *, vendor: str, known: Sequence[str]) -> None:
        super().__init__(message)
        self.vendor = vendor
        self.known = tuple(known)


class InvalidInput(RegnexeError, ValueError):
    """One call was given something that cannot work; nothing was stored."""


class InvalidSessionId(InvalidInput):
    """An app, user or session id is empty, too long, or holds characters that ids may not hold.

    Attributes:
        field: which id, for example `"user_id"`.
        value: the id as it was given.
    """

    def __init__(self, message: str, *, field: str, value: object) -> None:
        super().__init__(message)
        self.field = field
        self.value = value


class AgentClosed(RegnexeError, RuntimeError):
    """The agent was closed; build a new one to go on with its sessions."""


class LoopError(RegnexeError, RuntimeError):
    """The call was made from an event loop that cannot serve it; the message says which can."""


class PendingApprovalError(RegnexeError):
    """The session waits for a decision on a tool call, so a new message was refused and not stored.

    Attributes:
        thread_id: the session's thread.
        pending_ids: the ids of what waits.
    """

    def __init__(self, message: str, *, thread_id: str, pending_ids: Sequence[str]) -> None:
        super().__init__(message)
        self.thread_id = thread_id
        self.pending_ids = tuple(pending_ids)


class RunFailed(RegnexeError):
    """A run ended without an answer; `__cause__` is the exception that ended it, if one did."""


class RunCancelled(RunFailed):
    """The run was cancelled."""


class RunInterrupted(RunFailed):
    """The run waits for a decision on a tool call."""


class InvalidToolCalls(RunFailed):
    """The model called tools with arguments that are no JSON or were cut off, and did so again when told.

    Attributes:
        tools: the names of the tools it called.
    """

    def __init__(self, message: str, *, tools: Sequence[str]) -> None:
        super().__init__(message)
        self.tools = tuple(tools)


class RunLimited(RunFailed):
    """The run reached one of its limits."""


class RunTimeout(RunLimited):
    """The run reached its `timeout`.

    Attributes:
        seconds: the limit that was reached.
    """

    def __init__(self, message: str, *, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds
