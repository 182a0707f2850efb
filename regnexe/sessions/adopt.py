"""Takes over a thread that was written without Regnexe.

The newest checkpoint of the thread, and those of sub-agents that wait inside it, are written under the key's thread
through the saver's own methods. Ids of tasks and of pending approvals come from the ids and the steps of
checkpoints, not from the thread: with both kept, what waits can be answered, and what had finished next to it does not
run again. Delta channels, which a checkpoint holds only in part, are written whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt

from regnexe.errors import AdoptionRefused, InvalidInput, InvalidSessionId, SessionExists, SessionNotFound
from regnexe.identity import SessionKey
from regnexe.messages import clean_text
from regnexe.persistence.index.base import SessionUpdate, humans_in
from regnexe.runtime.fold import open_calls
from regnexe.runtime.notes import RunNotes
from regnexe.runtime.request import TURN
from regnexe.sessions.manager import opened
from regnexe.sessions.reading import read_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from langgraph.checkpoint.base import CheckpointTuple
    from langgraph.graph.state import CompiledStateGraph

    from regnexe.persistence.index.base import SessionInfo
    from regnexe.runtime.runner import Runner
    from regnexe.sessions.reading import ThreadState

__all__ = ["adopt_thread"]

_INTERRUPT = "__interrupt__"
_OURS = "regnexe_session_id"


@dataclass(frozen=True, kw_only=True)
class _Move:
    """One adoption: from a thread to a key, on a graph's saver."""

    graph: CompiledStateGraph[Any, Any, Any, Any]
    key: SessionKey
    thread_id: str

    @property
    def saver(self) -> Any:
        return self.graph.checkpointer


async def adopt_thread(
    source: Callable[[], Awaitable[Runner]], is_closed: Callable[[], bool], key: SessionKey, thread_id: str
) -> SessionInfo:
    """Do what `RegnexeAgent.adopt` says."""
    if not isinstance(key, SessionKey):
        raise InvalidInput(f"key must be a SessionKey, got {type(key).__name__}")
    if not isinstance(thread_id, str) or not thread_id or "\0" in thread_id or clean_text(thread_id) != thread_id:
        raise InvalidInput(f"thread_id must be a non-empty str without NUL and lone surrogates, got {thread_id!r}")
    async with opened(source, is_closed) as runner, runner.hold(key):
        move = _Move(graph=runner.graph, key=key, thread_id=thread_id)
        thread = await _checked(move, runner)
        head = await move.saver.aget_tuple(_config(thread_id))
        await _copy_subagents(move, head, thread)
        values = {**head.checkpoint["channel_values"], **_whole_channels(move.graph, head, thread.state.values)}
        # The newest checkpoint comes last, in one write: before it there is no session, and another try is fine.
        await _put_writes(move, head)
        await _put(move, head, values, {TURN: humans_in(thread.messages)})
        info = thread.info(key)
        await RunNotes(runner.index).record(
            SessionUpdate(
                key=key,
                at=info.updated_at,
                status=info.status,
                title=info.title,
                turns=info.turns,
                messages=info.messages,
                tokens=info.tokens,
            )
        )
        return info


async def _checked(move: _Move, runner: Runner) -> ThreadState:
    """Return the thread to take over, if it can be."""
    if move.thread_id == move.key.thread_id:
        raise AdoptionRefused(
            f"thread {move.thread_id!r} is the one of this very session; it needs no adopting: call ainvoke",
            thread_id=move.thread_id,
        )
    if await move.saver.aget_tuple(_config(move.key.thread_id)) is not None:
        raise SessionExists(
            f"there is a session {move.key.thread_id!r} already, which was left as it is; adopt thread "
            f"{move.thread_id!r} under another session id",
            thread_id=move.key.thread_id,
        )
    thread = await read_thread(move.graph, move.thread_id)
    if thread is None:
        raise SessionNotFound(
            f"nothing is stored of thread {move.thread_id!r} in this agent's checkpointer", thread_id=move.thread_id
        )
    if _OURS in (thread.state.metadata or {}) or await _is_listed(runner, move.thread_id):
        raise AdoptionRefused(
            f"thread {move.thread_id!r} is a session of Regnexe's; only threads written without it can be adopted",
            thread_id=move.thread_id,
        )
    return thread


async def _is_listed(runner: Runner, thread_id: str) -> bool:
    try:
        key = SessionKey.from_thread_id(thread_id)
    except InvalidSessionId:
        return False
    return await runner.index.get(key) is not None


async def _copy_subagents(move: _Move, head: CheckpointTuple, thread: ThreadState) -> None:
    """Copy what sub-agents that have not finished hold, in the namespaces of their tasks."""
    _check_answerable(move, head, thread)
    for task in thread.state.tasks:
        async for found in _namespace(move, f"{task.name}:{task.id}"):
            await _put_writes(move, found)
            await _put(move, found, found.checkpoint["channel_values"], {})


async def _namespace(move: _Move, name: str) -> AsyncIterator[CheckpointTuple]:
    """Yield the checkpoints of a namespace and of those inside it, oldest first."""
    # A saver may hold a lock while it lists, so nothing is written meanwhile. One task makes few checkpoints.
    config: Any = {"configurable": {"thread_id": move.thread_id, "checkpoint_ns": name}}
    found = [checkpoint async for checkpoint in move.saver.alist(config)]
    for checkpoint in reversed(found):
        yield checkpoint
    waiting = {task for task, channel, _ in (found[0].pending_writes or ()) if channel == _INTERRUPT} if found else ()
    for task in waiting:
        # A sub-agent's own tasks run in its node of tools.
        async for checkpoint in _namespace(move, f"{name}|tools:{task}"):
            yield checkpoint


def _check_answerable(move: _Move, head: CheckpointTuple, thread: ThreadState) -> None:
    # The graph tells of a decision only if it has the node that asks for it.
    asked = [
        interrupt
        for _, channel, value in head.pending_writes or ()
        if channel == _INTERRUPT
        for interrupt in (value if isinstance(value, list | tuple) else [value])
        if isinstance(interrupt, Interrupt)
    ]
    known = {interrupt.id for interrupt in thread.state.interrupts}
    missing = [interrupt.id for interrupt in asked if interrupt.id not in known]
    if asked:
        _check_callable(move, thread)
    if missing:
        raise AdoptionRefused(
            f"thread {move.thread_id!r} waits for a decision ({', '.join(missing)}) that this agent could not take: it "
            "lacks the middleware or the tools that ask for it. Build the agent with them, or decide before adopting",
            thread_id=move.thread_id,
        )


def _check_callable(move: _Move, thread: ThreadState) -> None:
    """Refuse a thread with open calls that this agent's tools or sub-agents could not carry out."""
    from regnexe.runtime.graph import SUBAGENTS  # it loads deepagents, as the graph did

    tools = move.graph.nodes["tools"].bound.tools_by_name  # type: ignore[attr-defined]  # LangGraph's ToolNode
    for call in open_calls(thread.messages):
        subagent = call["args"].get("subagent_type") if call["name"] == "task" else None
        if call["name"] not in tools or (subagent is not None and subagent not in SUBAGENTS):
            lacks = f"the sub-agent {subagent!r}" if call["name"] in tools else f"the tool {call['name']!r}"
            raise AdoptionRefused(
                f"thread {move.thread_id!r} waits in a call of {lacks}, which this agent does not have. Build the "
                "agent with it, or let the thread's own agent finish the call before adopting",
                thread_id=move.thread_id,
            )


def _whole_channels(
    graph: CompiledStateGraph[Any, Any, Any, Any], head: CheckpointTuple, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the delta channels that the thread has, each with its whole value."""
    return {
        name: _DeltaSnapshot(values[name])
        for name, channel in graph.channels.items()
        if isinstance(channel, DeltaChannel) and name in values and name in head.checkpoint["channel_versions"]
    }


async def _put(move: _Move, found: CheckpointTuple, values: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Write a checkpoint under the key's thread, with these values and all its channels as new ones."""
    parent = (found.parent_config or {}).get("configurable", {}).get("checkpoint_id")
    place = _place(move, found)
    if place["checkpoint_ns"] and parent:
        # A namespace is copied with all its checkpoints; of the thread itself the newest alone.
        place["checkpoint_id"] = parent
    checkpoint = {**found.checkpoint, "channel_values": dict(values)}
    # Counters of delta channels begin anew: all of the thread's own are written whole.
    kept = {name: value for name, value in found.metadata.items() if place["checkpoint_ns"] or "counters" not in name}
    ours = {
        "regnexe_app_id": move.key.app_id,
        "regnexe_user_id": move.key.user_id,
        _OURS: move.key.session_id,
        "regnexe_adopted_from": move.thread_id,
    }
    about = {**kept, **ours, **metadata}
    await move.saver.aput({"configurable": place}, checkpoint, about, dict(found.checkpoint["channel_versions"]))


async def _put_writes(move: _Move, found: CheckpointTuple) -> None:
    """Write what the tasks of a checkpoint have written, in the order it is in."""
    place = {**_place(move, found), "checkpoint_id": found.checkpoint["id"]}
    by_task = groupby(found.pending_writes or (), key=lambda write: write[0])
    for number, (task, writes) in enumerate(by_task):
        given = [(channel, value) for _, channel, value in writes]
        # Savers sort by the path of a task, which they do not tell.
        await move.saver.aput_writes({"configurable": place}, given, task, f"{number:06d}")


def _place(move: _Move, found: CheckpointTuple) -> dict[str, Any]:
    return {
        "thread_id": move.key.thread_id,
        "checkpoint_ns": found.config["configurable"].get("checkpoint_ns", ""),
    }


def _config(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}
