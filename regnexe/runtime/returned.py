"""Holds the results of a run's tools until the checkpointer has them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from langchain_core.messages import ToolMessage

__all__ = ["UNSTORED", "UnstoredResults", "note_result", "results_kept"]

_MOST_SESSIONS = 10_000

_kept: ContextVar[dict[str, ToolMessage] | None] = ContextVar("regnexe_returned_results", default=None)


@contextmanager
def results_kept() -> Iterator[Mapping[str, ToolMessage]]:
    """Give a mapping, call id to result, of every tool that returns inside the block.

    A tool may return just before its run is cancelled, when nothing has stored its result yet.
    """
    kept: dict[str, ToolMessage] = {}
    token = _kept.set(kept)
    try:
        yield kept
    finally:
        # A run that the garbage collector ends is ended in another context.
        with suppress(ValueError):
            _kept.reset(token)


def note_result(message: ToolMessage) -> None:
    """Keep a result that a tool has just returned, if it belongs to a run."""
    if (kept := _kept.get()) is not None:
        kept[message.tool_call_id] = message


class UnstoredResults:
    """What tools gave in runs that could not store it, by session, until a later run of the session has stored it.

    A tool may have done its work when the database is locked, full or gone. Told that it did not finish, the model
    would call it again. Kept are the sessions that failed last, at most 10,000 of them, as long as the process lives.
    """

    def __init__(self) -> None:
        self._sessions: OrderedDict[Hashable, dict[str, ToolMessage]] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, session: Hashable, results: Mapping[str, ToolMessage]) -> None:
        """Add results, by call id, to what is kept of a session."""
        if not results:
            return
        with self._lock:
            self._sessions[session] = {**self._sessions.pop(session, {}), **results}
            if len(self._sessions) > _MOST_SESSIONS:
                self._sessions.popitem(last=False)

    def of(self, session: Hashable) -> Mapping[str, ToolMessage]:
        """Return what is kept of a session."""
        with self._lock:
            return dict(self._sessions.get(session, {}))

    def forget(self, session: Hashable) -> None:
        """Drop what is kept of a session: it is stored."""
        with self._lock:
            self._sessions.pop(session, None)


UNSTORED = UnstoredResults()
"""Of all agents in this process: another one on the same data may take the session's next message."""
