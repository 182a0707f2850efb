"""A session index in SQLite."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from regnexe.identity import SessionKey
from regnexe.persistence.index.base import (
    SessionInfo,
    SessionPage,
    checked_page,
    columns_of,
    from_micros,
    page_of,
    to_micros,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import aiosqlite

    from regnexe.persistence.index.base import SessionUpdate

__all__ = ["SqliteSessionIndex"]

_TABLE = """
CREATE TABLE IF NOT EXISTS regnexe_sessions (
    thread_id TEXT NOT NULL PRIMARY KEY,
    app_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    title TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    turns INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    status TEXT NOT NULL,
    tags TEXT NOT NULL
)
"""

_INDEXES = (
    "CREATE INDEX IF NOT EXISTS regnexe_sessions_by_app ON regnexe_sessions (app_id, updated_at, thread_id)",
    "CREATE INDEX IF NOT EXISTS regnexe_sessions_by_user ON regnexe_sessions (app_id, user_id, updated_at, thread_id)",
)

_COLUMNS = "app_id, user_id, session_id, title, created_at, updated_at, turns, messages, tokens, status, tags"

_RECORD = """
INSERT INTO regnexe_sessions (
    thread_id, app_id, user_id, session_id, title, created_at, updated_at, turns, messages, tokens, status, tags
) VALUES (
    :thread_id, :app_id, :user_id, :session_id, coalesce(:title, ''), :at, :at, coalesce(:turns, 0),
    coalesce(:messages, 0), :tokens, :status, coalesce(:tags, '[]')
)
ON CONFLICT (thread_id) DO UPDATE SET
    title = CASE WHEN title = '' THEN excluded.title ELSE title END,
    updated_at = max(updated_at, excluded.updated_at),
    turns = coalesce(:turns, turns),
    messages = coalesce(:messages, messages),
    tokens = tokens + excluded.tokens,
    status = excluded.status,
    tags = coalesce(:tags, tags)
"""


class SqliteSessionIndex:
    """Keeps the list in the table `regnexe_sessions` of a SQLite file.

    One page costs the same however many sessions there are. Times are stored as microseconds since 1970 in UTC.

    Args:
        connection: an open connection for this index alone: it begins and ends transactions on it. It stays
            yours to close. A write waits for other writers of the file for as long as the connection's
            `timeout` says.
    """

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection
        self._lock = asyncio.Lock()

    async def setup(self) -> None:
        """Make the table and its indexes unless they are there."""
        if await self.is_set_up():
            # Nothing to write: a start does not wait for another process that writes.
            return
        await self._write([(_TABLE, {}), *((index, {}) for index in _INDEXES)])

    async def is_set_up(self) -> bool:
        """Return whether the table and its indexes are there."""
        names = ("regnexe_sessions", "regnexe_sessions_by_app", "regnexe_sessions_by_user")
        rows = await self._read("SELECT count(*) FROM sqlite_master WHERE name IN (?, ?, ?)", names)
        return bool(rows[0][0] == len(names))

    async def record(self, update: SessionUpdate) -> None:
        """Note the update; see `SessionIndex.record`."""
        await self._write([(_RECORD, columns_of(update, at=to_micros(update.at)))])

    async def get(self, key: SessionKey) -> SessionInfo | None:
        """Return what is known of the session, None if nothing is."""
        rows = await self._read(f"SELECT {_COLUMNS} FROM regnexe_sessions WHERE thread_id = ?", (key.thread_id,))
        return _info(rows[0]) if rows else None

    async def list(
        self, app_id: str, user_id: str | None = None, *, limit: int = 20, cursor: str | None = None
    ) -> SessionPage:
        """Return a page; see `SessionIndex.list`."""
        limit, after = checked_page(app_id, user_id, limit, cursor)
        where, values = "app_id = ?", [app_id]
        if user_id is not None:
            where, values = f"{where} AND user_id = ?", [*values, user_id]
        bounds: list[Any] = []
        if after is not None:
            where += " AND (updated_at, thread_id) < (?, ?)"
            bounds = [to_micros(after[0]), after[1]]
        rows = await self._read(
            f"SELECT {_COLUMNS} FROM regnexe_sessions WHERE {where} ORDER BY updated_at DESC, thread_id DESC LIMIT ?",
            (*values, *bounds, limit + 1),
        )
        return page_of(app_id, user_id, limit, [_info(row) for row in rows])

    async def delete(self, key: SessionKey) -> None:
        """Forget the session; one that is not known is fine."""
        await self._write([("DELETE FROM regnexe_sessions WHERE thread_id = :thread_id", {"thread_id": key.thread_id})])

    async def _read(self, sql: str, values: Sequence[Any]) -> Sequence[Any]:
        return list(await self._connection.execute_fetchall(sql, values))

    async def _write(self, statements: Sequence[tuple[str, dict[str, Any]]]) -> None:
        # In a task of its own: a cancel of the caller lets the write come to its end, and cuts off no rollback.
        await asyncio.shield(asyncio.ensure_future(self._transaction(statements)))

    async def _transaction(self, statements: Sequence[tuple[str, dict[str, Any]]]) -> None:
        async with self._lock:
            try:
                if not self._connection.in_transaction:
                    await self._connection.execute("BEGIN IMMEDIATE")
                for sql, values in statements:
                    await self._connection.execute(sql, values)
                await self._connection.commit()
            except BaseException:
                await self._connection.rollback()
                raise


def _info(row: Any) -> SessionInfo:
    app_id, user_id, session_id, title, created_at, updated_at, turns, messages, tokens, status, tags = row
    return SessionInfo(
        key=SessionKey(app_id, user_id, session_id),
        title=title,
        created_at=from_micros(created_at),
        updated_at=from_micros(updated_at),
        turns=turns,
        messages=messages,
        tokens=tokens,
        status=status,
        tags=tuple(json.loads(tags)),
    )
