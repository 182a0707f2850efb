"""A write happens whole or not at all, also when its caller is cancelled, the file is locked or a connection dies.

LangGraph's SQLite saver inserts and commits in two steps. Cancelled or refused between them, it leaves its transaction
open: the connection then holds the file's write lock, or an old snapshot that no later write can follow. Its
PostgreSQL saver gives up when a server or a proxy ends the connection under it.
"""

from __future__ import annotations

import asyncio
import copy
import functools
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol

from regnexe.persistence.postgres_faults import is_passing, place_of, postgres_fault
from regnexe.persistence.retry import retried
from regnexe.persistence.sqlite_faults import is_busy, sqlite_fault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from langgraph.checkpoint.base import BaseCheckpointSaver

__all__ = ["with_whole_writes"]

_SQLITE = "langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver"
_POSTGRES = "langgraph.checkpoint.postgres.aio.AsyncPostgresSaver"
_WRITES = ("aput", "aput_writes", "adelete_thread", "aprune")
_READS = ("aget_tuple", "aget_delta_channel_history")


def with_whole_writes(saver: BaseCheckpointSaver[Any]) -> BaseCheckpointSaver[Any]:
    """Return the saver in a form that rolls back what it could not write, and tries again what failed for a moment.

    It shares the connection and the lock of the one that was given; one of another kind is returned as it is. What
    SQLite or PostgreSQL refuse in the end comes as a `PersistenceError` where that tells more than their own exception.
    """
    kind: Any = type(saver)
    names = {f"{cls.__module__}.{cls.__qualname__}" for cls in kind.__mro__}
    care: _Care
    if hasattr(kind, "_regnexe_whole"):
        return saver
    if _SQLITE in names:
        care = _SQLITE_CARE
    elif _POSTGRES in names:
        care = _POSTGRES_CARE
    else:
        return saver
    again = copy.copy(saver)
    again.__class__ = _whole(kind, care)
    return again


class _Care(Protocol):
    async def do(self, saver: Any, call: Callable[[], Awaitable[Any]], *, writes: bool) -> Any:
        """Do the call in the way that suits the database."""

    async def told(self, saver: Any, error: Exception) -> Exception:
        """Return what to raise in place of a driver's error."""


class _SqliteCare:
    """Rolls back, and waits for those that have the file locked."""

    async def do(self, saver: Any, call: Callable[[], Awaitable[Any]], *, writes: bool) -> Any:
        async def whole() -> Any:
            try:
                return await call()
            except BaseException:
                async with saver.lock:
                    await saver.conn.rollback()
                raise

        once = whole if writes else call
        try:
            return await once()
        except Exception as error:
            if not is_busy(error):
                raise
        _, seconds = await _file_of(saver)
        return await retried(once, passes=is_busy, seconds=seconds)

    async def told(self, saver: Any, error: Exception) -> Exception:
        import sqlite3

        if not isinstance(error, sqlite3.Error):
            return error
        path, _ = await _file_of(saver)
        return sqlite_fault(error, path) or error


class _PostgresCare:
    """Takes another connection from the pool when one has died. A write that is repeated finds its own rows there."""

    async def do(self, saver: Any, call: Callable[[], Awaitable[Any]], *, writes: bool) -> Any:
        from psycopg_pool import AsyncConnectionPool

        if not isinstance(saver.conn, AsyncConnectionPool):
            return await call()
        return await retried(call, passes=is_passing, seconds=0)

    async def told(self, saver: Any, error: Exception) -> Exception:
        return postgres_fault(error, place_of(saver.conn)) or error


_SQLITE_CARE = _SqliteCare()
_POSTGRES_CARE = _PostgresCare()


@functools.cache
def _whole(kind: type[Any], care: _Care) -> type[Any]:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    methods: dict[str, Any] = {"_regnexe_whole": True, "alist": _told(kind, care)}
    for name in (*_WRITES, *_READS):
        # LangGraph finds out what a saver can do by looking for methods that are not the base class's.
        if getattr(kind, name) is not getattr(BaseCheckpointSaver, name):
            methods[name] = _careful(getattr(kind, name), care, writes=name in _WRITES)
    # The user's own subclass, as the case may be, keeps its name.
    return type(kind.__name__, (kind,), {**methods, "__module__": kind.__module__, "__qualname__": kind.__qualname__})


def _careful(method: Any, care: _Care, *, writes: bool) -> Any:
    async def work(saver: Any, args: Any, kwargs: Any) -> Any:
        try:
            return await care.do(saver, lambda: method(saver, *args, **kwargs), writes=writes)
        except Exception as error:
            told = await care.told(saver, error)
            if told is error:
                raise
            raise told from error

    # The wrapped methods keep their signatures: LangGraph looks for `task_path`, which orders parallel results.
    @functools.wraps(method)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not writes:
            return await work(self, args, kwargs)
        # In a task of its own: a cancel of the caller lets the write come to its end.
        return await asyncio.shield(asyncio.ensure_future(work(self, args, kwargs)))

    return call


def _told(kind: Any, care: _Care) -> Any:
    @functools.wraps(kind.alist)
    async def alist(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        try:
            async with aclosing(kind.alist(self, *args, **kwargs)) as found:
                async for checkpoint in found:
                    yield checkpoint
        except Exception as error:
            told = await care.told(self, error)
            if told is error:
                raise
            raise told from error

    return alist


async def _file_of(saver: Any) -> tuple[str, float]:
    """Return the file that a SQLite saver writes to, and for how many seconds its connection waits for a lock."""
    (_, _, path), *_ = await saver.conn.execute_fetchall("PRAGMA database_list")
    ((milliseconds,),) = await saver.conn.execute_fetchall("PRAGMA busy_timeout")
    return path or ":memory:", milliseconds / 1000
