"""One runner for each event loop that an agent is used from."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from regnexe.errors import AgentClosed
from regnexe.persistence.leases.local import LocalLeases
from regnexe.persistence.reopen import is_loop_free, reopen_saver, reopen_store
from regnexe.runtime.dispatch import Dispatcher
from regnexe.runtime.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.store.base import BaseStore

    from regnexe.listeners import AgentEventListener

__all__ = ["LoopRunners"]

# Agents that share a saver share the lines in front of its sessions.
_leases = LocalLeases()


@dataclass(kw_only=True)
class _LoopPart:
    """What an agent has on one loop."""

    dispatcher: Dispatcher
    opening: asyncio.Lock
    runner: Runner | None = None
    closers: list[Callable[[], Awaitable[None]]]


class LoopRunners:
    """Finds or makes the runner for the running event loop.

    A saver works on the loop that made it. On each further loop the same data is opened again; where
    that is not possible the first call from there is refused.
    """

    def __init__(
        self,
        graph: CompiledStateGraph[Any, Any, Any, Any],
        *,
        saver: BaseCheckpointSaver[Any],
        name: str,
        listeners: Sequence[AgentEventListener],
    ) -> None:
        self._graph = graph
        self._saver = saver
        self._name = name
        self._listeners = tuple(listeners)
        self._lock = threading.Lock()
        self._parts: dict[asyncio.AbstractEventLoop, _LoopPart] = {}
        self._home: dict[int, asyncio.AbstractEventLoop] = {}
        self._closed = False

    async def here(self) -> Runner:
        """Return the runner for the running loop.

        Raises:
            AgentClosed: the agent was closed.
            LoopError: the saver or the store cannot serve this loop.
        """
        part = await self._part()
        if part.runner is None:
            async with part.opening:
                if part.runner is None:
                    part.runner = await self._open(part)
        return part.runner

    async def aclose(self) -> None:
        """Close what was opened for any loop; later calls are refused."""
        with self._lock:
            self._closed = True
            parts, self._parts = self._parts, {}
        for loop, part in parts.items():
            if loop is asyncio.get_running_loop():
                await part.dispatcher.aclose()
            await _close_all(part)

    async def _part(self) -> _LoopPart:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._closed:
                raise AgentClosed("the agent is closed; build a new one to go on with its sessions")
            part = self._parts.get(loop)
            if part is not None:
                return part
            gone = [self._parts.pop(other) for other in list(self._parts) if other.is_closed()]
            part = _LoopPart(dispatcher=Dispatcher(self._listeners), opening=asyncio.Lock(), closers=[])
            self._parts[loop] = part
        for left_over in gone:
            await _close_all(left_over)
        return part

    async def _open(self, part: _LoopPart) -> Runner:
        saver = cast("BaseCheckpointSaver[Any]", self._graph.checkpointer)
        update: dict[str, Any] = {}
        try:
            if not self._serves_here(saver):
                update["checkpointer"], close = await reopen_saver(saver)
                part.closers.append(close)
            if self._graph.store is not None and not self._serves_here(self._graph.store):
                update["store"], close = await reopen_store(self._graph.store)
                part.closers.append(close)
        except BaseException:
            await _close_all(part)
            raise
        return Runner(
            self._graph.copy(update) if update else self._graph,
            name=self._name,
            dispatcher=part.dispatcher,
            leases=_leases,
            lease_scope=id(self._saver),
        )

    def _serves_here(self, resource: BaseCheckpointSaver[Any] | BaseStore) -> bool:
        if is_loop_free(resource):
            return True
        loop = asyncio.get_running_loop()
        made_on = getattr(resource, "loop", None)
        with self._lock:
            home = self._home.setdefault(id(resource), made_on if made_on is not None else loop)
        return home is loop


async def _close_all(part: _LoopPart) -> None:
    while part.closers:
        await part.closers.pop()()
