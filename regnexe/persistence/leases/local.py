"""One writer per session within this process, first come, first served."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from regnexe.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable

__all__ = ["LocalLeases"]


class LocalLeases:
    """Lets one run at a time into each session; the others wait in the order they came.

    It works across event loops and threads, so that the sync and the async API exclude each other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[Hashable, deque[_Ticket]] = {}

    @asynccontextmanager
    async def hold(self, key: Hashable) -> AsyncIterator[None]:
        """Wait for the session's turn, and have it until the block ends.

        Raises:
            InvalidInput: the caller runs inside a run of this very session and would wait for itself.
        """
        mine = _held.get()
        if any(ticket.active and ticket.key == key for ticket in mine):
            raise InvalidInput(
                f"session {key[-1] if isinstance(key, tuple) else key!r} is running, and this call was made from "
                "inside that run (a tool or a listener); use another session_id for the inner call"
            )
        ticket = _Ticket(key)
        with self._lock:
            line = self._lines.setdefault(key, deque())
            line.append(ticket)
            if line[0] is ticket:
                ticket.turn.set_result(None)
        token = _held.set((*(held for held in mine if held.active), ticket))
        try:
            await ticket.turn
            ticket.active = True
            yield
        finally:
            ticket.active = False
            _held.reset(token)
            self._leave(ticket)

    def _leave(self, ticket: _Ticket) -> None:
        with self._lock:
            line = self._lines[ticket.key]
            line.remove(ticket)
            # A holder whose loop was closed under it never leaves by itself; let the next one in.
            while line and not line[0].call():
                line.popleft()
            if not line:
                del self._lines[ticket.key]


class _Ticket:
    """A place in the line of one session. `active` while its holder runs."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.active = False
        self.loop = asyncio.get_running_loop()
        self.turn: asyncio.Future[None] = self.loop.create_future()

    def call(self) -> bool:
        """Tell the holder that it is its turn, from any thread; False when its loop is gone."""
        try:
            self.loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            return False
        return True

    def _wake(self) -> None:
        if not self.turn.done():
            self.turn.set_result(None)


_held: ContextVar[tuple[_Ticket, ...]] = ContextVar("regnexe_held_leases", default=())
