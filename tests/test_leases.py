"""Whose turn it is in a session, when runs die, fork, or call each other."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage

from regnexe import InvalidInput, RegnexeAgent, RegnexeAgentBuilder, RunStatus
from regnexe.persistence.leases.local import LocalLeases
from regnexe.testing import ScriptedChatModel, tool_call

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from langchain_core.messages import BaseMessage


async def take(leases: LocalLeases, key: str) -> str:
    async with leases.hold(key):
        return key


@pytest.fixture
def dead() -> Iterator[tuple[LocalLeases, Coroutine[Any, Any, None]]]:
    """Leases whose session `s` is held by a run that was on a loop closed without a cancel."""
    leases = LocalLeases()

    async def hold() -> None:
        async with leases.hold("s"):
            holding.set_result(None)
            await asyncio.get_running_loop().create_future()

    loop = asyncio.new_event_loop()
    holding = loop.create_future()
    run = hold()
    task = loop.create_task(run)
    loop.run_until_complete(holding)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    yield leases, run
    run.close()


def test_a_holder_whose_loop_was_closed_under_it_loses_its_turn(dead: Any) -> None:
    leases, _ = dead
    assert asyncio.run(asyncio.wait_for(take(leases, "s"), 20)) == "s"


def test_a_dead_holder_that_is_collected_lets_those_behind_it_in(dead: Any) -> None:
    leases, run = dead
    leases._lines["s"][0].loop = asyncio.new_event_loop()  # not closed yet, when the next one comes

    async def main() -> str:
        waiting = asyncio.create_task(take(leases, "s"))
        await asyncio.sleep(0)
        assert len(leases._lines["s"]) == 2
        run.close()  # what the collector does, in a context that is not the run's
        return await asyncio.wait_for(waiting, 20)

    loop = leases._lines["s"][0].loop
    assert asyncio.run(main()) == "s"
    loop.close()
    assert not leases._lines


def test_a_ticket_that_was_found_dead_may_leave_again(dead: Any) -> None:
    leases, run = dead
    asyncio.run(take(leases, "s"))
    run.close()
    assert not leases._lines


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
async def test_a_forked_child_can_use_the_session_of_a_run_that_went_on() -> None:
    leases = LocalLeases()
    async with leases.hold("s"):
        leases._lock.acquire()  # another thread might just have it
        child = os.fork()
        if child == 0:
            free = leases._lock.acquire(blocking=False) and not leases._lines
            os._exit(0 if free else 1)
        leases._lock.release()
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert leases._lines, "the parent's run keeps its turn"


async def test_sessions_that_wait_for_each_other_in_a_circle_are_told_so() -> None:
    leases = LocalLeases()
    keys = ["a", "b", "c"]
    all_hold = asyncio.Barrier(len(keys))

    async def call_next(n: int) -> None:
        async with leases.hold(keys[n]):
            await all_hold.wait()
            await take(leases, keys[(n + 1) % len(keys)])

    ends = await asyncio.gather(*(call_next(n) for n in range(len(keys))), return_exceptions=True)
    refused = [end for end in ends if end is not None]
    assert len(refused) == 1
    assert isinstance(refused[0], InvalidInput)
    assert "each would wait for the other" in str(refused[0])
    assert not leases._lines


async def test_a_run_may_wait_for_a_session_that_waits_for_nobody() -> None:
    leases = LocalLeases()
    go_on = asyncio.Event()

    async def busy() -> None:
        async with leases.hold("b"):
            await go_on.wait()

    async def outer() -> str:
        async with leases.hold("a"):
            return await take(leases, "b")

    tasks = [asyncio.create_task(busy()), asyncio.create_task(outer())]
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(*tasks)
    assert tasks[1].result() == "b"


async def test_two_sessions_whose_tools_call_each_other_both_come_to_an_end() -> None:
    agents: list[RegnexeAgent] = []
    both_run = asyncio.Barrier(2)

    async def ask(session: str) -> str:
        """Ask another session."""
        await both_run.wait()
        return (await agents[0].ainvoke("hello", session_id=session)).final_text

    def answer(messages: list[BaseMessage]) -> AIMessage:
        text = messages[-1].text
        return (
            AIMessage("", tool_calls=[tool_call("ask", session=text[-1])])
            if text.startswith("ask")
            else AIMessage("ok")
        )

    agents.append(RegnexeAgentBuilder().with_model(ScriptedChatModel(answer)).with_tool(ask).build())
    calls = [agents[0].ainvoke(f"ask {other}", session_id=mine, timeout=20) for mine, other in ("AB", "BA")]
    results = await asyncio.gather(*calls)
    assert [result.status for result in results] == [RunStatus.COMPLETED] * 2
    told = [result.messages[2].text for result in results]
    assert sum("use another session_id for the inner call" in text for text in told) == 1
