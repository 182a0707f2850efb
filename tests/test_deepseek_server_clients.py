"""ChatDeepSeek against the local server: what it understands, and what it does not send back."""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_deepseek import ChatDeepSeek
from openai import OpenAIError
from pydantic import SecretStr

from regnexe.testing import DeepSeekServer
from regnexe.testing.deepseek import DeepSeekRequest, Fault, Reply, Rules, Wire, WireCall, wire_call

CALLS = Reply(
    "Let me look.",
    reasoning="Two cities 两个城市",
    tool_calls=[wire_call("get_weather", city="Oslo"), wire_call("get_weather", city="上海")],
)
HELLO: list[BaseMessage] = [HumanMessage("x" * 400)]


def get_weather(city: str) -> str:
    """Get the weather for a city."""
    return f"{city}: sunny"


def chat(server: DeepSeekServer, retries: int = 0) -> ChatDeepSeek:
    return ChatDeepSeek(
        model="deepseek-flash",
        api_key=SecretStr("sk-test"),
        base_url=server.base_url,
        stream_usage=True,
        max_retries=retries,
    )


async def astreamed(model: ChatDeepSeek, messages: list[BaseMessage]) -> AIMessageChunk:
    whole: AIMessageChunk | None = None
    async for chunk in model.astream(messages):
        assert isinstance(chunk, AIMessageChunk)
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    return whole


def streamed(model: ChatDeepSeek, messages: list[BaseMessage]) -> AIMessage:
    first, *rest = model.stream(messages)
    for chunk in rest:
        first = first + chunk
    assert isinstance(first, AIMessage)
    return first


@pytest.mark.parametrize("usage", ["finish", "trailing"])
@pytest.mark.parametrize("entry", ["invoke", "stream", "ainvoke", "astream"])
async def test_text_reasoning_calls_and_cached_tokens_are_understood(entry: str, usage: Any) -> None:
    with DeepSeekServer([Reply(""), CALLS], wire=Wire(usage=usage, keep_alives=2)) as server:
        model = chat(server)
        await model.ainvoke(HELLO)
        if entry in ("invoke", "stream"):
            message = model.invoke(HELLO) if entry == "invoke" else streamed(model, HELLO)
        else:
            message = await model.ainvoke(HELLO) if entry == "ainvoke" else await astreamed(model, HELLO)
        assert server.requests[1].include_usage is (entry in ("stream", "astream"))
    assert message.text == CALLS.text
    assert message.additional_kwargs["reasoning_content"] == CALLS.reasoning
    assert [call["args"] for call in message.tool_calls] == [{"city": "Oslo"}, {"city": "上海"}]
    assert message.usage_metadata is not None
    assert message.usage_metadata["input_token_details"] == {"cache_read": 64}
    assert message.usage_metadata["output_token_details"]["reasoning"] == 7
    assert message.response_metadata["finish_reason"] == "tool_calls"


async def test_a_tool_loop_of_plain_chat_deepseek_fails_on_its_second_turn() -> None:
    """It does not send `reasoning_content` back, which thinking mode wants in a request with tools."""
    with DeepSeekServer([CALLS, "done", "done"]) as server:
        model = chat(server).bind_tools([get_weather])
        said = await model.ainvoke("weather?")
        results = [ToolMessage("sunny", tool_call_id=call["id"]) for call in said.tool_calls]
        history = [HumanMessage("weather?"), said, *results]
        with pytest.raises(Exception, match="`reasoning_content` in the thinking mode must be passed back to the API"):
            await model.ainvoke(history)
        assert set(server.requests[1].messages[1]) == {"role", "content", "tool_calls"}
        server.rules = Rules(reasoning="lenient")
        assert (await model.ainvoke(history)).text == "done"


async def test_arguments_that_end_too_early_are_invalid_in_one_piece_but_completed_by_langchain_in_a_stream() -> None:
    reply = Reply(tool_calls=[WireCall("get_weather", '{"city": "Os', id="call_x")])
    with DeepSeekServer([reply] * 2) as server:
        whole = await chat(server).ainvoke(HELLO)
        added_up = await astreamed(chat(server), HELLO)
    assert [(call["id"], call["args"]) for call in whole.invalid_tool_calls] == [("call_x", '{"city": "Os')]
    assert [call["args"] for call in added_up.tool_calls] == [{"city": "Os"}]
    assert added_up.tool_call_chunks[0]["args"] == '{"city": "Os'


async def test_arguments_that_are_no_json_become_invalid_tool_calls() -> None:
    reply = Reply(tool_calls=[WireCall("get_weather", "city=Oslo", id="call_x")])
    with DeepSeekServer([reply] * 2) as server:
        for message in (await chat(server).ainvoke(HELLO), await astreamed(chat(server), HELLO)):
            assert [(call["id"], call["args"]) for call in message.invalid_tool_calls] == [("call_x", "city=Oslo")]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.unauthorized(), "OpenAIAuthenticationError"),
        (Fault.insufficient_balance(), "APIStatusError"),
        (Fault.too_large(), "APIStatusError"),
        (Fault.unprocessable(), "UnprocessableEntityError"),
        (Fault.rate_limited(), "OpenAIRateLimitError"),
        (Fault.server_error(), "OpenAIAPIError"),
        (Fault.busy(), "OpenAIAPIError"),
        (Fault.reset(), "OpenAIConnectionError"),
        (Fault.close(), "OpenAIConnectionError"),
        (Fault.cut(clean=False), "OpenAIConnectionError"),
        (Fault.invalid_json(), "JSONDecodeError"),
    ],
)
async def test_each_fault_is_the_error_that_langchain_makes_of_it(fault: Fault, error: str) -> None:
    with DeepSeekServer() as server:
        model = chat(server)
        server.fail_next(fault, times=2)
        for ask in (model.ainvoke, partial(astreamed, model)):
            with pytest.raises((OpenAIError, json.JSONDecodeError)) as raised:
                await ask(HELLO)
            assert type(raised.value).__name__ == error
        assert (await model.ainvoke(HELLO)).text == "ok"


async def test_the_client_tries_again_as_soon_as_the_header_says() -> None:
    with DeepSeekServer() as server:
        server.fail_next(Fault.rate_limited(retry_after_ms=1))
        assert (await chat(server, retries=1).ainvoke(HELLO)).text == "ok"
        assert len(server.requests) == 2


async def test_an_overflow_in_deepseeks_words_is_no_context_overflow_to_langchain() -> None:
    with DeepSeekServer(rules=Rules(context_limit=10)) as server:
        with pytest.raises(Exception, match="maximum context length is 10 tokens") as raised:
            await chat(server).ainvoke(HELLO)
        assert not isinstance(raised.value, ContextOverflowError)
        server.rules = Rules(context_limit=10, vendor="openai_limit")
        with pytest.raises(ContextOverflowError):
            await chat(server).ainvoke(HELLO)


async def test_a_clean_cut_passes_for_the_end_of_a_stream_without_a_finish_reason() -> None:
    with DeepSeekServer(["one two three"]) as server:
        server.fail_next(Fault.cut(after=3))
        message = await astreamed(chat(server), HELLO)
    assert (message.text, message.response_metadata.get("finish_reason")) == ("one two", None)


async def test_usage_on_both_chunks_is_added_up_by_langchain() -> None:
    with DeepSeekServer(["ok"], wire=Wire(usage="both")) as server:
        message = await astreamed(chat(server), HELLO)
    assert message.usage_metadata is not None
    assert message.usage_metadata["output_tokens"] == 2


STREAMS, BATCH = 500, 50
PIECES = [
    "a",
    "word ",
    "\n",
    "\r\n",
    "\u2028",
    "\x85",
    "你好",
    "🌧️",
    "é",
    '"',
    "\\",
    "data: ",
    ": keep-alive",
    "{}",
    "\x00",
]


def generated(rng: random.Random) -> Reply:
    def text(most: int) -> str:
        return "".join(rng.choices(PIECES, k=rng.randrange(most)))

    calls = [
        WireCall(f"tool_{rng.randrange(3)}", json.dumps({text(3): text(9)}, ensure_ascii=rng.random() < 0.5))
        for _ in range(rng.choice((0, 0, 1, 2, 3, 5)))
    ]
    figures = {"prompt_tokens": 900, "total_tokens": 900 + rng.randrange(90), "completion_tokens": rng.randrange(90)}
    cached = rng.randrange(900)
    details = {"prompt_cache_hit_tokens": cached, "prompt_tokens_details": {"cached_tokens": cached}}
    return Reply(text(20), text(20), calls, usage=figures | details)


@pytest.mark.parametrize("seed", range(STREAMS // BATCH))
async def test_generated_streams_are_put_together_again(seed: int) -> None:
    rng = random.Random(seed)
    replies = [generated(rng) for _ in range(BATCH)]

    def reply(request: DeepSeekRequest) -> Reply:
        return replies[request.number]

    with DeepSeekServer(reply) as server:
        model = chat(server)
        for number, sent in enumerate(replies):
            server.wire = Wire(seed=seed, usage=rng.choice(("finish", "trailing")), keep_alives=rng.randrange(3))
            message = await astreamed(model, [HumanMessage(str(number))])
            assert message.content == sent.text
            assert message.additional_kwargs.get("reasoning_content", "") == sent.reasoning
            calls = [(call["name"], call["args"]) for call in message.tool_calls]
            assert calls == [(call.name, json.loads(call.arguments)) for call in sent.tool_calls]
            assert len({call["id"] for call in message.tool_calls}) == len(calls)
            assert usage(message) == sent.usage
        assert server.errors == []


def usage(message: AIMessage) -> dict[str, Any]:
    figures = message.usage_metadata
    assert figures is not None
    cached = figures["input_token_details"]["cache_read"]
    return {
        "prompt_tokens": figures["input_tokens"],
        "total_tokens": figures["total_tokens"],
        "completion_tokens": figures["output_tokens"],
        "prompt_cache_hit_tokens": cached,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
