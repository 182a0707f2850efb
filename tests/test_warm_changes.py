"""Who changes in place what the state of a run holds changes neither what is stored nor what a later run sees."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from langchain.agents.middleware.types import AgentMiddleware
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from regnexe import RegnexeAgentBuilder, RunStatus
from regnexe.testing import ScriptedChatModel, tool_call

TURNS = 56
CONFIG: Any = {"configurable": {"thread_id": "default:default:s"}}


def change(message: Any) -> None:
    """Change everything in a message that the run can go on with."""
    if isinstance(message.content, str):
        message.content = "changed" + message.content
    else:
        message.content[0]["text"] = "changed"
        message.content.append({"type": "text", "text": "added"})
    for call in getattr(message, "tool_calls", ()):
        call["args"]["changed"] = 1
    message.additional_kwargs["changed"] = 1
    message.response_metadata.setdefault("deep", []).append("changed")
    if getattr(message, "artifact", None) is not None:
        message.artifact["deep"]["list"].append("changed")
    message.an_extra_field = "changed"


def spoil(message: Any) -> None:
    """Change a message so that nothing can be done with it any more."""
    object.__setattr__(message, "__dict__", {"content": "spoilt"})
    object.__setattr__(message, "__pydantic_extra__", {"spoilt": 1})


def change_state(state: Any) -> None:
    for message in state["messages"]:
        change(message)
    state["messages"].append(HumanMessage("added", id="added"))
    for entry in state.get("files", {}).values():
        entry["content"] = "changed"
        entry["changed"] = True
    state.get("files", {})["/added.txt"] = {"content": "added", "encoding": "utf-8"}


class Changing(AgentMiddleware[Any, Any]):
    """Keeps what a run begins with, and changes the state it is handed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[list[BaseMessage], dict[str, Any]]] = []

    async def abefore_agent(self, state: Any, runtime: Any) -> None:
        self.seen.append((copy.deepcopy(state["messages"]), copy.deepcopy(state.get("files", {}))))
        change_state(state)

    async def aafter_model(self, state: Any, runtime: Any) -> None:
        change_state(state)

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        change_state(state)
        state["messages"].clear()


async def meddle(number: int, runtime: ToolRuntime[Any, Any]) -> str:
    """Change the state."""
    change_state(runtime.state)
    return f"meddled {number}"


def script(requests: list[BaseMessage]) -> Any:
    last = requests[-1]
    turn = sum(message.type == "human" for message in requests)
    if last.type == "human":
        calls = [
            tool_call("meddle", number=turn),
            tool_call("write_file", file_path=f"/{turn}.txt", content=f"file {turn}"),
        ]
        return AIMessage("", tool_calls=calls)
    return f"answer {turn}"


async def stored(agent: Any) -> tuple[list[BaseMessage], dict[str, Any]]:
    """What the agent's saver holds, read without anything of ours but the channels."""
    values = (await agent.graph.aget_state(CONFIG)).values
    return values["messages"], values.get("files", {})


async def snapshots(agent: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    async for found in agent.graph.checkpointer.alist(CONFIG):
        for name, value in found.checkpoint["channel_values"].items():
            counts[name] = counts.get(name, 0) + isinstance(value, _DeltaSnapshot)
    return counts


async def test_a_tool_and_a_middleware_that_change_the_state_change_nothing_that_lasts(saver: Any) -> None:
    changing = Changing()
    builder = RegnexeAgentBuilder().with_model(ScriptedChatModel(script)).with_tool(meddle)
    agent = builder.with_middleware(changing).with_checkpointer(saver).build()
    assert isinstance(agent.graph.checkpointer, type(saver))
    log: list[BaseMessage] = []
    files: dict[str, Any] = {}
    for turn in range(1, TURNS + 1):
        question: Any = f"question {turn}" if turn % 3 else [{"type": "text", "text": f"question {turn}"}]
        result = await agent.ainvoke(question, session_id="s")
        assert result.status is RunStatus.COMPLETED
        began_with, began_with_files = changing.seen[-1]
        assert began_with[:-1] == log
        assert began_with_files == files
        for message in result.messages:
            spoil(message)
        before = copy.deepcopy(log), copy.deepcopy(files)
        log, files = await stored(agent)
        assert log[: len(before[0])] == before[0]
        assert files == {**before[1], f"/{turn}.txt": files[f"/{turn}.txt"]}
        assert files[f"/{turn}.txt"]["content"] == f"file {turn}"
        new = log[len(before[0]) :]
        assert [message.type for message in new] == ["human", "ai", "tool", "tool", "ai"]
        assert new[0].content == question
        assert new[1].tool_calls[0]["args"] == {"number": turn}  # type: ignore[attr-defined]
        assert [message.content for message in new[2:]] == [f"meddled {turn}", new[3].content, f"answer {turn}"]
        assert not any(message.additional_kwargs for message in new)
    counts = await snapshots(agent)
    assert counts["messages"] >= 2
    assert counts["files"] >= 1


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_run_that_changes_the_oldest_messages_when_a_snapshot_is_due_stores_them_as_they_were(
    durability: Any,
) -> None:
    from regnexe.persistence.warm import WarmCheckpointer

    saver = InMemorySaver()

    async def touch(runtime: ToolRuntime[Any, Any]) -> str:
        """Touch."""
        for message in runtime.state["messages"][:-1]:
            change(message)
        return "touched"

    def answer(requests: list[BaseMessage]) -> Any:
        return AIMessage("", tool_calls=[tool_call("touch")]) if requests[-1].type == "human" else "done"

    plain = RegnexeAgentBuilder().with_model(ScriptedChatModel(answer)).with_tool(touch).with_checkpointer(saver)
    graph = plain.build().graph
    channels: Any = {name: graph.channels[name] for name in ("messages", "files", "_summarization_event")}
    warm = graph.copy({"checkpointer": WarmCheckpointer(saver, channels)})
    kept: list[BaseMessage] = []
    for turn in range(30):
        await warm.ainvoke({"messages": [HumanMessage(f"question {turn}")]}, CONFIG, durability=durability)
        log = (await graph.aget_state(CONFIG)).values["messages"]
        assert log[: len(kept)] == kept
        kept = copy.deepcopy(log)
    assert len(kept) == 120


async def test_a_branch_from_before_an_edit_keeps_the_message_as_it_was_before() -> None:
    from regnexe.persistence.warm import WarmCheckpointer

    saver = InMemorySaver()
    graph = RegnexeAgentBuilder().with_model(ScriptedChatModel(lambda _: "done")).with_checkpointer(saver).build().graph
    channels: Any = {name: graph.channels[name] for name in ("messages", "files", "_summarization_event")}
    warm = graph.copy({"checkpointer": WarmCheckpointer(saver, channels)})
    await warm.ainvoke({"messages": [HumanMessage("as it was", id="h")]}, CONFIG)
    before = (await warm.aget_state(CONFIG)).config
    await warm.aupdate_state(CONFIG, {"messages": [HumanMessage("edited", id="h")]})
    assert (await graph.aget_state(CONFIG)).values["messages"][0].content == "edited"
    branch = await warm.aupdate_state(before, {"files": {"/a": {"content": "a", "encoding": "utf-8"}}})
    for one in (graph, warm):
        assert (await one.aget_state(branch)).values["messages"][0].content == "as it was"


async def test_a_message_that_is_replaced_by_a_run_that_stores_at_its_end_stays_replaced() -> None:
    from regnexe.persistence.warm import WarmCheckpointer

    class Replacing(AgentMiddleware[Any, Any]):
        async def aafter_agent(self, state: Any, runtime: Any) -> Any:
            first = state["messages"][0]
            return {"messages": [first.model_copy(update={"content": f"replaced {len(state['messages'])}"})]}

    saver = InMemorySaver()
    builder = RegnexeAgentBuilder().with_model(ScriptedChatModel(lambda _: "done")).with_middleware(Replacing())
    graph = builder.with_checkpointer(saver).build().graph
    channels: Any = {name: graph.channels[name] for name in ("messages", "files", "_summarization_event")}
    warm = graph.copy({"checkpointer": WarmCheckpointer(saver, channels)})
    for _ in range(40):
        await warm.ainvoke({"messages": [HumanMessage("question")]}, CONFIG, durability="exit")
        log = (await graph.aget_state(CONFIG)).values["messages"]
        assert log[0].content == f"replaced {len(log)}"
