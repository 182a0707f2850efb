"""A database goes from deepagents to Regnexe and back, and no message or file is lost on the way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from deepagents import create_deep_agent
from deepagents.backends import StateBackend
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, interrupt

from regnexe import RegnexeAgentBuilder, RunStatus
from regnexe.persistence.warm import WarmCheckpointer
from regnexe.testing import ScriptedChatModel, tool_call

CONFIG: Any = {"configurable": {"thread_id": "default:default:s"}}
EVENT_CUTOFF = 4


async def ask(question: str) -> str:
    """Ask the user."""
    return f"the user said {interrupt(question)}"


def script(requests: list[BaseMessage]) -> Any:
    last = requests[-1]
    text = str(last.content)
    if last.type == "human" and "write" in text:
        name = text.split()[-1]
        return AIMessage("", tool_calls=[tool_call("write_file", file_path=f"/{name}.txt", content=f"file {name}")])
    if last.type == "human" and "ask" in text:
        return AIMessage("", tool_calls=[tool_call("ask", question="May I?")])
    return f"done after {len(requests)}"


def plain(saver: Any) -> Any:
    return create_deep_agent(ScriptedChatModel(script), [ask], backend=StateBackend(), checkpointer=saver)


def regnexe(saver: Any) -> Any:
    return RegnexeAgentBuilder().with_model(ScriptedChatModel(script)).with_tool(ask).with_checkpointer(saver).build()


def warm(agent: Any, saver: Any) -> Any:
    channels: Any = {name: agent.graph.channels[name] for name in ("messages", "files", "_summarization_event")}
    return agent.graph.copy({"checkpointer": WarmCheckpointer(saver, channels)})


def content(values: Any) -> tuple[list[tuple[str, Any, str]], dict[str, Any]]:
    return [(m.type, m.content, m.id) for m in values["messages"]], values.get("files", {})


async def test_a_thread_of_plain_deepagents_opens_and_goes_on_in_regnexe(tmp_path: Path) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "t.db")) as saver:
        theirs = plain(saver)
        for turn in range(70):
            text = f"write {turn}" if turn % 5 == 0 else f"talk {turn}"
            await theirs.ainvoke({"messages": [HumanMessage(text)]}, CONFIG)
        await theirs.ainvoke({"messages": [HumanMessage("ask")]}, CONFIG)
        before = content((await theirs.aget_state(CONFIG)).values)
        agent = regnexe(saver)
        assert content((await agent.graph.aget_state(CONFIG)).values) == before
        answered = await warm(agent, saver).ainvoke(Command(resume="yes"), CONFIG)
        assert answered["messages"][-2].content == "the user said yes"
        for turn in range(20):
            assert (await agent.ainvoke(f"write new{turn}", session_id="s")).status is RunStatus.COMPLETED
        after = content((await agent.graph.aget_state(CONFIG)).values)
        assert after[0][: len(before[0])] == before[0]
        assert after[1] == {**after[1], **before[1]}
        assert after[1]["/new19.txt"]["content"] == "file new19"
        assert content((await plain(saver).aget_state(CONFIG)).values) == after


async def test_a_thread_of_regnexe_opens_and_goes_on_in_plain_deepagents(tmp_path: Path) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "t.db")) as saver:
        agent = regnexe(saver)
        for turn in range(200):
            await agent.ainvoke(f"write {turn}" if turn % 3 == 0 else f"talk {turn}", session_id="s")
            if turn == 10:
                summary = HumanMessage("what was said so far", additional_kwargs={"lc_source": "summarization"})
                event = {"cutoff_index": EVENT_CUTOFF, "summary_message": summary, "file_path": None}
                await agent.graph.aupdate_state(CONFIG, {"_summarization_event": event}, as_node="model")
        paused = await agent.ainvoke("ask", session_id="s")
        assert paused.status is RunStatus.INTERRUPTED
        before = content((await agent.graph.aget_state(CONFIG)).values)
        assert len(before[1]) == 67
        theirs = plain(saver)
        state = await theirs.aget_state(CONFIG)
        assert content(state.values) == before
        assert [task.interrupts[0].value for task in state.tasks] == ["May I?"]
        resumed = await theirs.ainvoke(Command(resume="yes"), CONFIG)
        assert resumed["messages"][-2].content == "the user said yes"
        after = await theirs.ainvoke({"messages": [HumanMessage("write more")]}, CONFIG)
        assert content(after)[0][: len(before[0])] == before[0]
        assert content(after)[1] == {**before[1], "/more.txt": after["files"]["/more.txt"]}
        back = await regnexe(saver).ainvoke("talk again", session_id="s")
        assert back.status is RunStatus.COMPLETED


async def test_plain_deepagents_goes_on_from_a_head_that_holds_snapshots_and_a_summary(tmp_path: Path) -> None:
    """Every channel is stored whole at some head; plain deepagents opens exactly that checkpoint."""
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "t.db")) as saver:
        agent = regnexe(saver)
        await agent.ainvoke("write first", session_id="s")
        summary = HumanMessage("what was said so far", additional_kwargs={"lc_source": "summarization"})
        event = {"cutoff_index": EVENT_CUTOFF, "summary_message": summary, "file_path": None}
        await agent.graph.aupdate_state(CONFIG, {"_summarization_event": event}, as_node="model")
        heads: dict[str, Any] = {}
        turn = 0
        while len(heads) < 3:
            turn += 1
            await agent.ainvoke(f"talk {turn}", session_id="s")
            async for found in saver.alist(CONFIG, limit=8):
                for name in ("messages", "files", "_summarization_event"):
                    if name in found.checkpoint["channel_values"] and found.metadata["step"] > 8:
                        heads.setdefault(name, found)
        assert isinstance(heads["messages"].checkpoint["channel_values"]["messages"], _DeltaSnapshot)
        assert isinstance(heads["files"].checkpoint["channel_values"]["files"], _DeltaSnapshot)
        for found in heads.values():
            theirs = plain(saver)
            ours = content((await agent.graph.aget_state(found.config)).values)
            assert content((await theirs.aget_state(found.config)).values) == ours
            # A branch of the thread that begins at this very checkpoint.
            answer = await theirs.ainvoke({"messages": [HumanMessage("write more")]}, found.config)
            assert content(answer)[0][: len(ours[0])] == ours[0]
            assert answer["files"].keys() == {*ours[1], "/more.txt"}


async def test_agents_on_one_database_with_and_without_warmth_take_turns(tmp_path: Path) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "t.db")) as saver:
        agents = [regnexe(saver), regnexe(saver)]
        theirs = plain(saver)
        for turn in range(25):
            await agents[turn % 2].ainvoke(f"write {turn}", session_id="s")
            await theirs.ainvoke({"messages": [HumanMessage(f"talk {turn}")]}, CONFIG)
            await asyncio.gather(*(theirs.aget_state(CONFIG) for _ in range(2)))
        values = (await theirs.aget_state(CONFIG)).values
        asked = [message.content for message in values["messages"] if message.type == "human"]
        assert asked == [text for turn in range(25) for text in (f"write {turn}", f"talk {turn}")]
        assert len(values["files"]) == 25
