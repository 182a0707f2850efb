"""The synchronous API: one private event loop thread, and nothing written twice."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from regnexe.errors import LoopError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import TracebackType
    from typing import Self

    from regnexe.events import Event
    from regnexe.results import AgentResult
    from regnexe.runtime.stream import RunStream

__all__ = ["Portal", "SyncRunStream"]

T = TypeVar("T")


class Portal:
    """Runs coroutines on one event loop in a thread of its own, started with the first call.

    It works in threads, inside a running loop (Jupyter), and before, between and after `asyncio.run`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: tuple[AbstractContextManager[BlockingPortal], BlockingPortal, int] | None = None
        self._thread_id: int | None = None

    @property
    def started(self) -> bool:
        """Whether the loop thread is there."""
        return self._running is not None

    def call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run the coroutine on the loop thread and return its result.

        An interrupt from the keyboard cancels it.

        Raises:
            LoopError: called from the loop thread itself, which would wait for itself.
        """
        portal = self._portal()
        if threading.get_ident() == self._thread_id:
            raise LoopError(
                "a synchronous call was made from the agent's own event loop (an async tool or a listener); "
                "use the async call there"
            )
        future = portal.start_task_soon(function, *args)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop thread; a later call starts a new one."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None and running[2] == os.getpid():
            running[0].__exit__(None, None, None)

    def _portal(self) -> BlockingPortal:
        with self._lock:
            # A forked child has the object but not the thread.
            if self._running is None or self._running[2] != os.getpid():
                manager = start_blocking_portal(name="regnexe-loop")
                portal = manager.__enter__()
                self._running = (manager, portal, os.getpid())
                self._thread_id = portal.call(threading.get_ident)
            return self._running[1]


class SyncRunStream:
    """The events of one run, as they happen, then its result: `RunStream` without `async`."""

    def __init__(self, stream: RunStream, portal: Portal) -> None:
        self._stream = stream
        self._portal = portal

    @property
    def result(self) -> AgentResult:
        """What the run gave, once the stream has ended; see `RunStream.result`."""
        return self._stream.result

    def close(self) -> None:
        """Cancel the run if it still goes on, and wait until its log is in order."""
        self._portal.call(self._stream.aclose)

    def __iter__(self) -> Iterator[Event]:
        events = self._portal.call(_iterator, self._stream)
        try:
            while (event := self._portal.call(_next, events)) is not None:
                yield event
        finally:
            self.close()

    def __enter__(self) -> Self:
        self._portal.call(self._stream.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._portal.call(self._stream.__aexit__, kind, error, traceback)


async def _iterator(stream: RunStream) -> Any:
    return aiter(stream)


async def _next(events: Any) -> Event | None:
    found: Event | None = await anext(events, None)
    return found
