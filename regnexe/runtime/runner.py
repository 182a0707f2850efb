"""The life of a run: one way for awaited, streamed and synchronous calls."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.errors import GraphRecursionError

from regnexe.document import Session
from regnexe.errors import InvalidToolCalls, PendingApprovalError, RunTimeout
from regnexe.messages import text_of
from regnexe.results import AgentResult, PendingApproval, RunStatus
from regnexe.runtime.fold import close_open_calls, is_settled
from regnexe.runtime.recorder import RunRecorder, StreamingRunRecorder
from regnexe.runtime.returned import results_kept

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator, Mapping, Sequence

    from langchain_core.messages import BaseMessage
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.types import Interrupt, StateSnapshot

    from regnexe.events import Event
    from regnexe.persistence.leases.local import LocalLeases
    from regnexe.runtime.dispatch import Dispatcher
    from regnexe.runtime.request import RunRequest

__all__ = ["RunControl", "Runner"]

logger = logging.getLogger("regnexe")

T = TypeVar("T")


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

    def settle(self) -> None:
        """Take back our own cancel, now that it has ended the run."""
        if self.cancelled and self._task is not None:
            self._task.uncancel()
            self._earlier_cancels -= 1


@dataclass(kw_only=True)
class _Outcome:
    """What is known of a run when it has ended."""

    status: RunStatus
    values: Mapping[str, Any] = field(default_factory=dict)
    interrupts: Sequence[Interrupt] = ()
    error: BaseException | None = None


class Runner:
    """Runs requests on one graph, on one event loop."""

    def __init__(
        self,
        graph: CompiledStateGraph[Any, Any, Any, Any],
        *,
        name: str,
        dispatcher: Dispatcher,
        leases: LocalLeases,
        lease_scope: Hashable,
    ) -> None:
        self._graph = graph
        self._name = name
        self._dispatcher = dispatcher
        self._leases = leases
        self._lease_scope = lease_scope

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
            async with self._leases.hold((self._lease_scope, request.key.thread_id)):
                await self._settle(request)
                kind = RunRecorder if stream is None else StreamingRunRecorder
                recorder = kind(key=request.key, run_id=request.run_id, dispatcher=self._dispatcher, stream=stream)
                result = await self._live(request, recorder, control)
            await self._dispatcher.drain()
            return result

    async def _live(self, request: RunRequest, recorder: RunRecorder, control: RunControl) -> AgentResult:
        with results_kept() as returned:
            try:
                await recorder.started(self._name, text_of(request.message))
                outcome = await self._drive(request, recorder)
                if outcome.status is not RunStatus.COMPLETED and not outcome.interrupts:
                    outcome = await self._close(request, outcome, returned)
            except asyncio.CancelledError as error:
                outcome = await _to_the_end(self._close(request, _stopped(error, control), returned))
                if control.cancelled_by_others:
                    await _to_the_end(self._complete(request, recorder, outcome))
                    raise
                control.settle()
        return await self._complete(request, recorder, outcome)

    async def _settle(self, request: RunRequest) -> None:
        """Bring what an earlier run left half-way to its end, or refuse the message."""
        config = request.run_config()
        saver = cast("BaseCheckpointSaver[Any]", self._graph.checkpointer)
        if is_settled(await saver.aget_tuple(config)):
            return
        state = await self._graph.aget_state(config)
        if state.interrupts:
            ids = [interrupt.id for interrupt in state.interrupts]
            raise PendingApprovalError(
                f"session {request.key.thread_id!r} waits for a decision on {len(ids)} pending approval(s) "
                f"({', '.join(ids)}); decide on them before sending a new message",
                thread_id=request.key.thread_id,
                pending_ids=ids,
            )
        await close_open_calls(self._graph, config, state)

    async def _drive(self, request: RunRequest, recorder: RunRecorder) -> _Outcome:
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
                return _Outcome(status=RunStatus.ERROR, error=error)
            seconds = cast("float", request.timeout)
            timeout = RunTimeout(f"run {request.run_id} took longer than {seconds:g} s", seconds=seconds)
            return _Outcome(status=RunStatus.LIMITED, error=timeout)
        except GraphRecursionError as error:
            return _Outcome(status=RunStatus.LIMITED, error=error)
        except Exception as error:
            return _Outcome(status=RunStatus.ERROR, error=error)
        interrupts = values.get("__interrupt__", ())
        if interrupts:
            return _Outcome(status=RunStatus.INTERRUPTED, values=values, interrupts=interrupts)
        failure = _invalid_calls(values["messages"])
        status = RunStatus.COMPLETED if failure is None else RunStatus.ERROR
        return _Outcome(status=status, values=values, error=failure)

    async def _close(self, request: RunRequest, outcome: _Outcome, returned: Mapping[str, ToolMessage]) -> _Outcome:
        """Leave the log of a run that did not complete so that the next run can go on from it."""
        config = request.run_config()
        try:
            state: StateSnapshot = await self._graph.aget_state(config)
            if not state.interrupts:
                state = await close_open_calls(self._graph, config, state, returned)
        except Exception as error:
            # The next run of the session tries again, before it takes its message.
            logger.exception("session %r could not be tidied up after run %s", request.key.thread_id, request.run_id)
            if outcome.error is None:
                outcome.error = error
            return outcome
        outcome.values, outcome.interrupts = state.values, state.interrupts
        return outcome

    async def _complete(self, request: RunRequest, recorder: RunRecorder, outcome: _Outcome) -> AgentResult:
        messages = _new_messages(outcome.values.get("messages", ()), request.message.id)
        completed = outcome.status is RunStatus.COMPLETED
        structured = outcome.values.get("structured_response") if completed else None
        ended = datetime.now(UTC)
        pending = tuple(PendingApproval(id=found.id, value=found.value) for found in outcome.interrupts)
        result = AgentResult(
            status=outcome.status,
            final_text=_final_text(messages, completed=completed, structured=structured is not None),
            session_id=request.key.session_id,
            thread_id=request.key.thread_id,
            run_id=request.run_id,
            messages=messages,
            structured=structured,
            pending=pending,
            usage=recorder.usage,
            error=outcome.error,
            metadata={"interrupt": pending} if pending else {},
            _read_session=lambda: _session(request, outcome, result, ended),
        )
        await recorder.completed(
            self._name,
            status=result.status,
            final_text=result.final_text,
            pending=pending,
            error=outcome.error,
        )
        return result


@contextmanager
def _own_context() -> Iterator[None]:
    """Keep a run apart from a graph that the caller is part of.

    Called inside a tool, LangGraph would take the run for a part of the outer graph and store it there.
    """
    token = var_child_runnable_config.set(None)
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Do the work even if the caller is cancelled meanwhile, again and again."""
    task = asyncio.ensure_future(work)
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                # Counted by the task already; the caller raises it after the work.
                continue
    return task.result()


def _stopped(error: BaseException, control: RunControl) -> _Outcome:
    if control.cancelled or control.cancelled_by_others:
        return _Outcome(status=RunStatus.CANCELLED)
    # Nobody cancelled this run: something inside it was cancelled and let that out.
    return _Outcome(status=RunStatus.ERROR, error=error)


def _invalid_calls(log: Sequence[BaseMessage]) -> InvalidToolCalls | None:
    """Return what is wrong with a run that ended in calls that nobody could run."""
    last = next((message for message in reversed(log) if isinstance(message, AIMessage)), None)
    if last is None or not last.invalid_tool_calls or last.tool_calls:
        return None
    tools = [call["name"] or "unknown" for call in last.invalid_tool_calls]
    return InvalidToolCalls(
        f"the model called {', '.join(tools)} with arguments that are no valid JSON or were cut off by its token "
        "limit, and did so again when told; raise the model's max_tokens, or ask for less at once",
        tools=tools,
    )


def _new_messages(log: Sequence[BaseMessage], first_id: str | None) -> tuple[BaseMessage, ...]:
    for index in range(len(log) - 1, -1, -1):
        if log[index].id == first_id:
            return tuple(log[index:])
    return ()


def _final_text(messages: Sequence[BaseMessage], *, completed: bool, structured: bool) -> str:
    last = messages[-1] if messages else None
    if isinstance(last, ToolMessage) and completed and not structured:
        return text_of(last)  # a tool with `return_direct` gives the answer itself
    # What a model says beside a tool call is no answer, unless the call is the structured answer.
    answers = [m for m in messages if isinstance(m, AIMessage) and (structured or not m.tool_calls)]
    return text_of(answers[-1]) if answers else ""


def _session(request: RunRequest, outcome: _Outcome, result: AgentResult, ended: datetime) -> Session:
    return Session(
        key=request.key,
        messages=list(outcome.values.get("messages", ())),
        files=dict(outcome.values.get("files") or {}),
        todos=list(outcome.values.get("todos") or ()),
        status=result.status,
        pending=list(result.pending),
        usage=result.usage,
        updated_at=ended,
    )
