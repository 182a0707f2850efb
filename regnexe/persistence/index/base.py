"""What every session index does, and what it tells of a session."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from regnexe.errors import InvalidCursor, InvalidInput
from regnexe.identity import SessionKey
from regnexe.messages import clean_text, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_core.messages import BaseMessage

__all__ = [
    "LONGEST_PAGE",
    "RUNNING",
    "Position",
    "SessionIndex",
    "SessionInfo",
    "SessionPage",
    "SessionUpdate",
    "applied",
    "checked_page",
    "columns_of",
    "from_micros",
    "humans_in",
    "page_of",
    "position_of",
    "title_of",
    "to_micros",
]

RUNNING = "running"
"""The status of a session whose first run goes on, or was cut off by the end of its process."""

LONGEST_PAGE = 1000
"""The most sessions that one page may hold."""

LONGEST_TITLE = 80

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_CURSOR_VERSION = 1

Position = tuple[datetime, str]
"""Where a session stands in a list: when it was updated, and its thread id."""


@dataclass(frozen=True, kw_only=True)
class SessionInfo:
    """What a list tells of one session.

    Attributes:
        key: whose session it is.
        title: the first human text of the session, on one line, cut at 80 characters; "" when it has none.
        created_at: when the index first heard of it, in UTC.
        updated_at: when its latest run ended, in UTC; before the end of the first one, when that began.
        turns: how many human messages Regnexe has stored in it.
        messages: how many messages its log holds.
        tokens: tokens sent and received in its runs, sub-agents' included, as the providers report them. Those of a run
            whose process was killed, or whose update the index did not take, are not in it.
        status: how its latest run ended, as a `RunStatus` value, or `"running"`: the first run goes on, or the
            process ended in it.
        tags: labels, in the order given.
    """

    key: SessionKey
    title: str
    created_at: datetime
    updated_at: datetime
    turns: int = 0
    messages: int = 0
    tokens: int = 0
    status: str
    tags: tuple[str, ...] = ()

    @property
    def app_id(self) -> str:
        """The application that the session belongs to."""
        return self.key.app_id

    @property
    def user_id(self) -> str:
        """The user that the session belongs to."""
        return self.key.user_id

    @property
    def session_id(self) -> str:
        """The session's id, unique for its user."""
        return self.key.session_id

    @property
    def thread_id(self) -> str:
        """The session's LangGraph thread."""
        return self.key.thread_id


@dataclass(frozen=True, kw_only=True)
class SessionUpdate:
    """What an index is to note of a session. What is None stays as it is.

    Attributes:
        key: whose session it is.
        at: when this is so, aware of its time zone; `created_at` of a session that the index does not know.
        status: see `SessionInfo.status`.
        title: the title of a session that has none yet; one that is there stays.
        turns: see `SessionInfo.turns`.
        messages: see `SessionInfo.messages`.
        tokens: how many more tokens were used: they are added to what is there.
        tags: all labels, in place of those that are there.
    """

    key: SessionKey
    at: datetime
    status: str
    title: str | None = None
    turns: int | None = None
    messages: int | None = None
    tokens: int = 0
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class SessionPage:
    """A part of a list of sessions, newest first.

    Attributes:
        sessions: the sessions of this page.
        cursor: what the next page is asked for with; None when this is the last.
    """

    sessions: tuple[SessionInfo, ...]
    cursor: str | None = None


class SessionIndex(Protocol):
    """The list of sessions. Any object with these methods will do; `setup()` comes before the others.

    Lists are ordered by `updated_at`, newest first, and by thread id where that is equal. A session that is
    updated while somebody walks through the pages moves to the front, which is behind the walk: the walk may
    miss it or have met it before, and always comes to its end.
    """

    async def setup(self) -> None:
        """Make what is needed to store the list. Twice does no harm, nor do several processes at once."""
        ...

    async def record(self, update: SessionUpdate) -> None:
        """Note the update, whole or not at all, adding the session if it is new."""
        ...

    async def get(self, key: SessionKey) -> SessionInfo | None:
        """Return what is known of the session, None if nothing is."""
        ...

    async def list(
        self, app_id: str, user_id: str | None = None, *, limit: int = 20, cursor: str | None = None
    ) -> SessionPage:
        """Return a page of an app's sessions, or of one user's in that app.

        Args:
            app_id: the app.
            user_id: the user; None stands for all users of the app.
            limit: how many sessions the page holds at most, 1 to 1000.
            cursor: the `cursor` of the page before; None asks for the first page.

        Raises:
            InvalidCursor: the cursor is damaged, or comes from another list.
            InvalidInput: the limit is out of range.
        """
        ...

    async def delete(self, key: SessionKey) -> None:
        """Forget the session; one that is not known is fine."""
        ...


def applied(known: SessionInfo | None, update: SessionUpdate) -> SessionInfo:
    """Return what is known of the session after the update."""
    at = update.at.astimezone(UTC)
    before = known or SessionInfo(key=update.key, title="", created_at=at, updated_at=at, status=update.status)
    return SessionInfo(
        key=before.key,
        title=before.title or update.title or "",
        created_at=before.created_at,
        # The clock of another process may be behind; what was said last still comes first.
        updated_at=max(before.updated_at, at),
        turns=before.turns if update.turns is None else update.turns,
        messages=before.messages if update.messages is None else update.messages,
        tokens=before.tokens + update.tokens,
        status=update.status,
        tags=before.tags if update.tags is None else update.tags,
    )


def checked_page(app_id: str, user_id: str | None, limit: object, cursor: object) -> tuple[int, Position | None]:
    """Return how many sessions are asked for, and the position that they come after (None: from the newest).

    Raises:
        InvalidCursor: the cursor is damaged, or comes from another list.
        InvalidInput: the limit is out of range.
        InvalidSessionId: an id is none.
    """
    # A key is what checks ids.
    SessionKey(app_id, "any" if user_id is None else user_id, "any")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LONGEST_PAGE:
        raise InvalidInput(f"limit must be an int from 1 to {LONGEST_PAGE}, got {limit!r}")
    return limit, None if cursor is None else _read_cursor(cursor, app_id, user_id)


def page_of(app_id: str, user_id: str | None, limit: int, found: Sequence[SessionInfo]) -> SessionPage:
    """Return the page of what was found, which is one session more than asked for when there are more."""
    sessions = tuple(found[:limit])
    cursor = _write_cursor(position_of(sessions[-1]), app_id, user_id) if len(found) > limit else None
    return SessionPage(sessions=sessions, cursor=cursor)


def position_of(info: SessionInfo) -> Position:
    """Return where the session stands in a list; lists are in falling order of it."""
    return info.updated_at, info.thread_id


def title_of(messages: Iterable[BaseMessage]) -> str:
    """Return the first human text on one line, cut at 80 characters; "" when there is none."""
    for message in messages:
        if message.type == "human" and (line := _one_line(text_of(message))):
            return line
    return ""


def humans_in(messages: Iterable[BaseMessage]) -> int:
    """Return how many human messages there are."""
    return sum(message.type == "human" for message in messages)


def columns_of(update: SessionUpdate, *, at: Any) -> dict[str, Any]:
    """Return an update as the columns of a table, with the moment as `at` has it."""
    key = update.key
    return {
        "thread_id": key.thread_id,
        "app_id": key.app_id,
        "user_id": key.user_id,
        "session_id": key.session_id,
        "title": update.title,
        "at": at,
        "turns": update.turns,
        "messages": update.messages,
        "tokens": update.tokens,
        "status": str(update.status),
        "tags": None if update.tags is None else json.dumps(update.tags),
    }


def to_micros(moment: datetime) -> int:
    """Return the moment as microseconds since 1970 in UTC, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the moment that `to_micros` was given, in UTC."""
    return _EPOCH + micros * _MICROSECOND


def _one_line(text: str) -> str:
    # No more of a long text than a title could need, even if most of it is white space.
    line = " ".join(_CONTROL.sub(" ", clean_text(text[:10_000])).split())
    return line if len(line) <= LONGEST_TITLE else line[: LONGEST_TITLE - 1].rstrip() + "…"


def _write_cursor(position: Position, app_id: str, user_id: str | None) -> str:
    updated_at, thread_id = position
    parts = [_CURSOR_VERSION, app_id, user_id, to_micros(updated_at), thread_id]
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def _read_cursor(cursor: object, app_id: str, user_id: str | None) -> Position:
    if not isinstance(cursor, str):
        raise InvalidCursor(f"cursor must be a str or None, got {type(cursor).__name__}", cursor=cursor)
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        parts: Any = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        version, app, user, micros, thread_id = parts
        if version != _CURSOR_VERSION or type(micros) is not int:
            raise ValueError("not a cursor of this version")
        SessionKey.from_thread_id(thread_id)
        position = from_micros(micros), thread_id
    except (binascii.Error, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidCursor(
            f"{cursor!r:.200} is no cursor: it was changed or cut off. Pass the `cursor` of the page before as it is, "
            "or None for the first page",
            cursor=cursor,
        ) from error
    if (app, user) != (app_id, user_id):
        of = f"app {app!r}" + ("" if user is None else f", user {user!r}")
        raise InvalidCursor(f"this cursor comes from another list, that of {of}; use it there", cursor=cursor)
    return position
