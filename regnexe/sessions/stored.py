"""What a thread takes in a checkpointer, told by the checkpointer's own tables.

This leans on how LangGraph's savers name their tables and attributes: one file, with a test for each saver.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base.id import UUID

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["StoredThread", "moment_of", "stored_thread", "unwrapped"]

# `length` reads no content from a BLOB. The order of a thread's checkpoints is that of their ids.
_SQLITE = """
SELECT
    (SELECT coalesce(sum(coalesce(length(checkpoint), 0) + coalesce(length(metadata), 0)), 0)
        FROM checkpoints WHERE thread_id = :thread)
    + (SELECT coalesce(sum(coalesce(length(value), 0)), 0) FROM writes WHERE thread_id = :thread),
    (SELECT count(*) FROM checkpoints WHERE thread_id = :thread),
    (SELECT min(checkpoint_id) FROM checkpoints WHERE thread_id = :thread AND checkpoint_ns = '')
"""

# As stored, that is after compression; nothing is read or decompressed for it.
_POSTGRES = """
SELECT
    (SELECT coalesce(sum(pg_column_size(checkpoint) + pg_column_size(metadata)), 0)
        FROM checkpoints WHERE thread_id = %(thread)s)
    + (SELECT coalesce(sum(pg_column_size(blob)), 0) FROM checkpoint_blobs WHERE thread_id = %(thread)s)
    + (SELECT coalesce(sum(pg_column_size(blob)), 0) FROM checkpoint_writes WHERE thread_id = %(thread)s),
    (SELECT count(*) FROM checkpoints WHERE thread_id = %(thread)s),
    (SELECT min(checkpoint_id) FROM checkpoints WHERE thread_id = %(thread)s AND checkpoint_ns = '')
"""


@dataclass(frozen=True, kw_only=True)
class StoredThread:
    """What a checkpointer holds of a thread, its sub-agents' namespaces included.

    Attributes:
        bytes: the lengths of all that is stored, without what a database adds for rows and indexes.
        checkpoints: how many there are.
        first_id: the id of the oldest one of the thread itself; None when there is none.
    """

    bytes: int
    checkpoints: int
    first_id: str | None


async def stored_thread(saver: Any, thread_id: str) -> StoredThread | None:
    """Return what the saver holds of the thread; None when a saver of this class cannot be asked."""
    saver = unwrapped(saver)
    names = {f"{cls.__module__}.{cls.__qualname__}" for cls in type(saver).__mro__}
    if "langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver" in names:
        await saver.setup()
        async with saver.lock, saver.conn.execute(_SQLITE, {"thread": thread_id}) as cursor:
            return _stored(await cursor.fetchone())
    if "langgraph.checkpoint.postgres.aio.AsyncPostgresSaver" in names:
        from psycopg.rows import tuple_row

        async with _connection(saver) as connection, connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(_POSTGRES, {"thread": thread_id})
            return _stored(await cursor.fetchone())
    if "langgraph.checkpoint.memory.InMemorySaver" in names:
        return _in_memory(saver, thread_id)
    return None


def unwrapped(saver: Any) -> Any:
    """Return the saver that one of Regnexe's, which remembers what it read, is around."""
    return getattr(saver, "saver", saver)


def moment_of(checkpoint_id: str | None) -> datetime | None:
    """Return when the checkpoint with this id was made, in UTC; None for an id that does not tell."""
    try:
        made = UUID(checkpoint_id)
        # UUID version 6 counts steps of 100 ns since the Gregorian calendar began.
        return datetime.fromtimestamp((made.time - 0x01B21DD213814000) / 10_000_000, UTC) if made.version == 6 else None
    except (TypeError, ValueError, OSError, OverflowError):
        return None


@asynccontextmanager
async def _connection(saver: Any) -> AsyncIterator[Any]:
    from psycopg_pool import AsyncConnectionPool

    if isinstance(saver.conn, AsyncConnectionPool):
        async with saver.conn.connection() as connection:
            yield connection
    else:
        async with saver.lock:
            yield saver.conn


def _stored(row: Any) -> StoredThread:
    return StoredThread(bytes=int(row[0]), checkpoints=row[1], first_id=row[2])


def _in_memory(saver: Any, thread_id: str) -> StoredThread:
    # Values that were serialised: (type, bytes). `.get`, since looking into its defaultdict would add the thread.
    namespaces = saver.storage.get(thread_id) or {}
    held = [value for checkpoints in namespaces.values() for row in checkpoints.values() for value in row[:2]]
    held += [row[2] for place, rows in list(saver.writes.items()) if place[0] == thread_id for row in rows.values()]
    held += [value for place, value in list(saver.blobs.items()) if place[0] == thread_id]
    return StoredThread(
        bytes=sum(len(content) for _, content in held),
        checkpoints=sum(map(len, namespaces.values())),
        first_id=min(namespaces.get("", ()), default=None),
    )
