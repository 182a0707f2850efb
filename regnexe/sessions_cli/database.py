"""Opens a database of sessions for reading alone."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import click

from regnexe.errors import ConfigurationError
from regnexe.persistence.urls import MemoryUrl, PostgresUrl, SqliteUrl, read_url
from regnexe.terminal import printable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from langgraph.graph.state import CompiledStateGraph

    from regnexe.persistence.index.base import SessionIndex
    from regnexe.sessions.manager import SessionManager

__all__ = ["Database"]

_NO_LIST = (
    "{where} has no list of sessions yet: they come into it with their next run. `regnexe sessions show` finds any "
    "by --app, --user and --session"
)


@dataclass(frozen=True, kw_only=True)
class _Source:
    """A database that is open for reading."""

    graph: CompiledStateGraph[Any, Any, Any, Any]
    index: SessionIndex


class Database:
    """The database that a command names."""

    def __init__(self, db: Path | None, url: str | None) -> None:
        if (db is None) == (url is None):
            raise click.UsageError("name the database by --db PATH or by --url URL" + (", not both" if db else ""))
        self._file = db.absolute() if db else None
        self._conninfo = ""
        if url is not None:
            self._read(url)

    def _read(self, url: str) -> None:
        try:
            match read_url(url):
                case SqliteUrl(path=path):
                    self._file = Path(path).absolute()
                    if not self._file.is_file():
                        raise click.UsageError(printable(f"there is no file {self._file}"))
                case PostgresUrl(conninfo=conninfo):
                    self._conninfo = conninfo
                case MemoryUrl():
                    raise click.UsageError("the sessions of memory:// end with their program; there is nothing to read")
        except ConfigurationError as error:
            raise click.UsageError(printable(str(error))) from error

    @asynccontextmanager
    async def opened(self, *, listing: bool = False) -> AsyncIterator[SessionManager]:
        """Open the database for reading alone."""
        from regnexe.sessions.manager import SessionManager

        opened = _postgres(self._conninfo, listing) if self._file is None else _sqlite(self._file, listing)
        async with opened as source:

            async def give() -> _Source:
                return source

            yield SessionManager(give)


@asynccontextmanager
async def _sqlite(path: Path, listing: bool) -> AsyncIterator[_Source]:
    import aiosqlite
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    from regnexe.persistence.index.memory import MemorySessionIndex
    from regnexe.persistence.index.sqlite import SqliteSessionIndex

    # `mode=ro` leaves files of the write-ahead log lying next to the database where there are none, and `mode=rw` puts
    # what is in them into the database where a process was killed.
    mode = "ro" if path.with_name(f"{path.name}-wal").exists() else "rw"
    where = f"file:{quote(str(path))}?mode={mode}"
    try:
        async with aiosqlite.connect(where, uri=True) as connection:
            await connection.execute("PRAGMA query_only = ON")
            names = "SELECT count(*) FROM sqlite_master WHERE name IN ('checkpoints', 'writes')"
            rows = list(await connection.execute_fetchall(names))
            if rows[0][0] < 2:
                raise ConfigurationError(f"{path} is a SQLite file without sessions")
            saver = AsyncSqliteSaver(connection)
            saver.is_setup = True  # it would begin by writing
            stored = SqliteSessionIndex(connection)
            if not (has_list := await stored.is_set_up()) and listing:
                raise ConfigurationError(_NO_LIST.format(where=path))
            yield _Source(graph=_graph(saver), index=stored if has_list else MemorySessionIndex())
    except aiosqlite.Error as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error


@asynccontextmanager
async def _postgres(url: str, listing: bool) -> AsyncIterator[_Source]:
    try:
        import psycopg
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import AsyncConnectionPool
    except ImportError as error:
        raise ConfigurationError(f'PostgreSQL needs a driver: pip install "regnexe[postgres]" ({error})') from error
    from regnexe.persistence.index.memory import MemorySessionIndex
    from regnexe.persistence.index.postgres import PostgresSessionIndex

    async def only_read(connection: Any) -> None:
        await connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")

    try:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=10) as connection:
            tables = "SELECT to_regclass('checkpoints') IS NOT NULL, to_regclass('regnexe_sessions') IS NOT NULL"
            has_threads, has_list = await (await connection.execute(tables)).fetchone() or (False, False)
        if not has_threads:
            raise ConfigurationError("this database has no sessions")
        if listing and not has_list:
            raise ConfigurationError(_NO_LIST.format(where="this database"))
        about: dict[str, Any] = {"autocommit": True, "row_factory": dict_row}
        async with AsyncConnectionPool(
            url, kwargs=about, configure=only_read, min_size=1, max_size=2, open=False
        ) as pool:
            index = PostgresSessionIndex(pool) if has_list else MemorySessionIndex()
            yield _Source(graph=_graph(AsyncPostgresSaver(cast("Any", pool))), index=index)
    except psycopg.Error as error:
        raise ConfigurationError(f"the database cannot be read: {str(error).strip()}") from error


def _graph(saver: Any) -> CompiledStateGraph[Any, Any, Any, Any]:
    from regnexe.builder import RegnexeAgentBuilder

    # No model is called: the graph is what makes messages of stored steps.
    return RegnexeAgentBuilder().with_model_spec("offline:demo").with_checkpointer(saver).build().graph
