"""A session index in this process."""

from __future__ import annotations

import heapq
import threading
import weakref
from typing import TYPE_CHECKING

from regnexe.persistence.index.base import SessionPage, applied, checked_page, page_of, position_of

if TYPE_CHECKING:
    from regnexe.identity import SessionKey
    from regnexe.persistence.index.base import SessionInfo, SessionUpdate

__all__ = ["MemorySessionIndex", "memory_index_of"]


class MemorySessionIndex:
    """Keeps the list in this process; it is gone with it. For any number of event loops and threads.

    A page costs a look at every session of the app.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._apps: dict[str, dict[SessionKey, SessionInfo]] = {}

    async def setup(self) -> None:
        """Do nothing: there is nothing to make."""

    async def record(self, update: SessionUpdate) -> None:
        """Note the update; see `SessionIndex.record`."""
        with self._lock:
            sessions = self._apps.setdefault(update.key.app_id, {})
            sessions[update.key] = applied(sessions.get(update.key), update)

    async def get(self, key: SessionKey) -> SessionInfo | None:
        """Return what is known of the session, None if nothing is."""
        with self._lock:
            return self._apps.get(key.app_id, {}).get(key)

    async def list(
        self, app_id: str, user_id: str | None = None, *, limit: int = 20, cursor: str | None = None
    ) -> SessionPage:
        """Return a page; see `SessionIndex.list`."""
        limit, after = checked_page(app_id, user_id, limit, cursor)
        with self._lock:
            found = list(self._apps.get(app_id, {}).values())
        wanted = (
            info
            for info in found
            if (user_id is None or info.user_id == user_id) and (after is None or position_of(info) < after)
        )
        return page_of(app_id, user_id, limit, heapq.nlargest(limit + 1, wanted, key=position_of))

    async def delete(self, key: SessionKey) -> None:
        """Forget the session; one that is not known is fine."""
        with self._lock:
            self._apps.get(key.app_id, {}).pop(key, None)


# Agents that share a saver share its list. Known by the object, since savers may compare as they like.
_shared: dict[int, MemorySessionIndex] = {}
_shared_lock = threading.Lock()


def memory_index_of(saver: object) -> MemorySessionIndex:
    """Return the list of what was used with this saver object in this process, for as long as the saver is there."""
    with _shared_lock:
        index = _shared.get(id(saver))
        if index is None:
            index = MemorySessionIndex()
            try:
                weakref.finalize(saver, _shared.pop, id(saver), None).atexit = False
            except TypeError:  # a class that cannot be referred to weakly: its list is then its agent's own
                return index
            _shared[id(saver)] = index
        return index
