"""Savers and stores that a user gives: what they must be."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from regnexe.errors import ConfigurationError

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.store.base import BaseStore

__all__ = ["check_saver", "check_store"]

# Savers and stores whose async methods only raise, and the class to use instead.
_SYNC_ONLY = {
    "langgraph.checkpoint.sqlite.SqliteSaver": "langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver",
    "langgraph.checkpoint.postgres.PostgresSaver": "langgraph.checkpoint.postgres.aio.AsyncPostgresSaver",
    "langgraph.checkpoint.redis.RedisSaver": "langgraph.checkpoint.redis.aio.AsyncRedisSaver",
    "langgraph.checkpoint.mongodb.saver.MongoDBSaver": "an async MongoDB saver",
    "langgraph.store.sqlite.base.SqliteStore": "langgraph.store.sqlite.aio.AsyncSqliteStore",
    "langgraph.store.postgres.base.PostgresStore": "langgraph.store.postgres.aio.AsyncPostgresStore",
}


def check_saver(call: str, saver: BaseCheckpointSaver[Any]) -> None:
    """Raise unless this is an open async saver.

    Raises:
        ConfigurationError: it is not; the message names the class to use.
    """
    from langgraph.checkpoint.base import BaseCheckpointSaver

    _check_async(call, saver, BaseCheckpointSaver, "an async LangGraph saver")
    if type(saver).aget_tuple is BaseCheckpointSaver.aget_tuple:
        raise ConfigurationError(
            f"{type(saver).__name__} has no async methods (aget_tuple, aput, ...), which agents need"
        )


def check_store(call: str, store: BaseStore) -> None:
    """Raise unless this is an open async store.

    Raises:
        ConfigurationError: it is not; the message names the class to use.
    """
    from langgraph.store.base import BaseStore

    _check_async(call, store, BaseStore, "an async LangGraph store")


def _check_async(call: str, given: object, base: type, wanted: str) -> None:
    for cls in type(given).__mro__:
        if better := _SYNC_ONLY.get(f"{cls.__module__}.{cls.__qualname__}"):
            raise ConfigurationError(f"{type(given).__name__} works only synchronously; use {better}")
    if isinstance(given, base):
        return
    hint = ""
    kind = f"the class {given.__name__}; pass an instance" if isinstance(given, type) else type(given).__name__
    if isinstance(given, str | os.PathLike) and "check" in call:
        hint = '; for a file: with_persistence("sqlite:///sessions.db")'
    elif not isinstance(given, type) and (hasattr(given, "__aenter__") or hasattr(given, "__enter__")):
        hint = "; from_conn_string(...) is a context manager: `async with ... as saver`, then pass the saver"
    raise ConfigurationError(f"{call} takes {wanted}, got {kind}{hint}")
