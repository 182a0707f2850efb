"""What a run leaves behind when its process dies, and how the next run goes on from it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.types import interrupt

from regnexe import RegnexeAgent, RegnexeAgentBuilder, RunStatus
from regnexe.runtime.fold import is_settled
from regnexe.testing import ScriptedChatModel, tool_call

CONFIG: Any = {"configurable": {"thread_id": "default:default:s"}}


class Tools:
    """A tool that ends at once and one that hangs until it is told not to."""

    def __init__(self) -> None:
        self.hanging = asyncio.Event()
        self.hang = True
        self.paid = 0

    async def pay(self, amount: int) -> str:
        """Pay."""
        self.paid += 1
        return f"PAID {amount}"

    async def slow(self, x: str) -> str:
        """Take long."""
        self.hanging.set()
        if self.hang:
            await asyncio.Event().wait()
        return "slow done"

    async def ask(self, x: str) -> str:
        """Ask."""
        return str(interrupt(x))


def build(tools: Tools, script: Any, saver: Any) -> RegnexeAgent:
    model = ScriptedChatModel(script)
    return (
        RegnexeAgentBuilder()
        .with_model(model)
        .with_tool(tools.pay, tools.slow, tools.ask)
        .with_checkpointer(saver)
        .build()
    )


async def crash(agent: RegnexeAgent, tools: Tools) -> None:
    """Run the bare graph into its tools and drop it there: nothing of ours tidies up."""
    run = agent.graph.ainvoke({"messages": [HumanMessage("pay 5", id="h1")]}, CONFIG, durability="sync")
    task = asyncio.ensure_future(run)
    await tools.hanging.wait()
    saver: Any = agent.graph.checkpointer
    # The saver tells nobody when it has stored the paid result.
    while not any(write[1] == "messages" for write in (await saver.aget_tuple(CONFIG)).pending_writes):  # noqa: ASYNC110
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def settled(agent: RegnexeAgent) -> bool:
    saver: Any = agent.graph.checkpointer
    return is_settled(await saver.aget_tuple(CONFIG))


async def test_after_a_crash_the_next_message_finds_finished_results_and_an_error_for_the_rest(saver: Any) -> None:
    tools = Tools()
    calls = [tool_call("pay", amount=5), tool_call("slow", x="1")]
    agent = build(tools, [AIMessage("", tool_calls=calls), "all well"], saver)
    await crash(agent, tools)
    assert not await settled(agent)
    result = await agent.ainvoke("what happened?", session_id="s")
    assert (result.status, result.final_text) == (RunStatus.COMPLETED, "all well")
    kept = [(m.text, m.status) for m in result.session.messages if isinstance(m, ToolMessage)]
    assert kept == [
        ("PAID 5", "success"),
        ("The tool call slow was cut off, and whether it did its work is not known; it has no result.", "error"),
    ]
    assert tools.paid == 1
    assert [m.type for m in result.session.messages] == ["human", "ai", "tool", "tool", "human", "ai"]
    assert await settled(agent)


async def test_a_thread_is_settled_exactly_when_no_run_left_anything_open(saver: Any) -> None:
    tools = Tools()
    script: list[Any] = [
        "hello",
        AIMessage("", tool_calls=[tool_call("pay", amount=1)]),
        "paid",
        RuntimeError("down"),
        "back",
        AIMessage("", tool_calls=[tool_call("ask", x="sure?")]),
    ]
    agent = build(tools, script, saver)
    assert await settled(agent)
    for goal, expected in (
        ("hi", True),
        ("pay", True),
        ("fail", False),
        ("again", True),
        ("ask", False),
    ):
        result = await agent.ainvoke(goal, session_id="s")
        state = await agent.graph.aget_state(CONFIG)
        assert (goal, await settled(agent), state.next == ()) == (goal, expected, expected), (
            "LangGraph names its trigger channels differently now; adapt is_settled"
        )
    assert result.status is RunStatus.INTERRUPTED


async def test_a_tool_that_returns_just_as_its_run_is_cancelled_keeps_its_result(saver: Any) -> None:
    tools = Tools()
    runs: list[asyncio.Task[Any]] = []

    async def pay_and_cancel(amount: int) -> str:
        """Pay, and be cancelled before anybody can store it."""
        runs[0].cancel()
        return f"PAID {amount}"

    calls = [tool_call("pay_and_cancel", amount=5), tool_call("slow", x="1")]
    agent = (
        RegnexeAgentBuilder()
        .with_model(ScriptedChatModel([AIMessage("", tool_calls=calls), "all well"]))
        .with_tool(pay_and_cancel, tools.slow)
        .with_checkpointer(saver)
        .build()
    )
    runs.append(asyncio.create_task(agent.ainvoke("pay 5", session_id="s")))
    with pytest.raises(asyncio.CancelledError):
        await runs[0]
    result = await agent.ainvoke("what happened?", session_id="s")
    assert result.session.messages[2].text == "PAID 5"
    assert result.final_text == "all well"
