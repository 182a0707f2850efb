from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from deepagents.backends import StateBackend
from deepagents.middleware.summarization import SummarizationMiddleware
from langchain_core.messages import AIMessage, ToolMessage

from regnexe import (
    AgentCompleted,
    AgentStarted,
    Event,
    EventType,
    LlmDelta,
    LlmEnd,
    LlmStart,
    PendingApprovalError,
    RegnexeAgent,
    RegnexeAgentBuilder,
    RegnexeError,
    RunStatus,
    ToolCalled,
    ToolResult,
)
from regnexe.messages import history_faults
from regnexe.runtime.stream import _Pipe
from regnexe.testing import RecordingListener, ScriptedChatModel, tool_call


async def get_weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: sunny"


def replies() -> list[Any]:
    return [AIMessage("", tool_calls=[tool_call("get_weather", city="Rome")]), "It is sunny in Rome."]


def build(script: Any, *tools: Any, listener: Any = None, saver: Any = None) -> RegnexeAgent:
    builder = RegnexeAgentBuilder().with_model(ScriptedChatModel(script, stream_words=True)).with_tool(*tools)
    if listener is not None:
        builder.with_event_listener(listener)
    if saver is not None:
        builder.with_checkpointer(saver)
    return builder.build()


async def test_a_stream_tells_the_run_in_order_and_then_gives_its_result() -> None:
    agent = build(replies(), get_weather)
    async with agent.astream("Weather?", app_id="a", user_id="u", session_id="s") as stream:
        events = [event async for event in stream]
    assert [event.type for event in events if not isinstance(event, LlmDelta)] == [
        EventType.AGENT_STARTED,
        EventType.LLM_START,
        EventType.LLM_END,
        EventType.TOOL_CALLED,
        EventType.TOOL_RESULT,
        EventType.LLM_START,
        EventType.LLM_END,
        EventType.AGENT_COMPLETED,
    ]
    assert [event.sequence for event in events] == list(range(len(events)))
    assert {(e.thread_id, e.run_id, e.user_id) for e in events} == {("a:u:s", stream.result.run_id, "u")}
    assert stream.result.status is RunStatus.COMPLETED
    assert stream.result.final_text == "It is sunny in Rome."


async def test_the_pieces_of_an_answer_come_between_its_start_and_end_and_make_it_up() -> None:
    agent = build(replies(), get_weather)
    async with agent.astream("Weather?") as stream:
        events = [event async for event in stream]
    ends = [event for event in events if isinstance(event, LlmEnd)]
    pieces = [event for event in events if isinstance(event, LlmDelta)]
    assert len(pieces) > 3
    assert "".join(piece.text for piece in pieces) == "It is sunny in Rome." == stream.result.final_text
    assert {piece.call_id for piece in pieces} == {ends[-1].call_id}
    start = next(e for e in events if isinstance(e, LlmStart) and e.call_id == ends[-1].call_id)
    assert start.sequence < pieces[0].sequence < pieces[-1].sequence < ends[-1].sequence


async def test_an_awaited_and_a_streamed_run_tell_their_listeners_the_same() -> None:
    async def heard(stream: bool) -> list[Any]:
        listener = RecordingListener()
        agent = build(replies(), get_weather, listener=listener)
        if stream:
            async with agent.astream("Weather?") as events:
                async for _ in events:
                    pass
        else:
            await agent.ainvoke("Weather?")
        return [(e.type, e.name, e.path) for e in listener.events if not isinstance(e, LlmDelta)]

    assert await heard(stream=True) == await heard(stream=False)


async def test_a_sub_agent_is_shown_by_its_name_and_what_happens_inside_it_as_nested() -> None:
    task = tool_call("task", description="look it up", subagent_type="general-purpose")
    other = tool_call("task", description="look it up too", subagent_type="general-purpose")
    script = [AIMessage("", tool_calls=[task]), *replies(), "All done.", AIMessage("", tool_calls=[other]), "x", "y"]
    listener = RecordingListener()
    agent = build(script, get_weather, listener=listener)
    await agent.ainvoke("delegate", session_id="s")
    told = [(e.type.value, e.name, e.path) for e in listener.events]
    assert told == [
        ("agent_started", "agent", ()),
        ("llm_start", "scripted", ()),
        ("llm_end", "scripted", ()),
        ("tool_called", "general-purpose", ()),
        ("llm_start", "scripted", ("general-purpose",)),
        ("llm_end", "scripted", ("general-purpose",)),
        ("tool_called", "get_weather", ("general-purpose",)),
        ("tool_result", "get_weather", ("general-purpose",)),
        ("llm_start", "scripted", ("general-purpose",)),
        ("llm_end", "scripted", ("general-purpose",)),
        ("tool_result", "general-purpose", ()),
        ("llm_start", "scripted", ()),
        ("llm_end", "scripted", ()),
        ("agent_completed", "agent", ()),
    ]
    called = listener.of(ToolCalled)[0]
    assert (called.tool, called.subagent, called.tool_call_id) == ("task", "general-purpose", task["id"])
    assert listener.of(ToolResult)[-1].content == "It is sunny in Rome."
    assert listener.of(AgentCompleted)[0].usage.model_calls == 4


async def test_a_summary_that_a_compaction_asks_for_is_told_apart_and_not_streamed_as_an_answer() -> None:
    def answer(messages: list[Any]) -> str:
        return "SUMMARY of all" if "<messages>" in messages[-1].text else "an answer"

    model = ScriptedChatModel(answer, stream_words=True)
    summariser: Any = SummarizationMiddleware(
        model=model, backend=StateBackend(), trigger=("messages", 4), keep=("messages", 2)
    )
    agent = RegnexeAgentBuilder().with_model(model).with_middleware(summariser).build()
    for turn in range(4):
        async with agent.astream(f"question {turn}", session_id="s") as stream:
            events = [event async for event in stream]
        assert "".join(event.text for event in events if isinstance(event, LlmDelta)) == "an answer"
    purposes = [event.purpose for event in events if isinstance(event, LlmStart | LlmEnd)]
    assert purposes == ["summarization"] * 2 + ["answer"] * 2


async def test_the_system_prompt_and_the_messages_of_a_call_are_told_apart() -> None:
    listener = RecordingListener()
    model = ScriptedChatModel(["ok"])
    agent = (
        RegnexeAgentBuilder().with_model(model).with_system_prompt("Be brief.").with_event_listener(listener).build()
    )
    await agent.ainvoke("hi")
    start = listener.of(LlmStart)[0]
    assert "Be brief." in start.system_prompt
    assert [m.text for m in start.messages] == ["hi"]


class Steps:
    """A model that would call a tool seven times more; counts what ran."""

    def __init__(self) -> None:
        self.ran = 0

    def __call__(self, messages: list[Any]) -> AIMessage:
        calls = sum(isinstance(m, ToolMessage) for m in messages)
        return AIMessage("", tool_calls=[tool_call("step", n=calls)]) if calls < 8 else AIMessage("the end")

    async def step(self, n: int) -> str:
        """Take a step."""
        self.ran += 1
        await asyncio.sleep(0)
        return f"step {n}"


async def left_valid(agent: RegnexeAgent, steps: Steps) -> None:
    state = await agent.graph.aget_state({"configurable": {"thread_id": "default:default:s"}})
    assert history_faults(state.values["messages"]) == []
    assert steps.ran <= 2, "the run went on after its stream was left"
    again = await agent.ainvoke("go on", session_id="s")
    assert again.final_text == "the end"


async def test_leaving_a_stream_by_break_inside_async_with_cancels_the_run_within_one_step(saver: Any) -> None:
    steps = Steps()
    agent = build(steps, steps.step, saver=saver)
    async with agent.astream("go", session_id="s") as stream:
        async for event in stream:
            if isinstance(event, ToolCalled):
                break
    assert stream.result.status is RunStatus.CANCELLED
    assert stream.result.final_text == ""
    await left_valid(agent, steps)


async def test_leaving_a_stream_by_break_without_async_with_cancels_the_run_within_one_step(saver: Any) -> None:
    steps = Steps()
    agent = build(steps, steps.step, saver=saver)
    stream = agent.astream("go", session_id="s")
    async for event in stream:
        if isinstance(event, ToolCalled):
            break
    gc.collect()
    await stream.aclose()
    await left_valid(agent, steps)


async def test_leaving_a_stream_by_an_exception_cancels_the_run_and_lets_the_exception_out(saver: Any) -> None:
    steps = Steps()
    agent = build(steps, steps.step, saver=saver)
    with pytest.raises(KeyError):
        async with agent.astream("go", session_id="s") as stream:
            async for event in stream:
                if isinstance(event, ToolResult):
                    raise KeyError("mine")
    await left_valid(agent, steps)


async def test_cancelling_the_reader_of_a_stream_cancels_the_run(saver: Any) -> None:
    steps = Steps()
    agent = build(steps, steps.step, saver=saver)
    reached = asyncio.Event()

    async def read() -> None:
        async with agent.astream("go", session_id="s") as stream:
            async for event in stream:
                if isinstance(event, ToolResult):
                    reached.set()
                    await asyncio.Event().wait()

    task = asyncio.create_task(read())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await left_valid(agent, steps)


async def test_a_stream_that_is_entered_and_left_at_once_stores_at_most_its_message() -> None:
    steps = Steps()
    agent = build(steps, steps.step)
    async with agent.astream("go", session_id="s") as stream:
        pass
    assert steps.ran == 0
    with pytest.raises(RegnexeError, match="left before its run began"):
        _ = stream.result


async def test_a_run_never_gets_more_than_one_event_ahead_of_its_reader() -> None:
    steps = Steps()
    agent = build(steps, steps.step)
    async with agent.astream("go", session_id="s") as stream:
        async for event in stream:
            if isinstance(event, ToolCalled):
                ran = steps.ran
                for _ in range(200):
                    await asyncio.sleep(0)
                assert steps.ran <= ran + 1
    assert stream.result.final_text == "the end"


async def test_the_result_is_refused_while_the_run_goes_on() -> None:
    agent = build(["hi"])
    stream = agent.astream("x")
    with pytest.raises(RegnexeError, match="the run has not ended"):
        _ = stream.result
    async for _ in stream:
        with pytest.raises(RegnexeError, match="the run has not ended"):
            _ = stream.result
        break
    await stream.aclose()


async def test_a_failed_run_ends_its_stream_with_the_error_in_the_last_event() -> None:
    agent = build([RuntimeError("provider down")])
    async with agent.astream("x") as stream:
        events: list[Event] = [event async for event in stream]
    assert isinstance(events[0], AgentStarted)
    assert isinstance(events[-2], LlmEnd)
    assert events[-2].message is None
    assert isinstance(events[-1], AgentCompleted)
    assert (events[-1].status, str(events[-1].error)) == (RunStatus.ERROR, "provider down")
    assert stream.result.status is RunStatus.ERROR


async def test_a_session_that_waits_for_a_decision_refuses_a_stream_too() -> None:
    from langgraph.types import interrupt

    async def ask(x: str) -> str:
        """Ask."""
        return str(interrupt(x))

    agent = build([AIMessage("", tool_calls=[tool_call("ask", x="1")])], ask)
    async with agent.astream("x", session_id="s") as stream:
        events = [event async for event in stream]
    assert [e.type.value for e in events][-2:] == ["approval_requested", "agent_completed"]
    assert stream.result.status is RunStatus.INTERRUPTED
    with pytest.raises(PendingApprovalError):
        async for _ in agent.astream("y", session_id="s"):
            pass
    with pytest.raises(PendingApprovalError):
        async with agent.astream("y", session_id="s"):
            await asyncio.sleep(0)
            for _ in range(100):
                await asyncio.sleep(0)


def test_a_synchronous_stream_can_be_read_left_and_asked_for_its_result() -> None:
    steps = Steps()
    with build(steps, steps.step) as agent:
        for event in agent.stream("go", session_id="s"):
            if isinstance(event, ToolCalled):
                break
        gc.collect()
        assert steps.ran <= 2
        with agent.stream("go", session_id="t") as stream:
            assert isinstance(next(iter(stream)), AgentStarted)
        assert stream.result.status is RunStatus.CANCELLED
        assert agent.invoke("again", session_id="s").final_text == "the end"


def test_models_still_stream_when_they_see_the_recorder() -> None:
    from langchain_core.tracers import _streaming

    from regnexe.runtime.recorder import RunRecorder, StreamingRunRecorder

    assert issubclass(StreamingRunRecorder, _streaming._StreamingCallbackHandler)
    assert not issubclass(RunRecorder, _streaming._StreamingCallbackHandler)


async def test_what_has_finished_stays_in_the_log_when_a_run_is_stopped_while_its_reader_is_slow(saver: Any) -> None:
    paid: list[str] = []
    ended = asyncio.Event()

    async def pay(what: str) -> str:
        """Pay."""
        paid.append(what)
        return f"PAID {what}"

    class UntilTheEnd(RecordingListener):
        async def on_event(self, event_type: EventType, name: str, data: Event) -> None:
            if event_type is EventType.AGENT_COMPLETED:
                ended.set()

    calls = [tool_call("pay", what="a"), tool_call("pay", what="b")]
    agent = build([AIMessage("", tool_calls=calls), "ok"], pay, listener=UntilTheEnd(), saver=saver)
    async with agent.astream("hi", session_id="s", timeout=0.5) as stream:
        async for event in stream:
            if isinstance(event, ToolCalled):
                await ended.wait()
    assert stream.result.status is RunStatus.LIMITED
    assert paid, "at least the tool whose call the reader has seen has run"
    results = [m.text for m in stream.result.messages if isinstance(m, ToolMessage)]
    assert [text for text in results if text.startswith("PAID")] == [f"PAID {what}" for what in sorted(paid)]
    assert len(results) == 2


async def test_a_stream_that_another_task_closes_gives_its_reader_the_rest_and_the_end(saver: Any) -> None:
    reached = asyncio.Event()

    async def hold() -> str:
        """Hold."""
        reached.set()
        await asyncio.Event().wait()
        return "never"

    agent = build([AIMessage("", tool_calls=[tool_call("hold")])], hold, saver=saver)
    stream = agent.astream("go", session_id="s")

    async def read() -> list[Event]:
        return [event async for event in stream]

    reader = asyncio.create_task(read())
    await reached.wait()
    await stream.aclose()
    events = await reader
    assert [event.type.value for event in events[-3:]] == ["tool_called", "tool_result", "agent_completed"]
    assert [event.sequence for event in events] == list(range(len(events)))
    assert isinstance(events[-1], AgentCompleted)
    assert events[-1].status is stream.result.status is RunStatus.CANCELLED


async def test_a_reader_that_closes_its_stream_and_reads_on_gets_the_end_once() -> None:
    agent = build(["hi"])
    stream = agent.astream("x")
    events = []
    async for event in stream:
        events.append(event)
        if isinstance(event, LlmEnd):
            await stream.aclose()
    assert [event.type.value for event in events].count("agent_completed") == 1
    assert isinstance(events[-1], AgentCompleted)
    assert events[-1].status is stream.result.status is RunStatus.CANCELLED


async def test_a_pipe_hands_over_at_once_and_holds_nobody_back_once_it_is_let_go() -> None:
    pipe = _Pipe()
    first, second, third = (pipe.put(event) for event in ("a", "b", "c"))  # type: ignore[arg-type]
    assert (first.done(), second.done(), third.done()) == (True, False, False)
    second.cancel()
    assert await pipe.take() == "a"  # type: ignore[comparison-overlap]
    assert not third.done()
    pipe.let_go()
    await third
    pipe.close()
    await pipe.put("d")  # type: ignore[arg-type]
    assert [await pipe.take() for _ in range(4)] == ["b", "c", "d", None]  # type: ignore[comparison-overlap]
