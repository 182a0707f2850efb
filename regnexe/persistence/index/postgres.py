"""A session index in PostgreSQL."""

from __future__ import annotations

import json
from datetime import UTC
from typing import TYPE_CHECKING, Any

from regnexe.identity import SessionKey
from regnexe.persistence.index.base import SessionInfo, SessionPage, checked_page, columns_of, page_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from psycopg_pool import AsyncConnectionPool

    from regnexe.persistence.index.base import SessionUpdate

__all__ = ["PostgresSessionIndex"]

# One process makes the tables, the others wait for it: CREATE ... IF NOT EXISTS alone fails when two do it at once.
_SETUP_LOCK = 0x7265676E65786531

# Ids compare byte by byte (COLLATE "C"), as they do in Python and SQLite, whatever the database's language is.
_SETUP = (
    """
    CREATE TABLE IF NOT EXISTS regnexe_sessions (
        thread_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
        app_id TEXT COLLATE "C" NOT NULL,
        user_id TEXT COLLATE "C" NOT NULL,
        session_id TEXT COLLATE "C" NOT NULL,
        title TEXT NOT NULL,
        created_at TIMESTAMPTZ NOT NULL,
        updated_at TIMESTAMPTZ NOT NULL,
        turns BIGINT NOT NULL,
        messages BIGINT NOT NULL,
        tokens BIGINT NOT NULL,
        status TEXT NOT NULL,
        tags TEXT NOT NULL
    )
    """,
    "CREATE INDEX IF NOT EXISTS regnexe_sessions_by_app ON regnexe_sessions (app_id, updated_at, thread_id)",
    "CREATE INDEX IF NOT EXISTS regnexe_sessions_by_user ON regnexe_sessions (app_id, user_id, updated_at, thread_id)",
)

_COLUMNS = """
    app_id, user_id, session_id, title, created_at AT TIME ZONE 'UTC', updated_at AT TIME ZONE 'UTC',
    turns, messages, tokens, status, tags
"""

_RECORD = """
INSERT INTO regnexe_sessions AS known (
    thread_id, app_id, user_id, session_id, title, created_at, updated_at, turns, messages, tokens, status, tags
) VALUES (
    %(thread_id)s, %(app_id)s, %(user_id)s, %(session_id)s, coalesce(%(title)s, ''), %(at)s, %(at)s,
    coalesce(%(turns)s::bigint, 0), coalesce(%(messages)s::bigint, 0), %(tokens)s, %(status)s, coalesce(%(tags)s, '[]')
)
ON CONFLICT (thread_id) DO UPDATE SET
    title = CASE WHEN known.title = '' THEN excluded.title ELSE known.title END,
    updated_at = greatest(known.updated_at, excluded.updated_at),
    turns = coalesce(%(turns)s::bigint, known.turns),
    messages = coalesce(%(messages)s::bigint, known.messages),
    tokens = known.tokens + excluded.tokens,
    status = excluded.status,
    tags = coalesce(%(tags)s, known.tags)
"""


class PostgresSessionIndex:
    """Keeps the list in the table `regnexe_sessions` of a PostgreSQL database.

    One page costs the same however many sessions there are.

    Args:
        pool: open connections, with or without autocommit. It stays yours to close.
    """

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool

    async def setup(self) -> None:
        """Make the table and its indexes unless they are there."""
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SETUP_LOCK,))
            for statement in _SETUP:
                await connection.execute(statement)

    async def record(self, update: SessionUpdate) -> None:
        """Note the update; see `SessionIndex.record`."""
        await self._rows(_RECORD, columns_of(update, at=update.at), returns=False)

    async def get(self, key: SessionKey) -> SessionInfo | None:
        """Return what is known of the session, None if nothing is."""
        sql = f"SELECT {_COLUMNS} FROM regnexe_sessions WHERE thread_id = %(thread_id)s"
        rows = await self._rows(sql, {"thread_id": key.thread_id})
        return _info(rows[0]) if rows else None

    async def list(
        self, app_id: str, user_id: str | None = None, *, limit: int = 20, cursor: str | None = None
    ) -> SessionPage:
        """Return a page; see `SessionIndex.list`."""
        limit, after = checked_page(app_id, user_id, limit, cursor)
        where = "app_id = %(app_id)s"
        values: dict[str, Any] = {"app_id": app_id, "limit": limit + 1}
        if user_id is not None:
            where += " AND user_id = %(user_id)s"
            values["user_id"] = user_id
        if after is not None:
            where += " AND (updated_at, thread_id) < (%(updated_at)s, %(thread_id)s)"
            values["updated_at"], values["thread_id"] = after
        order = "ORDER BY updated_at DESC, thread_id DESC LIMIT %(limit)s"
        rows = await self._rows(f"SELECT {_COLUMNS} FROM regnexe_sessions WHERE {where} {order}", values)
        return page_of(app_id, user_id, limit, [_info(row) for row in rows])

    async def delete(self, key: SessionKey) -> None:
        """Forget the session; one that is not known is fine."""
        sql = "DELETE FROM regnexe_sessions WHERE thread_id = %(thread_id)s"
        await self._rows(sql, {"thread_id": key.thread_id}, returns=False)

    async def _rows(self, sql: str, values: Mapping[str, Any], *, returns: bool = True) -> Sequence[tuple[Any, ...]]:
        from psycopg.rows import tuple_row

        # The pool commits, or rolls back when this is cancelled or fails.
        async with self._pool.connection() as connection, connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(sql, values)
            return await cursor.fetchall() if returns else []


def _info(row: tuple[Any, ...]) -> SessionInfo:
    app_id, user_id, session_id, title, created_at, updated_at, turns, messages, tokens, status, tags = row
    return SessionInfo(
        key=SessionKey(app_id, user_id, session_id),
        title=title,
        created_at=created_at.replace(tzinfo=UTC),
        updated_at=updated_at.replace(tzinfo=UTC),
        turns=turns,
        messages=messages,
        tokens=tokens,
        status=status,
        tags=tuple(json.loads(tags)),
    )
