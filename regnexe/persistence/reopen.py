"""A saver or store serves one event loop; this opens the same data again for another.

It leans on what the SQLite classes and aiosqlite keep private: one file, so that there is one place to
mend when they change, and a test that says so in a sentence.
"""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any, TypeVar

from regnexe.errors import LoopError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import aiosqlite
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.store.base import BaseStore

__all__ = ["is_loop_free", "reopen_saver", "reopen_store", "started"]

T = TypeVar("T")

_SAVER = "langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver"
_STORE = "langgraph.store.sqlite.aio.AsyncSqliteStore"
# Held in memory, with no lock or task of a loop inside. A store outside the batching family awaits
# nothing of its own loop either, as far as its interface tells.
_LOOP_FREE = {"langgraph.checkpoint.memory.InMemorySaver"}
_LOOP_BOUND_STORE = "langgraph.store.base.batch.AsyncBatchedBaseStore"


def is_loop_free(resource: BaseCheckpointSaver[Any] | BaseStore) -> bool:
    """Return whether this saver or store serves every event loop alike."""
    names = _class_names(resource)
    if names & _LOOP_FREE:
        return True
    return not names & {_LOOP_BOUND_STORE} and "langgraph.store.base.BaseStore" in names


async def reopen_saver(
    saver: BaseCheckpointSaver[Any],
) -> tuple[BaseCheckpointSaver[Any], Callable[[], Awaitable[None]]]:
    """Return a saver on the same data for the running loop, and how to close it.

    Raises:
        LoopError: the data cannot be opened again.
    """
    if _SAVER not in _class_names(saver):
        raise _refusal(saver, "cannot be opened again for it")
    connection, close = await _connect_again(saver)
    return await _clone(saver, connection, close)


async def reopen_store(store: BaseStore) -> tuple[BaseStore, Callable[[], Awaitable[None]]]:
    """Return a store on the same data for the running loop, and how to close it.

    Raises:
        LoopError: the data cannot be opened again.
    """
    if _STORE not in _class_names(store):
        raise _refusal(store, "cannot be opened again for it")
    source: Any = store
    connection, close = await _connect_again(store)
    try:
        again: Any = type(store)(  # type: ignore[call-arg]
            connection, deserializer=source._deserializer, index=source.index_config, ttl=source.ttl_config
        )
        await again.setup()
    except BaseException:
        await close()
        raise
    return again, close


async def started(connection: aiosqlite.Connection) -> aiosqlite.Connection:
    """Open a connection that does not keep the process from ending when nobody closes it."""
    # aiosqlite's worker thread would.
    connection._thread.daemon = True
    return await connection


async def _clone(
    saver: Any, connection: Any, close: Callable[[], Awaitable[None]]
) -> tuple[Any, Callable[[], Awaitable[None]]]:
    # A copy keeps what a subclass or a serializer choice added; what belongs to a loop is made anew.
    again = copy.copy(saver)
    again.conn = connection
    again.lock = asyncio.Lock()
    again.loop = asyncio.get_running_loop()
    again.is_setup = False
    try:
        await again.setup()
    except BaseException:
        await close()
        raise
    return again, close


async def _connect_again(resource: Any) -> tuple[Any, Callable[[], Awaitable[None]]]:
    import aiosqlite

    source = resource.conn
    connection = await started(aiosqlite.Connection(source._connector, source._iter_chunk_size))
    try:
        # The main database comes first; it has no file when it lives in memory.
        async with connection.execute("PRAGMA database_list") as rows:
            row = await rows.fetchone()
        if row is None or not row[2]:
            raise _refusal(resource, "holds its data in memory (`:memory:`), which a second connection cannot see")
        if source._running and source._connection is not None:
            async with source.execute("PRAGMA database_list") as rows:
                first = await rows.fetchone()
            if first is not None and first[2] != row[2]:
                raise _refusal(
                    resource,
                    f"was opened as {first[2]!r} with a relative path, which now means {row[2]!r}, since the working "
                    "directory has changed; open it with an absolute path",
                )
    except BaseException:
        await connection.close()
        raise
    return connection, connection.close


def _refusal(resource: object, why: str) -> LoopError:
    kind = type(resource).__name__
    return LoopError(
        f"{kind} belongs to the event loop that made it, this call comes from another one, and it {why}. "
        f"Use the agent on one event loop only (one asyncio.run, or only the synchronous calls), "
        "give it an AsyncSqliteSaver on a file, or use with_persistence(url), which opens its data on each loop."
    )


def _class_names(resource: object) -> set[str]:
    # By name, so that nothing of a driver is imported before somebody uses it.
    return {f"{cls.__module__}.{cls.__qualname__}" for cls in type(resource).__mro__}
