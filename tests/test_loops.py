"""Event loops, threads and processes: who may use an agent from where."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import aiosqlite
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite.aio import AsyncSqliteStore

from regnexe import CheckpointerError, LoopError, RegnexeAgent, RegnexeAgentBuilder, RunStatus
from regnexe.testing import ScriptedChatModel

if TYPE_CHECKING:
    from pathlib import Path

    from langchain_core.messages import BaseMessage


def count(messages: list[BaseMessage]) -> str:
    """Answer with how many human messages the model sees."""
    return str(sum(message.type == "human" for message in messages))


def build(saver: Any = None, store: Any = None, *tools: Any) -> RegnexeAgent:
    builder = RegnexeAgentBuilder().with_model(ScriptedChatModel(count)).with_tool(*tools)
    if saver is not None:
        builder.with_checkpointer(saver)
    if store is not None:
        builder.with_store(store)
    return builder.build()


async def open_saver(path: Path) -> AsyncSqliteSaver:
    return AsyncSqliteSaver(await aiosqlite.connect(path / "threads.db"))


def test_the_sync_calls_work_before_between_and_after_runs_of_the_async_ones() -> None:
    agent = build()
    assert agent.invoke("a", session_id="s").final_text == "1"
    assert asyncio.run(agent.ainvoke("b", session_id="s")).final_text == "2"
    assert agent.invoke("c", session_id="s").final_text == "3"
    assert asyncio.run(agent.ainvoke("d", session_id="s")).final_text == "4"
    with agent.stream("e", session_id="s") as stream:
        assert [event.type.value for event in stream][-1] == "agent_completed"
    assert stream.result.final_text == "5"
    agent.close()


async def test_the_sync_calls_work_inside_a_running_loop() -> None:
    agent = build()
    assert agent.invoke("a", session_id="s").final_text == "1"
    assert (await agent.ainvoke("b", session_id="s")).final_text == "2"
    assert [event.type.value for event in agent.stream("c", session_id="s")][-1] == "agent_completed"
    agent.close()


def test_the_sync_calls_work_from_many_threads_at_once() -> None:
    with build() as agent, ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: agent.invoke("x", session_id=f"s{n % 4}").final_text, range(32)))
        assert sorted(results) == sorted(str(n) for n in range(1, 9) for _ in range(4))


def test_one_sqlite_saver_serves_three_loops_and_three_threads(tmp_path: Path) -> None:
    agents: list[RegnexeAgent] = []

    async def first() -> str:
        agents.append(build(await open_saver(tmp_path)))
        return (await agents[0].ainvoke("1", session_id="s")).final_text

    async def later() -> str:
        return (await agents[0].ainvoke("x", session_id="s")).final_text

    assert asyncio.run(first()) == "1"
    assert asyncio.run(later()) == "2"
    assert asyncio.run(later()) == "3"
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda: answers.append(agents[0].invoke("x", session_id="s").final_text))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(answers) == ["4", "5", "6"]

    async def end() -> str:
        answer = await later()
        await agents[0].aclose()
        await agents[0].graph.checkpointer.conn.close()  # type: ignore[union-attr]
        return answer

    assert asyncio.run(end()) == "7"


def test_two_loops_at_once_on_one_session_take_turns(tmp_path: Path) -> None:
    async def both() -> None:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
            async with build(saver) as agent:
                loop = asyncio.get_running_loop()
                with ThreadPoolExecutor(10) as pool:
                    calls = [loop.run_in_executor(pool, partial(agent.invoke, "x", session_id="s")) for _ in range(10)]
                    results = await asyncio.gather(*calls, *(agent.ainvoke("y", session_id="s") for _ in range(10)))
        assert sorted(int(result.final_text) for result in results) == list(range(1, 21))

    asyncio.run(both())


def test_the_connections_that_were_opened_for_other_loops_are_closed_with_them(tmp_path: Path) -> None:
    async def main() -> RegnexeAgent:
        return build(await open_saver(tmp_path))

    others = set(threading.enumerate())
    agent = asyncio.run(main())
    for _ in range(5):
        asyncio.run(agent.ainvoke("x", session_id="s"))
    connections = [thread for thread in threading.enumerate() if thread not in others]
    asyncio.run(agent.aclose())
    asyncio.run(agent.graph.checkpointer.conn.close())  # type: ignore[union-attr]
    assert 0 < len(connections) <= 3
    for thread in connections:
        thread.join(30)
    assert not [thread for thread in connections if thread.is_alive()]


def test_a_saver_in_memory_is_refused_from_a_second_loop_with_the_reason() -> None:
    async def first() -> RegnexeAgent:
        agent = build(AsyncSqliteSaver(await aiosqlite.connect(":memory:")))
        assert (await agent.ainvoke("x", session_id="s")).final_text == "1"
        return agent

    agent = asyncio.run(first())
    with pytest.raises(LoopError, match=r"holds its data in memory \(`:memory:`\)"):
        agent.invoke("x", session_id="s")
    agent.close()
    asyncio.run(agent.graph.checkpointer.conn.close())  # type: ignore[union-attr]


def test_a_saver_of_an_unknown_class_is_refused_from_a_second_loop_with_the_reason() -> None:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    class Custom(BaseCheckpointSaver[str]):
        """Keeps threads in memory, and might hold anything else."""

        inner = InMemorySaver()

        async def aget_tuple(self, config: Any) -> Any:
            return await self.inner.aget_tuple(config)

        async def aput(self, *args: Any) -> Any:
            return await self.inner.aput(*args)

        async def aput_writes(self, *args: Any) -> None:
            await self.inner.aput_writes(*args)

        def get_next_version(self, current: Any, channel: None) -> str:
            return str(self.inner.get_next_version(current, channel))

    agent = build(Custom())
    assert asyncio.run(agent.ainvoke("x", session_id="s")).final_text == "1"
    with pytest.raises(LoopError, match=r"Custom belongs to the event loop that made it.*cannot be opened again"):
        asyncio.run(agent.ainvoke("x", session_id="s"))


def test_a_sqlite_store_serves_a_second_loop(tmp_path: Path) -> None:
    from langchain.agents.middleware.types import AgentMiddleware

    seen: list[Any] = []

    class Look(AgentMiddleware[Any, Any, Any]):
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            store = request.runtime.store
            seen.append([item.value for item in await store.asearch(("n",))])
            await store.aput(("n",), str(len(seen)), {"call": len(seen)})
            return await handler(request)

    async def first() -> tuple[RegnexeAgent, AsyncSqliteStore]:
        connection = await aiosqlite.connect(tmp_path / "store.db", isolation_level=None)
        store = AsyncSqliteStore(connection)
        await store.setup()
        agent = (
            RegnexeAgentBuilder().with_model(ScriptedChatModel(count)).with_store(store).with_middleware(Look()).build()
        )
        await agent.ainvoke("x")
        return agent, store

    agent, store = asyncio.run(first())
    assert asyncio.run(agent.ainvoke("x")).status is RunStatus.COMPLETED
    assert agent.invoke("x").status is RunStatus.COMPLETED
    assert [len(found) for found in seen] == [0, 1, 2]
    agent.close()
    asyncio.run(store.conn.close())


def test_a_store_in_memory_serves_every_loop() -> None:
    agent = build(None, InMemoryStore())
    assert asyncio.run(agent.ainvoke("x", session_id="s")).final_text == "1"
    assert agent.invoke("x", session_id="s").final_text == "2"
    agent.close()


async def test_a_sync_call_from_the_agents_own_loop_is_refused_instead_of_waiting_for_ever() -> None:
    agents: list[RegnexeAgent] = []

    async def nested(x: str) -> str:
        """Call the agent the wrong way."""
        return agents[0].invoke(x).final_text

    from langchain_core.messages import AIMessage

    from regnexe.testing import tool_call

    model = ScriptedChatModel([AIMessage("", tool_calls=[tool_call("nested", x="1")]), "ok"])
    agents.append(RegnexeAgentBuilder().with_model(model).with_tool(nested).build())
    result = await asyncio.to_thread(agents[0].invoke, "hi", timeout=20)
    assert "use the async call there" in result.messages[2].text
    agents[0].close()


def test_a_process_ends_by_itself_when_nobody_closed_the_agent(tmp_path: Path) -> None:
    script = f"""
    import asyncio, aiosqlite
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from regnexe import RegnexeAgentBuilder
    agents = []
    async def main():
        async with AsyncSqliteSaver.from_conn_string({str(tmp_path / "x.db")!r}) as saver:
            agents.append(RegnexeAgentBuilder().with_model_spec("offline:demo").with_checkpointer(saver).build())
            await agents[0].ainvoke("hi", session_id="s")
    asyncio.run(main())
    asyncio.run(agents[0].ainvoke("hi", session_id="s"))
    print(agents[0].invoke("hi", session_id="s").status)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "completed\n"), done.stderr


async def test_a_checkpointer_that_was_closed_or_cannot_be_read_is_named_before_the_run_begins(tmp_path: Path) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
        agent = build(saver)
        await agent.ainvoke("x", session_id="s")
    with pytest.raises(CheckpointerError, match="If it was closed: keep its `async with` open") as caught:
        await agent.ainvoke("y", session_id="s")
    assert caught.value.__cause__ is not None
    (tmp_path / "no.db").write_text("this is no database, and long enough to be none " * 50)
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "no.db")) as saver:
        with pytest.raises(CheckpointerError, match=r"no\.db' is no SQLite database; name another file"):
            await build(saver).ainvoke("x")


def test_a_process_ends_without_a_word_when_the_agent_was_local_to_a_function(tmp_path: Path) -> None:
    script = """
    from regnexe import RegnexeAgentBuilder
    def main():
        agent = RegnexeAgentBuilder().with_model_spec("offline:demo").build()
        print(agent.invoke("hi", session_id="s").status)
    main()
    """
    # The thread that ends with the agent races the end of the process; ten times show it.
    command = [sys.executable, "-c", textwrap.dedent(script)]
    for _ in range(10):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "completed\n", "")


def test_an_exit_inside_a_model_ends_one_call_and_the_next_works() -> None:
    def answer(messages: list[BaseMessage]) -> str:
        if messages[-1].text == "leave":
            raise SystemExit(3)
        return "still here"

    with RegnexeAgentBuilder().with_model(ScriptedChatModel(answer)).build() as agent:
        with pytest.raises((SystemExit, CancelledError)):
            agent.invoke("leave", session_id="s")
        assert agent.invoke("hello", session_id="t").final_text == "still here"


def test_what_reopening_leans_on_in_aiosqlite_and_the_sqlite_saver_is_still_there() -> None:
    async def look() -> None:
        async with aiosqlite.connect(":memory:") as connection:
            assert callable(connection._connector), "aiosqlite.Connection no longer keeps its connector"
            assert isinstance(connection._iter_chunk_size, int)
            assert connection._thread.is_alive(), "aiosqlite.Connection no longer has its thread in _thread"
            saver = AsyncSqliteSaver(connection)
            for name in ("conn", "lock", "loop", "is_setup"):
                assert name in vars(saver), f"AsyncSqliteSaver no longer keeps {name}"

    asyncio.run(look())
