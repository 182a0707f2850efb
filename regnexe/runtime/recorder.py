"""Turns LangChain's callbacks into events, and counts what a run uses."""

from __future__ import annotations

import asyncio
import contextvars
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import SystemMessage

# Models stream only when a handler of this (private) type listens; tests say so if that changes.
from langchain_core.tracers._streaming import _StreamingCallbackHandler
from langgraph.errors import GraphBubbleUp

from regnexe.events import (
    AgentCompleted,
    AgentStarted,
    ApprovalRequested,
    Event,
    LlmDelta,
    LlmEnd,
    LlmStart,
    ToolCalled,
    ToolResult,
)
from regnexe.json_values import safe_str
from regnexe.results import Usage
from regnexe.runtime import callback_data
from regnexe.runtime.returned import note_result

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from uuid import UUID

    from langchain_core.messages import BaseMessage
    from langchain_core.outputs import LLMResult

    from regnexe.identity import SessionKey
    from regnexe.results import AgentResult
    from regnexe.runtime.dispatch import Dispatcher

__all__ = ["RunRecorder", "StreamingRunRecorder"]

SUBAGENT_TOOL = "task"
"""deepagents' tool that starts a sub-agent; its argument `subagent_type` names it."""

ANSWER = "answer"
"""The purpose of a model call, unless LangChain's `lc_source` metadata names another."""


class RunRecorder(AsyncCallbackHandler):
    """Follows one run: counts its usage, and tells its events to the listeners and to the stream.

    It is a callback handler because that is the cheapest way to follow a graph (about 1 to 3% of a
    turn, where LangGraph's event stream costs about 35%), and one source means that an awaited and a
    streamed run tell the same events in the same order.

    Synchronous tools bring their callbacks from threads. Their events are numbered where all are: on the run's loop,
    as they are delivered. What is told after the end of the run is dropped.

    What events carry is copied: nobody who gets one can change the run. LangChain logs and swallows what a
    callback raises, so none may: `callback_data` reads whatever comes.
    """

    run_inline = True

    def __init__(
        self,
        *,
        key: SessionKey,
        run_id: str,
        dispatcher: Dispatcher,
        stream: Callable[[Event], Awaitable[None]] | None = None,
    ) -> None:
        self.usage = Usage()
        self._dispatcher = dispatcher
        self._stream = stream
        self._silent = stream is None and not dispatcher
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._copies = callback_data.MessageCopies()
        self._sequence = 0
        self._closed = False
        self._ids = {
            "app_id": key.app_id,
            "user_id": key.user_id,
            "session_id": key.session_id,
            "thread_id": key.thread_id,
            "run_id": run_id,
        }
        self._models: dict[UUID, dict[str, Any]] = {}
        self._tools: dict[UUID, dict[str, Any]] = {}
        self._subagents: dict[str, tuple[str, ...]] = {}
        # What was told to have begun and not yet to have ended; changed on the run's loop only.
        self._open: dict[UUID, Callable[..., Event]] = {}
        self._asking: set[UUID] = set()

    # Chains are the graph's own nodes: many, and nothing to tell.
    ignore_chain = True
    ignore_retriever = True
    ignore_custom_event = True
    ignore_retry = True

    async def started(self, name: str, goal: str) -> None:
        """Tell that the run began."""
        await self._tell(AgentStarted, name=name, goal=goal)

    async def completed(self, name: str, result: AgentResult) -> None:
        """Tell what the run has left open or waiting, and that it ended.

        A run that is stopped meanwhile tells all of it too, before the cancellation goes on.
        """
        if self._silent:
            return
        self._closed = True
        # Inside out: what happened inside a sub-agent ends before it.
        waits = [self._hand_over(self._open[call]) for call in reversed(self._open) if call not in self._asking]
        for approval in result.pending:
            waits.append(self._hand_over(ApprovalRequested, name=name, pending=callback_data.pending_copied(approval)))
        about = {"status": result.status, "final_text": result.final_text, "error": result.error}
        waits.append(self._hand_over(AgentCompleted, name=name, usage=result.usage, **about))
        cut: asyncio.CancelledError | None = None
        for wait in waits:
            try:
                await wait
            except asyncio.CancelledError as error:
                cut = error
        if cut is not None:
            raise cut

    async def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Tell that a model is about to be called."""
        self.usage += Usage(model_calls=1)
        about: dict[str, Any] = {
            "name": callback_data.model_name(serialized, metadata, kwargs),
            "path": self._path(metadata),
            "call_id": str(run_id),
            "purpose": safe_str((metadata or {}).get("lc_source") or ANSWER),
        }
        self._models[run_id] = about
        if self._silent:
            return
        sent = messages[0] if messages else []
        await self._tell(
            LlmStart,
            run_id,
            partial(LlmEnd, **about, message=None, usage=Usage(), error=callback_data.unended()),
            **about,
            messages=self._copies.of(message for message in sent if not isinstance(message, SystemMessage)),
            system_prompt=callback_data.system_prompt_of(sent),
        )

    async def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **kwargs: Any) -> None:
        """Tell a piece of a streamed answer, in streamed runs only."""
        message = getattr(chunk, "message", None)
        about = self._models.get(run_id)
        if self._stream is None or message is None or about is None or about["purpose"] != ANSWER:
            return
        text, reasoning = callback_data.readable(message), callback_data.reasoning_of(message)
        if text or reasoning:
            await self._tell(
                LlmDelta,
                name=about["name"],
                path=about["path"],
                call_id=about["call_id"],
                text=text,
                reasoning=reasoning,
            )

    async def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Tell the model's message, and count its tokens."""
        answer = callback_data.answer_of(response)
        used = callback_data.tokens_of(answer)
        self.usage += used
        shown = None if answer is None or self._silent else self._copies.of([answer])[0]
        await self._model_ended(run_id, message=shown, usage=used, error=None)

    async def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Tell that a model call failed."""
        await self._model_ended(run_id, message=None, usage=Usage(), error=error)

    async def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Tell that a tool is about to run."""
        self.usage += Usage(tool_calls=1)
        tool = safe_str((serialized or {}).get("name") or kwargs.get("name") or "tool")
        arguments = inputs if isinstance(inputs, dict) else {}
        path = self._path(metadata)
        starts = tool == SUBAGENT_TOOL and "subagent_type" in arguments
        subagent = safe_str(arguments["subagent_type"]) if starts else None
        if subagent is not None:
            self._subagents[callback_data.namespace(metadata)] = (*path, subagent)
        about: dict[str, Any] = {
            "name": subagent or tool,
            "path": path,
            "tool_call_id": safe_str(kwargs.get("tool_call_id") or ""),
            "tool": tool,
            "subagent": subagent,
        }
        self._tools[run_id] = about
        if self._silent:
            return
        error = callback_data.unended()
        ending = partial(ToolResult, **about, content=callback_data.error_text(error), error=error)
        await self._tell(ToolCalled, run_id, ending, **about, arguments=callback_data.copied(arguments))

    async def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Tell a tool's result, and keep it at hand: the run may be stopped while others hear of it."""
        for message in callback_data.results_in(output):
            note_result(message)
        await self._tool_ended(run_id, content=callback_data.content_of(output), error=None)

    async def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Tell that a tool raised. One that asks for approval has not ended, and tells nothing."""
        if isinstance(error, GraphBubbleUp):
            self._tools.pop(run_id, None)
            self._asking.add(run_id)
            return
        await self._tool_ended(run_id, content=callback_data.error_text(error), error=error)

    async def _model_ended(self, run_id: UUID, **what: Any) -> None:
        if (about := self._models.pop(run_id, None)) is not None:
            await self._tell(LlmEnd, run_id, **about, **what)

    async def _tool_ended(self, run_id: UUID, **what: Any) -> None:
        if (about := self._tools.pop(run_id, None)) is not None:
            await self._tell(ToolResult, run_id, **about, **what)

    def _path(self, metadata: dict[str, Any] | None) -> tuple[str, ...]:
        # A sub-agent's nodes run in "<namespace of its task call>|<node>:<id>".
        return self._subagents.get(callback_data.namespace(metadata).rpartition("|")[0], ())

    async def _tell(
        self,
        kind: Callable[..., Event],
        call: UUID | None = None,
        ending: Callable[..., Event] | None = None,
        **fields: Any,
    ) -> None:
        """Tell an event, which begins the call if it comes with its ending, and ends it if not."""
        if self._silent or self._closed:
            return
        delivery = self._deliver(kind, call, ending, fields)
        if asyncio.get_running_loop() is self._loop:
            await delivery
            return
        try:
            # A synchronous tool brings its callbacks from a thread.
            asyncio.run_coroutine_threadsafe(delivery, self._loop)
        except RuntimeError:  # the tool outlived the loop
            delivery.close()

    async def _deliver(
        self, kind: Callable[..., Event], call: UUID | None, ending: Callable[..., Event] | None, fields: dict[str, Any]
    ) -> None:
        if self._closed:
            return
        if call is not None and ending is not None:
            self._open[call] = ending
        elif call is not None:
            self._open.pop(call, None)
        await self._hand_over(kind, **fields)

    def _hand_over(self, kind: Callable[..., Event], **fields: Any) -> Awaitable[None]:
        event = kind(sequence=self._sequence, time=datetime.now(UTC), **self._ids, **fields)
        self._sequence += 1
        self._dispatcher.publish(event, self._context)
        return callback_data.nothing() if self._stream is None else self._stream(event)


class StreamingRunRecorder(RunRecorder, _StreamingCallbackHandler[Any]):
    """A recorder whose presence makes models stream their answers."""

    def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Leave a runnable's output as it is: the pieces come by `on_llm_new_token`."""
        return output

    def tap_output_iter(self, run_id: UUID, output: Iterator[Any]) -> Iterator[Any]:
        """Leave a runnable's output as it is: the pieces come by `on_llm_new_token`."""
        return output
