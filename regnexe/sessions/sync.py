"""`agent.sessions_sync`: what `agent.sessions` does, without `await`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage

    from regnexe.identity import SessionKey
    from regnexe.persistence.index.base import SessionInfo, SessionPage
    from regnexe.runtime.portal import Portal
    from regnexe.sessions.keys import SessionIds
    from regnexe.sessions.manager import SessionManager, SessionSize

__all__ = ["SyncSessionManager"]


class SyncSessionManager:
    """The sessions of an agent's checkpointer, to look at, for synchronous code. Got from `agent.sessions_sync`.

    It works inside a running loop (Jupyter), in threads, and after any number of `asyncio.run`. What the calls
    take, return and raise is told at `SessionManager`.
    """

    def __init__(self, manager: SessionManager, portal: Portal) -> None:
        self._manager = manager
        self._portal = portal

    def list(
        self, app_id: str, user_id: str | None = None, *, limit: int = 20, cursor: str | None = None
    ) -> SessionPage:
        """Return a page of an app's or a user's sessions; see `SessionManager.list`."""
        return self._portal.call(partial(self._manager.list, app_id, user_id, limit=limit, cursor=cursor))

    def get(self, key: SessionKey | None = None, /, **ids: Unpack[SessionIds]) -> SessionInfo:
        """Return what the list tells of a session; see `SessionManager.get`."""
        return self._portal.call(partial(self._manager.get, key, **ids))

    def log(self, key: SessionKey | None = None, /, **ids: Unpack[SessionIds]) -> Sequence[BaseMessage]:
        """Return copies of every message of a session, oldest first; see `SessionManager.log`."""
        return self._portal.call(partial(self._manager.log, key, **ids))

    def size(self, key: SessionKey | None = None, /, **ids: Unpack[SessionIds]) -> SessionSize:
        """Return what a session takes in the checkpointer; see `SessionManager.size`."""
        return self._portal.call(partial(self._manager.size, key, **ids))
