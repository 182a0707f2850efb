"""What a persistence URL gives, once it is open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from regnexe.persistence.leases.local import LocalLeases

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.store.base import BaseStore

    from regnexe.persistence.index.base import SessionIndex
    from regnexe.persistence.leases.base import SessionLease

__all__ = ["PROCESS_LEASES", "OpenedPersistence", "PersistenceSource"]

PROCESS_LEASES = LocalLeases()
"""The lines in front of the sessions of this process; agents on the same data meet in the same line."""


@dataclass(frozen=True, kw_only=True)
class OpenedPersistence:
    """Everything that a persistence URL gives, open, for the event loop that it was opened on.

    Attributes:
        checkpointer: keeps the threads.
        store: keeps what tools and middleware share between sessions.
        index: keeps the list of sessions.
        leases: let one run at a time into each session.
        lease_scope: stands for the data in the keys of leases: equal for everything in this process that is open on
            the same data, whatever URL was given for it.
        place: the file or the database, without a password.
    """

    checkpointer: BaseCheckpointSaver[Any]
    store: BaseStore
    index: SessionIndex
    leases: SessionLease
    lease_scope: Hashable
    place: str
    _close: Callable[[], Awaitable[None]] = field(repr=False)

    async def aclose(self) -> None:
        """Close all of it, from any event loop; closing twice is fine."""
        await self._close()


class PersistenceSource(Protocol):
    """Opens the same data any number of times, each time for the running event loop."""

    @property
    def place(self) -> str:
        """The file or the database, without a password."""
        ...

    async def open(self) -> OpenedPersistence:
        """Open the data, and make what is missing in it.

        Raises:
            PersistenceError: it cannot be opened; the message says why.
        """
        ...
