"""`postgresql://…`: everything in one database, through a pool of connections for each event loop."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any

from regnexe.errors import ConfigurationError, DatabaseBusy, PersistenceError
from regnexe.persistence.opened import PROCESS_LEASES, OpenedPersistence
from regnexe.persistence.postgres_faults import opening_fault, place_from, postgres_fault, secrets_in, without
from regnexe.persistence.whole_stores import postgres_store
from regnexe.persistence.whole_writes import with_whole_writes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

    from regnexe.persistence.urls import PostgresUrl

__all__ = ["PostgresSource"]

# The oldest that the PostgreSQL project still mended in 2026. Older ones may work; nothing here is tested on them.
_MINIMUM_VERSION = 14
_CONNECT_SECONDS = 10
# Not one that LangGraph or a migration tool uses: "regnexe0" in ASCII.
_SETUP_LOCK = 0x7265676E65786530
_SETUP_SECONDS = 60
_POLL_SECONDS = 0.05

# What our tables have at least; a table of such a name without these is another program's.
_COLUMNS = {
    "checkpoints": "thread_id checkpoint_ns checkpoint_id parent_checkpoint_id type checkpoint metadata",
    "checkpoint_blobs": "thread_id checkpoint_ns channel version type blob",
    "checkpoint_writes": "thread_id checkpoint_ns checkpoint_id task_id idx channel type blob",
    "checkpoint_migrations": "v",
    "store": "prefix key value created_at updated_at",
    "store_migrations": "v",
    "regnexe_sessions": "thread_id app_id user_id session_id",
}
_INDEXES = ("regnexe_sessions_by_app", "regnexe_sessions_by_user")


class PostgresSource:
    """Opens a database, each time with a pool of its own.

    Raises:
        ConfigurationError: the URL cannot be read.
    """

    def __init__(self, url: PostgresUrl) -> None:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict, make_conninfo

        self._url = url
        parameters: Any = None
        try:
            parameters = conninfo_to_dict(url.conninfo)
        except ProgrammingError:
            pass
        # Outside of the `except`: the library's message may hold the URL, and would be the context of this one.
        if parameters is None or not all(part.isdigit() for part in str(parameters.get("port") or 1).split(",")):
            raise ConfigurationError(
                "this PostgreSQL URL cannot be read; it is postgresql://user:password@host:port/database, with @ as "
                "%40, : as %3A and / as %2F in the user name and the password"
            )
        self._secrets = secrets_in(parameters)
        self._place = place_from(parameters)
        parameters.setdefault("connect_timeout", _CONNECT_SECONDS)
        self._conninfo = make_conninfo("", **parameters)

    @property
    def place(self) -> str:
        """The database, without the password."""
        return self._place

    async def open(self) -> OpenedPersistence:
        """Connect, check the server, and make the tables if they are not there.

        Raises:
            PersistenceError: the server is too old, does not let this user in or do what is needed, has no such
                database, or the database holds another program's tables.
            DatabaseUnavailable: the server cannot be reached.
            DatabaseBusy: another process has been making the tables for a minute.
        """
        first = await self._first_connection()
        try:
            return await self._open(first)
        finally:
            await first.close()

    async def _first_connection(self) -> AsyncConnection[Any]:
        """Connect without the pool, which would try for long and then not say why it fails."""
        import psycopg

        fault: PersistenceError
        try:
            return await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)
        except psycopg.Error as error:
            fault = opening_fault(error, self._place, self._secrets)
            if without(self._secrets, str(error)) == str(error):
                raise fault from error
        raise fault

    async def _open(self, first: AsyncConnection[Any]) -> OpenedPersistence:
        import psycopg
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

        from regnexe.persistence.index.postgres import PostgresSessionIndex

        version = first.info.server_version // 10_000
        if version < _MINIMUM_VERSION:
            raise PersistenceError(
                f"{self._place} is served by PostgreSQL {version}; Regnexe needs {_MINIMUM_VERSION} or newer, since "
                "older ones get no more fixes and are not tested",
                place=self._place,
            )
        encoding = first.info.parameter_status("server_encoding")
        if encoding not in ("UTF8", None):
            raise PersistenceError(
                f"{self._place} has the encoding {encoding}, which cannot hold every message; create a database with "
                "ENCODING 'UTF8' TEMPLATE template0",
                place=self._place,
            )
        pool, close = self._pool()
        try:
            await pool.open(wait=True, timeout=self._url.pool_timeout)
            saver = AsyncPostgresSaver(pool)
            store: Any = postgres_store(pool, place=self._place)
            index = PostgresSessionIndex(pool)
            await _refuse_foreign_tables(first, self._place)
            await _set_up(first, [saver.setup, store.setup, index.setup], self._place)
            scope = await _scope(first)
        except BaseException as error:
            await close()
            if isinstance(error, psycopg.Error):
                raise postgres_fault(error, self._place) or PersistenceError(
                    f"{self._place} cannot be set up: {error}", place=self._place
                ) from error
            raise
        return OpenedPersistence(
            checkpointer=with_whole_writes(saver),
            store=store,
            index=index,
            leases=PROCESS_LEASES,
            lease_scope=scope,
            place=self._place,
            _close=close,
        )

    def _pool(self) -> tuple[AsyncConnectionPool[Any], Callable[[], Awaitable[None]]]:
        from psycopg.rows import dict_row
        from psycopg_pool import AsyncConnectionPool

        connections: weakref.WeakSet[AsyncConnection[Any]] = weakref.WeakSet()

        async def note(connection: AsyncConnection[Any]) -> None:
            connections.add(connection)

        pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
            self._conninfo,
            # As LangGraph's saver and store ask for.
            kwargs={"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row},
            min_size=1,
            max_size=self._url.pool_size,
            timeout=self._url.pool_timeout,
            open=False,
            configure=note,
            # One round trip for each use; a connection that was ended while nobody used it is replaced unnoticed.
            check=AsyncConnectionPool.check_connection,
        )
        home = asyncio.get_running_loop()

        async def close() -> None:
            if asyncio.get_running_loop() is home:
                await pool.close()
            elif await _closed_at_home(pool, home):
                return
            # What is left, when the pool's event loop is closed or held up. Nothing runs on these any more.
            for connection in list(connections):
                connection.pgconn.finish()

        return pool, close


async def _closed_at_home(pool: AsyncConnectionPool[Any], home: asyncio.AbstractEventLoop) -> bool:
    """Close the pool on its own event loop; False when that does not answer."""
    if not home.is_running():
        return False
    work = pool.close()
    try:
        closing = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, home))
    except RuntimeError:  # closed this moment
        work.close()
        return False
    done, _ = await asyncio.wait({closing}, timeout=1)
    if not done:
        closing.cancel()
    return bool(done)


async def _set_up(lock: AsyncConnection[Any], steps: list[Callable[[], Awaitable[None]]], place: str) -> None:
    """Make what is missing, one process at a time."""
    if await _is_set_up(lock):
        return
    # Not a wait inside the server: CREATE INDEX CONCURRENTLY, a step of LangGraph's, waits for every statement that
    # began before it, so that the two would wait for each other.
    tries = int(_SETUP_SECONDS / _POLL_SECONDS)
    while not await _value(lock, "SELECT pg_try_advisory_lock(%s)", _SETUP_LOCK):
        tries -= 1
        if tries < 0:
            raise DatabaseBusy(
                f"another process has been making the tables of {place} for {_SETUP_SECONDS} seconds; if there is "
                "none, end the session that holds the advisory lock (pg_locks)",
                place=place,
            )
        await asyncio.sleep(_POLL_SECONDS)
    try:
        # A user who may not create tables can use those that are there.
        if not await _is_set_up(lock):
            for step in steps:
                await step()
    finally:
        await _value(lock, "SELECT pg_advisory_unlock(%s)", _SETUP_LOCK)


async def _is_set_up(connection: AsyncConnection[Any]) -> bool:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from langgraph.store.postgres.aio import AsyncPostgresStore

    for name in (*_COLUMNS, *_INDEXES):
        if await _value(connection, "SELECT to_regclass(%s)", name) is None:
            return False
    for table, owner in (("checkpoint_migrations", AsyncPostgresSaver), ("store_migrations", AsyncPostgresStore)):
        version = await _value(connection, f"SELECT coalesce(max(v), -1) FROM {table}")
        if version < len(owner.MIGRATIONS) - 1:
            return False
    return True


async def _refuse_foreign_tables(connection: AsyncConnection[Any], place: str) -> None:
    for table, columns in _COLUMNS.items():
        there = await _value(
            connection,
            "SELECT coalesce(array_agg(attname::text), '{}') FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            table,
        )
        if missing := [column for column in columns.split() if there and column not in there]:
            raise PersistenceError(
                f"{place} has a table {table!r} of another program: it lacks the column(s) {', '.join(missing)}. Give "
                "the agent a database or a schema of its own (?options=-csearch_path%3Dname); this one was left alone",
                place=place,
            )


async def _scope(connection: AsyncConnection[Any]) -> Hashable:
    """Return what is the same for every URL of the same tables."""
    info = connection.info
    schema = await _value(connection, "SELECT current_schema()")
    return "postgresql", info.hostaddr or info.host, info.port, info.dbname, schema


async def _value(connection: AsyncConnection[Any], sql: Any, *parameters: object) -> Any:
    from psycopg.rows import tuple_row

    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(sql, parameters or None)
        row = await cursor.fetchone()
        return row[0] if row else None
