"""Holds the results of a run's tools until the checkpointer has them."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from langchain_core.messages import ToolMessage

__all__ = ["note_result", "results_kept"]

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
