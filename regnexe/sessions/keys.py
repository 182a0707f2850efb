"""How a call says which session it is about."""

from __future__ import annotations

from typing import TypedDict

from regnexe.errors import InvalidInput
from regnexe.identity import SessionKey

__all__ = ["SessionIds", "key_of"]


class SessionIds(TypedDict, total=False):
    """The three ids, as `ainvoke` takes them; `app_id` and `user_id` are `"default"` when left out."""

    app_id: str
    user_id: str
    session_id: str


def key_of(key: SessionKey | None, ids: SessionIds) -> SessionKey:
    """Return the key that a call names by itself or by its three ids.

    Raises:
        InvalidInput: it names none, or two; `InvalidSessionId` for an id that is none.
    """
    unknown = [name for name in ids if name not in SessionIds.__annotations__]
    if unknown:
        raise InvalidInput(f"a session is named by app_id, user_id and session_id; {unknown[0]!r} is none of them")
    if isinstance(key, SessionKey):
        if ids:
            raise InvalidInput(f"the session was named twice: by {key!r} and by {', '.join(ids)}; give one of both")
        return key
    if key is not None:
        raise InvalidInput(
            f"a session is named by a SessionKey, or by app_id=, user_id= and session_id=; got {key!r:.200} "
            f"({type(key).__name__})"
        )
    if "session_id" not in ids:
        raise InvalidInput("which session? Give a SessionKey, or session_id= (with app_id= and user_id=)")
    return SessionKey(ids.get("app_id", "default"), ids.get("user_id", "default"), ids["session_id"])
