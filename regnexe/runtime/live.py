"""The runs that go on, so that closing an agent can stop them and wait for them."""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator

    from regnexe.events import Event
    from regnexe.runtime.runner import RunControl

__all__ = ["LiveRun", "callers_runs", "ended", "running_loop"]

_POLL_SECONDS = 0.01


class LiveRun:
    """One run on the loop that it was made on. `stopped` says that closing the agent has stopped it."""

    def __init__(self, control: RunControl) -> None:
        control.attach()
        self.control = control
        self.loop = asyncio.get_running_loop()
        self.owner: object = None
        self.stopped = False
        self._pid = os.getpid()
        self._done = False

    @property
    def goes_on(self) -> bool:
        """Whether the run will end by itself: not when it has, nor when its loop or its process is not here."""
        return not self._done and self._pid == os.getpid() and self.loop.is_running()

    def stop(self) -> None:
        """Stop the run at its next await; from any thread."""
        if self._pid != os.getpid():
            return
        if self.loop is running_loop():
            self._stop()
        else:
            with suppress(RuntimeError):  # its loop was closed
                self.loop.call_soon_threadsafe(self._stop)

    def teller(self, stream: Callable[[Event], Awaitable[None]]) -> Callable[[Event], Awaitable[None]]:
        """Return `stream`, which hands an event to the run's reader, without the wait once the run is stopped."""

        def tell(event: Event) -> Awaitable[None]:
            taken = stream(event)
            if not self.stopped:
                return taken
            at_once: asyncio.Future[None] = self.loop.create_future()
            at_once.set_result(None)
            return at_once

        return tell

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Let what is called inside the block know that it is inside this run."""
        token = _inside.set((*(live for live in _inside.get() if not live._done), self))
        try:
            yield
        finally:
            self._done = True
            # A run that is collected with its closed loop ends in whatever context the collector was called in.
            with suppress(ValueError):
                _inside.reset(token)

    def _stop(self) -> None:
        # A run that somebody else has stopped ends as that somebody expects.
        if not self._done and not self.control.cancelled:
            self.stopped = True
            self.control.cancel()


def callers_runs() -> tuple[LiveRun, ...]:
    """Return the runs that the caller is inside of (in a tool or a listener), ended or not, the outermost first."""
    return _inside.get()


async def ended(runs: Collection[LiveRun]) -> None:
    """Wait until none of the runs goes on."""
    # No event to wait for: they are on any number of loops, and nothing tells when one of those is stopped.
    while any(run.goes_on for run in runs):  # noqa: ASYNC110
        await asyncio.sleep(_POLL_SECONDS)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, None when none does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


_inside: ContextVar[tuple[LiveRun, ...]] = ContextVar("regnexe_live_runs", default=())
