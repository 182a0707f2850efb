"""The life of a run: one way for awaited, streamed and synchronous calls."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import ToolMessage
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.errors import GraphRecursionError

from regnexe.errors import CheckpointerError, DatabaseBusy, PendingApprovalError, RegnexeError, RunTimeout
from regnexe.messages import text_of
from regnexe.persistence.index.base import humans_in
from regnexe.results import AgentResult, RunStatus
from regnexe.runtime.fold import close_open_calls, is_settled, next_turn, turn_of
from regnexe.runtime.notes import RunNotes
from regnexe.runtime.outcome import Outcome, failure_of, result_of
from regnexe.runtime.recorder import RunRecorder, StreamingRunRecorder
from regnexe.runtime.returned import UNSTORED, results_kept
from regnexe.runtime.shielded import then_cancelled, to_the_end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.types import StateSnapshot

    from regnexe.events import Event
    from regnexe.identity import SessionKey
    from regnexe.persistence.index.base import SessionIndex
    from regnexe.persistence.leases.base import SessionLease
    from regnexe.runtime.dispatch import Dispatcher
    from regnexe.runtime.request import RunRequest

__all__ = ["RunControl", "Runner"]

logger = logging.getLogger("regnexe")


class RunControl:
    """Stops one run from outside; a stopped run ends with a result, not with an exception."""

    def __init__(self) -> None:
        self.cancelled = False
        self._task: asyncio.Task[Any] | None = None
        self._earlier_cancels = 0

    def attach(self) -> None:
        """Make the current task the one to stop, unless one is known already."""
        if self._task is None and (task := asyncio.current_task()) is not None:
            self._task, self._earlier_cancels = task, task.cancelling()

    def cancel(self) -> bool:
        """Stop the run at its next await, on the run's own loop; False when it has not begun."""
        if self._task is None:
            return False
        if not self.cancelled:
            self.cancelled = True
            self._task.cancel()
        return True

    @property
    def cancelled_by_others(self) -> bool:
        """Whether somebody else cancels the task that the run is in (a timeout, a task group, a shutdown)."""
        cancels = self._task.cancelling() - self._earlier_cancels if self._task else 0
        return cancels > int(self.cancelled)

    @contextmanager
    def absorbed(self) -> Iterator[None]:
        """Let our own cancel end the block, and nothing more."""
        try:
            yield
        except asyncio.CancelledError:
            if not self.cancelled or self.cancelled_by_others:
                raise
            self.settle()

    def settle(self) -> None:
        """Take back our own cancel, now that it has ended the run."""
        if self.cancelled and self._task is not None:
            self._task.uncancel()
            self._earlier_cancels -= 1


class Runner:
    """Runs requests on one graph, on one event loop."""

    def __init__(
        self,
        graph: CompiledStateGraph[Any, Any, Any, Any],
        *,
        name: str,
        dispatcher: Dispatcher,
        leases: SessionLease,
        lease_scope: Hashable,
        index: SessionIndex,
    ) -> None:
        self._graph = graph
        self._name = name
        self._dispatcher = dispatcher
        self._leases = leases
        self._lease_scope = lease_scope
        self._index = index
        self._notes = RunNotes(index)

    @property
    def graph(self) -> CompiledStateGraph[Any, Any, Any, Any]:
        """The graph, with a saver and a store for this loop."""
        return self._graph

    @property
    def index(self) -> SessionIndex:
        """The list of sessions, for this loop."""
        return self._index

    def hold(self, key: SessionKey) -> AbstractAsyncContextManager[None]:
        """Keep the runs of the session out for the time of the block, after those that go on."""
        return self._leases.hold(self._place(key))

    def _place(self, key: SessionKey) -> Hashable:
        """Name the session for this process, together with where it is stored."""
        return (self._lease_scope, key.thread_id)

    async def run(
        self,
        request: RunRequest,
        *,
        control: RunControl | None = None,
        stream: Callable[[Event], Awaitable[None]] | None = None,
    ) -> AgentResult:
        """Store the message, run the graph until it stops, and return what it gave.

        Raises:
            PendingApprovalError: the session waits for a decision; the message was not stored.
            asyncio.CancelledError: the caller was cancelled; the log is left valid.
        """
        control = control or RunControl()
        control.attach()
        with _own_context():
            async with self.hold(request.key):
                request, is_new = await self._settle(request)
                kind = RunRecorder if stream is None else StreamingRunRecorder
                recorder = kind(key=request.key, run_id=request.run_id, dispatcher=self._dispatcher, stream=stream)
                outcome = await self._live(request, recorder, control, is_new=is_new)
                result = result_of(request, outcome, recorder.usage)
                try:
                    with control.absorbed():
                        await then_cancelled(self._notes.ended(request, result, outcome.values))
                finally:
                    with control.absorbed():
                        await recorder.completed(self._name, result)
            with control.absorbed():
                await self._dispatcher.drain()
            return result

    async def _live(self, request: RunRequest, recorder: RunRecorder, control: RunControl, *, is_new: bool) -> Outcome:
        with results_kept() as returned:
            try:
                if is_new:
                    await then_cancelled(self._notes.begun(request))
                await recorder.started(self._name, text_of(request.message))
                outcome = await self._drive(request, recorder)
                if outcome.status is not RunStatus.COMPLETED and not outcome.interrupts:
                    outcome = await self._close(request, outcome, returned)
            except asyncio.CancelledError as error:
                stopped = control.cancelled or control.cancelled_by_others
                # When nobody cancelled this run, something inside it was cancelled and let that out.
                status = RunStatus.CANCELLED if stopped else RunStatus.ERROR
                outcome = Outcome(status=status, error=None if stopped else error)
                outcome = await to_the_end(self._close(request, outcome, returned))
                if control.cancelled_by_others:
                    result = result_of(request, outcome, recorder.usage)
                    await to_the_end(self._notes.ended(request, result, outcome.values))
                    await to_the_end(recorder.completed(self._name, result))
                    raise
                control.settle()
        return outcome

    async def _settle(self, request: RunRequest) -> tuple[RunRequest, bool]:
        """Bring what an earlier run left half-way to its end, or refuse the message.

        Returns:
            The request with the number of its turn, and whether the session is new.
        """
        try:
            return await self._settle_thread(request)
        except RegnexeError:
            raise
        except Exception as error:
            kind = type(self._graph.checkpointer).__name__
            raise CheckpointerError(
                f"the checkpointer ({kind}) failed before the run of session {request.key.thread_id!r} began, and "
                f"nothing was stored: {type(error).__name__}: {error}. If it was closed: keep its `async with` open "
                "for as long as the agent is used"
            ) from error

    async def _settle_thread(self, request: RunRequest) -> tuple[RunRequest, bool]:
        saver = cast("BaseCheckpointSaver[Any]", self._graph.checkpointer)
        head = await saver.aget_tuple(request.run_config())
        if head is None:
            return replace(request, turn=1), True
        # What is written now belongs to the turn that was left half-way.
        config = replace(request, turn=turn_of(head.metadata)).run_config()
        metadata: Mapping[str, Any] = head.metadata
        if not is_settled(head):
            state = await self._graph.aget_state(config)
            if state.interrupts:
                raise _waits(request, state)
            place = self._place(request.key)
            state = await close_open_calls(self._graph, config, state, UNSTORED.of(place), was_cut_off=True)
            UNSTORED.forget(place)
            metadata = state.metadata or {}
        turn = next_turn(metadata)
        if turn is None:
            # Plain LangGraph wrote it, or an older Regnexe: its messages are counted this once.
            turn = 1 + humans_in((await self._graph.aget_state(config)).values.get("messages", ()))
        return replace(request, turn=turn), False

    async def _drive(self, request: RunRequest, recorder: RunRecorder) -> Outcome:
        try:
            async with asyncio.timeout(request.timeout) as limit:
                values = await self._graph.ainvoke(
                    {"messages": [request.message]},
                    request.run_config(recorder),
                    context=request.context,
                    durability="sync",
                )
        except TimeoutError as error:
            if not limit.expired():
                return Outcome(status=RunStatus.ERROR, error=error)
            seconds = cast("float", request.timeout)
            timeout = RunTimeout(f"run {request.run_id} took longer than {seconds:g} s", seconds=seconds)
            return Outcome(status=RunStatus.LIMITED, error=timeout)
        except GraphRecursionError as error:
            return Outcome(status=RunStatus.LIMITED, error=error)
        except Exception as error:
            return Outcome(status=RunStatus.ERROR, error=error)
        interrupts = values.get("__interrupt__", ())
        if interrupts:
            return Outcome(status=RunStatus.INTERRUPTED, values=values, interrupts=interrupts)
        failure = failure_of(values["messages"])
        status = RunStatus.COMPLETED if failure is None else RunStatus.ERROR
        return Outcome(status=status, values=values, error=failure)

    async def _close(self, request: RunRequest, outcome: Outcome, returned: Mapping[str, ToolMessage]) -> Outcome:
        """Leave the log of a run that did not complete so that the next run can go on from it."""
        config = request.run_config()
        if isinstance(outcome.error, DatabaseBusy):
            # Waited for once already; the next run of the session tidies up.
            UNSTORED.keep(self._place(request.key), returned)
            return outcome
        try:
            state: StateSnapshot = await self._graph.aget_state(config)
            if not state.interrupts:
                state = await close_open_calls(self._graph, config, state, returned)
        except Exception as error:
            # The next run of the session tries again, before it takes its message.
            UNSTORED.keep(self._place(request.key), returned)
            logger.exception("session %r could not be tidied up after run %s", request.key.thread_id, request.run_id)
            if outcome.error is None:
                outcome.error = error
            return outcome
        # Never empty: a thread that holds nothing is told apart from one that could not be read.
        outcome.values, outcome.interrupts = state.values or {"messages": []}, state.interrupts
        return outcome


def _waits(request: RunRequest, state: StateSnapshot) -> PendingApprovalError:
    ids = [interrupt.id for interrupt in state.interrupts]
    return PendingApprovalError(
        f"session {request.key.thread_id!r} waits for a decision on {len(ids)} pending approval(s) "
        f"({', '.join(ids)}); decide on them before sending a new message",
        thread_id=request.key.thread_id,
        pending_ids=ids,
    )


@contextmanager
def _own_context() -> Iterator[None]:
    """Keep a run apart from a graph that the caller is part of.

    Called inside a tool, LangGraph would take the run for a part of the outer graph and store it there.
    """
    token = var_child_runnable_config.set(None)
    try:
        yield
    finally:
        # A run that is collected with its closed loop ends in whatever context the collector was called in.
        with suppress(ValueError):
            var_child_runnable_config.reset(token)
