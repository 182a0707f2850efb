"""What was read of a thread, kept so that the next read of it costs what came since."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage

from regnexe.persistence.channels import SnapshotAge
from regnexe.persistence.copies import Log, copied, rough_size

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Fold", "FoldCache", "ThreadFolds", "fold_of"]

DEFAULT_BYTES = 128 * 1024 * 1024


class Value:
    """A value that is copied each time it is handed out."""

    def __init__(self, value: Any) -> None:
        """Keep a value that nobody else holds."""
        self._value = value
        self.size = rough_size(value)

    def value(self) -> Any:
        """Return the value."""
        return copied(self._value)


Fold = Log | Value


def fold_of(value: Any, *, after: Log | None = None) -> Fold:
    """Return what keeps a channel's value; `after` lent the messages that it begins with."""
    known = len(after.messages) if after is not None else 0
    if isinstance(value, list) and all(isinstance(part, BaseMessage) for part in value[known:]):
        return Log(value, after=after)
    return Value(value)


@dataclass(frozen=True, kw_only=True)
class ThreadFolds:
    """What is known of a thread at one of its checkpoints.

    Attributes:
        checkpoint_id: the checkpoint.
        folds: the values, by channel.
        ages: what came since the last snapshot of each channel.
    """

    checkpoint_id: str
    folds: Mapping[str, Fold]
    ages: Mapping[str, SnapshotAge] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return sum(fold.size for fold in self.folds.values())


class FoldCache:
    """Keeps the folds of the threads used last, up to a number of bytes. Safe to share between threads."""

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._threads: OrderedDict[str, tuple[ThreadFolds, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, thread_id: str) -> ThreadFolds | None:
        """Return what is known of a thread."""
        with self._lock:
            known = self._threads.get(thread_id)
            if known is None:
                return None
            self._threads.move_to_end(thread_id)
            return known[0]

    def put(self, thread_id: str, folds: ThreadFolds) -> None:
        """Keep what was read of a thread, unless a newer checkpoint of it is known."""
        size = folds.size
        with self._lock:
            known = self._threads.get(thread_id)
            # LangGraph's ids grow with time.
            if known is not None and known[0].checkpoint_id > folds.checkpoint_id:
                return
            self._drop(thread_id)
            if size > self._max_bytes:
                return
            self._threads[thread_id] = (folds, size)
            self._bytes += size
            while self._bytes > self._max_bytes:
                self._drop(next(iter(self._threads)))

    def forget(self, thread_id: str | None = None) -> None:
        """Forget a thread, or all."""
        with self._lock:
            for known in [thread_id] if thread_id is not None else list(self._threads):
                self._drop(known)

    def _drop(self, thread_id: str) -> None:
        _, size = self._threads.pop(thread_id, (None, 0))
        self._bytes -= size
