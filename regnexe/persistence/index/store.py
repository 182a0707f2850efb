"""A session index in any LangGraph store."""

from __future__ import annotations

import hashlib
import heapq
from typing import TYPE_CHECKING, Any

from regnexe.identity import SessionKey
from regnexe.persistence.index.base import (
    SessionInfo,
    SessionPage,
    applied,
    checked_page,
    from_micros,
    page_of,
    position_of,
    to_micros,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langgraph.store.base import BaseStore

    from regnexe.persistence.index.base import Position, SessionUpdate

__all__ = ["StoreSessionIndex", "label"]

_ROOT = ("regnexe", "sessions")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_END = "~"
_LONGEST = 200
_BATCH = 1000


class StoreSessionIndex:
    """Keeps the list in a LangGraph store, under `("regnexe", "sessions", app, user)`.

    A page costs a read of every session of the app, or of the user in that app: about 100 ms for 100,000 sessions
    in a local SQLite file, and 3 ms for 1,000. `SqliteSessionIndex` and `PostgresSessionIndex` cost the same
    however many there are. An update is a read and a write; two processes that update the same session at the same
    moment can lose one of the two, which the session's lease rules out for runs.

    Items are written without an expiry, and without being indexed for search by meaning.
    """

    def __init__(self, store: BaseStore) -> None:
        self._store = store

    async def setup(self) -> None:
        """Do nothing: making its tables is the store's own `setup()`."""

    async def record(self, update: SessionUpdate) -> None:
        """Note the update; see `SessionIndex.record`."""
        info = applied(await self.get(update.key), update)
        await self._store.aput(*_place(update.key), _as_json(info), index=False, ttl=None)

    async def get(self, key: SessionKey) -> SessionInfo | None:
        """Return what is known of the session, None if nothing is."""
        item = await self._store.aget(*_place(key), refresh_ttl=False)
        return None if item is None else _from_json(item.value)

    async def list(
        self, app_id: str, user_id: str | None = None, *, limit: int = 20, cursor: str | None = None
    ) -> SessionPage:
        """Return a page; see `SessionIndex.list`."""
        limit, after = checked_page(app_id, user_id, limit, cursor)
        found = await self._all(app_id, user_id, after)
        return page_of(app_id, user_id, limit, heapq.nlargest(limit + 1, found, key=position_of))

    async def delete(self, key: SessionKey) -> None:
        """Forget the session; one that is not known is fine."""
        await self._store.adelete(*_place(key))

    async def _all(self, app_id: str, user_id: str | None, after: Position | None) -> Sequence[SessionInfo]:
        users = () if user_id is None else (label(user_id),)
        prefix = (*_ROOT, label(app_id), *users)
        # By key: an item that is updated meanwhile can come twice, since stores search in an order of their own.
        found: dict[SessionKey, SessionInfo] = {}
        offset = 0
        while items := await self._store.asearch(prefix, limit=_BATCH, offset=offset, refresh_ttl=False):
            for item in items:
                info = _from_json(item.value)
                if after is None or position_of(info) < after:
                    found[info.key] = info
            offset += len(items)
        return list(found.values())


def label(part: str) -> str:
    """Return an id as a label of a store: injective, also for a store that ignores case.

    Stores refuse a `.` in labels, and some match namespaces with SQL's LIKE, where `_` and `%` stand for others,
    case counts for nothing, and `a` is the beginning of `ab`. So a label holds lower-case letters, digits and `-`,
    anything else as `=` and two hexadecimal digits a byte, and `~` at its end. What would get longer than databases
    take as a key has its SHA-256 in it instead.
    """
    encoded = "".join(
        character if character in _PLAIN else "".join(f"={byte:02x}" for byte in character.encode())
        for character in part
    )
    if len(encoded) > _LONGEST:
        # No other label has "==" in it.
        encoded = f"=={hashlib.sha256(part.encode()).hexdigest()}"
    return encoded + _END


def _place(key: SessionKey) -> tuple[tuple[str, ...], str]:
    return (*_ROOT, label(key.app_id), label(key.user_id)), label(key.session_id)


def _as_json(info: SessionInfo) -> dict[str, Any]:
    """Return everything that `_from_json` needs, as JSON can hold it."""
    return {
        "app_id": info.app_id,
        "user_id": info.user_id,
        "session_id": info.session_id,
        "title": info.title,
        "created_at": to_micros(info.created_at),
        "updated_at": to_micros(info.updated_at),
        "turns": info.turns,
        "messages": info.messages,
        "tokens": info.tokens,
        "status": info.status,
        "tags": list(info.tags),
    }


def _from_json(stored: Mapping[str, Any]) -> SessionInfo:
    """Return the session that `_as_json` was given."""
    return SessionInfo(
        key=SessionKey(stored["app_id"], stored["user_id"], stored["session_id"]),
        title=stored["title"],
        created_at=from_micros(stored["created_at"]),
        updated_at=from_micros(stored["updated_at"]),
        turns=stored["turns"],
        messages=stored["messages"],
        tokens=stored["tokens"],
        status=stored["status"],
        tags=tuple(stored["tags"]),
    )
