"""One runner for each event loop that an agent is used from."""

from __future__ import annotations

import asyncio
import copy
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from regnexe.errors import AgentClosed
from regnexe.persistence.folds import FoldCache
from regnexe.persistence.index.choice import default_index
from regnexe.persistence.opened import PROCESS_LEASES
from regnexe.persistence.reopen import is_loop_free, reopen_saver, reopen_store
from regnexe.persistence.warm import WarmCheckpointer
from regnexe.persistence.whole_writes import with_whole_writes
from regnexe.results import RunStatus
from regnexe.runtime.dispatch import Dispatcher
from regnexe.runtime.live import LiveRun, callers_runs, ended, running_loop
from regnexe.runtime.runner import RunControl, Runner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.store.base import BaseStore

    from regnexe.events import Event
    from regnexe.listeners import AgentEventListener
    from regnexe.persistence.opened import PersistenceSource
    from regnexe.results import AgentResult
    from regnexe.runtime.request import RunRequest

__all__ = ["LoopRunners"]

_CLOSED = "the agent is closed; build a new one to go on with its sessions"
_STOPPED = "the agent was closed during the run, which was stopped; build a new one to go on with its session"


@dataclass(kw_only=True)
class _LoopPart:
    """What an agent has on one loop."""

    dispatcher: Dispatcher
    opening: asyncio.Lock
    runner: Runner | None = None
    # None where the graph as it was compiled serves.
    graph: CompiledStateGraph[Any, Any, Any, Any] | None = None
    closers: list[Callable[[], Awaitable[None]]]
    live: set[LiveRun]
    left_open: bool = False


class LoopRunners:
    """Finds or makes the runner for the running event loop.

    A saver works on the loop that made it. On each further loop the same data is opened again; where
    that is not possible the first call from there is refused. With a `source` nothing was given open, and the data is
    opened on each loop; the graph is then compiled with stand-ins.
    """

    def __init__(
        self,
        graph: CompiledStateGraph[Any, Any, Any, Any],
        *,
        saver: BaseCheckpointSaver[Any],
        name: str,
        listeners: Sequence[AgentEventListener],
        source: PersistenceSource | None = None,
    ) -> None:
        self._graph = graph
        self._saver = saver
        self._source = source
        self._name = name
        self._listeners = tuple(listeners)
        self._folds = FoldCache()
        # Reentrant, since the collector can end a dead run while this thread has the lock.
        self._lock = threading.RLock()
        self._parts: dict[asyncio.AbstractEventLoop, _LoopPart] = {}
        self._home: dict[int, asyncio.AbstractEventLoop] = {}
        self._closed = False
        _all_runners.add(self)

    def forget_parent(self) -> None:
        """Begin anew in a forked child, which has none of the threads that serve what its parent has opened."""
        self._lock = threading.RLock()
        self._folds = FoldCache()
        self._parts = {}

    @property
    def closed(self) -> bool:
        """Whether the agent was closed, or is being closed."""
        return self._closed

    @property
    def graph(self) -> CompiledStateGraph[Any, Any, Any, Any]:
        """The graph that works on the running event loop, where one is open for it.

        Without a running loop, the one of a loop in another thread: its synchronous methods work from here.
        """
        loop = running_loop()
        with self._lock:
            parts = [part for other, part in self._parts.items() if (other is loop if loop else other.is_running())]
        return next((part.graph for part in parts if part.graph is not None), self._graph)

    async def run(
        self,
        request: RunRequest,
        *,
        control: RunControl | None = None,
        stream: Callable[[Event], Awaitable[None]] | None = None,
    ) -> AgentResult:
        """Do what `Runner.run` does, with the runner for the running loop.

        Raises:
            AgentClosed: the agent was closed before the run, or stopped it by closing.
            LoopError: the saver or the store cannot serve this loop.
            PersistenceError: the database cannot be opened.
        """
        part = await self._part()
        live = LiveRun(control or RunControl())
        self._enter(part, live)
        try:
            with live.entered():
                runner = await self._runner(part)
                tell = None if stream is None else live.teller(stream)
                result = await runner.run(request, control=live.control, stream=tell)
        except asyncio.CancelledError:
            if not live.stopped or live.control.cancelled_by_others:
                raise
            live.control.settle()
            raise AgentClosed(_STOPPED) from None
        finally:
            if self._leave(part, live):
                await _close_all(part)
        if live.stopped and result.status is RunStatus.CANCELLED:
            raise AgentClosed(_STOPPED)
        return result

    async def runner(self) -> Runner:
        """Return the runner for the running loop, opened if need be.

        Raises:
            AgentClosed: the agent was closed.
            LoopError: the saver or the store cannot serve this loop.
            PersistenceError: the database cannot be opened.
        """
        return await self._runner(await self._part())

    async def aclose(self, held_up: asyncio.AbstractEventLoop | None = None) -> None:
        """Stop the runs and close what was opened for any loop; later calls are refused.

        Runs that the caller is inside of are not waited for, nor stopped if they are on this loop (see
        `stop_callers_runs`); those on `held_up`, a loop that waits for this, are stopped only. What they need
        stays open until they end.
        """
        with self._lock:
            self._closed = True
            parts = dict(self._parts)
        runs = {live for part in parts.values() for live in list(part.live)}
        own = set(callers_runs())
        for live in runs - own:
            live.stop()
        await ended({live for live in runs - own if live.loop is not held_up})
        for live in runs & own:
            if live.loop is not asyncio.get_running_loop():
                live.stop()
        for loop, part in parts.items():
            if loop is asyncio.get_running_loop() and not own:
                await part.dispatcher.aclose()
            with self._lock:
                part.left_open = any(live.goes_on for live in list(part.live))
            if not part.left_open:
                await _close_all(part)
        with self._lock:
            self._parts.clear()

    def stop_callers_runs(self) -> None:
        """Stop the runs that the caller is inside of: its next await is cancelled."""
        for live in callers_runs():
            if live.owner is self:
                live.stop()

    def _enter(self, part: _LoopPart, live: LiveRun) -> None:
        live.owner = self
        with self._lock:
            if self._closed:
                raise AgentClosed(_CLOSED)
            part.live.add(live)

    def _leave(self, part: _LoopPart, live: LiveRun) -> bool:
        """Take the run out; True when it is the last one that closing left the part open for."""
        with self._lock:
            part.live.discard(live)
            return part.left_open and not part.live

    async def _runner(self, part: _LoopPart) -> Runner:
        if part.runner is None:
            async with part.opening:
                if part.runner is None:
                    part.runner = await self._open(part)
        return part.runner

    async def _part(self) -> _LoopPart:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._closed:
                raise AgentClosed(_CLOSED)
            part = self._parts.get(loop)
            if part is not None:
                return part
            gone = [self._parts.pop(other) for other in list(self._parts) if other.is_closed()]
            part = _LoopPart(dispatcher=Dispatcher(self._listeners), opening=asyncio.Lock(), closers=[], live=set())
            self._parts[loop] = part
        for left_over in gone:
            await _close_all(left_over)
        return part

    async def _open(self, part: _LoopPart) -> Runner:
        try:
            return await (self._open_given(part) if self._source is None else self._open_source(part, self._source))
        except BaseException:
            await _close_all(part)
            raise

    async def _open_source(self, part: _LoopPart, source: PersistenceSource) -> Runner:
        opened = await source.open()
        part.closers.append(opened.aclose)
        # Compiling has told the stand-in's serializer which types of the graph it may load.
        saver = copy.copy(opened.checkpointer)
        saver.serde = cast("BaseCheckpointSaver[Any]", self._graph.checkpointer).serde
        part.graph = self._graph.copy({"checkpointer": self._prepared(saver), "store": opened.store})
        return Runner(
            part.graph,
            name=self._name,
            dispatcher=part.dispatcher,
            leases=opened.leases,
            lease_scope=opened.lease_scope,
            index=opened.index,
        )

    async def _open_given(self, part: _LoopPart) -> Runner:
        saver = cast("BaseCheckpointSaver[Any]", self._graph.checkpointer)
        reopened: dict[str, Any] = {}
        if not self._serves_here(saver):
            saver, close = await reopen_saver(saver)
            part.closers.append(close)
            reopened["checkpointer"] = saver
        if self._graph.store is not None and not self._serves_here(self._graph.store):
            reopened["store"], close = await reopen_store(self._graph.store)
            part.closers.append(close)
        graph = self._graph.copy({**reopened, "checkpointer": self._prepared(saver)})
        part.graph = graph if reopened else None
        return Runner(
            graph,
            name=self._name,
            dispatcher=part.dispatcher,
            leases=PROCESS_LEASES,
            lease_scope=id(self._saver),
            index=default_index(self._saver, graph.store),
        )

    def _prepared(self, saver: BaseCheckpointSaver[Any]) -> BaseCheckpointSaver[Any]:
        """Return what the runs of a loop use in place of a saver on it; every saver goes through here."""
        return WarmCheckpointer(with_whole_writes(saver), self._graph.channels, cache=self._folds)

    def _serves_here(self, resource: BaseCheckpointSaver[Any] | BaseStore) -> bool:
        if is_loop_free(resource):
            return True
        loop = asyncio.get_running_loop()
        made_on = getattr(resource, "loop", None)
        with self._lock:
            home = self._home.setdefault(id(resource), made_on if made_on is not None else loop)
        return home is loop


_all_runners: WeakSet[LoopRunners] = WeakSet()


def _forget_parents() -> None:
    for runners in list(_all_runners):
        runners.forget_parent()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_parents)


async def _close_all(part: _LoopPart) -> None:
    while part.closers:
        await part.closers.pop()()
