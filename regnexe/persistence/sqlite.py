"""`sqlite:///file.db`: everything in one file.

The file is in WAL mode, so that readers and a writer do not wait for each other, and `synchronous` is NORMAL: what was
stored survives the end of the process, however it ends. A power cut or a crash of the operating system can take the
last writes back, those since the latest checkpoint of the write-ahead log, and never damages the file.
`?synchronous=full` waits for the disk at each write and loses nothing then either.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from regnexe.errors import PersistenceError
from regnexe.persistence.opened import PROCESS_LEASES, OpenedPersistence
from regnexe.persistence.reopen import started
from regnexe.persistence.retry import retried
from regnexe.persistence.sqlite_faults import check_place, is_busy, sqlite_fault
from regnexe.persistence.whole_stores import sqlite_store
from regnexe.persistence.whole_writes import with_whole_writes

if TYPE_CHECKING:
    import aiosqlite

    from regnexe.persistence.urls import SqliteUrl

__all__ = ["SqliteSource"]

logger = logging.getLogger("regnexe")

# What our tables have at least; a table of such a name without these is another program's.
_COLUMNS = {
    "checkpoints": "thread_id checkpoint_ns checkpoint_id parent_checkpoint_id type checkpoint metadata",
    "writes": "thread_id checkpoint_ns checkpoint_id task_id idx channel type value",
    "store": "prefix key value created_at updated_at",
    "store_migrations": "v",
    "regnexe_sessions": "thread_id app_id user_id session_id",
}


class SqliteSource:
    """Opens a file, each time with connections of its own. A relative path means what it meant the first time."""

    def __init__(self, url: SqliteUrl) -> None:
        self._url = url
        self._fixed: dict[str, str] = {}

    @property
    def place(self) -> str:
        """The path, absolute once the file was opened."""
        return self._fixed.get("path", self._url.path)

    async def open(self) -> OpenedPersistence:
        """Open the file, and make it and its tables if they are not there.

        Raises:
            PersistenceError: it cannot be opened or written, or holds another program's tables.
            DatabaseBusy: somebody else kept it locked while it had to be set up.
        """
        import sqlite3

        # `setdefault` is one step; threads may come here at once, and the working directory may change.
        path = self._fixed.setdefault("path", _absolute(self._url.path))
        await asyncio.to_thread(check_place, path)
        connections: list[aiosqlite.Connection] = []
        try:
            return await self._open(path, connections)
        except BaseException as error:
            await _close_all(connections)
            if isinstance(error, sqlite3.Error):
                raise sqlite_fault(error, path) or PersistenceError(
                    f"the SQLite database {path!r} cannot be set up: {error}", place=path
                ) from error
            raise

    async def _open(self, path: str, connections: list[aiosqlite.Connection]) -> OpenedPersistence:
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        from regnexe.persistence.index.sqlite import SqliteSessionIndex

        seconds = self._url.busy_timeout
        # Transactions are begun on each of them, so that none can be shared: one for the saver, which leaves them to
        # the driver, one for the store, which begins its own, and one for the list of sessions.
        for isolation in ("DEFERRED", None, "DEFERRED"):
            connections.append(await _connected(path, seconds, isolation))
        first, second, third = connections
        saver = AsyncSqliteSaver(first)
        store: Any = sqlite_store(second, place=path, seconds=seconds)
        index = SqliteSessionIndex(third)

        async def set_up() -> None:
            # Any number of processes may be here at once; each step is whole, and does no harm the second time.
            await _refuse_foreign_tables(first, path)  # before anything is changed
            for connection in connections:
                await _configure(connection, self._url.synchronous)
            await saver.setup()
            await _migrate_store(second)
            await store.setup()
            await index.setup()

        await retried(set_up, passes=is_busy, seconds=seconds)

        async def close() -> None:
            if connections:
                await _give_back_space(first)
            await _close_all(connections)

        return OpenedPersistence(
            checkpointer=with_whole_writes(saver),
            store=store,
            index=index,
            leases=PROCESS_LEASES,
            lease_scope=("sqlite", await asyncio.to_thread(_canonical, path)),
            place=path,
            _close=close,
        )


def _absolute(path: str) -> str:
    return os.path.abspath(path)


def _canonical(path: str) -> str:
    """Return what is the same for every path of the same file, through links too."""
    return os.path.normcase(os.path.realpath(path))


async def _connected(path: str, seconds: float, isolation: str | None) -> aiosqlite.Connection:
    import aiosqlite

    return await started(aiosqlite.connect(path, timeout=seconds, isolation_level=isolation))


async def _configure(connection: aiosqlite.Connection, synchronous: str) -> None:
    if await _value(connection, "PRAGMA page_count") == 0:
        # Takes effect before the first page is written, which the next line does; without it, deleted sessions would
        # never make the file smaller.
        await connection.execute_fetchall("PRAGMA auto_vacuum = INCREMENTAL")
    mode = await _value(connection, "PRAGMA journal_mode = WAL")
    # Where there is no WAL (some network file systems) NORMAL could damage the file in a power cut.
    level = synchronous if mode == "wal" else "full"
    await connection.execute_fetchall(f"PRAGMA synchronous = {level}")


async def _refuse_foreign_tables(connection: aiosqlite.Connection, path: str) -> None:
    for table, columns in _COLUMNS.items():
        rows = await connection.execute_fetchall(f"PRAGMA table_info({table})")
        there = {row[1] for row in rows}
        if missing := [column for column in columns.split() if there and column not in there]:
            raise PersistenceError(
                f"the SQLite database {path!r} has a table {table!r} of another program: it lacks the column(s) "
                f"{', '.join(missing)}. Name another file for the agent; this one was left as it is",
                place=path,
            )


async def _migrate_store(connection: aiosqlite.Connection) -> None:
    """Make the store's tables in one transaction.

    Its own `setup` makes them statement by statement: a second process meanwhile fails, and one that ends between two
    statements leaves tables that no later process can set up.
    """
    from langgraph.store.sqlite.aio import AsyncSqliteStore

    migrations = AsyncSqliteStore.MIGRATIONS
    if await _store_version(connection) >= len(migrations) - 1:
        return
    await connection.execute("BEGIN IMMEDIATE")
    try:
        await connection.execute("CREATE TABLE IF NOT EXISTS store_migrations (v INTEGER PRIMARY KEY)")
        for version in range(await _store_version(connection) + 1, len(migrations)):
            await connection.execute(migrations[version])
            await connection.execute("INSERT INTO store_migrations (v) VALUES (?)", (version,))
        await connection.execute("COMMIT")
    except BaseException:
        await connection.rollback()
        raise


async def _store_version(connection: aiosqlite.Connection) -> int:
    made = await _value(connection, "SELECT count(*) FROM sqlite_master WHERE name = 'store_migrations'")
    version = await _value(connection, "SELECT max(v) FROM store_migrations") if made else None
    return -1 if version is None else version


async def _give_back_space(connection: aiosqlite.Connection) -> None:
    """Give the room of what was deleted back to the file system, unless somebody else is writing now.

    Done when the agent closes: in the middle of its work it would make turns wait, and the next turns would mostly
    use the room again.
    """
    import sqlite3

    with suppress(sqlite3.Error, ValueError):  # closing goes on; the room is used by later writes
        await connection.execute_fetchall("PRAGMA busy_timeout = 0")
        # As a script: it gives one empty row for each page, and `execute` stops after the first.
        await connection.executescript("PRAGMA incremental_vacuum")


async def _close_all(connections: list[aiosqlite.Connection]) -> None:
    while connections:
        await connections.pop().close()


async def _value(connection: aiosqlite.Connection, sql: str) -> Any:
    ((value, *_),) = await connection.execute_fetchall(sql)
    return value
