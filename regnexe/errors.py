"""Everything Regnexe raises, in one tree.

RegnexeError
├── ConfigurationError (ValueError)      the builder was given something that cannot work
│   └── UnknownVendor                    no such model vendor
├── InvalidInput (ValueError)            one call was given something that cannot work
│   └── InvalidSessionId                 an app, user or session id is not usable
├── InvalidDocument (ValueError)         a stored session cannot be read
├── AgentClosed                          the agent was closed before or during the call
├── LoopError                            the call was made from an event loop that can't serve it
├── CheckpointerError                    the checkpointer failed before the run began
├── PendingApprovalError                 the session waits for a decision, not for a message
├── ModelCallRefused (ValueError)        a request was not sent: the model does not take what is in it
├── AnswerCutOff                         an answer stopped before its end
└── RunFailed                            a run ended without an answer (see `raise_for_status`)
    ├── RunCancelled                     it was cancelled
    ├── RunInterrupted                   it waits for a decision
    ├── InvalidToolCalls                 the model kept calling tools in a way that cannot be run
    └── RunLimited                       it reached a limit
        └── RunTimeout                   the limit was its time

Misuse raises at once, before anything is stored. What happens to a run itself (a provider that is
down, a limit) comes back as `AgentResult.status` with the exception in `AgentResult.error`.

Each of them can be pickled and copied, attributes included; as always in Python, `__cause__` stays behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "AgentClosed",
    "AnswerCutOff",
    "CheckpointerError",
    "ConfigurationError",
    "InvalidDocument",
    "InvalidInput",
    "InvalidSessionId",
    "InvalidToolCalls",
    "LoopError",
    "ModelCallRefused",
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

    def __reduce__(self) -> tuple[Any, ...]:
        # Python's own would call the class with the message alone, and so without its keyword-only attributes.
        return _rebuilt, (type(self), self.args), self.__dict__


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


class InvalidDocument(RegnexeError, ValueError):
    """A stored session cannot be read; the message says why, and `__cause__` holds pydantic's own account.

    It is damaged, or a newer version wrote it. It is never taken for an empty session.
    """


class AgentClosed(RegnexeError, RuntimeError):
    """The agent was closed; build a new one to go on with its sessions."""


class LoopError(RegnexeError, RuntimeError):
    """The call was made from an event loop that cannot serve it; the message says which can."""


class CheckpointerError(RegnexeError):
    """The checkpointer failed before the run began, and nothing was stored; `__cause__` is its own exception."""


class ModelCallRefused(RegnexeError, ValueError):
    """A request was not sent, since the model does not take what is in it.

    Attributes:
        model: the model's name.
        kind: what it does not take: a type of content block, for example `"image"`, or `"response_format"`.
    """

    def __init__(self, message: str, *, model: str, kind: str) -> None:
        super().__init__(message)
        self.model = model
        self.kind = kind


class AnswerCutOff(RegnexeError):
    """An answer stopped before its end, in the stream or by a limit; what had come of it is not an answer."""


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
    """The model kept calling tools with arguments that are no JSON, cannot be stored, or were cut off.

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


def _rebuilt(kind: type[RegnexeError], args: tuple[Any, ...]) -> RegnexeError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error
