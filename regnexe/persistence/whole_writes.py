"""A write to SQLite happens whole or not at all, also when its caller is cancelled or the file is locked.

LangGraph's saver inserts and commits in two steps. Cancelled or refused between them, it leaves its transaction
open: the connection then holds the file's write lock, or an old snapshot that no later write can follow.
"""

from __future__ import annotations

import asyncio
import copy
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from langgraph.checkpoint.base import BaseCheckpointSaver

__all__ = ["with_whole_writes"]

_SAVER = "langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver"


def with_whole_writes(saver: BaseCheckpointSaver[Any]) -> BaseCheckpointSaver[Any]:
    """Return the saver in a form that rolls back what it could not write; one of another kind as it is.

    It shares the connection and the lock of the one that was given.
    """
    kind: Any = type(saver)
    if _SAVER not in {f"{cls.__module__}.{cls.__qualname__}" for cls in kind.__mro__}:
        return saver
    again = copy.copy(saver)
    again.__class__ = _whole(kind)
    return again


@functools.cache
def _whole(kind: type[Any]) -> type[Any]:
    # The wrapped methods keep their signatures: LangGraph looks for `task_path`, which orders parallel results.
    class WholeWrites(kind):  # type: ignore[misc]  # the user's own subclass, as the case may be
        @functools.wraps(kind.aput)
        async def aput(self, *args: Any, **kwargs: Any) -> Any:
            return await _write(self, super().aput(*args, **kwargs))

        @functools.wraps(kind.aput_writes)
        async def aput_writes(self, *args: Any, **kwargs: Any) -> Any:
            return await _write(self, super().aput_writes(*args, **kwargs))

        @functools.wraps(kind.adelete_thread)
        async def adelete_thread(self, *args: Any, **kwargs: Any) -> Any:
            return await _write(self, super().adelete_thread(*args, **kwargs))

    WholeWrites.__name__, WholeWrites.__qualname__ = kind.__name__, kind.__qualname__
    return WholeWrites


async def _write(saver: Any, write: Coroutine[Any, Any, Any]) -> Any:
    # In a task of its own: a cancel of the caller lets the write come to its end.
    return await asyncio.shield(asyncio.ensure_future(_or_rolled_back(saver, write)))


async def _or_rolled_back(saver: Any, write: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await write
    except BaseException:
        async with saver.lock:
            await saver.conn.rollback()
        raise
