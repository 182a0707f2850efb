"""Messages without the parts that a checkpointer cannot store."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from langchain_core.messages import BaseMessage

from regnexe.messages import clean_content, clean_text, has_lone_surrogate, text_of

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

__all__ = ["Storable"]

logger = logging.getLogger("regnexe")

AnyMessage = TypeVar("AnyMessage", bound=BaseMessage)

_Place: TypeAlias = "tuple[_Place | None, Any]"
"""Where a value is: the place it is in, and its key there."""

_DROPPED, _OPEN = object(), object()
_DEPTH = 100
"""How deep the mending looks into a value. LangGraph's own serializer takes about 250 levels."""

_DEPTH_OF_ARGUMENTS = 8
"""How deep in a message the arguments of its calls lie, and a little more."""

_WARNINGS = 5
"""How many parts of one message are named when they are dropped; the others are counted."""

_EMPTY: dict[str, Any] = {
    "content": "",
    "additional_kwargs": {},
    "response_metadata": {},
    "tool_calls": [],
    "invalid_tool_calls": [],
}
_IDENTITY = {"id", "name", "role", "status", "tool_call_id", "type"}


class Storable:
    """Makes messages fit for the log: what cannot be stored never costs the turn it came with.

    Lone surrogates become U+FFFD. What the checkpointer's serializer refuses, what holds itself and what
    is nested too deeply is dropped with a warning that names it; in a list nothing takes its place. No
    method here raises.
    """

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde

    def fits(self, value: Any, *, depth: int = 0) -> bool:
        """Return whether the serializer takes the value, as it is found `depth` levels inside another."""
        try:
            for _ in range(depth):
                value = [value]
            self._serde.dumps_typed(value)
        except Exception:  # whatever it is, the same call would fail when the turn is stored
            return False
        return True

    def takes_arguments(self, arguments: dict[str, Any]) -> bool:
        """Return whether the arguments of a tool call can be stored, apart from lone surrogates."""
        try:
            return self.fits(clean_content(arguments), depth=_DEPTH_OF_ARGUMENTS)
        except RecursionError:  # they hold themselves
            return False

    def ready(self, message: BaseMessage) -> bool:
        """Return whether the message can be stored as it is; for an ordinary one in about 0.01 ms."""
        try:
            return self.fits(message) and not any(has_lone_surrogate(value) for _, value in _fields(message))
        except RecursionError:  # a serializer that takes what holds itself
            return False

    def mended(self, message: AnyMessage, source: str) -> AnyMessage:
        """Return a copy of the message that can be stored; at the very least it has the text.

        Args:
            message: a message that is not `ready`.
            source: where it came from, for the warnings.
        """
        mending = _Mending(self)
        try:
            made = mending.message(message)
        except Exception:  # an object that cannot even be looked at
            made = None
        if made is not None and self.fits(made):
            mending.warn(source)
            return made
        logger.warning("%s: all but the text was dropped, since the rest cannot be stored in a checkpoint", source)
        return self._text_alone(message)

    def _text_alone(self, message: AnyMessage) -> AnyMessage:
        update: dict[str, Any] = {}
        for name, value in _fields(message):
            if name in _IDENTITY:
                update[name] = clean_text(value) if isinstance(value, str) else None
            elif name in ("tool_calls", "invalid_tool_calls"):
                update[name] = [call for call in value if self.fits(call)]
            else:
                update[name] = _EMPTY.get(name)
        try:
            update["content"] = clean_text(text_of(message))
        except Exception:  # content of a form that LangChain itself cannot read
            update["content"] = ""
        return message.model_copy(update=update)


class _Mending:
    """The mending of one message."""

    def __init__(self, storable: Storable) -> None:
        self._fits = storable.fits
        # By id(); what is kept beside it holds the value, so that its id is not used again.
        self._done: dict[int, tuple[Any, Any]] = {}
        self._dropped: list[tuple[_Place, str]] = []

    def message(self, message: AnyMessage) -> AnyMessage:
        """Return the message, mended."""
        update: dict[str, Any] = {}
        for name, value in _fields(message):
            # Without one of its counts a usage is none.
            whole = name == "usage_metadata" and not self._fits(value)
            made = self._drop((None, name), value) if whole else self._part(value, (None, name), 0)
            update[name] = _EMPTY.get(name) if made is _DROPPED else made
        return message.model_copy(update=update)

    def warn(self, source: str) -> None:
        """Log what was dropped."""
        for place, what in self._dropped[:_WARNINGS]:
            logger.warning(
                "%s: %s was dropped, since %s cannot be stored in a checkpoint; the text is kept",
                source,
                _shown_place(place),
                what,
            )
        if more := len(self._dropped[_WARNINGS:]):
            logger.warning("%s: %d more parts were dropped in the same way", source, more)

    def _part(self, value: Any, place: _Place, depth: int) -> Any:
        """Return the value without what cannot be stored, or `_DROPPED`."""
        if isinstance(value, str):
            return clean_text(value)
        if not isinstance(value, list | tuple | Mapping) or hasattr(value, "_asdict"):
            return value if self._fits(value) else self._drop(place, value)
        if id(value) in self._done:
            made = self._done[id(value)][1]
            return self._drop(place, value, "what holds itself") if made is _OPEN else made
        if depth == _DEPTH:
            fits = self._fits(value, depth=depth)
            return value if fits else self._drop(place, value, "what is nested so deeply")
        self._done[id(value)] = (value, _OPEN)
        try:
            made = self._mapping(value, place, depth) if isinstance(value, Mapping) else self._list(value, place, depth)
        except Exception:  # a container that cannot be read
            made = self._drop(place, value)
        self._done[id(value)] = (value, made)
        return made

    def _mapping(self, value: Mapping[Any, Any], place: _Place, depth: int) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for key, part in value.items():
            if not isinstance(key, str) and not self._fits({key: None}):
                self._drop((place, key), key)
            elif (kept := self._part(part, (place, key), depth + 1)) is not _DROPPED:
                made[clean_text(key) if isinstance(key, str) else key] = kept
        return made

    def _list(self, value: list[Any] | tuple[Any, ...], place: _Place, depth: int) -> list[Any]:
        parts = (self._part(part, (place, index), depth + 1) for index, part in enumerate(value))
        return [part for part in parts if part is not _DROPPED]

    def _drop(self, place: _Place, value: Any, what: str | None = None) -> Any:
        self._dropped.append((place, what or f"a value of type {type(value).__name__}"))
        return _DROPPED


def _fields(message: BaseMessage) -> list[tuple[str, Any]]:
    return [*vars(message).items(), *(message.model_extra or {}).items()]


def _shown_place(place: _Place | None) -> str:
    keys: list[Any] = []
    while place is not None:
        place, key = place
        keys.append(key)
    shown = str(keys.pop()) + "".join(f"[{_shown(key)}]" for key in reversed(keys))
    return shown if len(shown) <= 200 else f"{shown[:200]}..."


def _shown(key: Any) -> str:
    try:
        return ascii(key)[:80]
    except Exception:  # an object that cannot be shown
        return type(key).__name__
