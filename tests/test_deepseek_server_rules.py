"""What the local DeepSeek server refuses, and in which words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_deepseek_server import TOOL, USER, ask, call

from regnexe.testing import DeepSeekServer
from regnexe.testing.deepseek import Rules

CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": ""}
RESULT = {"role": "tool", "content": "sunny", "tool_call_id": "call_1"}
SAID = {"role": "assistant", "content": "hello"}
OFF: dict[str, Any] = {"thinking": {"type": "disabled"}}
TARGET = "Failed to deserialize the JSON body into the target type: "
INSUFFICIENT = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
    "(insufficient tool messages following tool_calls message)"
)
PASSED_BACK = "The `reasoning_content` in the thinking mode must be passed back to the API."
NO_CHOICE = "Thinking mode does not support this tool_choice"
NAMED = {"type": "function", "function": {"name": "get_weather"}}
UNSET = "Invalid assistant message: content or tool_calls must be set"
BAD_NAME = (
    "Invalid 'tools[0].function.name': string does not match pattern. Expected a string that matches the pattern "
    "'^[a-zA-Z0-9_-]+$'."
)
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": 393_217}, "Invalid max_tokens value, the valid range of max_tokens is [1, 393216]"),
    ({"max_tokens": 0}, "Invalid max_tokens value, the valid range of max_tokens is [1, 393216]"),
    ({"messages": [USER, CALLS]}, INSUFFICIENT),
    ({"messages": [USER, CALLS, USER, RESULT]}, INSUFFICIENT),
    ({"messages": [USER, CALLS, {"role": "system", "content": "x"}, RESULT]}, INSUFFICIENT),
    (
        {"messages": [USER, RESULT]},
        "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
    ),
    (
        {"messages": [USER, CALLS, {**RESULT, "tool_call_id": "call_2"}]},
        "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
    ),
    (
        {"messages": [USER, CALLS, RESULT, CALLS, RESULT]},
        "Duplicate value for 'tool_call_id' of in message[4]",
    ),
    (
        {"messages": [USER, {**CALLS, "tool_calls": [CALL, CALL]}, RESULT]},
        "Duplicate value for 'tool_call_id' of in message[1]",
    ),
    (
        {"messages": [USER, {**SAID, "tool_calls": []}]},
        "Invalid 'messages[1].tool_calls': empty array. Expected an array with minimum length 1, but got an empty "
        "array instead.",
    ),
    (
        {"tools": []},
        "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.",
    ),
    ({"tools": [{"type": "function", "function": {"name": "a.b"}}]}, BAD_NAME),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, BAD_NAME),
    ({"messages": [USER, {"role": "assistant", "content": None}]}, UNSET),
    ({"messages": [USER, {"role": "assistant", "content": ""}]}, UNSET),
    ({"messages": [USER, {"role": "assistant", "content": "", "reasoning_content": "hm"}]}, UNSET),
    ({"messages": []}, "Empty input messages"),
    ({"response_format": {"type": "json_schema"}}, "This response_format type is unavailable now"),
    (
        {"response_format": {"type": "json_object"}},
        "Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'.",
    ),
    (
        {"model": "deepseek-chat"},
        "The supported API model names are deepseek-flash, deepseek-v4-pro, but you passed deepseek-chat.",
    ),
    (
        {"model": "deepseek-reasoner"},
        "The supported API model names are deepseek-flash, deepseek-v4-pro, but you passed deepseek-reasoner.",
    ),
    ({"tool_choice": "required", "tools": [TOOL]}, NO_CHOICE),
    ({"tool_choice": NAMED, "tools": [TOOL]}, NO_CHOICE),
    ({"messages": [USER, SAID, USER], "tools": [TOOL]}, PASSED_BACK),
]
STARTS: list[tuple[dict[str, Any], str]] = [
    (
        {"model": "deepseek-v4-pro", "messages": [USER, IMAGE]},
        TARGET + "messages[1]: unknown variant `image_url`, expected `text` at line 1 column ",
    ),
    (
        {"tools": [TOOL, {"type": "namespace"}]},
        TARGET + "tools[1].type: unknown variant `namespace`, expected `function` at line 1 column ",
    ),
    (
        {"messages": [{"role": "developer", "content": "x"}, USER]},
        TARGET + "messages[0].role: unknown variant `developer`, expected one of `system`, `user`, ",
    ),
    ({"tools": [TOOL] * 129}, "Invalid 'tools': array too long. Expected an array with maximum length 128"),
    ({"stop": ["x"] * 17}, "Invalid 'stop': array too long. Expected an array with maximum length 16"),
    ({"top_logprobs": 21}, "Invalid top_logprobs value, the valid range of top_logprobs is [0, 20]"),
    ({"messages": "hi"}, TARGET + "messages: invalid type"),
    ({"messages": ["hi"]}, TARGET + "messages[0]: invalid type"),
    ({"messages": [{"role": "user", "content": ["hi"]}]}, TARGET + "messages[0].content[0]: invalid type"),
]

ACCEPTED: list[dict[str, Any]] = [
    {"model": "deepseek-v4-pro"},
    {"model": "deepseek-v4-flash"},
    {"model": "deepseek-v4-flash-vision-exp"},
    {"max_tokens": 393_216},
    {"messages": [USER, CALLS, RESULT]},
    {"messages": [USER, {**CALLS, "content": ""}, RESULT, SAID, USER]},
    {"messages": [IMAGE]},
    {"tools": [TOOL] * 128},
    {"stop": ["x"] * 16, "top_logprobs": 20, "logprobs": True},
    {"stop": "x"},
    {"tools": [TOOL], "tool_choice": "auto"},
    {"tools": [TOOL], "tool_choice": "none"},
    {"tools": [TOOL], "tool_choice": "required", **OFF},
    {"tools": [TOOL], "tool_choice": NAMED, **OFF},
    {"response_format": {"type": "json_object"}, "messages": [{"role": "user", "content": "Say it in JSON."}]},
    {
        "response_format": {"type": "json_object"},
        "messages": [{"role": "user", "content": [{"type": "text", "text": "json"}]}],
    },
    {"response_format": {"type": "text"}},
    {"messages": [USER, SAID, USER]},
    {"messages": [USER, SAID, USER], "tools": [TOOL], **OFF},
    {"messages": [USER, {**SAID, "reasoning_content": ""}, USER], "tools": [TOOL]},
    {"messages": [SAID, USER], "tools": [TOOL]},
]


@pytest.mark.parametrize(("body", "text"), REFUSED)
def test_a_refused_request_gets_status_400_in_the_envelope(body: dict[str, Any], text: str) -> None:
    with DeepSeekServer() as server:
        refused = ask(server, **body)
    assert refused.status == 400
    error = {"message": text, "type": "invalid_request_error", "param": None, "code": "invalid_request_error"}
    assert refused.json == {"error": error}


@pytest.mark.parametrize(("body", "start"), STARTS)
def test_what_has_a_text_of_the_servers_own_in_part_is_refused_too(body: dict[str, Any], start: str) -> None:
    with DeepSeekServer() as server:
        refused = ask(server, **body)
    assert (refused.status, refused.error[: len(start)]) == (400, start)


@pytest.mark.parametrize("body", ACCEPTED)
def test_what_the_rules_allow_is_answered(body: dict[str, Any]) -> None:
    with DeepSeekServer() as server:
        assert ask(server, **body).message["content"] == "ok"


def test_a_refused_request_uses_up_no_reply() -> None:
    with DeepSeekServer(["one"]) as server:
        assert ask(server, messages=[]).status == 400
        assert ask(server).message["content"] == "one"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"{}", b'{"model": "deepseek-flash"}'])
def test_a_body_that_is_no_chat_request_is_refused(body: bytes) -> None:
    with DeepSeekServer() as server:
        refused = call(server, "POST", "/v1/chat/completions", body, {"Authorization": "Bearer k"})
    assert (refused.status, refused.error.startswith("Failed to ")) == (400, True)


def test_the_column_of_an_unknown_variant_is_where_it_ends() -> None:
    body = json.dumps({"model": "deepseek-v4-pro", "messages": [IMAGE]}).encode()
    with DeepSeekServer() as server:
        refused = call(server, "POST", "/v1/chat/completions", body, {"Authorization": "Bearer k"})
    assert refused.error.endswith(f"column {body.find(b'image_url') + len('image_url') + 1}")


@pytest.mark.parametrize(
    ("mode", "messages", "tools", "status"),
    [
        ("strict_tools", [USER, SAID, USER], True, 400),
        ("strict_tools", [USER, SAID, USER], False, 200),
        ("strict_tools", [USER, {**CALLS, "reasoning_content": None}, RESULT], True, 400),
        ("strict_tools", [USER, {**CALLS, "reasoning_content": None}, RESULT], False, 200),
        ("strict_calls", [USER, SAID, USER], True, 200),
        ("strict_calls", [USER, {**CALLS, "reasoning_content": None}, RESULT], True, 400),
        ("strict_calls", [USER, {**CALLS, "reasoning_content": None}, RESULT], False, 400),
        ("strict_calls", [USER, CALLS, RESULT], True, 200),
        ("lenient", [USER, {**CALLS, "reasoning_content": None}, RESULT], True, 200),
    ],
)
def test_each_mode_wants_reasoning_back_where_it_says(mode: Any, messages: Any, tools: bool, status: int) -> None:
    bound: dict[str, Any] = {"tools": [TOOL]} if tools else {}
    with DeepSeekServer(rules=Rules(reasoning=mode)) as server:
        answered = ask(server, messages=messages, **bound)
        assert (answered.status, ask(server, messages=messages, **bound, **OFF).status) == (status, 200)
    assert status == 200 or answered.error == PASSED_BACK


def test_the_error_of_the_v32_era_names_the_message() -> None:
    with DeepSeekServer(rules=Rules(reasoning_text="v3.2")) as server:
        refused = ask(server, messages=[USER, SAID, USER], tools=[TOOL])
    assert refused.error == (
        "Missing `reasoning_content` field in the assistant message at message index 1. For more information, please "
        "refer to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls"
    )


def test_null_content_beside_calls_is_accepted_unless_the_rules_say_otherwise() -> None:
    with DeepSeekServer(rules=Rules(null_content=False)) as server:
        assert ask(server, messages=[USER, CALLS, RESULT]).status == 400
        assert ask(server, messages=[USER, {**CALLS, "content": ""}, RESULT]).status == 200
        assert ask(server, messages=[USER, CALLS, RESULT], **OFF).status == 200


OPEN = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
STRICT = {**OPEN, "additionalProperties": False}


@pytest.mark.parametrize(
    ("functions", "status"),
    [
        ([{"name": "f", "strict": True, "parameters": STRICT}], 200),
        ([{"name": "f", "strict": True, "parameters": STRICT}, {"name": "g", "parameters": STRICT}], 400),
        ([{"name": "f", "strict": True, "parameters": {**STRICT, "required": []}}], 400),
        ([{"name": "f", "strict": True, "parameters": OPEN}], 400),
        ([{"name": "f", "strict": True, "parameters": {**STRICT, "properties": {"a": OPEN}}}], 400),
        ([{"name": "f", "parameters": OPEN}], 200),
    ],
)
def test_strict_mode_of_the_beta_path_wants_all_strict_required_and_closed(functions: Any, status: int) -> None:
    tools = [{"type": "function", "function": function} for function in functions]
    with DeepSeekServer() as server:
        assert ask(server, "/beta/chat/completions", tools=tools).status == status
        assert ask(server, tools=tools).status == 200


def test_a_body_above_the_limit_gets_the_page_of_the_proxy() -> None:
    with DeepSeekServer(rules=Rules(body_limit=10)) as server:
        refused = ask(server)
    assert (refused.status, refused.headers["content-type"]) == (413, "text/html")
    assert b"<center>openresty</center>" in refused.raw
