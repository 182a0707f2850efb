"""The local DeepSeek server's context limit, in each vendor's words, and its context cache."""

from __future__ import annotations

from typing import Any

import pytest
from test_deepseek_server import TOOL, ask

from regnexe.testing import DeepSeekServer
from regnexe.testing.deepseek import Reply, Rules, wire_call


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def hit(server: DeepSeekServer, *messages: dict[str, Any], **body: Any) -> int:
    usage = ask(server, messages=list(messages), **body).json["usage"]
    assert usage["prompt_cache_hit_tokens"] + usage["prompt_cache_miss_tokens"] == usage["prompt_tokens"]
    return int(usage["prompt_tokens_details"]["cached_tokens"])


def size(**body: Any) -> int:
    with DeepSeekServer() as server:
        return int(ask(server, **body).json["usage"]["prompt_tokens"])


LONG = user("x" * 4000)
TOKENS = size(messages=[LONG])


def test_the_limit_is_that_of_the_error_text_unless_it_is_set() -> None:
    assert (Rules().context_limit, Rules().max_output) == (1_048_565, 393_216)


@pytest.mark.parametrize(("asked", "completion"), [({}, 0), ({"max_tokens": 50}, 50)])
def test_an_overflow_counts_messages_and_max_tokens(asked: dict[str, Any], completion: int) -> None:
    with DeepSeekServer(rules=Rules(context_limit=1000)) as server:
        refused = ask(server, messages=[LONG], max_completion_tokens=7, **asked)
    assert (refused.status, refused.json["error"]["code"]) == (400, "invalid_request_error")
    assert refused.error == (
        f"This model's maximum context length is 1000 tokens. However, you requested {TOKENS + completion} tokens "
        f"({TOKENS} in the messages, {completion} in the completion). Please reduce the length of the messages or "
        "completion."
    )


def test_exactly_the_limit_is_accepted_with_max_tokens_counted_in() -> None:
    with DeepSeekServer(rules=Rules(context_limit=TOKENS + 10)) as server:
        assert ask(server, messages=[LONG], max_tokens=10).status == 200
        assert ask(server, messages=[LONG], max_tokens=11).status == 400


def test_the_counter_can_be_another() -> None:
    with DeepSeekServer(rules=Rules(context_limit=3, count_tokens=lambda text: len(text.split()))) as server:
        assert ask(server, messages=[user("a b c")]).status == 200
        assert "(4 in the messages, 0 in the completion)" in ask(server, messages=[user("a b c d")]).error


@pytest.mark.parametrize(
    ("vendor", "code", "message"),
    [
        (
            "aliyun",
            "invalid_parameter_error",
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 1000]",
        ),
        ("ark", "InvalidParameter", f"Input length {TOKENS} exceeds the maximum length 1000"),
        ("minimax", None, "invalid params, context window exceeds limit (2013)"),
        (
            "moonshot",
            None,
            f"Invalid request: Your request exceeded model token limit: 1000 (requested: {TOKENS})",
        ),
        ("ollama", None, "the prompt is longer than the context length currently available to the model"),
        ("qianfan", "tokens_too_long", "prompt tokens too long"),
        ("zhipu", "1261", "Prompt exceeds max length"),
        (
            "openai",
            "context_length_exceeded",
            f"This model's maximum context length is 1000 tokens. However, your messages resulted in {TOKENS} tokens. ",
        ),
        ("openai_window", "context_length_exceeded", "Your input exceeds the context window of this model."),
        ("openai_limit", "context_length_exceeded", "Input tokens exceed the configured limit of 1000 tokens."),
    ],
)
def test_each_vendor_has_its_own_words_for_an_overflow(vendor: Any, code: str | None, message: str) -> None:
    with DeepSeekServer(rules=Rules(vendor=vendor, context_limit=1000)) as server:
        refused = ask(server, model="qwen-max", messages=[LONG])
        short = ask(server, model="qwen-max", messages=[user("hi")], tool_choice="required")
    assert (refused.status, refused.json["error"].get("code")) == (400, code)
    assert refused.error.startswith(message)
    assert short.message == {"role": "assistant", "content": "ok"}
    assert "prompt_cache_hit_tokens" not in short.json["usage"]


def test_the_error_of_zhipu_has_only_a_code_and_a_message() -> None:
    with DeepSeekServer(rules=Rules(vendor="zhipu", context_limit=1)) as server:
        assert ask(server).json == {"error": {"code": "1261", "message": "Prompt exceeds max length"}}


A, B, C, D = (user(letter * 1000) for letter in "abcd")
UNITS = size(messages=[A]) // 64 * 64


def test_a_request_hits_the_input_of_an_earlier_one_in_whole_units() -> None:
    with DeepSeekServer() as server:
        assert [hit(server, A), hit(server, A, B), hit(server, A)] == [0, UNITS, UNITS]
    assert UNITS == 192


def test_what_only_begins_like_a_stored_unit_misses_and_stores_the_beginning() -> None:
    with DeepSeekServer() as server:
        assert [hit(server, A, B), hit(server, A, C), hit(server, A, D)] == [0, 0, UNITS]


def test_the_end_of_an_answer_is_stored_with_the_reasoning_that_must_come_back() -> None:
    reply = Reply("y" * 1000, reasoning="z" * 1000)
    given = {"role": "assistant", "content": reply.text}
    whole = {**given, "reasoning_content": reply.reasoning}
    with DeepSeekServer([reply] * 2) as server:
        hit(server, A)
        assert hit(server, A, whole, B) == size(messages=[A, whole]) // 64 * 64 > UNITS
    with DeepSeekServer([reply] * 2) as server:
        hit(server, A)
        assert hit(server, A, given, B) == UNITS


def test_tool_calls_that_come_back_as_they_were_hit_the_end_of_the_answer() -> None:
    with DeepSeekServer([Reply(tool_calls=[wire_call("get_weather", city="x" * 1000)]), "ok"]) as server:
        call = ask(server, messages=[A], tools=[TOOL]).message
        result = {"role": "tool", "content": "sunny", "tool_call_id": call["tool_calls"][0]["id"]}
        assert hit(server, A, call, result, tools=[TOOL]) > size(messages=[A], tools=[TOOL])


def test_tools_come_before_the_messages() -> None:
    with DeepSeekServer() as server:
        hit(server, A)
        assert [hit(server, A, tools=[TOOL]), hit(server, A, tools=[TOOL])] == [
            0,
            size(messages=[A], tools=[TOOL]) // 64 * 64,
        ]


def test_the_cache_is_per_key_and_user() -> None:
    with DeepSeekServer() as server:
        hits = [hit(server, A, user_id=user_id, key=key) for user_id in ("ann", "bob") for key in ("k", "l")]
        assert hits == [0, 0, 0, 0]
        assert hit(server, A, user_id="ann", key="k") == UNITS


def test_nothing_shorter_than_a_unit_is_cached_and_the_unit_can_be_another() -> None:
    with DeepSeekServer() as server:
        assert [hit(server, user("x" * 200)), hit(server, user("x" * 200))] == [0, 0]
    with DeepSeekServer(rules=Rules(cache_unit=1)) as server:
        assert [hit(server, user("x" * 200)), hit(server, user("x" * 200))] == [0, size(messages=[user("x" * 200)])]


def test_with_an_interval_a_beginning_is_stored_without_a_second_request() -> None:
    with DeepSeekServer(rules=Rules(cache_interval=128)) as server:
        assert [hit(server, A, B), hit(server, A, C)] == [0, size(messages=[A]) // 128 * 128]
