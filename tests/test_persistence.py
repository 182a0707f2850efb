"""Agents built with a persistence URL: what holds on memory, SQLite and PostgreSQL alike."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import pytest
from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import AIMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from regnexe import (
    PersistenceNotOpen,
    RegnexeAgent,
    RegnexeAgentBuilder,
    RunStatus,
    SessionKey,
    open_persistence,
)
from regnexe.testing import ScriptedChatModel, tool_call

if TYPE_CHECKING:
    from pathlib import Path

    from langchain_core.messages import BaseMessage

THREAD: Any = {"configurable": {"thread_id": "default:default:s"}}


def count(messages: list[BaseMessage]) -> str:
    """Answer with how many human messages the model sees."""
    return str(sum(message.type == "human" for message in messages))


def build(url: str, model: Any = None, *tools: Any, middleware: Any = ()) -> RegnexeAgent:
    return (
        RegnexeAgentBuilder()
        .with_model(ScriptedChatModel(model or count))
        .with_tool(*tools)
        .with_middleware(*middleware)
        .with_persistence(url)
        .build()
    )


async def pay(amount: int) -> str:
    """Pay."""
    return f"PAID {amount}"


async def test_a_session_goes_on_with_its_tools_list_and_log(persistence_url: str) -> None:
    script = [AIMessage("", tool_calls=[tool_call("pay", amount=n) for n in (1, 2)]), "paid", "later"]
    async with build(persistence_url, script, pay) as agent:
        first = await agent.ainvoke("pay", session_id="s")
        second = await agent.ainvoke("and now?", session_id="s")
        listed = await agent.sessions.list("default")
    assert [m.text for m in first.messages] == ["pay", "", "PAID 1", "PAID 2", "paid"]
    assert (second.status, second.final_text, len(second.session.messages)) == (RunStatus.COMPLETED, "later", 7)
    assert [(info.session_id, info.turns, info.messages) for info in listed.sessions] == [("s", 2, 7)]


@pytest.mark.parametrize("persistence_url", ["sqlite", "postgres"], indirect=True)
async def test_another_agent_on_the_url_finds_what_the_first_one_stored(persistence_url: str) -> None:
    async with build(persistence_url) as agent:
        assert (await agent.ainvoke("a", session_id="s")).final_text == "1"
    agent = build(persistence_url)  # opened by its first call
    assert (await agent.ainvoke("b", session_id="s")).final_text == "2"
    assert [info.turns for info in (await agent.sessions.list("default")).sessions] == [2]
    await agent.aclose()


async def test_two_agents_in_memory_share_nothing() -> None:
    builder = RegnexeAgentBuilder().with_model(ScriptedChatModel(count)).with_persistence("memory://")
    async with builder.build() as one, builder.build() as other:
        await one.ainvoke("a", session_id="s")
        assert (await one.ainvoke("b", session_id="s")).final_text == "2"
        assert (await other.ainvoke("a", session_id="s")).final_text == "1"
        assert [info.turns for info in (await other.sessions.list("default")).sessions] == [1]


def test_it_works_from_three_event_loops_and_from_three_threads_at_once(persistence_url: str) -> None:
    agent = build(persistence_url)
    assert [asyncio.run(agent.ainvoke("x", session_id="s")).final_text for _ in range(3)] == ["1", "2", "3"]
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: agent.invoke("x", session_id="s").final_text, range(3)))
    assert sorted(answers) == ["4", "5", "6"]
    assert asyncio.run(agent.ainvoke("x", session_id="s")).final_text == "7"
    assert [info.turns for info in agent.sessions_sync.list("default").sessions] == [7]
    agent.close()


async def test_two_loops_at_once_on_one_session_take_turns(persistence_url: str) -> None:
    async with build(persistence_url) as agent:
        calls = [asyncio.to_thread(agent.invoke, "x", session_id="s") for _ in range(4)]
        results = await asyncio.gather(*calls, *(agent.ainvoke("y", session_id="s") for _ in range(4)))
    assert sorted(int(result.final_text) for result in results) == list(range(1, 9))


@pytest.mark.parametrize("persistence_url", ["sqlite", "postgres"], indirect=True)
async def test_two_agents_on_one_url_take_turns_in_a_session(persistence_url: str) -> None:
    running = most = 0

    async def work(x: int) -> str:
        """Work for a while."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return "done"

    def answer(messages: list[BaseMessage]) -> AIMessage:
        done = messages[-1].type == "tool"
        return AIMessage("ok" if done else "", tool_calls=[] if done else [tool_call("work", x=1)])

    async with build(persistence_url, answer, work) as one, build(persistence_url, answer, work) as other:
        results = await asyncio.gather(*(agent.ainvoke("x", session_id="s") for agent in (one, other) * 3))
    assert [result.status for result in results] == [RunStatus.COMPLETED] * 6
    assert most == 1
    assert max(len(result.session.messages) for result in results) == 24


@pytest.mark.parametrize(
    "ids",
    [
        {"user_id": "alice@example.com"},
        {"user_id": "a.b", "app_id": "my.app", "session_id": "v1.2"},
        {"user_id": "用户/Ä%:_'\"\\"},
    ],
)
async def test_ids_may_hold_what_stores_refuse(persistence_url: str, ids: dict[str, Any]) -> None:
    async with build(persistence_url) as agent:
        first = await agent.ainvoke("a", **{"session_id": "s", **ids})
        assert (await agent.ainvoke("b", **{"session_id": "s", **ids})).final_text == "2"
        other = await agent.ainvoke("c", **{**ids, "session_id": "s", "user_id": "alice"})
        assert other.final_text == "1"
        key = SessionKey(ids.get("app_id", "default"), ids["user_id"], first.session_id)
        page = await agent.sessions.list(key.app_id, key.user_id)
        assert [(info.key, info.turns) for info in page.sessions] == [(key, 2)]


async def test_tools_and_middleware_get_the_store_on_every_loop(persistence_url: str) -> None:
    seen: list[list[Any]] = []

    class Look(AgentMiddleware[Any, Any, Any]):
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            store = request.runtime.store
            seen.append(sorted(item.value["call"] for item in await store.asearch(("n",))))
            await store.aput(("n",), str(len(seen)), {"call": len(seen)})
            return await handler(request)

    async with build(persistence_url, middleware=[Look()]) as agent:
        await agent.ainvoke("x", session_id="s")
        await asyncio.to_thread(agent.invoke, "x", session_id="t")
        await agent.ainvoke("x", session_id="s")
    assert seen == [[], [1], [1, 2]]


async def test_the_graph_says_what_to_do_until_its_database_is_open_and_works_from_then_on(
    persistence_url: str,
) -> None:
    agent = build(persistence_url)
    early = agent.graph
    for use in (early.aget_state(THREAD), early.ainvoke({"messages": []}, THREAD)):
        with pytest.raises(PersistenceNotOpen, match="inside `async with agent:`, or after a first call"):
            await use
    with pytest.raises(PersistenceNotOpen):
        await asyncio.to_thread(early.get_state, THREAD)
    async with agent:
        assert (await agent.graph.aget_state(THREAD)).values == {}
        await agent.ainvoke("a", session_id="s")
        assert [m.text for m in (await agent.graph.aget_state(THREAD)).values["messages"]] == ["a", "1"]
        with pytest.raises(PersistenceNotOpen):  # this one was taken before
            await early.aget_state(THREAD)
    with pytest.raises(PersistenceNotOpen):
        await agent.graph.aget_state(THREAD)


async def test_what_compiling_has_told_the_serializer_holds_for_the_opened_checkpointer(persistence_url: str) -> None:
    agent = build(persistence_url)
    compiled, serializer = cast("Any", agent.graph.checkpointer), JsonPlusSerializer()
    compiled.serde = serializer  # as compiling does when it makes one that knows the graph's types
    async with agent:
        assert cast("Any", agent.graph.checkpointer).serde is serializer


def test_the_graph_works_beside_the_synchronous_calls(persistence_url: str) -> None:
    with build(persistence_url) as agent:
        agent.invoke("a", session_id="s")
        assert [m.text for m in agent.graph.get_state(THREAD).values["messages"]] == ["a", "1"]


async def test_what_was_opened_by_hand_serves_an_agent(persistence_url: str) -> None:
    async with open_persistence(persistence_url) as opened:
        agent = (
            RegnexeAgentBuilder()
            .with_model(ScriptedChatModel(count))
            .with_checkpointer(opened.checkpointer)
            .with_store(opened.store)
            .build()
        )
        async with agent:
            await agent.ainvoke("a", session_id="s")
            assert (await agent.ainvoke("b", session_id="s")).final_text == "2"
        await opened.store.aput(("still", "open"), "k", {"v": 1})
        await opened.aclose()
        await opened.aclose()


async def test_a_write_that_is_repeated_after_it_was_stored_changes_nothing(persistence_url: str) -> None:
    # A connection can end after the commit and before the answer; the write is then tried again.
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    checkpoint: Any = {
        "id": "1",
        "v": 4,
        "ts": "",
        "channel_values": {"a": {"deep": [1]}, "b": 2},
        "channel_versions": {"a": "1", "b": "1"},
        "versions_seen": {},
    }
    async with open_persistence(persistence_url) as opened:
        saver = opened.checkpointer
        for _ in range(2):
            stored = await saver.aput(config, checkpoint, {"source": "loop"}, {"a": "1", "b": "1"})
            await saver.aput_writes(stored, [("a", 1), ("b", [2])], "task")
            await saver.aput_writes(stored, [("__error__", "x")], "task")
        found = [one async for one in saver.alist(config)]
    assert [one.checkpoint["channel_values"] for one in found] == [checkpoint["channel_values"]]
    writes = sorted(found[0].pending_writes or [], key=str)
    assert writes == [("task", "__error__", "x"), ("task", "a", 1), ("task", "b", [2])]


@pytest.mark.parametrize("persistence_url", ["sqlite", "postgres"], indirect=True)
async def test_the_same_data_has_the_same_lease_scope_and_other_data_another(
    persistence_url: str, tmp_path: Path
) -> None:
    async with (
        open_persistence(persistence_url) as one,
        open_persistence(persistence_url) as same,
        open_persistence(f"sqlite:///{tmp_path}/other.db") as other,
    ):
        assert one.lease_scope == same.lease_scope != other.lease_scope
        assert one.leases is same.leases


@pytest.mark.parametrize("persistence_url", ["sqlite", "postgres"], indirect=True)
def test_several_processes_may_set_up_the_same_empty_database_at_once(persistence_url: str) -> None:
    script = f"""
    import asyncio, sys
    from regnexe import RegnexeAgentBuilder
    async def main():
        agent = RegnexeAgentBuilder().with_model_spec("offline:demo").with_persistence({persistence_url!r}).build()
        print("ready", flush=True)
        sys.stdin.readline()
        async with agent:
            print((await agent.ainvoke("hi", session_id=sys.argv[1])).status, flush=True)
    asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes: list[Any] = [subprocess.Popen([*command, f"s{n}"], **pipes) for n in range(4)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out) == (0, "completed\n"), err
    with build(persistence_url) as agent:
        found = agent.sessions_sync.list("default").sessions
        assert sorted((info.session_id, info.turns) for info in found) == [(f"s{n}", 1) for n in range(4)]


@pytest.mark.parametrize("calls", ["invoke", "ainvoke"])
@pytest.mark.parametrize("persistence_url", ["sqlite", "postgres"], indirect=True)
def test_a_process_ends_by_itself_and_in_silence_when_nobody_closed_the_agent(persistence_url: str, calls: str) -> None:
    script = f"""
    import asyncio, sys
    from regnexe import RegnexeAgentBuilder
    agent = RegnexeAgentBuilder().with_model_spec("offline:demo").with_persistence({persistence_url!r}).build()
    if sys.argv[1] == "invoke":
        print(agent.invoke("hi", session_id="s").status)
    for _ in range(2):
        last = asyncio.run(agent.ainvoke("hi", session_id="s"))
    print(last.status)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), calls], capture_output=True, text=True, timeout=60, check=False
    )
    expected = "completed\n" * (2 if calls == "invoke" else 1)
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
