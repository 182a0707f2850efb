"""DeepSeek's rules, kept by the payload, and over HTTP with the real client against a server that checks them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pytest
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_deepseek import ChatDeepSeek
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from pydantic import BaseModel, SecretStr

from regnexe import RegnexeAgent, RegnexeAgentBuilder, RunStatus
from regnexe.errors import ModelCallRefused
from regnexe.models.deepseek import DeepSeekChatModel
from regnexe.testing import DeepSeekServer
from regnexe.testing.deepseek import DeepSeekRequest, Reply, Rules, Wire, WireCall, wire_call

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from langchain_core.messages import BaseMessage

    from regnexe import AgentResult

IMAGE = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}
OPENAI_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}}}
OFF = {"thinking": {"type": "disabled"}}
CALL = {"name": "look", "args": {"x": "a"}, "id": "call_1"}


def look(x: str) -> str:
    """Look at x."""
    return f"saw {x}"


class City(BaseModel):
    """Where it is."""

    name: str


def deepseek(name: str = "deepseek-flash", **settings: Any) -> DeepSeekChatModel:
    return DeepSeekChatModel(model=name, api_key=SecretStr("sk-test"), **settings)


def payload(messages: list[BaseMessage], *, model: DeepSeekChatModel | None = None, **options: Any) -> dict[str, Any]:
    return (model or deepseek())._get_request_payload(messages, **options)


# --- reasoning, by the payload ---

HISTORY: list[BaseMessage] = [
    HumanMessage("q"),
    AIMessage("", tool_calls=[CALL], additional_kwargs={"reasoning_content": "hm"}),
    ToolMessage("r", tool_call_id="call_1"),
    AIMessage("a"),
    HumanMessage("again"),
]


def reasoning(sent: dict[str, Any]) -> list[Any]:
    return [m.get("reasoning_content", "absent") for m in sent["messages"] if m["role"] == "assistant"]


def test_reasoning_goes_back_with_every_answer_of_a_request_with_tools() -> None:
    assert reasoning(payload(HISTORY, tools=[TOOL])) == ["hm", ""]


def test_reasoning_goes_back_without_tools_where_a_tool_was_called() -> None:
    assert reasoning(payload(HISTORY)) == ["hm", ""]


def test_reasoning_is_not_sent_where_it_is_ignored() -> None:
    talk: list[BaseMessage] = [HumanMessage("q"), AIMessage("a", additional_kwargs={"reasoning_content": "hm"})]
    assert reasoning(payload([*talk, HumanMessage("b")])) == ["absent"]
    assert reasoning(payload(HISTORY, tools=[TOOL], extra_body=OFF)) == ["absent", "absent"]
    assert reasoning(payload(HISTORY, tools=[TOOL], model=deepseek(extra_body=OFF))) == ["absent", "absent"]
    assert reasoning(payload(HISTORY, tools=[TOOL], model=deepseek("gateway/deepseek-chat"))) == ["absent", "absent"]


def test_reasoning_in_content_blocks_goes_back_too() -> None:
    said = AIMessage([{"type": "reasoning", "reasoning": "h"}, {"type": "reasoning", "reasoning": "m"}, "a"])
    sent = payload([HumanMessage("q"), said, HumanMessage("b")], tools=[TOOL])
    assert reasoning(sent) == ["hm"]


def test_a_reasoning_that_is_no_text_counts_as_none() -> None:
    said = AIMessage("a", additional_kwargs={"reasoning_content": None})
    assert reasoning(payload([HumanMessage("q"), said, HumanMessage("b")], tools=[TOOL])) == [""]


# --- contents, by the payload ---


def contents(messages: list[BaseMessage], **options: Any) -> list[Any]:
    return [m["content"] for m in payload(messages, **options)["messages"]]


def test_text_in_blocks_becomes_a_string_for_every_role() -> None:
    blocks: Any = [{"type": "text", "text": "one"}, "two", {"type": "text", "text": "\n\nthree", "cache_control": {}}]
    said: list[BaseMessage] = [
        SystemMessage(blocks),
        HumanMessage(blocks),
        AIMessage(blocks, tool_calls=[CALL]),
        ToolMessage(blocks, tool_call_id="call_1"),
    ]
    joined = "one\ntwo\n\nthree"
    system, human, assistant, tool = contents(said)
    assert (system, human, tool) == (joined, joined, joined)
    assert isinstance(assistant, str)


def test_a_call_without_text_is_sent_with_an_empty_string() -> None:
    assert contents(HISTORY)[1] == ""


def test_an_empty_answer_of_earlier_is_left_out() -> None:
    said = [HumanMessage("q"), AIMessage("", additional_kwargs={"reasoning_content": "hm"}), HumanMessage("b")]
    assert contents(list(said)) == ["q", "b"]


def test_a_developer_message_is_sent_as_a_system_message() -> None:
    said = SystemMessage("s", additional_kwargs={"__openai_role__": "developer"})
    assert payload([said, HumanMessage("q")])["messages"][0]["role"] == "system"


def test_an_empty_list_of_tools_is_not_sent() -> None:
    sent = payload([HumanMessage("q")], tools=[], tool_choice="auto", parallel_tool_calls=False)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(sent)


def test_max_tokens_keeps_its_name() -> None:
    sent = payload([HumanMessage("q")], model=deepseek(max_tokens=9))
    assert (sent["max_tokens"], "max_completion_tokens" in sent) == (9, False)


@pytest.mark.parametrize("image", [IMAGE, OPENAI_IMAGE])
def test_an_image_stays_where_the_model_takes_it(image: Any) -> None:
    (content,) = contents([HumanMessage([{"type": "text", "text": "what?"}, image])])
    assert [part["type"] for part in content] == ["text", "image_url"]


@pytest.mark.parametrize("image", [IMAGE, OPENAI_IMAGE])
@pytest.mark.parametrize("name", ["deepseek-v4-pro", "a-name-that-no-profile-is-known-of"])
def test_an_image_is_refused_by_name_for_a_model_that_takes_none(image: Any, name: str) -> None:
    with pytest.raises(ModelCallRefused, match=r"takes text only.*deepseek-flash takes images") as caught:
        payload([HumanMessage([{"type": "text", "text": "what?"}, image])], model=deepseek(name))
    assert (caught.value.model, caught.value.kind) == (name, image["type"])


@pytest.mark.parametrize("kind", ["audio", "video", "file", "input_audio", "something_new"])
def test_other_media_are_refused_for_every_model(kind: str) -> None:
    with pytest.raises(ModelCallRefused, match="takes text and images") as caught:
        payload([HumanMessage([{"type": kind, "base64": "aGk="}])])
    assert caught.value.kind == kind


def test_a_profile_given_to_the_model_decides_about_images() -> None:
    (content,) = contents([HumanMessage([IMAGE])], model=deepseek("mine", profile={"image_inputs": True}))
    assert content[0]["type"] == "image_url"


def test_an_image_of_an_earlier_turn_is_replaced_by_a_notice() -> None:
    said = [HumanMessage([{"type": "text", "text": "what?"}, IMAGE]), AIMessage("no idea"), HumanMessage("then")]
    first, *_ = contents(list(said), model=deepseek("deepseek-v4-pro"))
    assert first == "what?\n[The image of this message is not shown: this model does not take it.]"


@pytest.mark.parametrize("name", ["deepseek-flash", "deepseek-v4-pro"])
def test_an_image_in_a_tool_result_is_replaced_by_a_notice(name: str) -> None:
    said = [HumanMessage("q"), AIMessage("", tool_calls=[CALL]), ToolMessage([IMAGE], tool_call_id="call_1")]
    assert "The image of this tool result is not shown" in contents(list(said), model=deepseek(name))[2]


# --- tool choices and answers in a form, by the payload ---


@pytest.mark.parametrize("choice", ["any", "required", True])
def test_a_call_that_is_demanded_is_asked_for_in_words_while_thinking(choice: Any) -> None:
    said: list[BaseMessage] = [SystemMessage("be good"), HumanMessage("q")]
    bound: Any = deepseek().bind_tools([look], tool_choice=choice)
    sent = payload(said, **bound.kwargs)
    assert sent["tool_choice"] == "auto"
    assert sent["messages"][0]["content"].startswith("be good\n\nAnswer only by calling one of the tools")
    sent = payload(said, **bound.kwargs, extra_body=OFF)
    assert (sent["tool_choice"], sent["messages"][0]["content"]) == ("required", "be good")


def test_a_named_tool_is_asked_for_by_name_while_thinking() -> None:
    bound: Any = deepseek().bind_tools([look], tool_choice="look")
    sent = payload([HumanMessage("q")], **bound.kwargs)
    assert (sent["tool_choice"], sent["messages"][0]["role"]) == ("auto", "system")
    assert "by calling the tool look" in sent["messages"][0]["content"]
    sent = payload([HumanMessage("q")], **bound.kwargs, extra_body=OFF)
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "look"}}


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_other_tool_choices_stay(choice: str) -> None:
    sent = payload([HumanMessage("q")], tools=[TOOL], tool_choice=choice)
    assert (sent["tool_choice"], len(sent["messages"])) == (choice, 1)


def test_a_json_schema_as_response_format_is_refused_and_json_is_not() -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}
    for wanted in (schema, City):
        with pytest.raises(ModelCallRefused, match="in place of a ProviderStrategy") as caught:
            payload([HumanMessage("q")], response_format=wanted)
        assert caught.value.kind == "response_format"
    assert payload([HumanMessage("q")], response_format={"type": "json_object"})["response_format"]


# --- over HTTP ---

Enforcement = Literal["strict_tools", "strict_calls", "lenient"]
Way = Literal["awaited", "streamed", "sync"]


@dataclass
class Loops:
    """Answers each user message after so many tool calls, thinking aloud each time."""

    calls: int

    def __call__(self, request: DeepSeekRequest) -> Reply:
        done = 0
        while request.messages[-1 - done]["role"] == "tool" or request.messages[-1 - done].get("tool_calls"):
            done += 1
        turn, step = sum(m["role"] == "user" for m in request.messages), done // 2
        thought = f"turn {turn} step {step}: 想一想"
        if step < self.calls:
            return Reply(reasoning=thought, tool_calls=[wire_call("look", x=f"{turn}.{step}")])
        return Reply(f"answer {turn}", reasoning=thought)


@pytest.fixture(params=["strict_tools", "strict_calls", "lenient"])
def enforcement(request: pytest.FixtureRequest) -> Enforcement:
    mode: Enforcement = request.param
    return mode


def agent_for(server: DeepSeekServer, saver: Any = None, *, name: str = "deepseek-flash", **more: Any) -> RegnexeAgent:
    builder = RegnexeAgentBuilder().with_model(deepseek(name, base_url=server.base_url, max_retries=0)).with_tool(look)
    if saver is not None:
        builder.with_checkpointer(saver)
    if "response_format" in more:
        builder.with_response_format(more["response_format"])
    return builder.build()


async def ask(agent: RegnexeAgent, goal: Any, way: Way = "awaited", session_id: str = "s") -> AgentResult:
    if way == "awaited":
        return await agent.ainvoke(goal, session_id=session_id)
    async with agent.astream(goal, session_id=session_id) as stream:
        async for _ in stream:
            pass
    return stream.result


def thoughts(request: DeepSeekRequest) -> list[Any]:
    return [m.get("reasoning_content") for m in request.messages if m["role"] == "assistant"]


@pytest.mark.parametrize("way", ["awaited", "streamed"])
@pytest.mark.parametrize("null_content", [True, False])
async def test_a_long_tool_loop_is_not_refused(
    enforcement: Enforcement, way: Way, null_content: bool, saver: Any
) -> None:
    with DeepSeekServer(Loops(20), rules=Rules(reasoning=enforcement, null_content=null_content)) as server:
        agent = agent_for(server, saver)
        for turn in (1, 2):
            result = await ask(agent, f"question {turn}", way)
            assert (result.status, result.final_text, result.error) == ("completed", f"answer {turn}", None)
            assert result.usage.tool_calls == 20
            assert result.usage.cached_tokens > 0
        expected = [f"turn {turn} step {step}: 想一想" for turn in (1, 2) for step in range(21)]
        assert thoughts(server.requests[-1]) == expected[:-1]


async def test_twenty_turns_of_tool_loops_are_not_refused(enforcement: Enforcement, saver: Any) -> None:
    with DeepSeekServer(Loops(2), rules=Rules(reasoning=enforcement)) as server:
        agent = agent_for(server, saver)
        for turn in range(20):
            result = await ask(agent, f"question {turn}", "streamed" if turn % 2 else "awaited")
            assert (result.status, result.final_text) == ("completed", f"answer {turn + 1}")
        assert all(thoughts(server.requests[-1]))


@pytest.mark.parametrize("way", ["awaited", "streamed"])
async def test_the_loop_goes_on_after_a_checkpoint_was_reopened(
    enforcement: Enforcement, way: Way, tmp_path: Path
) -> None:
    with DeepSeekServer(Loops(3), rules=Rules(reasoning=enforcement)) as server:
        for turn in (1, 2, 3):
            async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "s.db")) as saver:
                result = await ask(agent_for(server, saver), f"question {turn}", way)
                assert (result.status, result.final_text) == ("completed", f"answer {turn}")
        assert thoughts(server.requests[-1])[0] == "turn 1 step 0: 想一想"


async def test_langchains_own_class_is_refused_where_ours_is_not() -> None:
    """The reason for all this; when it fails, langchain-deepseek sends reasoning back and ours may go."""
    with DeepSeekServer(Loops(1)) as server:
        plain: Any = ChatDeepSeek(model="deepseek-flash", api_key=SecretStr("sk"), base_url=server.base_url)
        with pytest.raises(Exception, match="must be passed back"):
            await plain.bind_tools([look]).ainvoke(HISTORY)
        agent = RegnexeAgentBuilder().with_model(plain).with_tool(look).build()
        assert (await ask(agent, "q")).status == "completed"


@pytest.mark.parametrize("way", ["awaited", "streamed"])
async def test_a_users_own_model_keeps_its_settings_through_a_whole_session(
    enforcement: Enforcement, way: Way, saver: Any
) -> None:
    with DeepSeekServer(Loops(2), rules=Rules(reasoning=enforcement)) as server:
        plain = ChatDeepSeek(
            model="deepseek-v4-pro",
            api_key=SecretStr("sk-mine"),
            base_url=server.base_url,
            max_tokens=77,
            temperature=0.5,
        )
        agent = RegnexeAgentBuilder().with_model(plain).with_tool(look).with_checkpointer(saver).build()
        for turn in (1, 2):
            result = await ask(agent, f"question {turn}", way)
            assert (result.status, result.final_text) == ("completed", f"answer {turn}")
            assert result.usage.input_tokens > 0
        assert all(thoughts(server.requests[-1]))
        for request in server.requests:
            assert (request.api_key, request.model) == ("sk-mine", "deepseek-v4-pro")
            assert (request.body["max_tokens"], request.body["temperature"]) == (77, 0.5)


@pytest.mark.parametrize("way", ["awaited", "streamed"])
@pytest.mark.parametrize("cls", [DeepSeekChatModel, ChatDeepSeek])
async def test_without_thinking_nothing_that_was_thought_is_sent(
    cls: Any, enforcement: Enforcement, way: Way, saver: Any
) -> None:
    with DeepSeekServer(Loops(2), rules=Rules(reasoning=enforcement)) as server:
        model = cls(model="deepseek-flash", api_key=SecretStr("sk"), base_url=server.base_url, extra_body=OFF)
        agent = RegnexeAgentBuilder().with_model(model).with_tool(look).with_checkpointer(saver).build()
        for turn in (1, 2):
            result = await ask(agent, f"question {turn}", way)
            assert (result.status, result.final_text, result.usage.tool_calls) == ("completed", f"answer {turn}", 2)
        assert {request.thinking for request in server.requests} == {False}
        assert "reasoning_content" not in str([request.messages for request in server.requests])
        assert server.errors == []


def test_a_synchronous_run_is_not_refused() -> None:
    with DeepSeekServer(Loops(3)) as server:
        agent = agent_for(server)
        assert [agent.invoke("q", session_id="s").status for _ in range(2)] == ["completed", "completed"]


async def test_thinking_that_was_disabled_and_enabled_again_is_not_refused() -> None:
    with DeepSeekServer(Loops(1)) as server:
        saver = InMemorySaver()
        for extra in (OFF, None, OFF, None):
            model = deepseek(base_url=server.base_url, extra_body=extra)
            agent = RegnexeAgentBuilder().with_model(model).with_tool(look).with_checkpointer(saver).build()
            assert (await ask(agent, "q")).status == "completed"


async def test_a_session_goes_on_after_an_empty_answer() -> None:
    with DeepSeekServer([Reply("", reasoning="hm"), "second"]) as server:
        agent = agent_for(server)
        await ask(agent, "one")
        result = await ask(agent, "two")
        assert (result.status, result.final_text) == ("completed", "second")


# --- over HTTP: the rest ---


@pytest.mark.parametrize("way", ["awaited", "streamed"])
@pytest.mark.parametrize("usage", ["finish", "trailing", "both"])
async def test_a_stream_says_what_it_used_and_what_was_cached(way: Way, usage: Any) -> None:
    figures = {"prompt_tokens": 100, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36}
    reply = Reply("ok", usage={**figures, "prompt_tokens_details": {"cached_tokens": 64}})
    with DeepSeekServer([reply], wire=Wire(usage=usage)) as server:
        result = await ask(agent_for(server), "q", way)
        assert (result.usage.input_tokens, result.usage.cached_tokens) == (100, 64)


async def test_an_image_reaches_a_model_that_takes_it() -> None:
    with DeepSeekServer(["a dot"]) as server:
        result = await ask(agent_for(server), [{"type": "text", "text": "what?"}, IMAGE])
        assert (result.status, result.final_text) == ("completed", "a dot")
        assert server.requests[0].messages[-1]["content"][1]["type"] == "image_url"


@pytest.mark.parametrize("name", ["deepseek-v4-pro", "deepseek-flash"])
@pytest.mark.parametrize("media", [IMAGE, OPENAI_IMAGE, {"type": "video", "base64": "aGk=", "mime_type": "video/mp4"}])
async def test_a_session_goes_on_after_media_that_the_model_does_not_take(media: Any, name: str, saver: Any) -> None:
    with DeepSeekServer() as server:
        agent = agent_for(server, saver, name=name)
        await ask(agent, [{"type": "text", "text": "what?"}, media])
        for way in ("awaited", "streamed"):
            result = await ask(agent, "and now?", way)
            assert (result.status, result.error) == (RunStatus.COMPLETED, None)


@pytest.mark.parametrize("way", ["awaited", "streamed"])
@pytest.mark.parametrize("schema", [City, ToolStrategy(City)])
@pytest.mark.parametrize("extra", [None, OFF])
async def test_an_answer_in_a_form_comes_while_thinking_and_without(way: Way, schema: Any, extra: Any) -> None:
    replies = [
        Reply(reasoning="hm", tool_calls=[wire_call("look", x="map")]),
        Reply(reasoning="ah", tool_calls=[wire_call("City", name="Oslo")]),
        Reply(reasoning="oh", tool_calls=[wire_call("City", name="Bergen")]),
    ]
    with DeepSeekServer(replies) as server:
        builder = RegnexeAgentBuilder().with_model(deepseek(base_url=server.base_url, extra_body=extra)).with_tool(look)
        agent = builder.with_response_format(schema).build()
        assert (await ask(agent, "where?", way)).structured == City(name="Oslo")
        assert (await ask(agent, "and then?", way)).structured == City(name="Bergen")
        assert {request.body["tool_choice"] for request in server.requests} == {"required" if extra else "auto"}


@pytest.mark.parametrize("method", ["function_calling", "json_schema"])
async def test_with_structured_output_works_while_thinking(method: Any) -> None:
    with DeepSeekServer([Reply(reasoning="hm", tool_calls=[wire_call("City", name="Oslo")])] * 2) as server:
        model = deepseek(base_url=server.base_url)
        assert await model.with_structured_output(City, method=method).ainvoke("where?") == City(name="Oslo")
        assert [part async for part in model.with_structured_output(City).astream("where?")][-1] == City(name="Oslo")


async def test_a_form_that_deepseek_does_not_offer_is_refused_before_the_call() -> None:
    with DeepSeekServer() as server:
        result = await ask(agent_for(server, response_format=ProviderStrategy(City)), "where?")
        assert result.status is RunStatus.ERROR
        assert isinstance(result.error, ModelCallRefused)
        assert server.requests == []


async def test_arguments_that_are_no_json_do_not_end_the_session() -> None:
    broken = Reply(reasoning="hm", tool_calls=[WireCall("look", '{"x": ')])
    with DeepSeekServer([broken, "one", "two"]) as server:
        agent = agent_for(server)
        for answer in ("one", "two"):
            assert (await ask(agent, "q")).final_text == answer
        for request in server.requests:
            for message in request.messages:
                for call in message.get("tool_calls") or ():
                    json.loads(call["function"]["arguments"])


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("DEEPSEEK_API_BASE", "DEEPSEEK_BASE_URL", "LC_OUTPUT_VERSION"):
        monkeypatch.delenv(name, raising=False)
    yield
