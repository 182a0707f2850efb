"""Copies of stored values, so that nobody who changes what he was handed changes what others get."""

from __future__ import annotations

import copy
import sys
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["Log", "copied", "rough_size"]

# Nothing can be changed in these, so that copies share them.
_SHARED = frozenset({str, int, float, bool, bytes, type(None), type, type(BaseMessage)})
# What a message and a container take beside what is in them: `tracemalloc` on CPython 3.11.
_MESSAGE_BYTES = 1_000
_OBJECT_BYTES = 150

# All that makes a message: its class, and the dicts that hold its fields (not copies: they show what is changed later).
_PARTS = [attrgetter(name) for name in ("__class__", "__dict__", "__pydantic_extra__")]


class Log:
    """Messages that are handed out as they are, since copying a long log costs more than a turn.

    Beside each message stands a copy of what is in it. One that was changed in place meanwhile is replaced by a message
    with the old content before it is handed out again.

    Attributes:
        messages: the messages as they are; the list is not to be changed.
        ids: their ids, as they were when they were given.
        size: about how many bytes they and the copies take.
    """

    __slots__ = ("_copies", "ids", "messages", "size")
    _copies: list[list[Any]]  # a list for each of the parts
    ids: frozenset[str]
    size: int

    def __init__(
        self, messages: Sequence[BaseMessage], *, after: Log | None = None, written: Collection[int] = ()
    ) -> None:
        """Keep messages that nobody has changed yet, but for those of the log that they come `after`.

        What that log holds of a message is kept, except for those that were `written` again (given by `id()`).
        """
        self.messages = list(messages)
        known = 0
        if after is not None and not written and _begins(self.messages, after.messages):
            known = len(after.messages)
            self._copies, self.ids, self.size = [part[:] for part in after._copies], after.ids, after.size
        else:
            self._copies, self.ids, self.size = [[], [], []], frozenset(), 0
        # The earlier log holds these messages, so that no other object has their ids.
        earlier: dict[int, tuple[Any, ...]] = {}
        if after is not None and not known:
            earlier = dict(zip(map(id, after.messages), zip(*after._copies, strict=True), strict=True))
        new = self.messages[known:]
        if earlier:
            for message in new:
                kept = earlier.get(id(message)) if id(message) not in written else None
                for copies, part in zip(self._copies, kept or [copied(part(message)) for part in _PARTS], strict=True):
                    copies.append(part)
        else:
            for copies, part_of in zip(self._copies, _PARTS, strict=True):
                copies += map(copied, map(part_of, new))
        self.size += sum(map(_log_size, new))
        self.ids |= {message.id for message in new if message.id}

    def lend(self, *, looked_at: bool = False) -> Log:
        """Return a log of the messages as they should be, that stays as it is when this one replaces a message.

        Nothing is compared where all were `looked_at` a moment ago.
        """
        if not looked_at and not _same(self.messages, self._copies):
            # In a new list: others may be reading the old one.
            self.messages = [
                message if _same([message], [[part] for part in kept]) else _message_of(*map(copied, kept))
                for message, *kept in zip(self.messages, *self._copies, strict=True)
            ]
        lent = object.__new__(Log)
        lent.messages, lent._copies, lent.ids, lent.size = self.messages, self._copies, self.ids, self.size
        return lent

    def value(self) -> list[BaseMessage]:
        """Return the messages as they should be, in a list of the caller's own."""
        return list(self.lend().messages)


def _begins(messages: list[BaseMessage], beginning: list[BaseMessage]) -> bool:
    return len(messages) >= len(beginning) and all(map(is_, messages, beginning))


def _same(messages: list[BaseMessage], copies: list[list[Any]]) -> bool:
    """Return whether the messages are still as their copies; False where that cannot be told (arrays)."""
    try:
        # About 0.5 us a message, in C; nothing is made for each message, which would call the garbage collector.
        return all(list(map(part, messages)) == kept for part, kept in zip(_PARTS, copies, strict=True))
    except Exception:
        # What is compared is anybody's: an array has no truth value, and a field may have been deleted.
        return False


def _message_of(kind: type[BaseMessage], fields: dict[str, Any], extra: dict[str, Any] | None) -> BaseMessage:
    made = kind.__new__(kind)
    object.__setattr__(made, "__dict__", fields)
    object.__setattr__(made, "__pydantic_extra__", extra)
    object.__setattr__(made, "__pydantic_fields_set__", set(fields))
    object.__setattr__(made, "__pydantic_private__", None)
    return made


def copied(value: Any) -> Any:
    """Return a deep copy that shares what cannot change."""
    kind = type(value)
    if kind in _SHARED:
        return value
    if (kind is dict or kind is list) and not value:
        return kind()
    # Each part is looked at here once more: most are shared, and a call costs more than the look.
    if kind is dict:
        return {name: part if type(part) in _SHARED else copied(part) for name, part in value.items()}
    if kind is list:
        return [part if type(part) in _SHARED else copied(part) for part in value]
    if kind is tuple:
        return tuple([copied(part) for part in value])
    if isinstance(value, BaseMessage):
        return _message_of(*[copied(part(value)) for part in _PARTS])
    return value if isinstance(value, type) else copy.deepcopy(value)


def rough_size(value: Any) -> int:
    """Return about how many bytes of memory a value of plain data takes."""
    kind = type(value)
    if kind is str or kind is bytes:
        return sys.getsizeof(value)
    if kind is dict:
        return _OBJECT_BYTES + sum([rough_size(part) for part in value.values()]) if value else 64
    if kind is list or kind is tuple:
        return _OBJECT_BYTES + sum([rough_size(part) for part in value]) if value else 56
    if isinstance(value, BaseMessage):
        size = _MESSAGE_BYTES
        for part in value.__dict__.values():
            if type(part) is str:
                size += sys.getsizeof(part)
            elif part is not None and (type(part) not in (dict, list) or part):
                size += rough_size(part)
        return size + rough_size(extra) if (extra := value.__pydantic_extra__) else size
    return sys.getsizeof(value)


def _log_size(message: BaseMessage) -> int:
    # The copy has containers of its own and shares the text.
    return rough_size(message) + _MESSAGE_BYTES
