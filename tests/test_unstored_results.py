"""What a tool gave is not lost when the database takes nothing for a while."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langchain_core.messages import AIMessage, BaseMessage

from regnexe import DatabaseBusy, RegnexeAgent, RegnexeAgentBuilder, RunStatus
from regnexe.testing import ScriptedChatModel, tool_call


def script(requests: list[BaseMessage]) -> Any:
    last = requests[-1]
    if last.type == "human" and last.text == "pay":
        return AIMessage("", tool_calls=[tool_call("pay", amount=100)])
    return "ok"


def build(url: str, pay: Any) -> RegnexeAgent:
    return RegnexeAgentBuilder().with_model(ScriptedChatModel(script)).with_tool(pay).with_persistence(url).build()


async def told(agent: RegnexeAgent) -> list[tuple[str, str]]:
    log = await agent.sessions.log(app_id="default", user_id="default", session_id="s")
    return [(message.type, message.text) for message in log]


PAID = [("human", "pay"), ("ai", ""), ("tool", "PAID 100"), ("human", "hello"), ("ai", "ok")]


@pytest.mark.parametrize("another_agent", [False, True])
async def test_a_result_that_a_locked_file_did_not_take_is_in_the_log_before_the_next_message(
    tmp_path: Path, another_agent: bool
) -> None:
    path = tmp_path / "s.db"
    lock = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    async def pay(amount: int) -> str:
        """Pay an amount."""
        lock.execute("BEGIN IMMEDIATE")
        return f"PAID {amount}"

    url = f"sqlite:///{path}?busy_timeout=0.2"
    async with build(url, pay) as agent:
        result = await agent.ainvoke("pay", session_id="s")
        assert result.status is RunStatus.ERROR
        assert isinstance(result.error, DatabaseBusy)
        lock.execute("ROLLBACK")
        async with build(url, pay) if another_agent else contextlib.nullcontext(agent) as next_agent:
            assert (await next_agent.ainvoke("hello", session_id="s")).status is RunStatus.COMPLETED
            assert await told(next_agent) == PAID
    lock.close()


async def test_a_result_that_a_locked_table_did_not_take_is_in_the_log_before_the_next_message(
    postgres_url: str,
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        lock = await stack.enter_async_context(await psycopg.AsyncConnection.connect(postgres_url))

        async def pay(amount: int) -> str:
            """Pay an amount."""
            await lock.execute("LOCK TABLE checkpoint_writes, checkpoints IN EXCLUSIVE MODE")
            return f"PAID {amount}"

        separator = "&" if "?" in postgres_url else "?"
        agent = build(f"{postgres_url}{separator}options=-c%20lock_timeout%3D100ms", pay)
        await stack.enter_async_context(agent)
        result = await agent.ainvoke("pay", session_id="s")
        assert result.status is RunStatus.ERROR
        await lock.rollback()
        assert (await agent.ainvoke("hello", session_id="s")).status is RunStatus.COMPLETED
        assert await told(agent) == PAID


def test_of_a_call_that_its_process_did_not_survive_the_model_is_told_that_nothing_is_known(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.db"
    program = f"""
        import asyncio, os, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_unstored_results import build

        async def pay(amount: int) -> str:
            "Pay an amount."
            os._exit(7)

        asyncio.run(build("sqlite:///{path}", pay).ainvoke("pay", session_id="s"))
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False, timeout=60)
    assert ran.returncode == 7

    async def pay(amount: int) -> str:
        """Pay an amount."""
        raise AssertionError("called again")

    with build(f"sqlite:///{path}", pay) as agent:
        result = agent.invoke("hello", session_id="s").session.messages[2]
    assert result.type == "tool"
    assert "whether it did its work is not known" in result.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize(
    "used", ["asyncio.run(agent.ainvoke('hi', session_id='s'))", "agent.invoke('hi', session_id='s')"]
)
@pytest.mark.parametrize(
    "then",
    ["asyncio.run(agent.ainvoke('child', session_id='s'))", "agent.invoke('child', session_id='s')", "agent.close()"],
)
def test_a_forked_child_uses_and_closes_the_agent_of_its_parent(tmp_path: Path, used: str, then: str) -> None:
    program = f"""
        import asyncio, os
        from regnexe import RegnexeAgentBuilder

        agent = RegnexeAgentBuilder().with_model_spec("offline:demo").with_persistence("sqlite:///{tmp_path}/s.db").build()
        {used}
        if child := os.fork():
            assert os.waitpid(child, 0)[1] == 0
            print(len(agent.invoke("parent", session_id="s").session.messages))
        else:
            {then}
            os._exit(0)
    """
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == ("4\n" if "close" in then else "6\n")


def test_reading_a_database_whose_process_was_killed_changes_no_file(tmp_path: Path) -> None:
    program = f"""
        import asyncio, os
        from regnexe import RegnexeAgentBuilder

        agent = RegnexeAgentBuilder().with_model_spec("offline:demo").with_persistence("sqlite:///{tmp_path}/s.db").build()
        asyncio.run(agent.ainvoke("hi", session_id="s"))
        os._exit(0)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".db-shm"}
    assert set(before) == {"s.db", "s.db-wal"}
    ran = subprocess.run(
        [sys.executable, "-m", "regnexe", "sessions", "list", "--db", f"{tmp_path}/s.db", "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert '"session_id": "s"' in ran.stdout
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".db-shm"} == before
