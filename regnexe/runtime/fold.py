"""Brings a log that a run left behind half-way into a state the next run can go on from."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.constants import END

from regnexe.runtime.request import TURN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_core.messages import ToolCall
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.types import StateSnapshot

__all__ = ["close_open_calls", "is_settled", "next_turn", "open_calls", "turn_of"]

TOOLS_NODE = "tools"

_TRIGGERS = ("branch:to:", "__pregel_tasks", "__start__")


def is_settled(head: CheckpointTuple | None) -> bool:
    """Return whether nothing is left to do on a thread, from its newest checkpoint alone.

    A cheap first look: where it says no, the full state tells what is open. It reads the names of
    LangGraph's own trigger channels; tests say so if those change.
    """
    if head is None:
        return True
    # The list of tasks stays there, empty, when they are done; the others go away.
    return not head.pending_writes and not any(
        channel.startswith(_TRIGGERS) and value != [] for channel, value in head.checkpoint["channel_values"].items()
    )


def turn_of(metadata: Mapping[str, Any] | None) -> int | None:
    """Return the number of the turn that a checkpoint with this metadata belongs to, None if it does not say."""
    turn = (metadata or {}).get(TURN)
    return turn if type(turn) is int and turn >= 0 else None


def next_turn(metadata: Mapping[str, Any]) -> int | None:
    """Return the number of the turn that comes after the checkpoint with this metadata, None if it does not say.

    Args:
        metadata: that of the thread's newest checkpoint, with nothing left to do.
    """
    turn = turn_of(metadata)
    if turn is None:
        return None
    # A process that ends between LangGraph's first checkpoint of a run, which holds the message as an input, and the
    # second, which has it in the log, leaves a number that no message has.
    return turn if metadata.get("source") == "input" else turn + 1


async def close_open_calls(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    config: RunnableConfig,
    state: StateSnapshot,
    returned: Mapping[str, ToolMessage] = MappingProxyType({}),
    *,
    was_cut_off: bool = False,
) -> StateSnapshot:
    """Write for good what finished, give every open tool call its result, and return the state after that.

    A tool that had finished keeps its result; only a call that did not finish gets an error result.

    Args:
        graph: the agent's graph.
        config: names the thread.
        state: its state now.
        returned: results by call id that this process saw, also those that were not yet stored.
        was_cut_off: whether the run may have ended without notice, with its process: a call without a result may
            then have done its work.
    """
    if any(task.result is not None for task in state.tasks):
        # The state shows what finished tasks wrote, but the log has it only now that it is written for good: a new
        # message, or any other update, starts from the checkpoint without it. This clears the other tasks.
        await graph.aupdate_state(config, None, as_node=END)
        state = await graph.aget_state(config)
    results = [
        returned.get(call["id"] or "") or _unfinished(call, was_cut_off=was_cut_off)
        for call in open_calls(state.values.get("messages", []))
    ]
    if not results:
        return state
    await graph.aupdate_state(config, {"messages": results}, as_node=TOOLS_NODE)
    return await graph.aget_state(config)


def open_calls(messages: Sequence[BaseMessage]) -> list[ToolCall]:
    """Return the calls at the end of the log that have no result yet."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
            continue
        calls = message.tool_calls if isinstance(message, AIMessage) else []
        return list({call["id"]: call for call in calls if call["id"] and call["id"] not in answered}.values())
    return []


def _unfinished(call: ToolCall, *, was_cut_off: bool) -> ToolMessage:
    what = "was cut off, and whether it did its work is not known" if was_cut_off else "was stopped before it finished"
    return ToolMessage(
        f"The tool call {call['name']} {what}; it has no result.",
        name=call["name"],
        tool_call_id=call["id"],
        status="error",
    )
