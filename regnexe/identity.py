"""Who a conversation belongs to, and the one name it has everywhere."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, fields

from regnexe.errors import InvalidSessionId

__all__ = ["MAX_ID_LENGTH", "SessionKey", "new_session_id"]

MAX_ID_LENGTH = 255
"""Longest allowed id, in characters, before encoding."""

# Control characters (C0, DEL, C1) and lone surrogates: neither databases nor logs take them.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_BAD_ESCAPE = re.compile("%(?!3A|25)")


def new_session_id() -> str:
    """Return a session id that nobody has used before: 32 hexadecimal characters."""
    return uuid.uuid4().hex


@dataclass(frozen=True, order=True)  # no slots: a document's unknown fields stay on it (see `Session`)
class SessionKey:
    """The identity of one conversation: which app, which user, which session.

    Two keys that differ in any part never share a thread, and `from_thread_id` gives a key back from
    its thread id. Each part is a non-empty `str` of at most 255 characters, without control characters
    or lone surrogates.

    Raises:
        InvalidSessionId: when a part is anything else.
    """

    app_id: str
    user_id: str
    session_id: str

    def __post_init__(self) -> None:
        for field in fields(self):
            _check(field.name, getattr(self, field.name))

    @property
    def thread_id(self) -> str:
        """The LangGraph thread of this conversation, for example `readme:reader:07-memory-a`.

        The parts are joined with `:`; a `%` or `:` inside a part is percent-encoded, so that no two
        keys have the same thread id.
        """
        return ":".join(_encode(part) for part in (self.app_id, self.user_id, self.session_id))

    @classmethod
    def from_thread_id(cls, thread_id: str) -> SessionKey:
        """Return the key whose `thread_id` this is.

        Raises:
            InvalidSessionId: when no key has this thread id.
        """
        if not isinstance(thread_id, str):
            raise InvalidSessionId(
                f"thread id must be a str, got {type(thread_id).__name__}",
                field="thread_id",
                value=thread_id,
            )
        parts = thread_id.split(":")
        if len(parts) != 3 or _BAD_ESCAPE.search(thread_id):
            raise InvalidSessionId(
                f"{thread_id!r} is not a thread id of Regnexe: expected app:user:session, with % and : "
                "inside a part written as %25 and %3A",
                field="thread_id",
                value=thread_id,
            )
        return cls(*(_decode(part) for part in parts))

    def __str__(self) -> str:
        return self.thread_id


def _encode(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")


def _decode(part: str) -> str:
    return part.replace("%3A", ":").replace("%25", "%")


def _check(field: str, value: object) -> None:
    if not isinstance(value, str):
        problem = f"must be a str, got {type(value).__name__}"
    elif not value:
        problem = "must not be empty"
    elif len(value) > MAX_ID_LENGTH:
        problem = f"must be at most {MAX_ID_LENGTH} characters, got {len(value)}"
    elif found := _FORBIDDEN.search(value):
        problem = (
            f"must not hold control characters or lone surrogates, found "
            f"{found[0]!r} at position {found.start()} of {value!r}"
        )
    else:
        return
    raise InvalidSessionId(f"{field} {problem}", field=field, value=value)
