from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata

from regnexe.testing import InvalidHistory, ScriptedChatModel, ScriptExhausted, tool_call

HELLO = [HumanMessage("hello")]


def get_weather(city: str) -> str:
    """Get the weather for a city."""
    return f"{city}: sunny"


def merged(model: ScriptedChatModel) -> AIMessageChunk:
    chunks = list(model.stream(HELLO))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    return whole


def test_replies_come_in_order_and_then_the_script_is_exhausted() -> None:
    model = ScriptedChatModel(["one", AIMessage("two")])
    assert [model.invoke(HELLO).text, model.invoke(HELLO).text] == ["one", "two"]
    with pytest.raises(ScriptExhausted, match=r"the script has 2 replies.*'hello'"):
        model.invoke(HELLO)


def test_an_exhausted_script_fails_a_test_as_an_assertion_does() -> None:
    assert issubclass(ScriptExhausted, AssertionError)


def test_an_exception_in_the_script_is_raised_and_the_next_reply_follows() -> None:
    model = ScriptedChatModel([ConnectionError("down"), "up"])
    with pytest.raises(ConnectionError, match="down"):
        model.invoke(HELLO)
    assert model.invoke(HELLO).text == "up"


def test_a_function_sees_the_messages_of_each_request() -> None:
    model = ScriptedChatModel(lambda messages: f"you said {messages[-1].text}")
    assert model.invoke(HELLO).text == "you said hello"


async def test_an_async_function_serves_async_calls() -> None:
    async def reply(messages: list[BaseMessage]) -> str:
        await asyncio.sleep(0)
        return str(len(messages))

    model = ScriptedChatModel(reply)
    assert (await model.ainvoke(HELLO)).text == "1"
    assert "".join([chunk.text async for chunk in model.astream(HELLO)]) == "1"
    with pytest.raises(TypeError, match="asynchronously"):
        model.invoke(HELLO)


@pytest.mark.parametrize("replies", ["hello", 5, None])
def test_replies_that_are_no_script_are_refused(replies: Any) -> None:
    with pytest.raises(TypeError, match="replies must be"):
        ScriptedChatModel(replies)


def test_a_reply_of_another_type_is_refused() -> None:
    replies: list[Any] = [HumanMessage("no")]
    with pytest.raises(TypeError, match="must be a str, an AIMessage or an exception"):
        ScriptedChatModel(replies).invoke(HELLO)


def test_the_scripts_own_messages_are_never_changed() -> None:
    scripted = AIMessage("same")
    model = ScriptedChatModel([scripted, scripted])
    first, second = model.invoke(HELLO), model.invoke(HELLO)
    assert scripted.id is None and scripted.usage_metadata is None
    assert first is not second and first.id != second.id


def test_an_id_that_the_script_sets_is_kept() -> None:
    model = ScriptedChatModel([AIMessage("a", id="fixed"), AIMessage("a", id="fixed")])
    assert model.invoke(HELLO).id == "fixed"
    assert merged(model).id == "fixed"


def test_every_request_is_recorded_with_its_tools_and_arguments() -> None:
    model = ScriptedChatModel(["a", "b"])
    model.invoke(HELLO)
    model.bind_tools([get_weather], tool_choice="any").invoke([SystemMessage("be brief"), *HELLO], stop=["."])
    plain, bound = model.requests
    assert plain.tool_names == () and [message.text for message in plain.messages] == ["hello"]
    assert bound.tool_names == ("get_weather",) and bound.kwargs == {"tool_choice": "any", "stop": ["."]}
    assert bound.messages[0].text == "be brief"


def test_a_recorded_message_does_not_follow_later_changes() -> None:
    model = ScriptedChatModel(["a"])
    message = HumanMessage("before")
    model.invoke([message])
    message.content = "after"
    assert model.requests[0].messages[0].text == "before"


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda model: model.model_copy()])
def test_copies_share_the_script_and_the_recording(make: Callable[[ScriptedChatModel], ScriptedChatModel]) -> None:
    model = ScriptedChatModel(["one", "two"])
    assert make(model).invoke(HELLO).text == "one"
    assert model.invoke(HELLO).text == "two"
    assert len(model.requests) == 2


def test_threads_never_get_the_same_reply() -> None:
    model = ScriptedChatModel([str(number) for number in range(40)])
    said: list[str] = []
    threads = [
        threading.Thread(target=lambda: said.extend(model.invoke(HELLO).text for _ in range(10))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said, key=int) == [str(number) for number in range(40)]
    assert len(model.requests) == 40


CALL = tool_call("get_weather", city="Oslo")
INVALID: dict[str, tuple[list[BaseMessage], str]] = {
    "no messages": ([], "messages is empty"),
    "an unanswered call": ([*HELLO, AIMessage("", tool_calls=[CALL]), *HELLO], "before the result of tool call"),
    "an orphan result": ([*HELLO, ToolMessage("sunny", tool_call_id="x")], "which no call next to it asks for"),
    "a late system message": ([*HELLO, SystemMessage("be brief"), *HELLO], "does not come first"),
    "an empty answer": ([*HELLO, AIMessage(""), *HELLO], "neither content nor tool calls"),
    "a bad tool name": (
        [
            *HELLO,
            AIMessage("", tool_calls=[{"name": "get weather", "args": {}, "id": "a"}]),
            ToolMessage("sunny", tool_call_id="a"),
        ],
        "'get weather', which does not match",
    ),
}


@pytest.mark.parametrize(("messages", "fault"), INVALID.values(), ids=INVALID.keys())
def test_a_request_that_a_provider_would_refuse_is_refused(messages: list[BaseMessage], fault: str) -> None:
    model = ScriptedChatModel(["reply"])
    with pytest.raises(InvalidHistory, match=r"^Error code: 400") as caught:
        model.invoke(messages)
    assert fault in str(caught.value) and len(caught.value.faults) == 1
    assert len(model.requests) == 1
    assert model.invoke(HELLO).text == "reply", "a refused request uses up no reply"


def test_a_bound_tool_with_a_bad_name_is_refused() -> None:
    bad = {"type": "function", "function": {"name": "get.weather", "description": "", "parameters": {}}}
    with pytest.raises(InvalidHistory, match=r"get\.weather"):
        ScriptedChatModel(["reply"]).bind_tools([bad]).invoke(HELLO)


def test_several_faults_are_all_listed() -> None:
    model = ScriptedChatModel(["reply"])
    with pytest.raises(InvalidHistory) as caught:
        model.invoke([*HELLO, AIMessage(""), ToolMessage("sunny", tool_call_id="x")])
    assert len(caught.value.faults) == 2


@pytest.mark.parametrize("messages", [messages for messages, _ in INVALID.values() if messages])
def test_without_strict_any_request_is_answered(messages: list[BaseMessage]) -> None:
    assert ScriptedChatModel(["reply"], strict=False).invoke(messages).text == "reply"


def test_usage_is_always_present_and_the_scripts_own_figures_are_kept() -> None:
    figures: UsageMetadata = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    model = ScriptedChatModel(["estimated", AIMessage("own", usage_metadata=figures)])
    estimated = model.invoke(HELLO).usage_metadata
    assert estimated == {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5}
    assert model.invoke(HELLO).usage_metadata == figures


@pytest.mark.parametrize(
    "reply",
    [
        "one two  three\n four ",
        "",
        AIMessage("", tool_calls=[CALL, tool_call("get_weather", city="Rome")]),
        AIMessage("looking", tool_calls=[CALL], additional_kwargs={"reasoning_content": "hm"}),
        AIMessage([{"type": "text", "text": "in blocks"}]),
        AIMessage("own figures", usage_metadata={"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}),
    ],
)
@pytest.mark.parametrize("stream_words", [True, False])
def test_streaming_gives_the_same_message_as_invoke(reply: str | AIMessage, stream_words: bool) -> None:
    model = ScriptedChatModel([reply, reply], stream_words=stream_words)
    streamed, invoked = merged(model), model.invoke(HELLO)
    for part in ("text", "content_blocks", "tool_calls", "usage_metadata", "response_metadata", "additional_kwargs"):
        assert getattr(streamed, part) == getattr(invoked, part), part


async def test_words_are_streamed_one_by_one_when_asked_for() -> None:
    words = ScriptedChatModel(["one two three"] * 2, stream_words=True)
    assert [chunk.text for chunk in words.stream(HELLO) if chunk.text] == ["one", " two", " three"]
    assert [chunk.text async for chunk in words.astream(HELLO) if chunk.text] == ["one", " two", " three"]
    at_once = ScriptedChatModel(["one two three"])
    assert [chunk.text for chunk in at_once.stream(HELLO) if chunk.text] == ["one two three"]


async def test_tool_calls_are_streamed_in_parts() -> None:
    model = ScriptedChatModel([AIMessage("", tool_calls=[CALL])])
    parts = [chunk.tool_call_chunks async for chunk in model.astream(HELLO) if chunk.tool_call_chunks]
    assert [part[0]["name"] for part in parts] == ["get_weather", None]
    assert "".join(part[0]["args"] or "" for part in parts) == '{"city": "Oslo"}'


def test_tool_call_makes_a_fresh_id_and_takes_any_argument_name() -> None:
    first, second = tool_call("greet", name="Ann"), tool_call("greet", name="Ann")
    assert first["args"] == {"name": "Ann"} and first["type"] == "tool_call"
    assert first["id"] and first["id"] != second["id"]


async def test_it_drives_a_deep_agent() -> None:
    model = ScriptedChatModel([AIMessage("", tool_calls=[CALL]), "It is sunny in Oslo."])
    agent: Any = create_deep_agent(model=model, tools=[get_weather])
    result = await agent.ainvoke({"messages": HELLO})
    assert [message.type for message in result["messages"]] == ["human", "ai", "tool", "ai"]
    assert "get_weather" in model.requests[0].tool_names
    assert model.requests[1].messages[-1].text == "Oslo: sunny"
