"""From a persistence URL to what it gives."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from regnexe.persistence.urls import MemoryUrl, PostgresUrl, SqliteUrl, read_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from regnexe.persistence.opened import OpenedPersistence, PersistenceSource

__all__ = ["open_persistence", "persistence_source"]


def open_persistence(url: str) -> AbstractAsyncContextManager[OpenedPersistence]:
    """Open what an agent built with `with_persistence(url)` uses, for your own use or for several agents.

    ```python
    async with open_persistence("sqlite:///sessions.db") as opened:
        agent = RegnexeAgentBuilder().with_checkpointer(opened.checkpointer).with_store(opened.store)...
    ```

    Args:
        url: see `RegnexeAgentBuilder.with_persistence`.

    Returns:
        An asynchronous context manager: entering opens, on the running event loop, and leaving closes.

    Raises:
        ConfigurationError: it is no such URL, or the packages for it are not installed.
        PersistenceError: on entering, it cannot be opened; the message says why.
    """
    return _opened(persistence_source(url))


def persistence_source(url: str) -> PersistenceSource:
    """Return what opens the URL, with everything checked that can be checked without opening it.

    Raises:
        ConfigurationError: it is no such URL, or the packages for it are not installed.
    """
    read = read_url(url)
    # Each brings a module of its own, and some a driver.
    if isinstance(read, SqliteUrl):
        from regnexe.persistence.sqlite import SqliteSource

        return SqliteSource(read)
    if isinstance(read, PostgresUrl):
        from regnexe.persistence.postgres import PostgresSource

        return PostgresSource(read)
    assert isinstance(read, MemoryUrl)
    from regnexe.persistence.memory import MemorySource

    return MemorySource()


@asynccontextmanager
async def _opened(source: PersistenceSource) -> AsyncIterator[OpenedPersistence]:
    opened = await source.open()
    try:
        yield opened
    finally:
        await opened.aclose()
