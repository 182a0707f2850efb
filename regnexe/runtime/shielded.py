"""Work that comes to its end although its caller is cancelled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["then_cancelled", "to_the_end"]

T = TypeVar("T")


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Do the work even if the caller is cancelled meanwhile, again and again."""
    task = asyncio.ensure_future(work)
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                # Counted by the task already; the caller raises it after the work.
                continue
    return task.result()


async def then_cancelled(work: Coroutine[Any, Any, None]) -> None:
    """Do the work to its end, and raise the cancellation that came meanwhile after it."""
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    before = task.cancelling()
    await to_the_end(work)
    if task.cancelling() > before:
        raise asyncio.CancelledError
