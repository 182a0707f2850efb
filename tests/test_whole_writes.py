"""What the checkpointer was told is there whole or not at all, and never in the way of the next."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from typing import TYPE_CHECKING, Any

import aiosqlite
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from regnexe import LoopError, RegnexeAgent, RegnexeAgentBuilder, RunStatus
from regnexe.messages import history_faults
from regnexe.persistence.whole_writes import with_whole_writes
from regnexe.testing import ScriptedChatModel, tool_call

if TYPE_CHECKING:
    from pathlib import Path


async def pay(amount: int) -> str:
    """Pay."""
    return f"PAID {amount}"


def build(script: Any, saver: Any, *tools: Any) -> RegnexeAgent:
    return (
        RegnexeAgentBuilder()
        .with_model(ScriptedChatModel(script))
        .with_tool(*(tools or (pay,)))
        .with_checkpointer(saver)
        .build()
    )


class CancellingSaver(InMemorySaver):
    """Cancels a run while it stores the checkpoint of one step."""

    step = 99
    task: asyncio.Task[Any]

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if metadata["step"] == self.step and metadata["source"] == "loop":
            self.task.cancel()
            await asyncio.Event().wait()
        return await super().aput(config, checkpoint, metadata, new_versions)


@pytest.mark.parametrize(
    ("step", "calls", "stored"),
    [(0, False, ["human"]), (1, False, ["human", "ai"]), (1, True, ["human", "ai", "tool"]), (2, True, None)],
)
async def test_what_a_cancel_catches_between_a_step_and_its_checkpoint_stays_in_the_log(
    step: int, calls: bool, stored: list[str] | None
) -> None:
    def answer(messages: list[Any]) -> AIMessage:
        if messages[-1].text == "hi" and calls:
            return AIMessage("", tool_calls=[tool_call("pay", amount=5)])
        return AIMessage("ok")

    saver = CancellingSaver()
    agent = build(answer, saver)
    saver.step = step
    saver.task = asyncio.create_task(agent.ainvoke("hi", session_id="s"))
    with pytest.raises(asyncio.CancelledError):
        await saver.task
    saver.step = 99
    state = await agent.graph.aget_state({"configurable": {"thread_id": "default:default:s"}})
    before = state.values["messages"]
    assert history_faults(before) == []
    if stored is not None:
        assert [m.type for m in before] == stored
    else:
        assert before[2].text == "PAID 5"
    result = await agent.ainvoke("next", session_id="s")
    assert [m.id for m in result.session.messages][: len(before)] == [m.id for m in before]


async def test_a_message_that_a_result_shows_is_still_there_in_the_next_turn(saver: Any) -> None:
    agent = build(lambda messages: "ok", saver)
    first = await agent.ainvoke("first", session_id="s", timeout=1e-9)
    second = await agent.ainvoke("second", session_id="s")
    shown = [m.id for m in first.messages]
    assert [m.id for m in second.session.messages][: len(shown)] == shown


async def test_a_locked_file_fails_one_turn_and_not_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    async with aiosqlite.connect(path, timeout=0.05) as connection:
        agent = build(lambda messages: "ok", AsyncSqliteSaver(connection))
        assert (await agent.ainvoke("hi", session_id="s")).status is RunStatus.COMPLETED
        other = sqlite3.connect(path)
        other.execute("create table x (a)")
        other.commit()
        other.execute("begin immediate")
        other.execute("insert into x values (1)")
        locked = await agent.ainvoke("hi", session_id="s")
        assert locked.status is RunStatus.ERROR
        assert "locked" in str(locked.error)
        other.commit()
        other.close()
        assert not connection.in_transaction
        for n in range(3):
            assert (await agent.ainvoke("hi", session_id=f"s{n}")).status is RunStatus.COMPLETED
        assert (await agent.ainvoke("hi", session_id="s")).status is RunStatus.COMPLETED


@pytest.mark.parametrize("nth", range(1, 8))
async def test_a_cancel_between_insert_and_commit_leaves_no_transaction_open(nth: int, tmp_path: Path) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
        agent = build([AIMessage("", tool_calls=[tool_call("pay", amount=5)]), "ok", *["later"] * 9], saver)
        commit, commits = saver.conn.commit, 0
        tasks: list[asyncio.Task[Any]] = []

        async def cancelling_commit() -> None:
            nonlocal commits
            commits += 1
            if commits == nth:
                tasks[0].cancel()
                await asyncio.sleep(0)
            await commit()

        saver.conn.commit = cancelling_commit  # type: ignore[method-assign]
        tasks.append(asyncio.create_task(agent.ainvoke("hi", session_id="s")))
        await asyncio.wait(tasks)
        saver.conn.commit = commit  # type: ignore[method-assign]
        async with saver.lock:
            assert not saver.conn.in_transaction
        elsewhere = await asyncio.to_thread(agent.invoke, "from a thread", session_id="u")
        assert (elsewhere.status, elsewhere.error) == (RunStatus.COMPLETED, None)
        again = await agent.ainvoke("again", session_id="s")
        assert history_faults(again.session.messages) == []
        await agent.aclose()


async def test_a_subclass_of_the_sqlite_saver_stays_what_it_is_and_another_saver_is_left_alone(tmp_path: Path) -> None:
    class Mine(AsyncSqliteSaver):
        """A user's own."""

    async with Mine.from_conn_string(str(tmp_path / "x.db")) as saver:
        whole = with_whole_writes(saver)
        assert isinstance(whole, Mine)
        assert (type(whole).__name__, whole.conn, whole.lock) == ("Mine", saver.conn, saver.lock)
    memory = InMemorySaver()
    assert with_whole_writes(memory) is memory


async def test_a_relative_path_that_now_means_another_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    async with AsyncSqliteSaver.from_conn_string("sessions.db") as saver:
        async with build(lambda messages: "ok", saver) as agent:
            await agent.ainvoke("a", session_id="s")
            os.chdir(tmp_path / "two")
            with pytest.raises(LoopError, match="open it with an absolute path"):
                await asyncio.to_thread(agent.invoke, "c", session_id="s")


async def test_parallel_results_keep_the_order_of_their_calls_when_they_are_read_again(saver: Any) -> None:
    calls = [tool_call("pay", amount=n) for n in range(6)]
    for turn in range(4):  # in the wrong order they come right once in 720 times
        agent = build([AIMessage("", tool_calls=calls), "ok", "later"], saver)
        first = await agent.ainvoke("pay", session_id=f"s{turn}")
        later = await agent.ainvoke("later", session_id=f"s{turn}")
        assert [m.text for m in first.messages[2:8]] == [f"PAID {n}" for n in range(6)]
        assert [m.id for m in later.session.messages[:9]] == [m.id for m in first.messages]


# --- what a tool gives back ---


async def test_a_tool_cannot_overwrite_or_remove_a_message_of_the_log(saver: Any) -> None:
    from langchain_core.messages import RemoveMessage

    ids: list[str] = []

    async def meddle(x: int) -> Command[Any]:
        """Meddle."""
        return Command(
            update={
                "messages": [
                    HumanMessage("OVERWRITTEN", id=ids[0]),
                    RemoveMessage(id=ids[1]),
                    ToolMessage("done", tool_call_id="c1"),
                ]
            }
        )

    call: Any = {"name": "meddle", "args": {"x": 1}, "id": "c1", "type": "tool_call"}
    agent = build(["hello", AIMessage("", tool_calls=[call]), "ok"], saver, meddle)
    first = await agent.ainvoke("hi", session_id="s")
    ids += [m.id or "" for m in first.messages]
    result = await agent.ainvoke("meddle", session_id="s")
    assert result.status is RunStatus.COMPLETED
    assert [m.text for m in result.session.messages][:2] == ["hi", "hello"]


async def test_a_tools_own_message_answers_its_call_whatever_id_it_gave_it(saver: Any) -> None:
    async def own(x: int) -> ToolMessage:
        """Make a message."""
        return ToolMessage("PAID", tool_call_id="mine")

    model = ScriptedChatModel([AIMessage("", tool_calls=[tool_call("own", x=1)]), "ok"])
    agent = RegnexeAgentBuilder().with_model(model).with_tool(own).with_checkpointer(saver).build()
    result = await agent.ainvoke("hi")
    assert history_faults(result.messages) == []
    assert model.requests[-1].messages[-1].text == "PAID"


async def test_a_tool_that_waits_for_something_cancelled_fails_and_the_run_goes_on(saver: Any) -> None:
    async def wait(x: int) -> str:
        """Wait for nothing."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    calls = [tool_call("wait", x=1), tool_call("pay", amount=5)]
    result = await build([AIMessage("", tool_calls=calls), "went on"], saver, wait, pay).ainvoke("hi")
    assert (result.status, result.final_text) == (RunStatus.COMPLETED, "went on")
    assert [m.text for m in result.messages if isinstance(m, ToolMessage)] == [
        "ToolException: the tool was stopped from inside: what it waited for was cancelled",
        "PAID 5",
    ]


async def test_the_error_of_a_tool_that_returns_directly_is_no_final_text(saver: Any) -> None:
    from langchain_core.tools import tool

    @tool(return_direct=True)
    async def look_up(x: int) -> str:
        """Look up."""
        if x:
            raise ConnectionError("db-internal-host:5432 refused")
        return "found"

    script = [AIMessage("", tool_calls=[tool_call("look_up", x=x)]) for x in (1, 0)]
    agent = build(script, saver, look_up)
    assert (await agent.ainvoke("hi")).final_text == ""
    assert (await agent.ainvoke("hi")).final_text == "found"
