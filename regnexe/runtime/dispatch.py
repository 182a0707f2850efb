"""Takes events to listeners without letting a listener touch the run."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextvars import Context

    from regnexe.events import Event, EventType
    from regnexe.listeners import AgentEventListener

__all__ = ["DRAIN_SECONDS", "QUEUE_LIMIT", "Dispatcher"]

logger = logging.getLogger("regnexe")

DRAIN_SECONDS = 1.0
"""How long the end of a run waits for its listeners."""

QUEUE_LIMIT = 10_000
"""How many events may wait for one listener; later ones are dropped, and the log says so."""


class Dispatcher:
    """The listeners of one agent on one event loop. Not thread-safe: use it on that loop only."""

    def __init__(self, listeners: Sequence[AgentEventListener]) -> None:
        self._channels = [_Channel(listener) for listener in listeners]

    def __bool__(self) -> bool:
        return bool(self._channels)

    def publish(self, event: Event, context: Context) -> None:
        """Queue an event for every listener that wants it; `context` is what the listeners run in."""
        for channel in self._channels:
            channel.publish(event, context)

    async def drain(self) -> None:
        """Wait until the listeners have taken what was published, at most `DRAIN_SECONDS`."""
        waiting = {worker for channel in self._channels if (worker := channel.worth_waiting_for()) is not None}
        if waiting:
            await asyncio.wait(waiting, timeout=DRAIN_SECONDS)
            for channel in self._channels:
                channel.note_lag()

    async def aclose(self) -> None:
        """Wait for the listeners a last time, then stop those that have not ended."""
        await self.drain()
        for channel in self._channels:
            await channel.stop()


class _Channel:
    """One listener, its queue, and the task that feeds it while there is something to feed."""

    def __init__(self, listener: AgentEventListener) -> None:
        self._listener = listener
        self._queue: deque[Event] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._lagging = False
        self._dropping = False

    def publish(self, event: Event, context: Context) -> None:
        if not self._wants(event.type):
            return
        if len(self._queue) >= QUEUE_LIMIT:
            if not self._dropping:
                logger.error("listener %r is %d events behind; dropping events until it catches up", *self._behind())
            self._dropping = True
            return
        self._queue.append(event)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work(), context=context.copy())

    def worth_waiting_for(self) -> asyncio.Task[None] | None:
        return None if self._lagging or self._worker is None or self._worker.done() else self._worker

    def note_lag(self) -> None:
        if self.worth_waiting_for() is not None:
            self._lagging = True
            logger.warning("listener %r is %d events behind; runs no longer wait for it", *self._behind())

    async def stop(self) -> None:
        if self._worker is not None and not self._worker.done():
            self._worker.cancel()
            await asyncio.wait({self._worker})

    async def _work(self) -> None:
        while self._queue:
            event = self._queue.popleft()
            try:
                await self._listener.on_event(event.type, event.name, event)
            except (Exception, SystemExit, asyncio.CancelledError):
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                logger.exception("listener %r failed on %s; the run goes on", self._listener, event.type)
        self._lagging = self._dropping = False

    def _wants(self, event_type: EventType) -> bool:
        should_handle = getattr(self._listener, "should_handle", None)
        if should_handle is None:
            return True
        try:
            return bool(should_handle(event_type))
        except Exception:
            logger.exception(
                "listener %r failed in should_handle(%s); it gets no such event", self._listener, event_type
            )
            return False

    def _behind(self) -> tuple[object, int]:
        return self._listener, len(self._queue) + 1
