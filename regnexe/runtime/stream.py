"""A run that is followed while it goes on."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from regnexe.errors import RegnexeError
from regnexe.runtime.runner import RunControl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType
    from typing import Self

    from regnexe.events import Event
    from regnexe.results import AgentResult

    Start = Callable[[RunControl, Callable[[Event], Awaitable[None]]], Awaitable[AgentResult]]

__all__ = ["RunStream"]


class RunStream:
    """The events of one run, as they happen, then its result.

    An async context manager and an async iterator. The run starts when it is entered or first iterated,
    keeps pace with its reader (it is at most one event ahead), and is cancelled when the reader leaves
    early: by `break`, by an exception, or by the end of the `async with` block.
    """

    def __init__(self, start: Start) -> None:
        self._start = start
        self._control = RunControl()
        self._pipe = _Pipe()
        self._task: asyncio.Task[AgentResult] | None = None
        self._read = False

    @property
    def result(self) -> AgentResult:
        """What the run gave, once the stream has ended; status `cancelled` when it was left early.

        Raises:
            RegnexeError: the run has not ended, or never began.
        """
        if self._task is None or not self._task.done():
            raise RegnexeError("the run has not ended; read the stream to its end, or leave its `async with` block")
        if self._task.cancelled():
            raise RegnexeError("the stream was left before its run began; nothing was stored")
        return self._task.result()

    async def aclose(self) -> None:
        """Cancel the run if it still goes on, and wait until its log is in order.

        Who is still reading it, in another task, gets the rest of its events, `AgentCompleted` the last.
        """
        self._pipe.let_go()
        if self._task is None:
            return
        if not self._task.done():
            if not self._control.cancel():
                self._task.cancel()
            await _ended(self._task)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events()

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
        if kind is None and not self._read and self._task is not None and not self._task.cancelled():
            self._task.result()  # what made the run impossible raises here when nobody reads

    async def _events(self) -> AsyncIterator[Event]:
        task = self._begin()
        self._read = True
        try:
            while (event := await self._pipe.take()) is not None:
                yield event
            await task  # raises what made the run impossible
        finally:
            await self.aclose()

    async def _run(self) -> AgentResult:
        self._control.attach()
        return await self._start(self._control, self._pipe.put)

    def _begin(self) -> asyncio.Task[AgentResult]:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(lambda _: self._pipe.close())
        return self._task


async def _ended(task: asyncio.Task[AgentResult]) -> None:
    while not task.done():
        await asyncio.wait({task})


class _Pipe:
    """Hands events from the run to its reader, and holds the run back while one is unread.

    What was put can always be read, also after the end.
    """

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._filled = asyncio.Event()
        self._held: list[asyncio.Future[None]] = []
        self._holding = True
        self._closed = False

    def put(self, event: Event) -> asyncio.Future[None]:
        """Hand over an event, at once; what is returned is done when the reader has taken the one before it."""
        self._events.append(event)
        self._filled.set()
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append(taken)
        self._release()
        return taken

    async def take(self) -> Event | None:
        """Return the next event, None when there are no more."""
        while not self._events:
            if self._closed:
                return None
            self._filled.clear()
            await self._filled.wait()
        event = self._events.popleft()
        self._release()
        return event

    def let_go(self) -> None:
        """Hold the run back no longer."""
        self._holding = False
        self._release()

    def close(self) -> None:
        """Say that no more events come."""
        self._closed = True
        self._filled.set()
        self.let_go()

    def _release(self) -> None:
        if self._holding and len(self._events) > 1:
            return
        for taken in self._held:
            if not taken.done():
                taken.set_result(None)
        self._held.clear()
