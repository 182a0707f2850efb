"""Which list an agent uses when none was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regnexe.persistence.index.memory import memory_index_of
from regnexe.persistence.index.store import StoreSessionIndex

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

    from regnexe.persistence.index.base import SessionIndex

__all__ = ["default_index"]


def default_index(saver: object, store: BaseStore | None) -> SessionIndex:
    """Return the list in the store; without a store, that of what this process used with the saver object."""
    return memory_index_of(saver) if store is None else StoreSessionIndex(store)
