"""LangGraph's SQL stores, with batches that happen whole or not at all.

The SQLite store commits what it has when a batch fails half-way, and is unusable after a commit that was refused; the
PostgreSQL store gives up when a connection ends under it. This leans on the SQLite store's `_cursor`, and on the task
that both have in `_task`; a test says so in a sentence when they move.
"""

from __future__ import annotations

import asyncio
import functools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from regnexe.persistence.postgres_faults import is_passing, postgres_fault
from regnexe.persistence.retry import retried
from regnexe.persistence.sqlite_faults import is_busy, sqlite_fault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    import aiosqlite
    from langgraph.store.base import BaseStore, Op, Result
    from psycopg_pool import AsyncConnectionPool

__all__ = ["postgres_store", "sqlite_store"]


def sqlite_store(connection: aiosqlite.Connection, *, place: str, seconds: float) -> BaseStore:
    """Return a store on an open connection of its own that is in autocommit mode."""
    store = _sqlite_class()(connection)
    store.place, store.seconds = place, seconds
    return store  # type: ignore[no-any-return]


def postgres_store(pool: AsyncConnectionPool[Any], *, place: str) -> BaseStore:
    """Return a store on an open pool."""
    store = _postgres_class()(pool)
    store.place = place
    return store  # type: ignore[no-any-return]


@functools.cache
def _sqlite_class() -> Any:
    import sqlite3

    from langgraph.store.sqlite.aio import AsyncSqliteStore

    class WholeSqliteStore(AsyncSqliteStore):
        """Rolls back what it could not write, and waits for those that have the file locked."""

        place = ":memory:"
        seconds = 0.0

        async def abatch(self, ops: Iterable[Op]) -> list[Result]:
            """Do the operations, all of them or none."""
            every = list(ops)

            async def whole() -> list[Result]:
                return await AsyncSqliteStore.abatch(self, every)

            work = asyncio.ensure_future(retried(whole, passes=is_busy, seconds=self.seconds))
            try:
                # Cancelled between two statements, the connection would keep its transaction, and the lock.
                return await asyncio.shield(work)
            except sqlite3.Error as error:
                raise sqlite_fault(error, self.place) or error from error

        def _ensure_task(self) -> None:
            super()._ensure_task()
            _end_in_silence(self)

        @asynccontextmanager
        async def _cursor(self, *, transaction: bool = True) -> AsyncIterator[aiosqlite.Cursor]:
            if not self.is_setup:
                await self.setup()
            async with self.lock, self.conn.cursor() as cursor:
                if not transaction:
                    yield cursor
                    return
                await self.conn.execute("BEGIN")
                try:
                    yield cursor
                    await self.conn.execute("COMMIT")
                except BaseException:
                    await self.conn.rollback()
                    raise

    return WholeSqliteStore


@functools.cache
def _postgres_class() -> Any:
    import psycopg
    from langgraph.store.postgres.aio import AsyncPostgresStore

    class HealingPostgresStore(AsyncPostgresStore):
        """Takes another connection from the pool when one has died. A repeated write finds its own rows there."""

        place = ""

        async def abatch(self, ops: Iterable[Op]) -> list[Result]:
            """Do the operations."""
            every = list(ops)

            async def batch() -> list[Result]:
                return await AsyncPostgresStore.abatch(self, every)

            try:
                return await asyncio.shield(asyncio.ensure_future(retried(batch, passes=is_passing, seconds=0)))
            except psycopg.Error as error:
                raise postgres_fault(error, self.place) or error from error

        def _ensure_task(self) -> None:
            super()._ensure_task()
            _end_in_silence(self)

    return HealingPostgresStore


def _end_in_silence(store: Any) -> None:
    # The task that makes batches waits for the next operation for ever. At the end of a process whose agent nobody
    # closed, asyncio would print that it was pending.
    store._task._log_destroy_pending = False
