"""What a lease on sessions does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable
    from contextlib import AbstractAsyncContextManager

__all__ = ["SessionLease"]


class SessionLease(Protocol):
    """Lets one run at a time into each session. Any object with this method will do."""

    def hold(self, key: Hashable, /) -> AbstractAsyncContextManager[None]:
        """Wait for the turn of the session that the key names, and have it until the block ends.

        Those that wait get their turns in the order they came. A wait that is cancelled loses its place, and the
        turn ends however the block does. Works from any event loop and thread.

        Raises:
            InvalidInput: the caller runs inside a run of this very session, or inside one that a run of this
                session waits for, and so would wait for itself.
        """
        ...
