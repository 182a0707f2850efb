from __future__ import annotations

import asyncio
import copy
import threading
import time
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, Generation, LLMResult
from langchain_core.tools import tool
from langgraph.errors import GraphInterrupt
from langgraph.types import Command, interrupt

from regnexe import (
    AbstractEventListener,
    AgentCompleted,
    AgentResult,
    ApprovalRequested,
    Event,
    EventType,
    LlmDelta,
    LlmEnd,
    LlmStart,
    RegnexeAgent,
    RegnexeAgentBuilder,
    RunStatus,
    SessionKey,
    ToolCalled,
    ToolResult,
    Usage,
)
from regnexe.runtime.callback_data import MessageCopies, copied, results_in
from regnexe.runtime.dispatch import Dispatcher
from regnexe.runtime.recorder import RunRecorder
from regnexe.runtime.returned import results_kept
from regnexe.testing import RecordingListener, ScriptedChatModel, tool_call


def spoil(value: Any) -> None:
    """Change everything inside that can be changed."""
    match value:
        case dict():
            for part in value.values():
                spoil(part)
            value["spoilt"] = True
        case list():
            for part in value:
                spoil(part)
            value.append({"type": "text", "text": "spoilt"})
        case tuple():
            for part in value:
                spoil(part)
        case BaseMessage():
            for name, part in list(value):
                spoil(part)
                if isinstance(part, str) and name != "type":
                    setattr(value, name, "spoilt")


def spoil_event(event: Event) -> None:
    for value in vars(event).values():
        spoil(value)
    if isinstance(event, ApprovalRequested):
        spoil(event.pending.value)


class Spoiling(AbstractEventListener):
    async def on_event(self, event_type: EventType, name: str, data: Event) -> None:
        spoil_event(data)


class Script:
    """Calls a tool with nested arguments, then answers; keeps what it was sent."""

    def __init__(self) -> None:
        self.sent: list[list[BaseMessage]] = []

    def __call__(self, messages: list[BaseMessage]) -> AIMessage:
        self.sent.append(copy.deepcopy(messages))
        if isinstance(messages[-1], ToolMessage):
            return AIMessage([{"type": "text", "text": "done", "more": {"n": [1]}}])
        call = tool_call("look", where={"city": "Rome", "days": [1, 2]})
        return AIMessage("", tool_calls=[call], additional_kwargs={"k": {"n": [1]}}, response_metadata={"m": [1]})


def build(script: Script, seen: list[Any], *listeners: Any) -> RegnexeAgent:
    @tool(response_format="content_and_artifact")
    async def look(where: dict[str, Any]) -> tuple[list[Any], Any]:
        """Look."""
        seen.append(copy.deepcopy(where))
        return [{"type": "text", "text": "sunny", "deep": {"n": [1]}}], {"rows": [[1, 2]]}

    model = ScriptedChatModel(script)
    return RegnexeAgentBuilder().with_model(model).with_tool(look).with_event_listener(*listeners).build()


def comparable(messages: Any) -> list[Any]:
    """Return the messages without what is made up anew in each run."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without(part) for key, part in value.items() if key not in ("id", "tool_call_id")}
        return [without(part) for part in value] if isinstance(value, list) else value

    return [without(message.model_dump()) for message in messages]


async def run(*listeners: Any, stream: bool = False) -> tuple[list[Any], list[Any], AgentResult, list[Any], list[Any]]:
    script, seen = Script(), list[Any]()
    agent = build(script, seen, *listeners)
    await agent.ainvoke("Weather?", session_id="s")
    if stream:
        async with agent.astream("Again?", session_id="s") as events:
            async for event in events:
                spoil_event(event)
        result = events.result
    else:
        result = await agent.ainvoke("Again?", session_id="s")
    state = await agent.graph.aget_state({"configurable": {"thread_id": "default:default:s"}})
    log = state.values["messages"]
    return [comparable(sent) for sent in script.sent], seen, result, comparable(log), comparable(result.messages)


@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_that_is_done_to_an_event_changes_view_arguments_log_or_result(stream: bool) -> None:
    calm = await run(RecordingListener())
    spoilt = await run(Spoiling(), stream=stream)
    for before, after in zip(calm, spoilt, strict=True):
        if isinstance(before, AgentResult) and isinstance(after, AgentResult):
            assert (after.status, after.final_text, after.usage) == (before.status, before.final_text, before.usage)
            assert comparable(after.session.messages) == comparable(before.session.messages)
        else:
            assert after == before


async def test_a_pending_value_in_an_event_is_a_copy() -> None:
    async def ask(x: str) -> str:
        """Ask."""
        return str(interrupt({"options": ["yes"]}))

    model = ScriptedChatModel([AIMessage("", tool_calls=[tool_call("ask", x="1")])])
    listener = RecordingListener()
    agent = RegnexeAgentBuilder().with_model(model).with_tool(ask).with_event_listener(listener, Spoiling()).build()
    result = await agent.ainvoke("go", session_id="s")
    assert result.status is RunStatus.INTERRUPTED
    assert result.pending[0].value == {"options": ["yes"]}
    assert result.session.pending[0].value == {"options": ["yes"]}


class Uncopyable:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not to be compared")

    __hash__ = None  # type: ignore[assignment]


def test_what_cannot_be_copied_is_shared_and_what_lies_around_it_is_copied() -> None:
    odd = Uncopyable()
    value = {"odd": odd, "list": [odd, {"n": [1]}], "tuple": (odd, [1])}
    made = copied(value)
    assert made["odd"] is made["list"][0] is odd
    spoil(made)
    assert value == {"odd": odd, "list": [odd, {"n": [1]}], "tuple": (odd, [1])}
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    again = copied(cycle)
    assert again is not cycle
    assert again["self"] is again


def test_a_copy_is_made_again_only_when_message_or_copy_has_changed() -> None:
    copies = MessageCopies()
    message = AIMessage("a", additional_kwargs={"n": [1]}, extra=[1])
    holder = ToolMessage("x", tool_call_id="1", artifact=Uncopyable(), response_metadata={"odd": 1})
    first, held = copies.of([message, holder])
    assert first == message
    assert first is not message
    assert copies.of([message])[0] is first
    assert copies.of([holder])[0] is held, "an artifact is not compared"
    message.additional_kwargs["n"].append(2)
    second = copies.of([message])[0]
    assert (first.additional_kwargs["n"], second.additional_kwargs["n"]) == ([1], [1, 2])
    spoil(second)
    assert copies.of([message])[0] == message
    holder.response_metadata["odd"] = Uncopyable()
    assert copies.of([holder])[0].response_metadata == holder.response_metadata


def test_a_view_of_forty_messages_costs_next_to_nothing_to_show_again() -> None:
    message: dict[str, Any] = {"response_metadata": {"finish_reason": "stop", "token_usage": {"a": 1, "b": {"c": 1}}}}
    view = [
        *(HumanMessage("question", id=str(number)) for number in range(20)),
        *(AIMessage("", tool_calls=[tool_call("x", a=[1, 2])], **message) for _ in range(20)),
    ]
    copies = MessageCopies()
    copies.of(view)

    def once() -> float:
        begun = time.perf_counter()
        copies.of(view)
        return time.perf_counter() - begun

    assert min(once() for _ in range(50)) < 0.0002


def recorder(listener: Any) -> tuple[RunRecorder, Dispatcher]:
    dispatcher = Dispatcher([listener])
    return RunRecorder(key=SessionKey("a", "u", "s"), run_id="r", dispatcher=dispatcher), dispatcher


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def with_usage(usage: Any) -> AIMessage:
    message = AIMessage("hi")
    message.usage_metadata = usage
    return message


USAGES: list[tuple[Any, Usage]] = [
    ({"input_tokens": 5}, Usage(input_tokens=5)),
    ({"input_tokens": 5, "output_tokens": None, "total_tokens": None}, Usage(input_tokens=5)),
    (
        {"input_tokens": 5, "output_tokens": 2, "input_token_details": None},
        Usage(input_tokens=5, output_tokens=2),
    ),
    (
        {"input_tokens": 5, "output_tokens": 2, "input_token_details": {"cache_read": None}},
        Usage(input_tokens=5, output_tokens=2),
    ),
    ({"input_tokens": "5", "output_tokens": float("nan"), "input_token_details": []}, Usage()),
    ({"input_tokens": -1, "output_tokens": 2.0, "input_token_details": {"cache_read": True}}, Usage(output_tokens=2)),
    ([], Usage()),
    ("none", Usage()),
]


@pytest.mark.parametrize(("reported", "counted"), USAGES, ids=str)
async def test_an_incomplete_usage_loses_neither_the_event_nor_what_was_counted(reported: Any, counted: Usage) -> None:
    listener = RecordingListener()
    model = ScriptedChatModel(lambda messages: with_usage(reported))
    result = await RegnexeAgentBuilder().with_model(model).with_event_listener(listener).build().ainvoke("hi")
    assert [end.usage for end in listener.of(LlmEnd)] == [counted]
    assert result.usage == counted + Usage(model_calls=1)


ODD_ANSWERS = [
    LLMResult(generations=[]),
    LLMResult(generations=[[]]),
    LLMResult(generations=[[], []]),
    LLMResult(generations=[[Generation(text="no message")]]),
    LLMResult(generations=[[ChatGeneration(message=HumanMessage("not the model's"))]]),
]


@pytest.mark.parametrize("answer", ODD_ANSWERS, ids=lambda answer: str(answer.generations))
async def test_an_odd_answer_of_a_model_still_ends_its_call(answer: LLMResult) -> None:
    listener = RecordingListener()
    handler, dispatcher = recorder(listener)
    call = uuid.uuid4()
    unreadable = SystemMessage("x").model_copy(update={"content": None})
    odd: Any = {"serialized": None, "metadata": {"lc_source": 7, "ls_model_name": 8}, "invocation_params": "none"}
    await handler.on_chat_model_start(messages=[[unreadable, HumanMessage("hi")]], run_id=call, **odd)
    await handler.on_llm_end(answer, run_id=call)
    await dispatcher.drain()
    start, end = listener.events
    assert isinstance(start, LlmStart)
    assert (start.name, start.purpose, start.system_prompt, len(start.messages)) == ("8", "7", "", 1)
    assert isinstance(end, LlmEnd)
    assert (end.message, end.usage) == (None, Usage())


async def test_an_odd_piece_of_an_answer_raises_nothing() -> None:
    told: list[Event] = []

    async def stream(event: Event) -> None:
        told.append(event)

    handler = RunRecorder(key=SessionKey("a", "u", "s"), run_id="r", dispatcher=Dispatcher([]), stream=stream)
    call = uuid.uuid4()
    await handler.on_chat_model_start({}, [], run_id=call)
    for update in ({"content": None}, {"content": [7]}, {"content": "x", "additional_kwargs": None}):
        message = AIMessageChunk(content="").model_copy(update=update)
        chunk = ChatGenerationChunk.model_construct(message=message, text="")
        await handler.on_llm_new_token("", chunk=chunk, run_id=call)
    await handler.on_llm_new_token("", chunk=None, run_id=call)
    assert [event.text for event in told if isinstance(event, LlmDelta)] == ["x"]


ODD_OUTPUTS: list[tuple[Any, str]] = [
    (Unspeakable(), "<Unspeakable>"),
    (ToolMessage("x", tool_call_id="1").model_copy(update={"content": None}), ""),
    (Command(update={"messages": ToolMessage("alone", tool_call_id="1")}), "alone"),
    (Command(update={"messages": 7}), ""),
    (Command(update={"messages": None}), ""),
    (
        [ToolMessage("one", tool_call_id="1"), Command(update={"messages": [ToolMessage("two", tool_call_id="2")]})],
        "one\ntwo",
    ),
    (None, "None"),
    ([1], "[1]"),
]


@pytest.mark.parametrize(("output", "content"), ODD_OUTPUTS, ids=[str(n) for n in range(len(ODD_OUTPUTS))])
async def test_an_odd_tool_and_an_odd_result_of_one_are_told(output: Any, content: str) -> None:
    listener = RecordingListener()
    handler, dispatcher = recorder(listener)
    call = uuid.uuid4()
    odd: Any = {"serialized": None, "inputs": ["not", "a", "dict"], "name": Unspeakable(), "tool_call_id": 7}
    await handler.on_tool_start(input_str="", run_id=call, **odd)
    await handler.on_tool_end(output, run_id=call)
    await dispatcher.drain()
    called, result = listener.events
    assert isinstance(called, ToolCalled)
    assert (called.name, called.arguments, called.tool_call_id) == ("<Unspeakable>", {}, "7")
    assert isinstance(result, ToolResult)
    assert (result.content, result.error) == (content, None)


async def test_an_exception_that_has_no_text_is_told() -> None:
    async def fail() -> str:
        """Fail."""
        raise Unspeakable

    listener = RecordingListener()
    handler, dispatcher = recorder(listener)
    call = uuid.uuid4()
    await handler.on_tool_start({"name": "fail"}, "", run_id=call)
    await handler.on_tool_error(Unspeakable(), run_id=call)
    await dispatcher.drain()
    assert listener.of(ToolResult)[0].content == "Unspeakable: <Unspeakable>"


async def test_what_is_told_of_a_call_that_cannot_be_made() -> None:
    async def look(days: int) -> str:
        """Look."""
        return "sunny"

    calls = [tool_call("nowhere", x=1), tool_call("look", days="many")]
    model = ScriptedChatModel([AIMessage("", tool_calls=calls), "done"])
    listener = RecordingListener()
    agent = RegnexeAgentBuilder().with_model(model).with_tool(look).with_event_listener(listener).build()
    await agent.ainvoke("hi")
    assert [(event.name, event.tool_call_id) for event in listener.of(ToolCalled)] == [("look", calls[1]["id"])]
    assert [type(event.error).__name__ for event in listener.of(ToolResult)] == ["ValidationError"]
    read = {m.tool_call_id: m.text for m in listener.of(LlmStart)[1].messages if isinstance(m, ToolMessage)}
    assert "nowhere is not a valid tool" in read[str(calls[0]["id"])]
    assert "days" in read[str(calls[1]["id"])]
    await asyncio.sleep(0)


def result_for(status: RunStatus) -> Any:
    return SimpleNamespace(status=status, final_text="", usage=Usage(), error=None, pending=[])


async def test_events_from_a_thread_are_numbered_in_the_order_in_which_they_are_delivered() -> None:
    listener = RecordingListener()
    handler, dispatcher = recorder(listener)
    threads, here = uuid.uuid4(), uuid.uuid4()

    def in_a_thread() -> None:
        asyncio.run(handler.on_tool_start({"name": "thread"}, "", run_id=threads))
        asyncio.run(handler.on_tool_end("x", run_id=threads))

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()  # blocks the loop: both wait for their delivery
    await handler.on_tool_start({"name": "loop"}, "", run_id=here)
    await handler.on_tool_end("x", run_id=here)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await dispatcher.drain()
    assert [event.sequence for event in listener.events] == [0, 1, 2, 3]
    assert [event.name for event in listener.events] == ["loop", "loop", "thread", "thread"]
    assert [event.time for event in listener.events] == sorted(event.time for event in listener.events)


async def test_nothing_is_told_after_the_end_of_the_run() -> None:
    listener = RecordingListener()
    handler, dispatcher = recorder(listener)
    call = uuid.uuid4()
    thread = threading.Thread(target=lambda: asyncio.run(handler.on_tool_start({"name": "late"}, "", run_id=call)))
    thread.start()
    thread.join()
    await handler.completed("agent", result_for(RunStatus.CANCELLED))
    await handler.on_chat_model_start({}, [], run_id=uuid.uuid4())
    await handler.on_tool_end("x", run_id=call)
    await asyncio.sleep(0)
    await dispatcher.drain()
    assert [event.type for event in listener.events] == [EventType.AGENT_COMPLETED]


async def test_a_tool_that_outlives_its_loop_tells_nothing_and_raises_nothing() -> None:
    def made() -> RunRecorder:
        async def make() -> RunRecorder:
            return recorder(RecordingListener())[0]

        return asyncio.run(make())

    handler = await asyncio.to_thread(made)
    await handler.on_tool_start({"name": "late"}, "", run_id=uuid.uuid4())


async def test_what_a_run_leaves_open_is_ended_inside_out_but_not_what_waits_for_approval() -> None:
    listener = RecordingListener()
    handler, dispatcher = recorder(listener)
    outer, asking, model = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
    await handler.on_tool_start({"name": "outer"}, "", run_id=outer, tool_call_id="1")
    await handler.on_tool_start({"name": "asking"}, "", run_id=asking)
    await handler.on_tool_error(GraphInterrupt(()), run_id=asking)
    await handler.on_chat_model_start({}, [], run_id=model)
    await handler.completed("agent", result_for(RunStatus.CANCELLED))
    await dispatcher.drain()
    model_end, tool_end, last = listener.events[3:]
    assert isinstance(model_end, LlmEnd)
    assert (model_end.call_id, model_end.message) == (str(model), None)
    assert isinstance(model_end.error, asyncio.CancelledError)
    assert isinstance(tool_end, ToolResult)
    assert (tool_end.name, tool_end.tool_call_id) == ("outer", "1")
    assert isinstance(tool_end.error, asyncio.CancelledError)
    assert tool_end.content == "CancelledError: the run ended before this call did"
    assert isinstance(last, AgentCompleted)


async def test_a_run_that_is_cancelled_ends_the_tool_and_the_model_that_it_stops() -> None:
    reached = asyncio.Event()

    async def hold() -> str:
        """Hold."""
        reached.set()
        await asyncio.Event().wait()
        return "never"

    listener = RecordingListener()
    model = ScriptedChatModel([AIMessage("", tool_calls=[tool_call("hold")])])
    agent = RegnexeAgentBuilder().with_model(model).with_tool(hold).with_event_listener(listener).build()
    task = asyncio.create_task(agent.ainvoke("go"))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await agent.aclose()
    assert [event.tool for event in listener.of(ToolCalled)] == [event.tool for event in listener.of(ToolResult)]
    assert isinstance(listener.of(ToolResult)[0].error, asyncio.CancelledError)
    assert isinstance(listener.events[-1], AgentCompleted)


def test_the_results_in_what_a_tool_gives_are_found_and_carry_no_id_of_their_own() -> None:
    one, two = ToolMessage("one", tool_call_id="1", id="taken"), ToolMessage("two", tool_call_id="2")
    command: Command[Any] = Command(update={"messages": [HumanMessage("x"), two]})
    assert [(m.text, m.id) for m in results_in([one, command, "text"])] == [("one", None), ("two", None)]
    assert [m.text for m in results_in(one)] == ["one"]
    assert results_in("text") == results_in(Command(update=7)) == []


async def test_a_result_is_kept_before_it_is_told() -> None:
    kept_when_told: list[list[str]] = []

    async def stream(event: Event) -> None:
        kept_when_told.append(list(kept))

    with results_kept() as kept:
        handler = RunRecorder(key=SessionKey("a", "u", "s"), run_id="r", dispatcher=Dispatcher([]), stream=stream)
        call = uuid.uuid4()
        await handler.on_tool_start({"name": "pay"}, "", run_id=call)
        await handler.on_tool_end(ToolMessage("PAID", tool_call_id="1"), run_id=call)
    assert kept_when_told == [[], ["1"]]


@pytest.mark.parametrize("error", [GeneratorExit(), pytest.fail.Exception("no"), SystemExit(1)], ids=repr)
async def test_a_listener_that_raises_what_is_no_exception_is_logged_and_gets_the_next_event(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    class Raising(RecordingListener):
        async def on_event(self, event_type: EventType, name: str, data: Event) -> None:
            await super().on_event(event_type, name, data)
            raise error

        def should_handle(self, event_type: EventType) -> bool:
            if event_type is EventType.LLM_START:
                raise error
            return True

    listener = Raising()
    result = (
        await RegnexeAgentBuilder()
        .with_model(ScriptedChatModel(["hi"]))
        .with_event_listener(listener)
        .build()
        .ainvoke("x")
    )
    assert result.final_text == "hi"
    assert [event.type.value for event in listener.events] == ["agent_started", "llm_end", "agent_completed"]
    assert caplog.text.count("the run goes on") == 3
    assert caplog.text.count("should_handle") >= 1


async def test_a_run_that_is_stopped_while_it_tells_its_end_tells_all_of_it() -> None:
    told: list[Event] = []
    held = asyncio.Event()

    async def stream(event: Event) -> None:
        told.append(event)
        if isinstance(event, LlmEnd):
            held.set()
            await asyncio.Event().wait()

    handler = RunRecorder(key=SessionKey("a", "u", "s"), run_id="r", dispatcher=Dispatcher([]), stream=stream)
    await handler.on_chat_model_start({}, [], run_id=uuid.uuid4())
    task = asyncio.create_task(handler.completed("agent", result_for(RunStatus.CANCELLED)))
    await held.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [event.type.value for event in told] == ["llm_start", "llm_end", "agent_completed"]
