"""A thread written without Regnexe goes on as a session."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, TodoListMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, interrupt

from regnexe import (
    AdoptionRefused,
    InvalidInput,
    PendingApprovalError,
    RegnexeAgent,
    RegnexeAgentBuilder,
    RunStatus,
    SessionExists,
    SessionKey,
    SessionNotFound,
)
from regnexe.testing import ScriptedChatModel, tool_call

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

KEY = SessionKey("app", "user", "adopted")
IDS: Any = {"app_id": "app", "user_id": "user", "session_id": "adopted"}
OLD: Any = {"configurable": {"thread_id": "some old thread"}}
NEW: Any = {"configurable": {"thread_id": KEY.thread_id}}
ran: list[str] = []


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def saver(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """Each kind of saver in turn."""
    ran.clear()
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            yield InMemorySaver()
        elif request.param == "sqlite":
            path = str(tmp_path / "threads.db")
            yield await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(path))
        else:
            from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

            url = request.getfixturevalue("postgres_url")
            made = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(url))
            await made.setup()
            yield made


async def risky(x: str) -> str:
    """Do something risky."""
    ran.append(f"risky {x}")
    return f"did {x}"


async def safe(x: str) -> str:
    """Do something safe."""
    ran.append(f"safe {x}")
    return f"safe {x}"


async def asking(x: str) -> str:
    """Ask before doing it."""
    answer = interrupt(f"may I {x}?")
    ran.append(f"asked {x}")
    return f"{answer}: {x}"


def approval() -> Any:
    return HumanInTheLoopMiddleware(interrupt_on={"risky": True})


def build(model: Any, saver: Any, middleware: Any = (), tools: Any = (risky, safe, asking)) -> RegnexeAgent:
    builder = RegnexeAgentBuilder().with_model(model).with_tool(*tools).with_checkpointer(saver)
    return builder.with_middleware(*middleware).build()


async def talk(graph: Any, *texts: str) -> None:
    for text in texts:
        await graph.ainvoke({"messages": [HumanMessage(text)]}, OLD)


async def texts(graph: Any, config: Any) -> list[str]:
    return [message.text for message in (await graph.aget_state(config)).values["messages"]]


async def test_an_adopted_thread_goes_on_with_its_messages_files_and_todos_and_stays_as_it_was(saver: Any) -> None:
    todo = {"content": "buy milk", "status": "pending"}
    model = ScriptedChatModel(
        [
            AIMessage("", tool_calls=[tool_call("write_file", file_path="/notes.md", content="milk")]),
            "noted",
            AIMessage("", tool_calls=[tool_call("write_todos", todos=[todo])]),
            "planned",
            "going on",
        ]
    )
    graph: Any = create_deep_agent(model, [], checkpointer=saver, middleware=[TodoListMiddleware()])
    await talk(graph, "Note this", "Plan that")
    before = (await graph.aget_state(OLD)).values
    async with build(model, saver, [TodoListMiddleware()]) as agent:
        info = await agent.adopt(KEY, "some old thread")
        assert (info.key, info.title, info.turns, info.messages) == (KEY, "Note this", 2, 8)
        assert (info.status, info.tokens > 0) == ("completed", True)
        assert (await agent.sessions.list("app", "user")).sessions == (info,)
        result = await agent.ainvoke("And now?", **IDS)
        assert (result.status, result.final_text) == (RunStatus.COMPLETED, "going on")
        assert [message.text for message in result.session.messages][:8] == [m.text for m in before["messages"]]
        assert [message.id for message in result.session.messages][:8] == [m.id for m in before["messages"]]
        assert list(result.session.files) == ["/notes.md"]
        assert result.session.todos == [todo]
        info = await agent.sessions.get(KEY)
        assert (info.turns, info.messages) == (3, 10)
        assert (await graph.aget_state(OLD)).values == before


async def test_a_thread_of_langchains_plain_agent_can_be_adopted(saver: Any) -> None:
    model = ScriptedChatModel(["one", "two", "three"])
    graph: Any = create_agent(model, [risky, safe, asking], checkpointer=saver)
    await talk(graph, "a", "b")
    async with build(model, saver) as agent:
        await agent.adopt(KEY, "some old thread")
        result = await agent.ainvoke("c", **IDS)
        assert [message.text for message in result.session.messages] == ["a", "one", "b", "two", "c", "three"]
        assert await texts(graph, OLD) == ["a", "one", "b", "two"]


async def test_a_long_thread_is_adopted_whole(saver: Any) -> None:
    model = ScriptedChatModel(lambda messages: f"answer {len(messages)}")
    graph: Any = create_deep_agent(model, [], checkpointer=saver)
    await talk(graph, *(f"message {number}" for number in range(60)))
    async with build(model, saver) as agent:
        await agent.adopt(KEY, "some old thread")
        for number in range(3):
            await agent.ainvoke(f"more {number}", **IDS)
        log = await agent.sessions.log(KEY)
        assert [message.text for message in log][:120] == await texts(graph, OLD)
        assert len(log) == 126
        assert (await agent.sessions.get(KEY)).turns == 63


async def test_a_pending_approval_survives_and_what_had_finished_next_to_it_does_not_run_again(saver: Any) -> None:
    model = ScriptedChatModel(
        [AIMessage("", tool_calls=[tool_call("safe", x="s"), tool_call("asking", x="a")]), "done", "later"]
    )
    graph: Any = create_deep_agent(model, [risky, safe, asking], checkpointer=saver)
    await talk(graph, "go")
    (waiting,) = (await graph.aget_state(OLD)).interrupts
    async with build(model, saver) as agent:
        info = await agent.adopt(KEY, "some old thread")
        assert info.status == "interrupted"
        with pytest.raises(PendingApprovalError) as caught:
            await agent.ainvoke("more", **IDS)
        assert caught.value.pending_ids == (waiting.id,)
        await agent.graph.ainvoke(Command(resume={waiting.id: "yes"}), NEW)
        assert ran == ["safe s", "asked a"]
        assert await texts(agent.graph, NEW) == ["go", "", "safe s", "yes: a", "done"]
        assert (await graph.aget_state(OLD)).interrupts == (waiting,)
        assert (await agent.ainvoke("more", **IDS)).final_text == "later"


async def test_an_approval_of_the_middleware_survives(saver: Any) -> None:
    model = ScriptedChatModel([AIMessage("", tool_calls=[tool_call("risky", x="r")]), "done"])
    graph: Any = create_deep_agent(model, [risky], checkpointer=saver, middleware=[approval()])
    await talk(graph, "go")
    async with build(model, saver, [approval()]) as agent:
        await agent.adopt(KEY, "some old thread")
        assert ran == []
        await agent.graph.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), NEW)
        assert (ran, await texts(agent.graph, NEW)) == (["risky r"], ["go", "", "did r", "done"])


async def test_an_approval_inside_a_subagent_survives_with_what_the_subagent_had_done(saver: Any) -> None:
    task = tool_call("task", description="do it", subagent_type="general-purpose")
    model = ScriptedChatModel(
        [
            AIMessage("", tool_calls=[task]),
            AIMessage("", tool_calls=[tool_call("safe", x="inside")]),
            AIMessage("", tool_calls=[tool_call("asking", x="inside")]),
            "the subagent is done",
            "done",
        ]
    )
    graph: Any = create_deep_agent(model, [safe, asking], checkpointer=saver)
    await talk(graph, "go")
    (waiting,) = (await graph.aget_state(OLD)).interrupts
    async with build(model, saver, tools=(safe, asking)) as agent:
        await agent.adopt(KEY, "some old thread")
        await agent.graph.ainvoke(Command(resume={waiting.id: "yes"}), NEW)
        assert ran == ["safe inside", "asked inside"]
        assert await texts(agent.graph, NEW) == ["go", "", "the subagent is done", "done"]


async def test_an_approval_that_the_agent_could_not_take_is_refused_and_nothing_is_stored(saver: Any) -> None:
    model = ScriptedChatModel([AIMessage("", tool_calls=[tool_call("risky", x="r")])])
    graph: Any = create_deep_agent(model, [risky], checkpointer=saver, middleware=[approval()])
    await talk(graph, "go")
    async with build(model, saver) as agent:
        with pytest.raises(AdoptionRefused, match="lacks the middleware or the tools that ask for it") as caught:
            await agent.adopt(KEY, "some old thread")
        assert caught.value.thread_id == "some old thread"
        assert await saver.aget_tuple(NEW) is None
        with pytest.raises(SessionNotFound):
            await agent.sessions.get(KEY)


async def test_a_thread_that_waits_in_a_subagent_that_this_agent_lacks_is_refused(saver: Any) -> None:
    def script(messages: list[Any]) -> Any:
        if messages[-1].text == "go":
            return AIMessage("", tool_calls=[tool_call("task", description="take it", subagent_type="payer")])
        return AIMessage("", tool_calls=[tool_call("risky", x="r")])

    model = ScriptedChatModel(script)
    payer: Any = {"name": "payer", "description": "pays", "system_prompt": "Pay.", "tools": [risky]}
    payer["interrupt_on"] = {"risky": True}
    graph: Any = create_deep_agent(model, [risky], checkpointer=saver, subagents=[payer])
    await talk(graph, "go")
    assert (await graph.aget_state(OLD)).interrupts
    async with build(model, saver, tools=[risky], middleware=[approval()]) as agent:
        with pytest.raises(AdoptionRefused, match="waits in a call of the sub-agent 'payer'"):
            await agent.adopt(KEY, "some old thread")
        assert await saver.aget_tuple(NEW) is None


async def test_what_cannot_be_adopted_is_refused_and_left_as_it_is(saver: Any) -> None:
    model = ScriptedChatModel(lambda messages: "fine")
    graph: Any = create_deep_agent(model, [], checkpointer=saver)
    await talk(graph, "old")
    async with build(model, saver) as agent:
        await agent.ainvoke("own", **IDS)
        other = SessionKey("app", "user", "other")
        with pytest.raises(SessionExists, match="there is a session 'app:user:adopted' already"):
            await agent.adopt(KEY, "some old thread")
        with pytest.raises(SessionNotFound, match="nothing is stored of thread 'no such thread'"):
            await agent.adopt(other, "no such thread")
        with pytest.raises(AdoptionRefused, match="is a session of Regnexe's"):
            await agent.adopt(other, KEY.thread_id)
        await agent.graph.ainvoke({"messages": [HumanMessage("past Regnexe")]}, NEW)
        with pytest.raises(AdoptionRefused, match="is a session of Regnexe's"):
            await agent.adopt(other, KEY.thread_id)
        with pytest.raises(AdoptionRefused, match="needs no adopting"):
            await agent.adopt(KEY, KEY.thread_id)
        wrong: Any = agent.adopt
        with pytest.raises(InvalidInput, match="key must be a SessionKey, got str"):
            await wrong("app:user:adopted", "some old thread")
        for thread_id in (7, "", "nul\0", "\ud800"):
            with pytest.raises(InvalidInput, match="thread_id must be a non-empty str without NUL"):
                await wrong(other, thread_id)
        assert await texts(agent.graph, NEW) == ["own", "fine", "past Regnexe", "fine"]
        with pytest.raises(SessionNotFound):
            await agent.sessions.get(other)


async def test_one_thread_can_be_adopted_twice_and_the_two_sessions_are_apart(saver: Any) -> None:
    model = ScriptedChatModel(lambda messages: f"answer {len(messages)}")
    graph: Any = create_deep_agent(model, [], checkpointer=saver)
    await talk(graph, "old")
    async with build(model, saver) as agent:
        other = SessionKey("app", "user", "other")
        await agent.adopt(KEY, "some old thread")
        await agent.adopt(other, "some old thread")
        await agent.ainvoke("only here", **IDS)
        assert [message.text for message in await agent.sessions.log(other)] == ["old", "answer 2"]
        assert len(await agent.sessions.log(KEY)) == 4


async def test_an_adoption_that_broke_off_can_be_tried_again() -> None:
    class Failing(InMemorySaver):
        fails = False

        async def aput(self, *args: Any) -> Any:
            if self.fails:
                raise OSError("disk full")
            return await super().aput(*args)

    saver = Failing()
    ran.clear()
    model = ScriptedChatModel([AIMessage("", tool_calls=[tool_call("asking", x="a")]), "done"])
    graph: Any = create_deep_agent(model, [asking], checkpointer=saver)
    await talk(graph, "go")
    async with build(model, saver, tools=(asking,)) as agent:
        saver.fails = True
        with pytest.raises(Exception, match="disk full"):
            await agent.adopt(KEY, "some old thread")
        saver.fails = False
        assert (await agent.adopt(KEY, "some old thread")).status == "interrupted"
        await agent.graph.ainvoke(Command(resume="yes"), NEW)
        assert await texts(agent.graph, NEW) == ["go", "", "yes: a", "done"]


def test_adopting_works_without_await() -> None:
    saver = InMemorySaver()
    model = ScriptedChatModel(["one", "two"])
    graph: Any = create_deep_agent(model, [], checkpointer=saver)
    graph.invoke({"messages": [HumanMessage("a")]}, OLD)
    with build(model, saver) as agent:
        assert agent.adopt_sync(KEY, "some old thread").turns == 1
        assert len(agent.invoke("b", **IDS).session.messages) == 4
