"""Everything Regnexe raises, in one tree.

RegnexeError
├── ConfigurationError (ValueError)      the builder was given something that cannot work
│   └── UnknownVendor                    no such model vendor
├── InvalidInput (ValueError)            one call was given something that cannot work
│   ├── InvalidCursor                    a cursor is damaged, or of another list
│   └── InvalidSessionId                 an app, user or session id is not usable
├── InvalidDocument (ValueError)         a stored session cannot be read
├── AgentClosed                          the agent was closed before or during the call
├── LoopError                            the call was made from an event loop that can't serve it
├── CheckpointerError                    the checkpointer failed
│   └── PersistenceError                 a database cannot be opened, read or written
│       ├── DatabaseBusy                 somebody else kept it locked for too long
│       └── DatabaseUnavailable          its server cannot be reached, or the connection was lost
├── PersistenceNotOpen                   a graph was used before its agent had opened anything
├── SessionNotFound (LookupError)        nothing is stored of this session or thread
├── SessionExists                        there is a session of this name already
├── AdoptionRefused (ValueError)         a thread cannot be taken over as a session
├── SizeUnknown                          the checkpointer cannot tell what a session takes
├── PendingApprovalError                 the session waits for a decision, not for a message
├── ModelCallRefused (ValueError)        a request was not sent: the model does not take what is in it
├── AnswerCutOff                         an answer stopped before its end
├── StructuredAnswerMissing              the answer was plain text, and a form was asked for
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
    "AdoptionRefused",
    "AgentClosed",
    "AnswerCutOff",
    "CheckpointerError",
    "ConfigurationError",
    "DatabaseBusy",
    "DatabaseUnavailable",
    "InvalidCursor",
    "InvalidDocument",
    "InvalidInput",
    "InvalidSessionId",
    "InvalidToolCalls",
    "LoopError",
    "ModelCallRefused",
    "PendingApprovalError",
    "PersistenceError",
    "PersistenceNotOpen",
    "RegnexeError",
    "RunCancelled",
    "RunFailed",
    "RunInterrupted",
    "RunLimited",
    "RunTimeout",
    "SessionExists",
    "SessionNotFound",
    "SizeUnknown",
    "StructuredAnswerMissing",
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


class InvalidCursor(InvalidInput):
    """A cursor is damaged, or comes from another list; `list` without one gives the first page.

    Attributes:
        cursor: the cursor as it was given.
    """

    def __init__(self, message: str, *, cursor: object) -> None:
        super().__init__(message)
        self.cursor = cursor


class InvalidDocument(RegnexeError, ValueError):
    """A stored session cannot be read; the message says why, and `__cause__` holds pydantic's own account.

    It is damaged, or a newer version wrote it. It is never taken for an empty session.
    """


class AgentClosed(RegnexeError, RuntimeError):
    """The agent was closed; build a new one to go on with its sessions."""


class LoopError(RegnexeError, RuntimeError):
    """The call was made from an event loop that cannot serve it; the message says which can."""


class CheckpointerError(RegnexeError):
    """The checkpointer failed.

    Raised by a call, it failed before the run began, and nothing was stored. As the `error` of a result, it
    failed during the run; what had been stored until then is whole. `__cause__` is the checkpointer's own exception.
    """


class PersistenceError(CheckpointerError):
    """A database cannot be opened, read or written; the message says why. Whatever was to be written was not.

    Attributes:
        place: the file or the database, never with a password.
    """

    def __init__(self, message: str, *, place: str) -> None:
        super().__init__(message)
        self.place = place


class DatabaseBusy(PersistenceError):
    """Somebody else kept the database locked for longer than writes wait. Try again later."""


class DatabaseUnavailable(PersistenceError):
    """The database server cannot be reached, or the connection to it was lost again and again."""


class PersistenceNotOpen(RegnexeError, RuntimeError):
    """The graph of an agent was used before the agent had opened its database on this event loop."""


class SessionNotFound(RegnexeError, LookupError):
    """Nothing is stored of this session or thread.

    Attributes:
        thread_id: the thread that nothing is stored under.
    """

    def __init__(self, message: str, *, thread_id: str) -> None:
        super().__init__(message)
        self.thread_id = thread_id


class SessionExists(RegnexeError):
    """There is a session of this name already, and it was left as it is.

    Attributes:
        thread_id: the session's thread.
    """

    def __init__(self, message: str, *, thread_id: str) -> None:
        super().__init__(message)
        self.thread_id = thread_id


class AdoptionRefused(RegnexeError, ValueError):
    """A thread cannot be taken over as a session; the message says why, and nothing was stored.

    Attributes:
        thread_id: the thread.
    """

    def __init__(self, message: str, *, thread_id: str) -> None:
        super().__init__(message)
        self.thread_id = thread_id


class SizeUnknown(RegnexeError):
    """The checkpointer cannot tell how many bytes a session takes.

    Attributes:
        checkpointer: the name of its class.
    """

    def __init__(self, message: str, *, checkpointer: str) -> None:
        super().__init__(message)
        self.checkpointer = checkpointer


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


class StructuredAnswerMissing(RegnexeError):
    """The model answered in plain text where an answer in a form was asked for, and did so again when told.

    Attributes:
        text: what it said instead, at last.
    """

    def __init__(self, message: str, *, text: str) -> None:
        super().__init__(message)
        self.text = text


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
