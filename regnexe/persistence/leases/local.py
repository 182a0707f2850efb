"""One writer per session within this process, first come, first served."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING
from weakref import WeakSet

from regnexe.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable

__all__ = ["LocalLeases"]


class LocalLeases:
    """Lets one run at a time into each session; the others wait in the order they came.

    It works across event loops and threads, so that the sync and the async API exclude each other. A
    holder whose loop was closed under it loses its place, and a forked child starts with nobody in line.
    """

    def __init__(self) -> None:
        self._forget()
        _all_leases.add(self)

    @asynccontextmanager
    async def hold(self, key: Hashable) -> AsyncIterator[None]:
        """Wait for the session's turn, and have it until the block ends.

        Raises:
            InvalidInput: the caller runs inside a run of this very session, or inside one that a run of
                this session waits for, and so would wait for itself.
        """
        mine = tuple(ticket for ticket in _held.get() if ticket.active)
        ticket = _Ticket(key, inside=mine)
        self._join(ticket)
        token = _held.set((*mine, ticket))
        try:
            await ticket.turn
            ticket.active = True
            yield
        finally:
            ticket.active, ticket.inside = False, ()
            self._leave(ticket)
            # A run that is collected with its closed loop ends in whatever context the collector was called in.
            with suppress(ValueError):
                _held.reset(token)

    def _join(self, ticket: _Ticket) -> None:
        with self._lock:
            if ticket.inside:
                self._refuse_a_circle(ticket)
            line = self._lines.setdefault(ticket.key, deque())
            line.append(ticket)
            # Collecting a dead run calls `_leave` in the middle of this, and may have taken the line away.
            self._lines[ticket.key] = line
            if (first := line[0]) is not ticket and first.loop.is_closed():
                self._leave(first)
            if line[0] is ticket:
                ticket.wake()

    def _leave(self, ticket: _Ticket) -> None:
        with self._lock:
            line = self._lines.get(ticket.key)
            if line is None:
                return
            _remove(line, ticket)
            # A holder whose loop was closed under it never leaves by itself; let the next one in.
            while line and not (first := line[0]).call():
                _remove(line, first)
            if not line:
                self._lines.pop(ticket.key, None)

    def _refuse_a_circle(self, ticket: _Ticket) -> None:
        """Raise when a run that the ticket would wait for waits, through others or not, for the ticket's own run."""
        waiting = [other for line in list(self._lines.values()) for other in list(line)[1:]]
        seen: set[_Ticket] = set()
        keys = [ticket.key]
        while keys:
            line = self._lines.get(keys.pop())
            if not line or (holder := line[0]) in seen:
                continue
            if holder in ticket.inside:
                raise InvalidInput(_circle(ticket, holder))
            seen.add(holder)
            keys += [other.key for other in waiting if holder in other.inside]

    def _forget(self) -> None:
        # Reentrant, since the collector can end a dead run, which leaves its line, while this thread has the lock.
        self._lock = threading.RLock()
        self._lines: dict[Hashable, deque[_Ticket]] = {}


class _Ticket:
    """A place in the line of one session. `active` while its holder runs; `inside` are the runs it is called from."""

    def __init__(self, key: Hashable, *, inside: tuple[_Ticket, ...]) -> None:
        self.key = key
        self.inside = inside
        self.active = False
        self.loop = asyncio.get_running_loop()
        self.turn: asyncio.Future[None] = self.loop.create_future()

    def call(self) -> bool:
        """Tell the holder that it is its turn, from any thread; False when its loop is gone."""
        try:
            self.loop.call_soon_threadsafe(self.wake)
        except RuntimeError:
            return False
        return True

    def wake(self) -> None:
        """Give the turn, on the ticket's own loop; giving it twice is fine."""
        if not self.turn.done():
            self.turn.set_result(None)


def _remove(line: deque[_Ticket], ticket: _Ticket) -> None:
    with suppress(ValueError):  # it was found dead before, or the process was forked meanwhile
        line.remove(ticket)


def _circle(ticket: _Ticket, holder: _Ticket) -> str:
    key = ticket.key
    session = key[-1] if isinstance(key, tuple) else key
    if holder.key == key:
        why = "this call was made from inside that run (a tool or a listener)"
    else:
        why = "that run waits for the one that this call was made from, so that each would wait for the other"
    return f"session {session!r} is running, and {why}; use another session_id for the inner call"


def _forget_all() -> None:
    for leases in list(_all_leases):
        leases._forget()


_held: ContextVar[tuple[_Ticket, ...]] = ContextVar("regnexe_held_leases", default=())
_all_leases: WeakSet[LocalLeases] = WeakSet()

if hasattr(os, "register_at_fork"):  # not on Windows
    # The threads whose runs hold or wait for a turn do not exist in the child.
    os.register_at_fork(after_in_child=_forget_all)
