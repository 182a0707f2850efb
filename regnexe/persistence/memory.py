"""`memory://`: everything in this process, and gone with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regnexe.persistence.opened import PROCESS_LEASES, OpenedPersistence

if TYPE_CHECKING:
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.store.memory import InMemoryStore

    from regnexe.persistence.index.memory import MemorySessionIndex

__all__ = ["MemorySource"]


class MemorySource:
    """Data of its own: what is opened from one source is the same on each event loop, and in no other source."""

    place = "memory://"

    def __init__(self) -> None:
        # Threads may open it at once. A dict, since its `setdefault` is one step.
        self._made: dict[str, tuple[InMemorySaver, InMemoryStore, MemorySessionIndex]] = {}

    async def open(self) -> OpenedPersistence:
        """Return the one checkpointer, store and list there are. Opening costs nothing, and nothing is closed."""
        from langgraph.checkpoint.memory import InMemorySaver
        from langgraph.store.memory import InMemoryStore

        from regnexe.persistence.index.memory import MemorySessionIndex

        new = InMemorySaver(), InMemoryStore(), MemorySessionIndex()
        saver, store, index = self._made.setdefault("all", new)
        return OpenedPersistence(
            checkpointer=saver,
            store=store,
            index=index,
            leases=PROCESS_LEASES,
            lease_scope=("memory", self),
            place=self.place,
            _close=_nothing,
        )


async def _nothing() -> None:
    """Nothing is open."""
