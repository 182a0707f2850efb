from __future__ import annotations

import asyncio
import random
from typing import Any

import anyio
import pytest
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from pydantic import BaseModel

from regnexe import (
    AgentClosed,
    InvalidInput,
    InvalidSessionId,
    PendingApprovalError,
    RegnexeAgent,
    RegnexeAgentBuilder,
    RunFailed,
    RunInterrupted,
    RunLimited,
    RunStatus,
    RunTimeout,
)
from regnexe.messages import history_faults
from regnexe.testing import ScriptedChatModel, tool_call


def build(model: ScriptedChatModel, *tools: Any, saver: Any = None) -> RegnexeAgent:
    builder = RegnexeAgentBuilder().with_model(model).with_tool(*tools)
    return (builder.with_checkpointer(saver) if saver is not None else builder).build()


async def get_weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: sunny"


def types(messages: Any) -> list[str]:
    return [message.type for message in messages]


async def log_of(agent: RegnexeAgent, thread_id: str) -> list[BaseMessage]:
    state = await agent.graph.aget_state({"configurable": {"thread_id": thread_id}})
    return list(state.values.get("messages", []))


class Gate:
    """Lets a test stop a tool or a model at a known place."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.open.wait()


# --- what a run gives ---


async def test_a_run_gives_the_answer_and_every_new_message(saver: Any) -> None:
    model = ScriptedChatModel(
        [AIMessage("", tool_calls=[tool_call("get_weather", city="Rome")]), "Sunny.", "You asked."]
    )
    agent = build(model, get_weather, saver=saver)
    first = await agent.ainvoke("Weather?", app_id="readme", user_id="reader", session_id="s")
    assert first.status is RunStatus.COMPLETED
    assert first.final_text == "Sunny."
    assert types(first.messages) == ["human", "ai", "tool", "ai"]
    assert first.thread_id == "readme:reader:s"
    assert (first.usage.model_calls, first.usage.tool_calls) == (2, 1)
    assert first.usage.input_tokens > 0 < first.usage.output_tokens
    assert first.error is None
    assert first.raise_for_status() is first

    second = await agent.ainvoke("What did I ask?", app_id="readme", user_id="reader", session_id="s")
    assert types(second.messages) == ["human", "ai"]
    assert types(model.requests[-1].messages)[-5:] == ["human", "ai", "tool", "ai", "human"]
    assert [m.id for m in second.session.messages] == [m.id for m in (*first.messages, *second.messages)]
    assert second.session.key.thread_id == "readme:reader:s"


async def test_another_session_user_or_app_starts_with_nothing() -> None:
    model = ScriptedChatModel(lambda messages: str(len([m for m in messages if m.type != "system"])))
    agent = build(model)
    ids: Any = {"app_id": "a", "user_id": "u", "session_id": "s"}
    assert (await agent.ainvoke("one", **ids)).final_text == "1"
    assert (await agent.ainvoke("two", **ids)).final_text == "3"
    for other in ({"app_id": "b"}, {"user_id": "v"}, {"session_id": "t"}):
        assert (await agent.ainvoke("hello", **{**ids, **other})).final_text == "1"


async def test_without_a_session_id_each_call_is_a_new_session() -> None:
    agent = build(ScriptedChatModel(["a", "b"]))
    one, two = await agent.ainvoke("x"), await agent.ainvoke("y")
    assert one.session_id != two.session_id
    assert one.thread_id == f"default:default:{one.session_id}"


async def test_two_agents_and_100_sessions_at_once_keep_every_message_in_its_own_log() -> None:
    async def answer(messages: list[BaseMessage]) -> AIMessage:
        await asyncio.sleep(0)
        newest = messages[-1]
        if isinstance(newest, HumanMessage):
            return AIMessage("", tool_calls=[tool_call("echo", tag=newest.text)])
        return AIMessage(f"answer {newest.text}")

    async def echo(tag: str) -> str:
        """Give the tag back."""
        await asyncio.sleep(0)
        return tag

    agents = [build(ScriptedChatModel(answer), echo) for _ in range(2)]
    turns = [
        (agent, {"app_id": f"app{n % 3}", "user_id": f"user{n % 7}", "session_id": f"s{n}"}, turn)
        for agent in range(2)
        for n in range(100)
        for turn in range(3)
    ]
    random.Random(7).shuffle(turns)

    async def send(agent: int, ids: Any, turn: int) -> None:
        tag = f"<{agent}/{'/'.join(ids.values())}/{turn}>"
        result = await agents[agent].ainvoke(tag, **ids)
        assert [m.text for m in result.messages if m.text] == [tag, tag, f"answer {tag}"]

    await asyncio.gather(*(send(*turn) for turn in turns))
    for number, agent in enumerate(agents):
        for n in range(100):
            parts = (f"app{n % 3}", f"user{n % 7}", f"s{n}")
            log = await log_of(agent, ":".join(parts))
            assert types(log) == ["human", "ai", "tool", "ai"] * 3
            mine = f"<{number}/{'/'.join(parts)}/"
            assert all(mine in m.text for m in log if m.text)


async def test_messages_sent_at_once_to_one_session_are_all_answered_in_the_order_they_came(saver: Any) -> None:
    model = ScriptedChatModel(lambda messages: f"answer to {messages[-1].text}")
    agent = build(model, saver=saver)
    results = await asyncio.gather(*(agent.ainvoke(f"question {n}", session_id="s") for n in range(5)))
    assert [r.final_text for r in results] == [f"answer to question {n}" for n in range(5)]
    log = await log_of(agent, "default:default:s")
    assert [m.text for m in log] == [t for n in range(5) for t in (f"question {n}", f"answer to question {n}")]


# --- the final text ---


async def test_a_failed_run_has_no_final_text_though_an_earlier_turn_had_one(saver: Any) -> None:
    agent = build(ScriptedChatModel(["the old answer", RuntimeError("provider down"), "fine again"]), saver=saver)
    await agent.ainvoke("one", session_id="s")
    failed = await agent.ainvoke("two", session_id="s")
    assert failed.status is RunStatus.ERROR
    assert failed.final_text == ""
    assert str(failed.error) == "provider down"
    assert types(failed.messages) == ["human"]
    with pytest.raises(RunFailed, match="RuntimeError: provider down") as caught:
        failed.raise_for_status()
    assert caught.value.__cause__ is failed.error
    after = await agent.ainvoke("three", session_id="s")
    assert after.final_text == "fine again"
    assert [m.text for m in await log_of(agent, failed.thread_id)] == [
        "one",
        "the old answer",
        "two",
        "three",
        "fine again",
    ]


async def test_the_final_text_of_content_blocks_is_their_text_and_never_a_repr() -> None:
    blocks = [
        {"type": "reasoning", "reasoning": "hm"},
        {"type": "text", "text": "Hello "},
        {"type": "text", "text": "there"},
    ]
    result = await build(ScriptedChatModel([AIMessage(blocks)])).ainvoke("hi")  # type: ignore[arg-type]
    assert result.final_text == "Hello there"


async def test_what_a_model_says_beside_a_tool_call_is_no_final_text() -> None:
    replies: list[Any] = [
        AIMessage("Let me look.", tool_calls=[tool_call("get_weather", city="Rome")]),
        RuntimeError("down"),
    ]
    result = await build(ScriptedChatModel(replies), get_weather).ainvoke("hi")
    assert result.status is RunStatus.ERROR
    assert result.final_text == ""


async def test_an_answer_without_text_gives_an_empty_final_text() -> None:
    blank = [AIMessage(""), AIMessage([]), AIMessage([{"type": "reasoning", "reasoning": "hm"}])]
    model = ScriptedChatModel([*blank, "at last"])
    agent = build(model)
    for goal in ("hi", "again", "and again"):
        result = await agent.ainvoke(goal, session_id="s")
        assert (result.status, result.final_text) == (RunStatus.COMPLETED, "")
    result = await agent.ainvoke("say something", session_id="s")
    assert result.final_text == "at last"
    assert types(model.requests[-1].messages)[-4:] == ["human"] * 4, "no provider takes a blank message back"


# --- structured answers ---


class Weather(BaseModel):
    """The weather."""

    city: str
    celsius: int


async def test_a_structured_answer_is_in_the_result_and_no_earlier_one_is() -> None:
    replies: list[Any] = [
        AIMessage("", tool_calls=[tool_call("Weather", city="Rome", celsius=22)]),
        RuntimeError("down"),
    ]
    agent = RegnexeAgentBuilder().with_model(ScriptedChatModel(replies)).with_response_format(Weather).build()
    first = await agent.ainvoke("Weather in Rome?", session_id="s")
    assert first.status is RunStatus.COMPLETED
    assert first.structured == Weather(city="Rome", celsius=22)
    second = await agent.ainvoke("And now?", session_id="s")
    assert second.structured is None


# --- the door ---


@pytest.mark.parametrize(
    ("goal", "says"),
    [
        ("", "goal is empty"),
        ("  \n", "goal is empty"),
        ([], "goal is empty"),
        ([{"type": "text", "text": ""}], "goal is empty"),
        (None, "goal must be text, a list of content blocks or a HumanMessage, got NoneType"),
        (AIMessage("x"), "got AIMessage"),
        ([1], r"goal\[0\] must be a content block"),
        (HumanMessage(""), "goal is empty"),
    ],
)
async def test_a_goal_that_is_no_message_is_refused_and_nothing_is_stored(goal: Any, says: str) -> None:
    model = ScriptedChatModel([])
    agent = build(model)
    with pytest.raises(InvalidInput, match=says):
        await agent.ainvoke(goal, session_id="s")
    assert model.requests == []
    assert await log_of(agent, "default:default:s") == []


async def test_a_bad_id_is_refused_by_every_way_to_run() -> None:
    agent = build(ScriptedChatModel([]))
    ways: list[Any] = [agent.ainvoke, agent.astream, agent.invoke, agent.stream]
    for way in ways:
        with pytest.raises(InvalidSessionId, match="session_id must not be empty"):
            made = way("hi", session_id="")
            await made
    agent.close()


@pytest.mark.parametrize("name", ["thread_id", "checkpoint_id", "checkpoint_ns"])
async def test_a_thread_named_in_the_config_is_refused(name: str) -> None:
    agent = build(ScriptedChatModel([]))
    with pytest.raises(InvalidInput, match=f"must not hold '{name}'"):
        await agent.ainvoke("hi", config={"configurable": {name: "x"}})


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "5", True])
async def test_a_timeout_that_is_no_positive_number_is_refused(timeout: Any) -> None:
    with pytest.raises(InvalidInput, match="timeout must be a positive number of seconds"):
        await build(ScriptedChatModel([])).ainvoke("hi", timeout=timeout)


async def test_a_config_that_is_no_config_is_refused() -> None:
    wrong: Any = "x"
    bad_part: Any = {"metadata": "x"}
    agent = build(ScriptedChatModel([]))
    with pytest.raises(InvalidInput, match="config must be"):
        await agent.ainvoke("hi", config=wrong)
    with pytest.raises(InvalidInput, match=r"config\['metadata'\] must be a dict"):
        await agent.ainvoke("hi", config=bad_part)


async def test_a_repeated_message_id_of_the_client_overwrites_nothing(saver: Any) -> None:
    agent = build(ScriptedChatModel(["a", "b", "c"]), saver=saver)
    for text in ("first", "second", "third"):
        await agent.ainvoke(HumanMessage(text, id="mine"), session_id="s")
    log = await log_of(agent, "default:default:s")
    assert [m.text for m in log] == ["first", "a", "second", "b", "third", "c"]
    assert len({m.id for m in log}) == 6


async def test_a_repeated_id_of_a_model_or_a_tool_overwrites_nothing(saver: Any) -> None:
    async def note(text: str) -> ToolMessage:
        """Keep a note."""
        return ToolMessage(text, id="same", tool_call_id=text)

    def answer(messages: list[BaseMessage]) -> AIMessage:
        newest = messages[-1]
        if isinstance(newest, HumanMessage):
            call = {"name": "note", "args": {"text": newest.text}, "id": newest.text, "type": "tool_call"}
            return AIMessage("", id="same-call", tool_calls=[call])
        return AIMessage("done", id="same-answer")

    agent = build(ScriptedChatModel(answer), note, saver=saver)
    for text in ("one", "two"):
        await agent.ainvoke(text, session_id="s")
    log = await log_of(agent, "default:default:s")
    assert types(log) == ["human", "ai", "tool", "ai"] * 2
    assert len({m.id for m in log}) == 8


async def test_a_human_message_keeps_its_content_name_and_extra_fields() -> None:
    agent = build(ScriptedChatModel(["ok"]))
    sent = HumanMessage([{"type": "text", "text": "hi"}], name="ann", additional_kwargs={"k": 1}, id="x")
    result = await agent.ainvoke(sent)
    kept = result.messages[0]
    assert (kept.content, kept.name, kept.additional_kwargs) == (sent.content, "ann", {"k": 1})
    assert kept.id != "x"
    assert sent.id == "x"


async def test_lone_surrogates_are_replaced_wherever_text_comes_in(saver: Any) -> None:
    async def broken(text: str) -> str:
        """Give broken text."""
        return "tool \udcff"

    replies: list[Any] = [AIMessage("", tool_calls=[tool_call("broken", text="a\ud800")]), "model \ud800"]
    result = await build(ScriptedChatModel(replies), broken, saver=saver).ainvoke("human \udfff")
    assert result.status is RunStatus.COMPLETED
    assert [m.text for m in result.messages if m.text] == ["human \ufffd", "tool \ufffd", "model \ufffd"]


async def test_a_repeated_run_id_in_config_still_gets_its_message_answered(saver: Any) -> None:
    agent = build(ScriptedChatModel(["one", "two", "three"]), saver=saver)
    configs: list[Any] = [
        {"metadata": {"run_id": "same"}},
        {"metadata": {"run_id": "same"}},
        {"configurable": {"run_id": "same"}},
    ]
    answers = [(await agent.ainvoke("hi", session_id="s", config=config)).final_text for config in configs]
    assert answers == ["one", "two", "three"]
    assert len(await log_of(agent, "default:default:s")) == 6


async def test_config_and_context_reach_the_tool_and_the_ids_are_in_the_metadata() -> None:
    seen: dict[str, Any] = {}

    async def look(runtime: ToolRuntime[Any, Any]) -> str:
        """Look around."""
        seen.update(context=runtime.context, metadata=runtime.config["metadata"], tags=runtime.config["tags"])
        return "ok"

    replies: list[Any] = [AIMessage("", tool_calls=[tool_call("look")]), "done"]
    agent = build(ScriptedChatModel(replies), look)
    result = await agent.ainvoke(
        "hi",
        app_id="a",
        user_id="alice@example.com",
        session_id="s",
        config={"metadata": {"mine": 1, "regnexe_user_id": "mallory"}, "tags": ["t"]},
        context={"tenant": 7},
    )
    assert result.status is RunStatus.COMPLETED
    assert seen["context"] == {"tenant": 7}
    assert "t" in seen["tags"]
    metadata = seen["metadata"]
    assert (metadata["mine"], metadata["regnexe_app_id"], metadata["regnexe_session_id"]) == (1, "a", "s")
    assert metadata["regnexe_user_id"] == "alice@example.com"
    assert metadata["regnexe_run_id"] == result.run_id


# --- tools ---


async def test_a_raising_tool_tells_the_model_and_keeps_its_sibling(saver: Any) -> None:
    async def boom(x: str) -> str:
        """Fail."""
        raise RuntimeError("boom")

    calls = [tool_call("boom", x="1"), tool_call("get_weather", city="Rome")]
    model = ScriptedChatModel([AIMessage("", tool_calls=calls), "done"])
    result = await build(model, boom, get_weather, saver=saver).ainvoke("hi")
    assert result.status is RunStatus.COMPLETED
    tools = [m for m in result.messages if isinstance(m, ToolMessage)]
    assert [(m.status, m.text) for m in tools] == [("error", "RuntimeError: boom"), ("success", "Rome: sunny")]


def giving(name: str, artifact: Any) -> Any:
    async def give(x: str) -> tuple[str, Any]:
        """Give an artifact."""
        return "TEXT", artifact

    return StructuredTool.from_function(coroutine=give, name=name, response_format="content_and_artifact")


async def test_an_artifact_that_cannot_be_stored_is_dropped_with_a_warning_and_the_turn_goes_on(
    saver: Any, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[tuple[str, Any, Any]] = [
        ("generator", (n for n in range(3)), None),
        ("huge", 2**80, None),
        ("mixed", {"n": 2**80, "ok": 1, "deep": {"f": (n for n in range(1)), "g": 2}}, {"ok": 1, "deep": {"g": 2}}),
        ("list", [1, 2**80, "x"], [1, "x"]),
        ("fine", {"a": [1, None]}, {"a": [1, None]}),
    ]
    for name, artifact, kept in made:
        give = giving(name, artifact)
        caplog.clear()
        agent = build(
            ScriptedChatModel([AIMessage("", tool_calls=[tool_call(name, x="1")]), "done"]), give, saver=saver
        )
        result = await agent.ainvoke("hi", session_id=name)
        assert (name, result.status, result.error) == (name, RunStatus.COMPLETED, None)
        stored = (await log_of(agent, result.thread_id))[2]
        assert isinstance(stored, ToolMessage)
        assert (stored.text, stored.artifact) == ("TEXT", kept)
        warned = [record.getMessage() for record in caplog.records if "was dropped" in record.getMessage()]
        assert all(repr(name) in message and "artifact" in message for message in warned)
        assert bool(warned) == (artifact != kept)


async def test_a_tool_may_run_the_same_agent_in_another_session_and_its_messages_stay_apart(saver: Any) -> None:
    agents: list[RegnexeAgent] = []

    async def ask(question: str) -> str:
        """Ask another conversation."""
        inner = await agents[0].ainvoke(question, session_id="inner")
        return inner.final_text

    def answer(messages: list[BaseMessage]) -> AIMessage:
        newest = messages[-1]
        if newest.text == "outer":
            return AIMessage("", tool_calls=[tool_call("ask", question="inner")])
        return AIMessage(f"<{newest.text}>")

    agents.append(build(ScriptedChatModel(answer), ask, saver=saver))
    result = await agents[0].ainvoke("outer", session_id="outer")
    assert result.final_text == "<<inner>>"
    assert [m.text for m in await log_of(agents[0], "default:default:inner")] == ["inner", "<inner>"]
    assert types(await log_of(agents[0], "default:default:outer")) == ["human", "ai", "tool", "ai"]


async def test_a_tool_that_calls_its_own_session_is_told_so_and_does_not_wait_for_ever() -> None:
    agents: list[RegnexeAgent] = []

    async def again(question: str) -> str:
        """Ask the same conversation."""
        return (await agents[0].ainvoke(question, session_id="s")).final_text

    agents.append(build(ScriptedChatModel([AIMessage("", tool_calls=[tool_call("again", question="x")]), "ok"]), again))
    result = await agents[0].ainvoke("hi", session_id="s", timeout=20)
    assert result.status is RunStatus.COMPLETED
    assert "use another session_id for the inner call" in result.messages[2].text


# --- large messages ---


async def test_the_log_keeps_a_large_message_and_a_large_tool_result_as_they_are(saver: Any) -> None:
    async def big(x: str) -> str:
        """Give much."""
        return "R" * 100_000

    model = ScriptedChatModel([AIMessage("", tool_calls=[tool_call("big", x="1")]), "done", "next"])
    agent = build(model, big, saver=saver)
    question = "H" * 250_000
    result = await agent.ainvoke(question, session_id="s")
    assert [len(m.text) for m in result.messages] == [250_000, 0, 100_000, 4]
    assert result.messages[0].additional_kwargs == {}
    assert result.session.files == {}

    first, second = (request.messages for request in model.requests)
    assert first[-1].text == question, "the newest human message goes to the model verbatim"
    assert second[-3].text == question
    seen = second[-1].text
    assert len(seen) < 81_000
    assert "20,000 of 100,000 characters are left out of this view" in seen

    await agent.ainvoke("and now?", session_id="s")
    assert len(model.requests[2].messages[-5].text) < 201_000, "an older one is cut in the view"
    assert [len(m.text) for m in await log_of(agent, result.thread_id)][:3] == [250_000, 0, 100_000]


# --- stops ---


async def test_a_timeout_of_the_callers_own_is_raised_and_the_session_stays_usable(saver: Any) -> None:
    gate = Gate()

    async def slow(x: str) -> str:
        """Take long."""
        await gate()
        return "never"

    calls = [tool_call("get_weather", city="Rome"), tool_call("slow", x="1")]
    model = ScriptedChatModel([AIMessage("", tool_calls=calls), "fine"])
    agent = build(model, slow, get_weather, saver=saver)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await agent.ainvoke("hi", session_id="s")
    log = await log_of(agent, "default:default:s")
    assert history_faults(log) == []
    assert [(m.status, m.text) for m in log if isinstance(m, ToolMessage)] == [
        ("success", "Rome: sunny"),
        ("error", "The tool call slow was stopped before it finished; it has no result."),
    ]
    assert (await agent.ainvoke("again", session_id="s")).final_text == "fine"


async def test_a_task_group_and_a_cancel_scope_cancel_a_run_like_any_other_await(saver: Any) -> None:
    gate = Gate()

    async def slow(x: str) -> str:
        """Take long."""
        await gate()
        return "never"

    model = ScriptedChatModel([AIMessage("", tool_calls=[tool_call("slow", x="1")]), "fine"])
    agent = build(model, slow, saver=saver)
    with anyio.move_on_after(20) as scope:
        async with anyio.create_task_group() as group:

            async def stop() -> None:
                await gate.reached.wait()
                scope.cancel()

            group.start_soon(stop)
            await agent.ainvoke("hi", session_id="s")
            pytest.fail("the cancel was swallowed")
    assert scope.cancelled_caught
    assert history_faults(await log_of(agent, "default:default:s")) == []
    assert (await agent.ainvoke("again", session_id="s")).final_text == "fine"


async def test_a_run_cancelled_again_and_again_still_leaves_its_log_in_order(saver: Any) -> None:
    gate = Gate()

    async def slow(x: str) -> str:
        """Take long."""
        await gate()
        return "never"

    agent = build(ScriptedChatModel([AIMessage("", tool_calls=[tool_call("slow", x="1")]), "fine"]), slow, saver=saver)
    task = asyncio.create_task(agent.ainvoke("hi", session_id="s"))
    await gate.reached.wait()
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()
    assert history_faults(await log_of(agent, "default:default:s")) == []


async def test_a_run_that_reaches_its_timeout_is_limited_and_the_session_stays_usable(saver: Any) -> None:
    gate = Gate()

    async def slow(x: str) -> str:
        """Take long."""
        await gate()
        return "never"

    model = ScriptedChatModel([AIMessage("", tool_calls=[tool_call("slow", x="1")]), "fine"])
    agent = build(model, slow, saver=saver)
    result = await agent.ainvoke("hi", session_id="s", timeout=0.2)
    assert result.status is RunStatus.LIMITED
    assert isinstance(result.error, RunTimeout)
    assert result.error.seconds == 0.2
    assert result.final_text == ""
    assert types(result.messages) == ["human", "ai", "tool"]
    with pytest.raises(RunLimited, match=r"took longer than 0.2 s"):
        result.raise_for_status()
    assert (await agent.ainvoke("again", session_id="s")).final_text == "fine"


async def test_a_timeout_error_of_the_model_is_an_error_and_no_limit() -> None:
    result = await build(ScriptedChatModel([TimeoutError("read timed out")])).ainvoke("hi", timeout=20)
    assert result.status is RunStatus.ERROR
    assert isinstance(result.error, TimeoutError)


async def test_a_cancel_while_waiting_for_the_sessions_turn_stores_nothing_and_frees_the_place() -> None:
    gate = Gate()

    async def answer(messages: list[BaseMessage]) -> str:
        if messages[-1].text == "first":
            await gate()
        return f"answer to {messages[-1].text}"

    agent = build(ScriptedChatModel(answer))
    first = asyncio.create_task(agent.ainvoke("first", session_id="s"))
    await gate.reached.wait()
    second = asyncio.create_task(agent.ainvoke("second", session_id="s"))
    third = asyncio.create_task(agent.ainvoke("third", session_id="s"))
    await asyncio.sleep(0)
    second.cancel()
    gate.open.set()
    assert (await first).final_text == "answer to first"
    assert (await third).final_text == "answer to third"
    assert second.cancelled()
    log = await log_of(agent, "default:default:s")
    assert [m.text for m in log if m.type == "human"] == ["first", "third"]


# --- interrupts ---


async def test_an_interrupt_is_reported_and_a_new_message_is_refused_until_it_is_decided(saver: Any) -> None:
    from langgraph.types import Command, interrupt

    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}: {interrupt({'amount': amount})}"

    model = ScriptedChatModel([AIMessage("", tool_calls=[tool_call("pay", amount=5)]), "done"])
    agent = build(model, pay, saver=saver)
    result = await agent.ainvoke("pay 5", session_id="s")
    assert result.status is RunStatus.INTERRUPTED
    assert result.final_text == ""
    assert [p.value for p in result.pending] == [{"amount": 5}]
    assert result.metadata["interrupt"] == result.pending
    with pytest.raises(RunInterrupted):
        result.raise_for_status()
    with pytest.raises(PendingApprovalError, match="waits for a decision") as caught:
        await agent.ainvoke("hello?", session_id="s")
    assert caught.value.pending_ids == (result.pending[0].id,)
    assert types(await log_of(agent, result.thread_id)) == ["human", "ai"]

    await agent.graph.ainvoke(Command(resume="yes"), {"configurable": {"thread_id": result.thread_id}})
    assert [m.text for m in await log_of(agent, result.thread_id)][2:] == ["paid 5: yes", "done"]


# --- the end ---


async def test_a_closed_agent_says_so_and_closing_twice_is_fine() -> None:
    async with build(ScriptedChatModel(["hi"])) as agent:
        await agent.ainvoke("x")
    await agent.aclose()
    agent.close()
    for call in (agent.invoke, agent.stream, agent.astream):
        with pytest.raises(AgentClosed, match="build a new one"):
            call("x")
    with pytest.raises(AgentClosed):
        await agent.ainvoke("x")
