"""What a graph is compiled with before its database is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from regnexe.errors import PersistenceNotOpen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langgraph.store.base import Op, Result

__all__ = ["UnopenedSaver", "UnopenedStore"]


def _refuse(place: str) -> NoReturn:
    raise PersistenceNotOpen(
        f"{place} is not open on this event loop, and this graph was taken from the agent before it was: use "
        "`agent.graph` inside `async with agent:`, or after a first call (`await agent.ainvoke(...)`) on the same loop"
    )


class UnopenedSaver(BaseCheckpointSaver[Any]):
    """Has the serializer that the opened saver will have; every other use says what to do first."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self._place = place

    def _refused(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self._place)

    async def _arefused(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self._place)

    get_tuple = list = put = put_writes = delete_thread = get_delta_channel_history = _refused
    aget_tuple = aput = aput_writes = adelete_thread = aget_delta_channel_history = _arefused
    alist = _refused


class UnopenedStore(BaseStore):
    """Every use says what to do first."""

    def __init__(self, place: str) -> None:
        self._place = place

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Refuse."""
        _refuse(self._place)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Refuse."""
        _refuse(self._place)
