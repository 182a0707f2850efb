"""Closing an agent while its runs go on, and loops that end under a call."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from regnexe import AbstractEventListener, AgentClosed, RegnexeAgent, RegnexeAgentBuilder, RunStatus
from regnexe.messages import history_faults
from regnexe.runtime.portal import Portal
from regnexe.testing import ScriptedChatModel, tool_call

if TYPE_CHECKING:
    from pathlib import Path

    from langchain_core.messages import BaseMessage

STOPPED = "closed during the run, which was stopped"


class Slow:
    """A tool that never returns, and tells when it was called."""

    def __init__(self) -> None:
        self.called = threading.Semaphore(0)

    async def slow(self) -> str:
        """Never return."""
        self.called.release()
        await asyncio.get_running_loop().create_future()
        return "never"

    async def wait(self) -> None:
        await asyncio.to_thread(self.called.acquire, timeout=20)


def build(tool: Any, saver: Any = None, listener: Any = None) -> RegnexeAgent:
    def answer(messages: list[BaseMessage]) -> AIMessage:
        return AIMessage("", tool_calls=[tool_call(tool.__name__)]) if messages[-1].text == "hi" else AIMessage("ok")

    builder = RegnexeAgentBuilder().with_model(ScriptedChatModel(answer)).with_tool(tool)
    if saver is not None:
        builder.with_checkpointer(saver)
    if listener is not None:
        builder.with_event_listener(listener)
    return builder.build()


async def log_of(agent: RegnexeAgent, session: str) -> list[BaseMessage]:
    state = await agent.graph.aget_state({"configurable": {"thread_id": f"default:default:{session}"}})
    return list(state.values["messages"])


async def check_log(agent: RegnexeAgent, session: str) -> None:
    log = await log_of(agent, session)
    assert [message.type for message in log] == ["human", "ai", "tool"]
    assert history_faults(log) == []


async def test_closing_stops_the_runs_of_every_loop_and_their_callers_get_agent_closed(tmp_path: Path) -> None:
    slow = Slow()
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
        agent = build(slow.slow, saver)
        here = asyncio.create_task(agent.ainvoke("hi", session_id="here"))
        waiting = asyncio.create_task(agent.ainvoke("hi", session_id="here"))
        await slow.wait()
        other = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(agent.ainvoke("hi", session_id="other"))))
        sync = asyncio.create_task(asyncio.to_thread(agent.invoke, "hi", session_id="sync"))
        await slow.wait()
        await slow.wait()
        await agent.aclose()
        for call in (here, waiting, other, sync):
            with pytest.raises(AgentClosed, match=STOPPED):
                await call
            assert call.done() and not call.cancelled()
        for session in ("here", "other", "sync"):
            await check_log(agent, session)


def test_closing_without_await_stops_a_synchronous_run_too() -> None:
    slow = Slow()
    agent = build(slow.slow)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(agent.invoke, "hi", session_id="s")
        assert slow.called.acquire(timeout=20)
        agent.close()
        with pytest.raises(AgentClosed, match=STOPPED):
            call.result(20)
    asyncio.run(check_log(agent, "s"))


async def test_closing_on_a_running_loop_without_await_stops_the_runs_on_it_after_it() -> None:
    slow = Slow()
    agent = build(slow.slow)
    call = asyncio.create_task(agent.ainvoke("hi", session_id="s"))
    await slow.wait()
    agent.close()
    with pytest.raises(AgentClosed, match=STOPPED):
        await call
    await check_log(agent, "s")


async def test_the_reader_of_a_stream_may_close_the_agent_and_is_told_so() -> None:
    agent = build(Slow().slow)
    with pytest.raises(AgentClosed, match=STOPPED):
        async for _ in agent.astream("hi", session_id="s"):
            await agent.aclose()


def test_the_reader_of_a_synchronous_stream_may_close_the_agent_and_is_told_so() -> None:
    agent = build(Slow().slow)
    with pytest.raises(AgentClosed):
        for _ in agent.stream("hi", session_id="s"):
            agent.close()


async def test_a_task_that_others_cancel_too_is_cancelled() -> None:
    slow = Slow()
    agent = build(slow.slow)
    call = asyncio.create_task(agent.ainvoke("hi", session_id="s"))
    await slow.wait()
    call.cancel()
    await agent.aclose()
    with pytest.raises(asyncio.CancelledError):
        await call
    await check_log(agent, "s")


@pytest.mark.parametrize("way", ["aclose", "close", "thread"])
async def test_a_tool_that_closes_its_own_agent_waits_for_nothing_and_its_run_is_stopped(
    way: str, tmp_path: Path
) -> None:
    agents: list[RegnexeAgent] = []

    async def shut() -> str:
        """Close the agent."""
        if way == "aclose":
            await agents[0].aclose()
        else:
            agents[0].close()
        await asyncio.get_running_loop().create_future()
        return "never"

    def shut_in_a_thread() -> str:
        """Close the agent."""
        agents[0].close()
        return "closed"

    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
        agents.append(build(shut_in_a_thread if way == "thread" else shut, saver))
        # On a loop that is not the saver's, so that closing has a connection to close as well.
        with pytest.raises(AgentClosed, match=STOPPED):
            await asyncio.to_thread(lambda: asyncio.run(agents[0].ainvoke("hi", session_id="s")))
        await check_log(agents[0], "s")


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_tool_of_a_synchronous_run_that_closes_its_own_agent_ends_the_call(kind: str) -> None:
    agents: list[RegnexeAgent] = []

    async def shut() -> str:
        """Close the agent."""
        await agents[0].aclose()
        return "closed"

    def shut_in_a_thread() -> str:
        """Close the agent."""
        agents[0].close()
        return "closed"

    agents.append(build(shut if kind == "async" else shut_in_a_thread))
    with pytest.raises(AgentClosed):
        agents[0].invoke("hi", session_id="s")
    asyncio.run(check_log(agents[0], "s"))


async def test_a_listener_may_close_the_agent() -> None:
    agents: list[RegnexeAgent] = []
    closed = asyncio.Event()

    class Shut(AbstractEventListener):
        async def on_event(self, event_type: Any, name: Any, data: Any) -> None:
            if not closed.is_set():
                await agents[0].aclose()
                closed.set()

    agents.append(build(Slow().slow, listener=Shut()))
    with pytest.raises(AgentClosed, match=STOPPED):
        await agents[0].ainvoke("hi", session_id="s")
    assert closed.is_set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_the_runs_of_its_parent() -> None:
    slow = Slow()
    agent = build(slow.slow)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(agent.invoke, "hi", session_id="s")
        assert slow.called.acquire(timeout=20)
        if (child := os.fork()) == 0:
            agent.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not call.done()
        agent.close()
        with pytest.raises(AgentClosed):
            call.result(20)


# --- loops that end under a call ---


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["model", "tool"])
def test_an_interrupt_inside_a_model_or_a_tool_ends_one_call_and_the_next_works(
    error: type[BaseException], where: str
) -> None:
    async def leave() -> str:
        """Leave."""
        raise error

    def answer(messages: list[BaseMessage]) -> AIMessage:
        if messages[-1].text != "hi":
            return AIMessage("still here")
        if where == "model":
            raise error
        return AIMessage("", tool_calls=[tool_call("leave")])

    with RegnexeAgentBuilder().with_model(ScriptedChatModel(answer)).with_tool(leave).build() as agent:
        try:
            assert agent.invoke("hi", session_id="s").status in (RunStatus.COMPLETED, RunStatus.ERROR)
        except (error, CancelledError):
            pass
        assert agent.invoke("hello", session_id="t").final_text == "still here"


def test_a_call_that_comes_while_the_loop_ends_goes_to_the_next_loop() -> None:
    portal = Portal()
    ending, called = threading.Event(), threading.Event()

    async def linger() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ending.set()
            called.wait(20)  # holds the loop in its end

    async def interrupt() -> None:
        waiting = asyncio.create_task(linger())
        await asyncio.sleep(0)
        assert not waiting.done()
        raise KeyboardInterrupt

    async def answer() -> str:
        return "here"

    with ThreadPoolExecutor(1) as pool:
        interrupted = pool.submit(portal.call, interrupt)
        assert ending.wait(20)
        assert portal.call(answer) == "here"
        called.set()
        with pytest.raises((KeyboardInterrupt, CancelledError)):
            interrupted.result(20)
    portal.close()
