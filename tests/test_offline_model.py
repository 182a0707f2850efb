from __future__ import annotations

import datetime
import time
from typing import Any, Literal

import pytest
from deepagents import SubAgent, create_deep_agent
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents.middleware.summarization import DEFAULT_SUMMARY_PROMPT
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    get_buffer_string,
)
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel, Field

from regnexe.messages import history_faults
from regnexe.models.offline import OfflineChatModel

NOTICE = "(offline demo model: a scripted stand-in, not a language model)"
TURN_1 = "Check today's weather in Beijing and tell me if it's good for outdoor running."
TURN_2 = (
    "Based on the weather you just looked up, what should I keep in mind while running? "
    "No need to check the weather again."
)


@tool
def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius", days: int = 1) -> str:
    """Get today's weather for a city."""
    return f"{city}: sunny, 22 C, excellent air quality."


@tool
def get_time(city: str) -> str:
    """Return the local time in a city."""
    return f"It is noon in {city}"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def web_search(query: str, limit: int = 5) -> str:
    """Search the web."""
    return "no hits"


@tool
def send_email(to: str, subject: str, body: str) -> str:
    """Send an email."""
    return "sent"


@tool
def book_flight(origin: str, destination: str, date: datetime.date) -> str:
    """Book a flight."""
    return "booked"


@tool
def cancel_order(order_id: str, refund: bool = False) -> str:
    """Cancel an order."""
    return "cancelled"


@tool
def average(values: list[float]) -> float:
    """Return the average of some numbers."""
    return sum(values) / len(values)


@tool
def calculate(expression: str) -> str:
    """Evaluate an arithmetic expression."""
    return expression


@tool
def save_fact(fact: str) -> str:
    """Remember a fact about the user."""
    return "saved"


TOOLS = [
    get_weather,
    get_time,
    add,
    web_search,
    send_email,
    book_flight,
    cancel_order,
    average,
    calculate,
    save_fact,
]


def planned(request: str, *, tools: list[BaseTool] = TOOLS, earlier: list[BaseMessage] | None = None) -> list[Any]:
    reply = OfflineChatModel().bind_tools(tools).invoke([*(earlier or []), HumanMessage(request)])
    return [(call["name"], call["args"]) for call in reply.tool_calls]


def said(*messages: BaseMessage | str, tools: list[BaseTool] = TOOLS) -> str:
    view = [HumanMessage(one) if isinstance(one, str) else one for one in messages]
    return OfflineChatModel().bind_tools(tools).invoke(view).text


def looked_up(city: str = "Beijing", call_id: str = "c1") -> list[BaseMessage]:
    return [
        HumanMessage(f"Check the weather in {city}."),
        AIMessage("", tool_calls=[{"name": "get_weather", "args": {"city": city}, "id": call_id}]),
        ToolMessage(f"{city}: sunny, 22 C", tool_call_id=call_id, name="get_weather"),
        AIMessage(f"From get_weather: {city}: sunny, 22 C {NOTICE}"),
    ]


# Choosing tools and filling arguments


@pytest.mark.parametrize(
    ("request_text", "calls"),
    [
        (TURN_1, [("get_weather", {"city": "Beijing"})]),
        ("what's the weather in oslo?", [("get_weather", {"city": "oslo"})]),
        ("New York weather?", [("get_weather", {"city": "New York"})]),
        ("I live in Paris. What's the weather?", [("get_weather", {"city": "Paris"})]),
        ("北京的天气", [("get_weather", {"city": "北京"})]),
        ("查一下上海今天的天气，适合跑步吗？", [("get_weather", {"city": "上海"})]),
        ("北京和上海今天天气怎么样？", [("get_weather", {"city": "北京"}), ("get_weather", {"city": "上海"})]),
        (
            "weather in Beijing and Shanghai",
            [("get_weather", {"city": "Beijing"}), ("get_weather", {"city": "Shanghai"})],
        ),
        (
            "weather in Beijing and the time in Tokyo",
            [("get_weather", {"city": "Beijing"}), ("get_time", {"city": "Tokyo"})],
        ),
        (
            "The weather in Rio de Janeiro in fahrenheit for 3 days",
            [("get_weather", {"city": "Rio de Janeiro", "unit": "fahrenheit", "days": 3})],
        ),
        ("Use get_weather for Lima", [("get_weather", {"city": "Lima"})]),
        ("add 2 and 3", [("add", {"a": 2, "b": 3})]),
        ("Please add 2 and 2", [("add", {"a": 2, "b": 2})]),
        ("The average of 1, 2 and 3.5", [("average", {"values": [1, 2, 3.5]})]),
        ("calculate 3*(4+5)", [("calculate", {"expression": "3*(4+5)"})]),
        ("Search for LangGraph and deepagents news", [("web_search", {"query": "LangGraph and deepagents news"})]),
        ('search the web for "agent memory"', [("web_search", {"query": "agent memory"})]),
        (
            'Send an email to ann@example.com with subject "Hi" and body "See you at 5"',
            [("send_email", {"to": "ann@example.com", "subject": "Hi", "body": "See you at 5"})],
        ),
        (
            "Book a flight from Paris to Rome on 2026-01-02",
            [("book_flight", {"origin": "Paris", "destination": "Rome", "date": "2026-01-02"})],
        ),
        ("Cancel order A-1234 with refund", [("cancel_order", {"order_id": "A-1234", "refund": True})]),
        ("Remember that my dog is called Rex", [("save_fact", {"fact": "my dog is called Rex"})]),
        ("Don't forget to check the weather in Oslo", [("get_weather", {"city": "Oslo"})]),
        ("I don't know the weather in Oslo", [("get_weather", {"city": "Oslo"})]),
        ("Don't call get_weather, just tell me the time in Oslo", [("get_time", {"city": "Oslo"})]),
    ],
)
def test_the_tools_a_request_asks_for_are_called(request_text: str, calls: list[Any]) -> None:
    assert planned(request_text) == calls


@pytest.mark.parametrize(
    "request_text",
    [
        "Hello, how are you today?",
        "My name is Ann.",
        "What is my name?",
        "Tell me a joke",
        "I like running in the morning",
        "Thanks!",
        "What should I wear?",
        "你好",
        "我叫什么名字？",
        "",
        "   ",
        TURN_2,
        "No need to check the weather in Oslo again.",
        "Answer without calling any tools: what is the weather in Oslo?",
        "Don't use get_weather. Is Oslo nice?",
        "根据刚才的天气，跑步要注意什么？不用再查。",
        "不用再查北京的天气",
    ],
)
def test_no_tool_is_called_when_none_is_asked_for_or_the_request_refuses_it(request_text: str) -> None:
    assert planned(request_text) == []


def test_a_tool_whose_required_arguments_are_not_said_is_not_called() -> None:
    assert planned("What's the weather?") == []
    assert planned("What was the sum?") == []


def test_what_about_asks_for_the_tool_called_before_with_another_name() -> None:
    assert planned("What about Tokyo?", earlier=looked_up()) == [("get_weather", {"city": "Tokyo"})]
    assert planned("那上海呢？", earlier=looked_up()) == [("get_weather", {"city": "上海"})]
    assert planned("What about Tokyo?") == []


class Filters(BaseModel):
    """Filters of a search."""

    topic: str
    kinds: list[Literal["note", "page"]] = Field(min_length=1)
    newest: datetime.datetime
    parent: Filters | None = None


class Everything(BaseModel):
    """Everything at once."""

    title: str = Field(min_length=3, max_length=12)
    count: int = Field(ge=5, le=9)
    ratio: float = Field(gt=0, lt=1)
    day: datetime.date
    mail: str = Field(pattern=r".")
    mood: Literal["calm", "loud"]
    either: int | str
    maybe: str | None
    flag: bool
    filters: Filters
    pairs: dict[str, int]


def test_forced_arguments_satisfy_a_rich_schema_whatever_the_text() -> None:
    model = OfflineChatModel().bind_tools([Everything], tool_choice="Everything")
    for text in ("", "Ann is loud on 2026-02-03, 7 of 100", "安静"):
        args = model.invoke([HumanMessage(text)]).tool_calls[0]["args"]
        Everything.model_validate(args)


@pytest.mark.parametrize(
    "choice",
    ["any", "required", "get_time", True, {"type": "function", "function": {"name": "get_time"}}],
)
def test_a_forced_tool_is_called_once_and_then_answered(choice: Any) -> None:
    model = OfflineChatModel().bind_tools([get_time], tool_choice=choice)
    request = HumanMessage("Say something about Oslo")
    reply = model.invoke([request])
    assert [(call["name"], call["args"]) for call in reply.tool_calls] == [("get_time", {"city": "Oslo"})]
    result = ToolMessage("noon", tool_call_id=reply.tool_calls[0]["id"] or "")
    assert "noon" in model.invoke([request, reply, result]).text


def test_no_tool_is_called_when_the_choice_is_none() -> None:
    reply = OfflineChatModel().bind_tools(TOOLS, tool_choice="none").invoke([HumanMessage(TURN_1)])
    assert reply.tool_calls == [] and reply.text


def test_structured_output_is_filled_from_the_text() -> None:
    class Report(BaseModel):
        """A weather report."""

        city: str
        temperature: float
        mood: Literal["sunny", "rainy"]

    report = OfflineChatModel().with_structured_output(Report).invoke("The weather of Oslo is rainy at 4 degrees")
    assert report == Report(city="Oslo", temperature=4, mood="rainy")


# Built-in tools of deepagents


def deep_agent(**options: Any) -> Any:
    researcher: SubAgent = {
        "name": "researcher",
        "description": "Looks things up",
        "system_prompt": "x",
        "tools": [get_weather],
    }
    return create_deep_agent(
        model=OfflineChatModel(), tools=[get_weather], subagents=[researcher], checkpointer=InMemorySaver(), **options
    )


def turn(agent: Any, text: str, thread: str = "t") -> list[BaseMessage]:
    config = {"configurable": {"thread_id": thread}}
    before = len(agent.get_state(config).values.get("messages", []))
    result = agent.invoke({"messages": [HumanMessage(text)]}, config)
    assert history_faults(result["messages"]) == []
    new: list[BaseMessage] = result["messages"][before:]
    return new


def calls_in(messages: list[BaseMessage]) -> list[Any]:
    return [(call["name"], call["args"]) for one in messages if isinstance(one, AIMessage) for call in one.tool_calls]


@pytest.mark.parametrize(
    "text",
    [
        "Hello!",
        "What is the capital of France?",
        "I am writing a novel about searching for lost things.",
        "Plan my week.",
        "Tell me about the task of reading.",
        "List three colours",
    ],
)
def test_built_in_tools_are_left_alone_by_ordinary_requests(text: str) -> None:
    assert calls_in(turn(deep_agent(), text)) == []


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (
            "Write a file notes.md with the text hello world",
            ("write_file", {"file_path": "notes.md", "content": "hello world"}),
        ),
        ("Please read notes.md", ("read_file", {"file_path": "notes.md"})),
        ("list the files", ("ls", {"path": "/"})),
        (
            "Ask the researcher to check the weather in Oslo.",
            ("task", {"description": "check the weather in Oslo.", "subagent_type": "researcher"}),
        ),
        (
            "Delegate to researcher: weather in Rome",
            ("task", {"description": "weather in Rome", "subagent_type": "researcher"}),
        ),
    ],
)
def test_built_in_tools_are_called_when_spelled_out(text: str, call: Any) -> None:
    assert calls_in(turn(deep_agent(), text)) == [call]


def test_a_subagents_answer_comes_back_with_one_notice() -> None:
    answer = turn(deep_agent(), "Ask the researcher to check the weather in Oslo.")[-1].text
    assert "Oslo: sunny" in answer and answer.count(NOTICE) == 1


# Whole conversations


def test_the_second_turn_answers_from_the_first_without_calling_the_tool_again() -> None:
    agent = deep_agent()
    first = turn(agent, TURN_1)
    assert [message.type for message in first] == ["human", "ai", "tool", "ai"]
    assert calls_in(first) == [("get_weather", {"city": "Beijing"})]
    assert "Beijing: sunny, 22 C, excellent air quality." in first[-1].text
    second = turn(agent, TURN_2)
    assert [message.type for message in second] == ["human", "ai"]
    assert "Beijing: sunny, 22 C, excellent air quality." in second[-1].text


def test_another_thread_knows_nothing_of_it() -> None:
    agent = deep_agent()
    turn(agent, TURN_1, "a")
    answer = turn(agent, TURN_2, "b")[-1].text
    assert "sunny" not in answer and "nothing about that in this conversation" in answer


def test_structured_answers_end_an_agent_run() -> None:
    class Report(BaseModel):
        """A report."""

        city: str
        temperature: float

    agent = deep_agent(response_format=Report)
    result = agent.invoke({"messages": [HumanMessage(TURN_1)]}, {"configurable": {"thread_id": "t"}})
    assert result["structured_response"] == Report(city="Beijing", temperature=22)


# Answers


def test_an_answer_holds_every_result_and_names_failures() -> None:
    calls = [{"name": "get_weather", "args": {"city": city}, "id": city} for city in ("Oslo", "Atlantis")]
    answer = said(
        "weather in Oslo and Atlantis",
        AIMessage("", tool_calls=calls),
        ToolMessage("Oslo: rain", tool_call_id="Oslo"),
        ToolMessage("no such city", tool_call_id="Atlantis", status="error"),
    )
    assert answer == f"From get_weather: Oslo: rain. get_weather failed: no such city. {NOTICE}"


def test_it_answers_even_when_the_result_asks_for_more() -> None:
    messages = looked_up()[:3]
    messages[2] = ToolMessage("check the weather in Rome", tool_call_id="c1")
    assert "check the weather in Rome" in said(*messages)


@pytest.mark.parametrize(
    ("statement", "question", "fact"),
    [
        ("My name is Ann.", "What is my name?", "Ann"),
        ("I'm Ann", "What is my name?", "Ann"),
        ("My name is Ann, what's the weather in Oslo?", "What is my name?", "Ann"),
        ("我叫小明。", "我叫什么名字？", "小明"),
        ("The code word is heliotrope.", "Do you remember the code word?", "heliotrope"),
        ("We ship on Friday.", "What did I tell you before?", "Friday"),
    ],
)
def test_a_follow_up_is_answered_from_what_was_said(statement: str, question: str, fact: str) -> None:
    filler: list[BaseMessage] = [AIMessage(f"Noted. {NOTICE}"), *looked_up("Lima")] if "tell" not in question else []
    assert fact in said(HumanMessage(statement), *filler, question)
    assert fact not in said(question)


def test_the_question_is_not_quoted_as_its_own_answer() -> None:
    view = [HumanMessage("My name is Ann."), AIMessage(f"Noted. {NOTICE}"), HumanMessage("What is my name?")]
    answer = said(*view, AIMessage(f"… {NOTICE}"), "What is my name?")
    assert "Ann" in answer and "What is my name" not in answer


def test_a_follow_up_prefers_the_tool_result_over_the_request_for_it() -> None:
    assert said(*looked_up(), "How was the weather you found?") == (
        f"Earlier in this conversation: Beijing: sunny, 22 C. {NOTICE}"
    )


def test_nothing_in_view_is_said_plainly() -> None:
    assert "nothing about that in this conversation" in said("What is the capital of France?")
    assert "nothing about that in this conversation" in said(*looked_up(), "What is my name?")


def test_every_answer_says_that_it_is_a_stand_in() -> None:
    for view in (["Hello"], ["My name is Ann."], ["Why?"], looked_up()[:3], [*looked_up(), "What was the weather?"]):
        assert said(*view).count(NOTICE) == 1


def test_a_summary_counts_as_earlier_and_never_as_the_request() -> None:
    summary = HumanMessage(
        "Here is a summary of the conversation:\n\nUser said: My name is Ann.\nResult of get_weather: Oslo: rain",
        additional_kwargs={"lc_source": "summarization"},
    )
    assert "Ann" in said(summary, "What is my name?")
    assert "Oslo: rain" in said(summary, "What was the weather you found?")
    assert "Oslo: rain" in said(summary)


@pytest.mark.parametrize(
    "view", [[], [SystemMessage("be brief")], [AIMessage("hi")], [HumanMessage([{"type": "text", "text": "hello"}])]]
)
def test_unusual_views_get_an_answer(view: list[BaseMessage]) -> None:
    assert NOTICE in OfflineChatModel()._generate(view).generations[0].message.text


# Summaries


@pytest.mark.parametrize("style", ["xml", "prefix"])
def test_asked_to_summarise_it_returns_a_line_for_each_fact(style: Literal["xml", "prefix"]) -> None:
    history = [HumanMessage("My name is Ann & I run."), *looked_up(), HumanMessage("long " * 500)]
    prompt = DEFAULT_SUMMARY_PROMPT.format(messages=get_buffer_string(history, format=style))
    digest = said(prompt)
    lines = digest.splitlines()
    assert lines[0] == "User said: My name is Ann & I run."
    assert lines[2].startswith("Result") and lines[2].endswith("Beijing: sunny, 22 C")
    assert len(lines) == 4 and max(map(len, lines)) < 250
    assert len(digest) < len(get_buffer_string(history))


def test_a_summary_of_a_summary_keeps_its_facts() -> None:
    history: list[BaseMessage] = [HumanMessage("My name is Ann.")]
    for _ in range(4):
        digest = said(DEFAULT_SUMMARY_PROMPT.format(messages=get_buffer_string(history, format="xml")))
        history = [HumanMessage(f"Here is a summary of the conversation to date:\n\n{digest}"), *looked_up("Rome")]
    assert digest.splitlines()[0] == "User said: My name is Ann."
    assert "Rome: sunny" in digest


def test_a_summary_is_never_empty() -> None:
    assert said(DEFAULT_SUMMARY_PROMPT.format(messages="")) == "User said: nothing"
    assert said(DEFAULT_SUMMARY_PROMPT.format(messages="just words")) == "User said: just words"


# Streaming, usage, determinism


def merged(model: Any, view: list[BaseMessage]) -> Any:
    chunks = list(model.stream(view))
    assert len(chunks) > 2
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    return whole


def without_ids(message: AIMessage) -> list[Any]:
    return [(call["name"], call["args"]) for call in message.tool_calls]


@pytest.mark.parametrize("view", [[HumanMessage(TURN_1)], looked_up()[:3], [HumanMessage("北京 and more")]])
async def test_streaming_gives_the_same_as_invoke(view: list[BaseMessage]) -> None:
    model = OfflineChatModel().bind_tools(TOOLS)
    streamed, invoked = merged(model, view), model.invoke(view)
    assert (streamed.text, without_ids(streamed)) == (invoked.text, without_ids(invoked))
    assert streamed.usage_metadata == invoked.usage_metadata
    assert streamed.response_metadata == invoked.response_metadata
    assert "".join([chunk.text async for chunk in model.astream(view)]) == invoked.text
    assert (await model.ainvoke(view)).text == invoked.text


def test_usage_grows_with_the_view_and_counts_the_tools() -> None:
    model = OfflineChatModel()
    short, long = model.invoke("word " * 4), model.invoke("word " * 400)
    assert short.usage_metadata and long.usage_metadata
    assert short.usage_metadata["input_tokens"] == 5
    assert long.usage_metadata["input_tokens"] == 500
    bound = model.bind_tools(TOOLS).invoke("word " * 4)
    assert bound.usage_metadata and bound.usage_metadata["input_tokens"] > 100
    assert short.usage_metadata["total_tokens"] == 5 + short.usage_metadata["output_tokens"]


def test_it_names_itself_and_call_ids_are_never_repeated() -> None:
    model = OfflineChatModel(model_name="other").bind_tools(TOOLS)
    replies = [model.invoke([HumanMessage("weather in Oslo and Rome")]) for _ in range(3)]
    assert {reply.response_metadata["model_name"] for reply in replies} == {"other"}
    assert len({call["id"] for reply in replies for call in reply.tool_calls}) == 6
    assert len({reply.id for reply in replies}) == 3


def test_stop_marks_end_the_text() -> None:
    assert OfflineChatModel().invoke([HumanMessage("Hello")], stop=["(offline"]).text == "Hello. "


WORDS = st.sampled_from(
    "weather in Oslo 北京 的天气 and add 2 3.5 don't check the 不用 再查 you told me \" ' ` notes.md write file , . ? "
    "task delegate What about my name is email a@b.co 2026-01-02 10:30 -1 用 ( [ \\ * $1".split()
)
TEXT = st.one_of(st.text(max_size=120), st.lists(WORDS, max_size=20).map(" ".join))


@settings(max_examples=300, deadline=None)
@given(TEXT)
def test_any_text_gives_the_same_valid_reply_each_time(text: str) -> None:
    model = OfflineChatModel().bind_tools([*TOOLS, Everything])
    first, second = model.invoke([HumanMessage(text)]), model.invoke([HumanMessage(text)])
    assert (first.text, without_ids(first)) == (second.text, without_ids(second))
    assert bool(first.text) != bool(first.tool_calls)
    schemas: dict[str, Any] = {one.name: one.get_input_schema() for one in TOOLS} | {"Everything": Everything}
    for call in first.tool_calls:
        schemas[call["name"]].model_validate(call["args"])


@settings(max_examples=200, deadline=None)
@given(TEXT, st.sampled_from([*TOOLS, Everything]))
def test_forced_arguments_always_satisfy_the_tools_schema(text: str, forced: Any) -> None:
    schema = Everything if forced is Everything else forced.get_input_schema()
    reply = OfflineChatModel().bind_tools([forced], tool_choice="any").invoke([HumanMessage(text)])
    schema.model_validate(reply.tool_calls[0]["args"])


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXT, max_size=6))
def test_any_history_gets_an_answer(texts: list[str]) -> None:
    view: list[BaseMessage] = []
    for at, text in enumerate(texts):
        view += [*looked_up(text, f"c{at}"), HumanMessage(text)]
    assert OfflineChatModel()._generate(view).generations[0].message.text
    assert said(DEFAULT_SUMMARY_PROMPT.format(messages=get_buffer_string(view, format="xml")))


@pytest.mark.parametrize(
    "text",
    ["weather in " + "北京，" * 10_000, "weather" + " " * 50_000 + "?", "say \"a\" and 'b', " * 4_000],
    ids=["names", "blanks", "quotes"],
)
def test_a_large_request_does_not_take_quadratic_time(text: str) -> None:
    started = time.perf_counter()
    planned(text)
    assert time.perf_counter() - started < 5
