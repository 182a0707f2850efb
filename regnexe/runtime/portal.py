"""The synchronous API: one private event loop thread, and nothing written twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.to_thread

from regnexe.errors import AgentClosed, LoopError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from types import TracebackType
    from typing import Self

    from regnexe.events import Event
    from regnexe.results import AgentResult
    from regnexe.runtime.stream import RunStream

__all__ = ["Portal", "SyncRunStream"]

T = TypeVar("T")

_STOP_SECONDS = 5.0
"""How long the end of the loop leaves what was cancelled before to end by itself."""


class Portal:
    """Runs coroutines on one event loop in a thread of its own, started with the first call.

    It works in threads, inside a running loop (Jupyter), and before, between and after `asyncio.run`. The
    thread does not keep the process alive, and ends when the portal is closed or forgotten.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: _LoopThread | None = None

    def call(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Run the coroutine on the loop thread and return its result.

        An interrupt from the keyboard cancels it.

        Raises:
            LoopError: called from the loop thread itself, which would wait for itself.
            AgentClosed: the portal was closed during the call.
        """
        running, future = self._submit(function, *args)
        try:
            return future.result()
        except CancelledError:
            if running.closed:
                raise AgentClosed("the agent was closed during the call, which was cancelled") from None
            raise
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what still runs and end the loop thread; a later call starts a new one.

        From the loop thread itself, it ends as soon as it gets the turn.
        """
        with self._lock:
            running, self._running = self._running, None
        if running is None:
            return
        running.closed = True
        if running.is_usable:
            running.stop()
            if threading.current_thread() is not running.thread:
                running.thread.join()

    async def aclose(self) -> None:
        """Do what `close` does without holding up the running loop."""
        running = self._running
        if running is not None and threading.current_thread() is not running.thread:
            # In a thread: what still runs on the loop thread may wait for a run on this loop.
            await anyio.to_thread.run_sync(self.close)
        else:
            self.close()

    def _submit(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> tuple[_LoopThread, Future[T]]:
        while True:
            running = self._started()
            if threading.current_thread() is running.thread:
                raise LoopError(
                    "a synchronous call was made from the agent's own event loop (an async tool or a listener); "
                    "use the async call there"
                )
            if (future := running.submit(function, *args)) is not None:
                return running, future

    def _started(self) -> _LoopThread:
        with self._lock:
            # A forked child has the object but not the thread; and an exit inside a task ends the thread.
            if self._running is None or not self._running.is_usable:
                self._running = _LoopThread()
                # At the end of the process there is nothing to stop: the thread is a daemon.
                weakref.finalize(self, self._running.stop).atexit = False
            return self._running


class _LoopThread:
    """An event loop that runs in a thread of its own until it is stopped."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.closed = False
        self._lock = threading.Lock()
        self._ending = False
        ready: Future[asyncio.AbstractEventLoop] = Future()
        self.thread = threading.Thread(target=_run_loop, args=(ready, self.end), name="regnexe-loop", daemon=True)
        self.thread.start()
        self.loop = ready.result()

    @property
    def is_usable(self) -> bool:
        return self.pid == os.getpid() and not self._ending and self.thread.is_alive()

    def submit(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> Future[T] | None:
        """Start the coroutine; None when the loop would never run it to its end."""
        with self._lock:
            return asyncio.run_coroutine_threadsafe(function(*args), self.loop) if self.is_usable else None

    def end(self) -> None:
        """Take no further call. What was submitted before is run, and cancelled, by the end of the loop."""
        with self._lock:
            self._ending = True

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # closed already
            self.loop.call_soon_threadsafe(self.loop.stop)


def _run_loop(ready: Future[asyncio.AbstractEventLoop], end: Callable[[], None]) -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    ready.set_result(loop)
    # A model or a tool that exits or interrupts (`SystemExit`, `KeyboardInterrupt`) ends the loop; whoever waits
    # for a call on it is told, and the next call starts anew.
    with contextlib.suppress(BaseException):
        loop.run_forever()
    end()
    # asyncio.Runner would start a thread here to end the executor, which the interpreter refuses when it is
    # ending itself; closing the loop lets the executor's threads end on their own.
    ending = loop.create_task(_end())
    while not ending.done() and not loop.is_closed():
        # Each task that the exit passes through on its way out raises it here once more.
        with contextlib.suppress(BaseException):
            loop.run_until_complete(ending)
    asyncio.set_event_loop(None)
    loop.close()


async def _end() -> None:
    """Cancel what is left on the loop, and wait for it."""
    # A run that was stopped puts its log in order, in a task that the cancel of all would stop as well.
    if stopping := {task for task in asyncio.all_tasks() if task.cancelling()}:
        await asyncio.wait(stopping, timeout=_STOP_SECONDS)
    while left := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


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
            # The end of its loop closes the iterator without a word; a run that was stopped by it raises here.
            _ = self._stream.result
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
