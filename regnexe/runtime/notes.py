"""Tells the session index what becomes of a run, without the run depending on it."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from regnexe.persistence.index.base import RUNNING, SessionUpdate, title_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from regnexe.persistence.index.base import SessionIndex
    from regnexe.results import AgentResult
    from regnexe.runtime.request import RunRequest

__all__ = ["RunNotes"]

logger = logging.getLogger("regnexe")

_SECONDS = 10.0
"""How long an update of the index may take, the wait for another process's write included."""


class RunNotes:
    """What becomes of runs, for the index. An index that fails costs a line in the log, and nothing else."""

    def __init__(self, index: SessionIndex) -> None:
        self._index = index

    async def begun(self, request: RunRequest) -> None:
        """Note a session whose first message is about to be stored."""
        title = title_of([request.message])
        await self.record(
            SessionUpdate(key=request.key, at=datetime.now(UTC), status=RUNNING, title=title, turns=1, messages=1)
        )

    async def ended(self, request: RunRequest, result: AgentResult, values: Mapping[str, Any]) -> None:
        """Note how a run ended.

        Args:
            request: what was asked for, with its turn.
            result: what the run gave.
            values: the session's state after the run; empty when it could not be read.
        """
        log = values.get("messages", ())
        # A message that did not come into the log has not used up its number.
        turns = None if request.turn is None else request.turn - (not result.messages)
        update = SessionUpdate(
            key=request.key,
            at=datetime.now(UTC),
            status=result.status.value,
            title=title_of(log),
            turns=turns if values else None,
            messages=len(log) if values else None,
            tokens=result.usage.total_tokens,
        )
        await self.record(update)

    async def record(self, update: SessionUpdate) -> None:
        """Hand the update to the index."""
        try:
            async with asyncio.timeout(_SECONDS):
                await self._index.record(update)
        # A store whose own task has died cancels who waits for it; nobody else cancels this.
        except (Exception, asyncio.CancelledError) as error:
            logger.warning(
                "the list of sessions (%s) did not take an update of session %r; its next run makes up for it: %s: %s",
                type(self._index).__name__,
                update.key.thread_id,
                type(error).__name__,
                error,
            )
