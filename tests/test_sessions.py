"""`agent.sessions`: what is listed, and what a session holds, while runs begin, end, fail and are cancelled."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.memory import InMemoryStore

from regnexe import (
    AgentClosed,
    CheckpointerError,
    EventType,
    InvalidInput,
    RegnexeAgent,
    RegnexeAgentBuilder,
    RunStatus,
    SessionInfo,
    SessionKey,
    SessionNotFound,
    SizeUnknown,
)
from regnexe.persistence.index.memory import MemorySessionIndex
from regnexe.runtime import loops
from regnexe.runtime.request import RunRequest
from regnexe.testing import ScriptedChatModel, tool_call

if TYPE_CHECKING:
    from pathlib import Path

KEY = SessionKey("default", "default", "s")


def build(model: Any = None, *tools: Any, saver: Any = None, store: Any = None, middleware: Any = ()) -> RegnexeAgent:
    builder = RegnexeAgentBuilder().with_model(model or ScriptedChatModel(lambda messages: "fine")).with_tool(*tools)
    builder.with_middleware(*middleware)
    if saver is not None:
        builder.with_checkpointer(saver)
    if store is not None:
        builder.with_store(store)
    return builder.build()


def use(monkeypatch: pytest.MonkeyPatch, index: Any) -> None:
    """Give the agents of a test this index."""
    monkeypatch.setattr(loops, "default_index", lambda saver, store: index)


async def turns_of(saver: Any, key: SessionKey = KEY) -> list[tuple[str, int | None]]:
    """Return what the checkpoints of a session say, oldest first: their source and their turn."""
    config: Any = {"configurable": {"thread_id": key.thread_id, "checkpoint_ns": ""}}
    found = [(one.metadata["source"], one.metadata.get("regnexe_turn")) async for one in saver.alist(config)]
    return found[::-1]


async def test_a_session_is_listed_with_what_its_runs_made_of_it(saver: Any) -> None:
    before = datetime.now(UTC)
    async with build(saver=saver) as agent:
        await agent.ainvoke("What is\n the weather?", session_id="s")
        first = (await agent.sessions.list("default")).sessions[0]
        second_result = await agent.ainvoke("And tomorrow?", session_id="s")
        (info,) = (await agent.sessions.list("default", "default")).sessions
        assert info.key == KEY
        assert (info.title, info.turns, info.messages, info.status) == ("What is the weather?", 2, 4, "completed")
        assert before < info.created_at == first.created_at < first.updated_at < info.updated_at < datetime.now(UTC)
        assert info.tokens == first.tokens + second_result.usage.total_tokens > first.tokens > 0
        assert info.status == RunStatus.COMPLETED
        assert await agent.sessions.get(KEY) == info
        assert await agent.sessions.get(session_id="s") == info


async def test_a_session_is_listed_as_running_before_its_first_message_is_processed(saver: Any) -> None:
    seen: list[SessionInfo] = []

    async def answer(messages: list[BaseMessage]) -> str:
        seen.extend((await agents[0].sessions.list("default")).sessions)
        return "ok"

    agents = [build(ScriptedChatModel(answer), saver=saver)]
    await agents[0].ainvoke("hello", session_id="s")
    assert [(info.session_id, info.title, info.status) for info in seen] == [("s", "hello", "running")]
    await agents[0].aclose()


@pytest.mark.parametrize("kind", ["error", "limited", "interrupted", "cancelled", "cancelled by others"])
async def test_a_run_that_did_not_complete_is_listed_with_how_it_ended(saver: Any, kind: str) -> None:
    reached = asyncio.Event()

    async def answer(messages: list[BaseMessage]) -> Any:
        if kind == "error":
            raise RuntimeError("down")
        if kind == "interrupted":
            return AIMessage("", tool_calls=[tool_call("risk")])
        reached.set()
        await asyncio.Event().wait()

    async def risk() -> str:
        """Take a risk."""
        return "taken"

    approval = HumanInTheLoopMiddleware(interrupt_on={"risk": True})
    agent = build(ScriptedChatModel(answer), risk, saver=saver, middleware=[approval])
    if kind == "cancelled by others":
        run = asyncio.create_task(agent.ainvoke("hello", session_id="s"))
        async with asyncio.timeout(30):
            await reached.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    elif kind == "cancelled":
        async with asyncio.timeout(30), agent.astream("hello", session_id="s") as stream:
            async for event in stream:
                if event.type is EventType.LLM_START:
                    break  # leaving early cancels the run
    else:
        await agent.ainvoke("hello", session_id="s", timeout=2 if kind == "limited" else None)
    info = await agent.sessions.get(KEY)
    status = "cancelled" if kind == "cancelled by others" else kind
    assert (info.status, info.turns, info.title) == (status, 1, "hello")
    assert info.messages == len(await agent.sessions.log(KEY)) == (2 if kind == "interrupted" else 1)
    await agent.aclose()


async def test_a_session_whose_process_was_killed_in_its_first_turn_is_listed_and_goes_on(tmp_path: Path) -> None:
    script = """
    import asyncio, os, signal, sys
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from langgraph.store.sqlite.aio import AsyncSqliteStore
    from regnexe import RegnexeAgentBuilder
    from regnexe.testing import ScriptedChatModel

    async def die(messages):
        os.kill(os.getpid(), signal.SIGKILL)

    async def main(folder):
        async with AsyncSqliteSaver.from_conn_string(f"{folder}/threads.db") as saver:
            async with AsyncSqliteStore.from_conn_string(f"{folder}/store.db") as store:
                await store.setup()
                builder = RegnexeAgentBuilder().with_model(ScriptedChatModel(die))
                await builder.with_checkpointer(saver).with_store(store).build().ainvoke("hello", session_id="s")

    asyncio.run(main(sys.argv[1]))
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    died = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert died.returncode == -9, died.stderr
    from langgraph.store.sqlite.aio import AsyncSqliteStore

    async with (
        AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver,
        AsyncSqliteStore.from_conn_string(str(tmp_path / "store.db")) as store,
    ):
        async with build(saver=saver, store=store) as agent:
            (info,) = (await agent.sessions.list("default")).sessions
            assert (info.session_id, info.title, info.status) == ("s", "hello", "running")
            assert (await agent.ainvoke("again", session_id="s")).status is RunStatus.COMPLETED
            info = await agent.sessions.get(KEY)
            assert (info.turns, info.messages, info.status) == (2, 3, "completed")


async def test_the_turn_is_in_every_checkpoint_of_its_run(saver: Any) -> None:
    async def look(x: str) -> str:
        """Look."""
        return x

    model = ScriptedChatModel(
        [AIMessage("", tool_calls=[tool_call("look", x="1")]), "one", "two", AIMessage("", tool_calls=[]), "three"]
    )
    agent = build(model, look, saver=saver)
    for text in ("a", "b", "c"):
        # What the caller says of it does not count.
        await agent.ainvoke(text, session_id="s", config={"metadata": {"regnexe_turn": 77}})
    turns = [turn for _, turn in await turns_of(saver)]
    assert turns == sorted(turns, key=lambda turn: turn or 0)
    assert set(turns) == {1, 2, 3}
    assert turns.count(1) > turns.count(2) > 1
    await agent.aclose()


async def test_the_leftovers_of_a_run_are_written_under_its_own_turn(saver: Any) -> None:
    """A run that a dead process left inside a tool is folded before the next message, and still its turn."""

    async def hang() -> str:
        """Hang."""
        reached.set()
        await asyncio.Event().wait()
        return "never"

    async def quick() -> str:
        """Be quick."""
        return "done"

    reached = asyncio.Event()
    call = AIMessage("", tool_calls=[tool_call("quick"), tool_call("hang")])
    agent = build(ScriptedChatModel(["one", call, "three"]), hang, quick, saver=saver)
    await agent.ainvoke("a", session_id="s")
    # Cancelled outside of Regnexe, nothing is put in order: as when the process dies.
    config: Any = {"configurable": {"thread_id": KEY.thread_id}, "metadata": {"regnexe_turn": 2}}
    dying = asyncio.create_task(agent.graph.ainvoke({"messages": [HumanMessage("b", id="b")]}, config))
    async with asyncio.timeout(30):
        await reached.wait()
        while not any(  # noqa: ASYNC110  # nothing tells when a saver has taken a write
            channel == "messages" for _, channel, _ in ((await saver.aget_tuple(config)).pending_writes or ())
        ):
            await asyncio.sleep(0)
    dying.cancel()
    await asyncio.wait({dying})
    result = await agent.ainvoke("c", session_id="s")
    found = await turns_of(saver)
    assert [turn for source, turn in found if source == "update"] == [2] * [source for source, _ in found].count(
        "update"
    )
    assert ("update", 2) in found
    assert [turn for source, turn in found if source == "input"] == [1, 2, 3]
    assert result.status is RunStatus.COMPLETED
    assert (await agent.sessions.get(KEY)).turns == 3
    await agent.aclose()


class Refusing(InMemorySaver):
    """A saver that can be told to take nothing, or no more than some checkpoints."""

    left: int | None = None
    reads = 0

    async def aput(self, *args: Any) -> Any:
        if self.left is not None:
            if self.left == 0:
                raise OSError("disk full")
            self.left -= 1
        return await super().aput(*args)

    async def aput_writes(self, *args: Any) -> None:
        if self.left == 0:
            raise OSError("disk full")
        await super().aput_writes(*args)

    async def aget_tuple(self, config: Any) -> Any:
        self.reads += 1
        return await super().aget_tuple(config)


@pytest.mark.parametrize("checkpoints", [0, 1])
async def test_a_message_that_was_not_stored_does_not_use_up_its_turn(checkpoints: int) -> None:
    saver = Refusing()
    agent = build(saver=saver)
    await agent.ainvoke("a", session_id="s")
    saver.left = checkpoints
    failed = await agent.ainvoke("b", session_id="s")
    assert (failed.status, failed.messages) == (RunStatus.ERROR, ())
    info = await agent.sessions.get(KEY)
    assert (info.turns, info.messages, info.status) == (1, 2, "error")
    saver.left = None
    await agent.ainvoke("c", session_id="s")
    log = await agent.sessions.log(KEY)
    humans = [message.text for message in log if message.type == "human"]
    assert (await agent.sessions.get(KEY)).turns == len(humans)
    assert [turn for _, turn in await turns_of(saver)][-1] == len(humans)
    await agent.aclose()


async def test_a_first_message_that_was_not_stored_leaves_a_session_without_turns() -> None:
    saver = Refusing()
    saver.left = 0
    async with build(saver=saver) as agent:
        await agent.ainvoke("a", session_id="s")
        info = await agent.sessions.get(KEY)
        assert (info.turns, info.messages, info.status, info.title) == (0, 0, "error", "a")
        assert await agent.sessions.log(KEY) == []


async def test_the_turns_of_a_thread_that_plain_langgraph_wrote_are_counted_once(saver: Any) -> None:
    agent = build(saver=saver)
    config: Any = {"configurable": {"thread_id": KEY.thread_id}}
    for text in ("a", "b", "c"):
        await agent.graph.ainvoke({"messages": [HumanMessage(text)]}, config)
    await agent.ainvoke("d", session_id="s")
    await agent.ainvoke("e", session_id="s")
    turns = [turn for source, turn in await turns_of(saver) if source == "input"]
    assert turns == [None, None, None, 4, 5]
    info = await agent.sessions.get(KEY)
    assert (info.title, info.turns, info.messages) == ("a", 5, 10)
    await agent.aclose()


async def test_the_turn_costs_no_further_read_of_the_checkpointer() -> None:
    saver = Refusing()
    async with build(saver=saver) as agent:
        await agent.ainvoke("a", session_id="s")
        runner = await agent._runners.runner()
        saver.reads = 0
        request = RunRequest(key=KEY, message=HumanMessage("b", id="b"))
        settled, is_new = await runner._settle(request)
        assert (settled.turn, is_new, saver.reads) == (2, False, 1)


class Failing(MemorySessionIndex):
    """An index that takes nothing, in one way or another."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    async def record(self, update: Any) -> None:
        if self.how == "hangs":
            await asyncio.Event().wait()
        if self.how == "cancels":
            raise asyncio.CancelledError
        raise OSError("no space left")

    async def list(self, *args: Any, **kwargs: Any) -> Any:
        raise OSError("no space left")


@pytest.mark.parametrize("how", ["fails", "hangs", "cancels"])
async def test_an_index_that_fails_changes_no_run_and_says_so_in_the_log(
    how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use(monkeypatch, Failing(how))
    monkeypatch.setattr("regnexe.runtime.notes._SECONDS", 0.05)
    with caplog.at_level(logging.WARNING, "regnexe"):
        async with build() as agent:
            result = await agent.ainvoke("a", session_id="s")
            assert (result.status, result.final_text) == (RunStatus.COMPLETED, "fine")
            again = await agent.ainvoke("b", session_id="s")
            assert (again.status, len(again.session.messages)) == (RunStatus.COMPLETED, 4)
            with pytest.raises(CheckpointerError, match="could not be read: OSError: no space left"):
                await agent.sessions.list("default")
    assert len(caplog.records) == 3
    assert all("did not take an update of session 'default:default:s'" in str(r.message) for r in caplog.records)


async def test_a_run_that_is_cancelled_while_its_end_is_noted_is_noted_and_then_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(MemorySessionIndex):
        async def record(self, update: Any) -> None:
            if update.status == "completed":
                noting.set()
                await go_on.wait()
            await super().record(update)

    noting, go_on, index = asyncio.Event(), asyncio.Event(), Slow()
    use(monkeypatch, index)
    agent = build()
    run = asyncio.create_task(agent.ainvoke("a", session_id="s"))
    async with asyncio.timeout(30):
        await noting.wait()
        run.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not run.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await run
    found = await index.get(KEY)
    assert found is not None
    assert found.status == "completed"
    assert (await agent.ainvoke("b", session_id="s")).status is RunStatus.COMPLETED
    await agent.aclose()


async def test_a_run_that_is_cancelled_while_its_beginning_is_noted_leaves_no_running_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(MemorySessionIndex):
        async def record(self, update: Any) -> None:
            if update.status == "running":
                noting.set()
                await go_on.wait()
            await super().record(update)

    noting, go_on, index = asyncio.Event(), asyncio.Event(), Slow()
    use(monkeypatch, index)
    agent = build()
    run = asyncio.create_task(agent.ainvoke("a", session_id="s"))
    async with asyncio.timeout(30):
        await noting.wait()
        run.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await run
    found = await index.get(KEY)
    assert found is not None
    assert (found.status, found.turns) == ("cancelled", 0)
    assert (await agent.ainvoke("b", session_id="s")).status is RunStatus.COMPLETED
    await agent.aclose()


async def test_sessions_of_other_users_and_apps_are_in_lists_of_their_own(saver: Any) -> None:
    async with build(saver=saver) as agent:
        for app, user in [("a", "alice@example.com"), ("a", "Alice@example.com"), ("b", "alice@example.com")]:
            await agent.ainvoke("x", app_id=app, user_id=user, session_id="s")
        listed = await agent.sessions.list("a", "alice@example.com")
        assert [info.user_id for info in listed.sessions] == ["alice@example.com"]
        assert len((await agent.sessions.list("a")).sessions) == 2
        assert (await agent.sessions.list("a", "alice")).sessions == ()


async def test_with_a_store_the_list_is_in_the_store_and_outlives_the_agent(saver: Any) -> None:
    store = InMemoryStore()
    async with build(saver=saver, store=store) as agent:
        await agent.ainvoke("x", user_id="alice@example.com", session_id="s")
    async with build(saver=InMemorySaver(), store=store) as other:
        (info,) = (await other.sessions.list("default", "alice@example.com")).sessions
        assert (info.session_id, info.turns) == ("s", 1)
        assert await other.sessions.get(info.key) == info


async def test_agents_on_one_saver_share_its_list_and_others_do_not() -> None:
    shared = InMemorySaver()
    one, other, apart = build(saver=shared), build(saver=shared), build()
    await one.ainvoke("x", session_id="s")
    assert len((await other.sessions.list("default")).sessions) == 1
    assert (await apart.sessions.list("default")).sessions == ()
    for agent in (one, other, apart):
        await agent.aclose()


async def test_a_session_that_the_list_does_not_know_is_told_from_the_checkpointer(tmp_path: Path) -> None:
    path = str(tmp_path / "threads.db")
    async with AsyncSqliteSaver.from_conn_string(path) as saver, build(saver=saver) as agent:
        await agent.ainvoke("first words", session_id="s")
        await agent.ainvoke("more", session_id="s")
        known = await agent.sessions.get(KEY)
    async with AsyncSqliteSaver.from_conn_string(path) as saver, build(saver=saver) as agent:
        assert (await agent.sessions.list("default")).sessions == ()
        found = await agent.sessions.get(KEY)
        assert (found.key, found.title, found.turns, found.messages) == (KEY, "first words", 2, 4)
        assert (found.status, found.tokens) == ("completed", known.tokens)
        assert abs((found.created_at - known.created_at).total_seconds()) < 5
        assert known.created_at < found.created_at < found.updated_at <= known.updated_at


async def test_what_is_not_stored_is_not_found(saver: Any) -> None:
    async with build(saver=saver) as agent:
        for ask in (agent.sessions.get, agent.sessions.log, agent.sessions.size):
            with pytest.raises(SessionNotFound, match="there is no session 'x' of user 'u' in app 'a'") as caught:
                await ask(app_id="a", user_id="u", session_id="x")
            assert caught.value.thread_id == "a:u:x"


async def test_the_log_is_a_copy(saver: Any) -> None:
    async with build(saver=saver) as agent:
        await agent.ainvoke([{"type": "text", "text": "hello"}], session_id="s")
        log = await agent.sessions.log(KEY)
        log[0].content[0]["text"] = "changed"  # type: ignore[index]
        log[1].content = "changed"
        log[1].additional_kwargs["changed"] = True
        again = await agent.sessions.log(session_id="s")
        assert [message.text for message in again] == ["hello", "fine"]
        result = await agent.ainvoke("more", session_id="s")
        assert [message.text for message in result.session.messages] == ["hello", "fine", "more", "fine"]
        assert "changed" not in result.session.messages[1].additional_kwargs


async def test_the_size_is_that_of_what_is_stored_and_grows_with_it(saver: Any) -> None:
    async with build(saver=saver) as agent:
        await agent.ainvoke("x", session_id="other")
        await agent.ainvoke("x", session_id="s")
        small = await agent.sessions.size(KEY)
        assert small.checkpoints == len(await turns_of(saver))
        await agent.ainvoke("y" * 100_000, session_id="s")
        large = await agent.sessions.size(KEY)
        assert 1_000 < small.bytes < 50_000
        assert large.bytes > small.bytes + 100_000
        assert (small.messages, large.messages) == (2, 4)
        assert large.checkpoints > small.checkpoints


async def test_a_checkpointer_that_cannot_tell_a_size_is_named() -> None:
    class Custom(BaseCheckpointSaver[str]):
        """Keeps threads somewhere."""

        inner = InMemorySaver()

        async def aget_tuple(self, config: Any) -> Any:
            return await self.inner.aget_tuple(config)

        async def aput(self, *args: Any) -> Any:
            return await self.inner.aput(*args)

        async def aput_writes(self, *args: Any) -> None:
            await self.inner.aput_writes(*args)

        async def aget_delta_channel_history(self, **kwargs: Any) -> Any:
            return await self.inner.aget_delta_channel_history(**kwargs)

        def get_next_version(self, current: Any, channel: None) -> str:
            return str(self.inner.get_next_version(current, channel))

    async with build(saver=Custom()) as agent:
        await agent.ainvoke("x", session_id="s")
        with pytest.raises(SizeUnknown, match="the checkpointer Custom cannot tell") as caught:
            await agent.sessions.size(KEY)
        assert caught.value.checkpointer == "Custom"
        assert (await agent.sessions.get(KEY)).turns == 1


async def test_a_session_is_named_by_a_key_or_by_its_ids_and_by_nothing_else() -> None:
    async with build() as agent:
        await agent.ainvoke("x", session_id="s")
        get: Any = agent.sessions.get
        calls: list[tuple[Any, str]] = [
            (lambda: get(), "which session"),
            (lambda: get(app_id="default"), "which session"),
            (lambda: get("default:default:s"), r"got 'default:default:s' \(str\)"),
            (lambda: get(KEY, session_id="s"), "named twice"),
            (lambda: get(thread_id="t"), "'thread_id' is none of them"),
            (lambda: get(session_id=""), "session_id must not be empty"),
        ]
        for wrong, why in calls:
            with pytest.raises(InvalidInput, match=why):
                await wrong()


def test_the_sync_calls_work_between_runs_of_the_async_ones_and_in_threads() -> None:
    agent = build()
    agent.invoke("a", session_id="s")
    asyncio.run(agent.ainvoke("b", session_id="s"))
    assert agent.sessions_sync.get(KEY).turns == 2
    assert [info.key for info in agent.sessions_sync.list("default", limit=5).sessions] == [KEY]
    assert [message.text for message in agent.sessions_sync.log(session_id="s")] == ["a", "fine", "b", "fine"]
    assert agent.sessions_sync.size(KEY).messages == 4
    assert asyncio.run(agent.sessions.get(KEY)) == agent.sessions_sync.get(KEY)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: agent.sessions_sync.get(KEY).turns, range(16)))
    assert found == [2] * 16
    agent.close()
    with pytest.raises(AgentClosed):
        agent.sessions_sync.list("default")


async def test_the_sync_calls_work_inside_a_running_loop(tmp_path: Path) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "t.db")) as saver:
        agent = build(saver=saver)
        await agent.ainvoke("a", session_id="s")
        assert agent.sessions_sync.get(KEY).turns == 1
        assert len(agent.sessions_sync.log(KEY)) == 2
        await agent.aclose()
        with pytest.raises(AgentClosed):
            await agent.sessions.list("default")


async def test_a_checkpointer_that_was_closed_is_named(tmp_path: Path) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "t.db")) as saver:
        agent = build(saver=saver)
        await agent.ainvoke("a", session_id="s")
    with pytest.raises(CheckpointerError, match="keep its `async with` open"):
        await agent.sessions.log(KEY)


def test_what_a_list_holds_can_be_sent_as_json() -> None:
    with build() as agent:
        agent.invoke("a", session_id="s")
        info = agent.sessions_sync.get(KEY)
    assert json.loads(json.dumps([info.thread_id, info.status, info.tags])) == ["default:default:s", "completed", []]
