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
        awaited = [channel for channel in self._channels if not channel.lagging]
        for channel in await _wait_for(awaited):
            channel.note_lag()

    async def aclose(self) -> None:
        """Wait for the listeners a last time, then stop those that have not ended."""
        for channel in await _wait_for(self._channels):
            await channel.stop()


async def _wait_for(channels: Sequence[_Channel]) -> list[_Channel]:
    """Return the channels that have still something to do after `DRAIN_SECONDS`."""
    workers = [channel.worker for channel in channels if channel.worker is not None]
    if workers:
        await asyncio.wait(workers, timeout=DRAIN_SECONDS)
    return [channel for channel in channels if channel.worker is not None]


class _Channel:
    """One listener, its queue, and the task that feeds it while there is something to feed."""

    def __init__(self, listener: AgentEventListener) -> None:
        self._listener = listener
        self._queue: deque[Event] = deque()
        self._worker: asyncio.Task[None] | None = None
        self.lagging = False
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
        if self.worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work(), context=context.copy())

    @property
    def worker(self) -> asyncio.Task[None] | None:
        """The task that feeds the listener, None when there is nothing to feed."""
        return None if self._worker is None or self._worker.done() else self._worker

    def note_lag(self) -> None:
        self.lagging = True
        logger.warning("listener %r is %d events behind; runs no longer wait for it", *self._behind())

    async def stop(self) -> None:
        if (worker := self.worker) is not None:
            worker.cancel()
            await asyncio.wait({worker})

    async def _work(self) -> None:
        task = asyncio.current_task()
        while self._queue:
            event = self._queue.popleft()
            try:
                await self._listener.on_event(event.type, event.name, event)
            except KeyboardInterrupt:
                raise
            except BaseException:  # GeneratorExit and the outcomes of pytest are no Exceptions
                if _ending(task):
                    raise
                logger.exception("listener %r failed on %s; the run goes on", self._listener, event.type)
        self.lagging = self._dropping = False

    def _wants(self, event_type: EventType) -> bool:
        should_handle = getattr(self._listener, "should_handle", None)
        if should_handle is None:
            return True
        try:
            return bool(should_handle(event_type))
        except KeyboardInterrupt:
            raise
        except BaseException:
            logger.exception(
                "listener %r failed in should_handle(%s); it gets no such event", self._listener, event_type
            )
            return False

    def _behind(self) -> tuple[object, int]:
        return self._listener, len(self._queue) + 1


def _ending(task: asyncio.Task[None] | None) -> bool:
    """Whether this code is stopped from outside: its task is cancelled, or is no more and its frame is closed."""
    try:
        running = asyncio.current_task()
    except RuntimeError:
        return True
    return running is None or running is not task or running.cancelling() > 0
