"""The local DeepSeek server over plain HTTP: endpoints, keys, scripts, records, and answers in one piece."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from regnexe.testing import DeepSeekServer
from regnexe.testing.deepseek import DeepSeekRequest, Reply, Rules, Wire, WireCall, estimate_tokens, wire_call

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}


@dataclass(frozen=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def message(self) -> Any:
        return self.json["choices"][0]["message"]

    @property
    def error(self) -> str:
        return str(self.json["error"]["message"])

    @property
    def chunks(self) -> list[Any]:
        events = [event for event in self.raw.decode().split("\n\n") if event.startswith("data: {")]
        return [json.loads(event.removeprefix("data: ")) for event in events]

    @property
    def deltas(self) -> list[Any]:
        return [chunk["choices"][0]["delta"] for chunk in self.chunks if chunk["choices"]]


def call(server: DeepSeekServer, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answered:
    with closing(http.client.HTTPConnection(server.root_url.removeprefix("http://"), timeout=30)) as connection:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return Answered(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())


def ask(server: DeepSeekServer, path: str = "/v1/chat/completions", key: str = "sk-test", **body: Any) -> Answered:
    whole = {"model": "deepseek-flash", "messages": [USER], **body}
    return call(server, "POST", path, json.dumps(whole).encode(), {"Authorization": f"Bearer {key}"})


@pytest.fixture
def server() -> Iterator[DeepSeekServer]:
    with DeepSeekServer() as running:
        yield running


@pytest.mark.parametrize("path", ["/chat/completions", "/v1/chat/completions", "/beta/chat/completions"])
def test_each_path_of_the_chat_endpoint_answers(server: DeepSeekServer, path: str) -> None:
    assert ask(server, path).message["content"] == "ok"
    assert server.requests[0].path == path


@pytest.mark.parametrize("path", ["/models", "/v1/models"])
def test_the_models_are_listed(server: DeepSeekServer, path: str) -> None:
    listed = call(server, "GET", path, None, {}).json
    assert [model["id"] for model in listed["data"]] == ["deepseek-flash", "deepseek-v4-pro"]
    assert server.requests == []


def test_another_path_is_not_found(server: DeepSeekServer) -> None:
    assert call(server, "GET", "/v1/embeddings", None, {}).status == 404


def test_any_key_is_good_unless_the_server_names_them() -> None:
    with DeepSeekServer(keys={"sk-good"}) as server:
        assert ask(server, key="sk-good").status == 200
        refused = ask(server, key="sk-badfcc2")
    assert refused.status == 401
    assert refused.json["error"] == {
        "message": "Authentication Fails, Your api key: ****fcc2 is invalid",
        "type": "authentication_error",
        "param": None,
        "code": "invalid_request_error",
    }


@pytest.mark.parametrize("headers", [{}, {"Authorization": "sk-test"}, {"Authorization": "Basic sk-test"}])
def test_an_authorization_header_of_another_form_is_refused(server: DeepSeekServer, headers: dict[str, str]) -> None:
    refused = call(server, "POST", "/v1/chat/completions", b"{}", headers)
    assert (refused.status, refused.json["error"]["type"]) == (401, "authentication_error")
    assert refused.error == "Authentication Fails (auth header format should be Bearer sk-...)"


def test_the_answer_has_the_documented_fields(server: DeepSeekServer) -> None:
    answer = ask(server).json
    assert str(uuid.UUID(answer["id"])) == answer["id"]
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "deepseek-flash"
    assert isinstance(answer["created"], int)
    assert answer["system_fingerprint"].startswith("fp_")
    message = {"role": "assistant", "content": "ok", "reasoning_content": ""}
    assert answer["choices"] == [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]


def test_the_headers_are_those_seen(server: DeepSeekServer) -> None:
    headers = ask(server).headers
    assert (headers["server"], headers["content-type"]) == ("CW", "application/json")
    assert headers["x-ds-trace-id"]


def test_usage_counts_input_cache_output_and_reasoning() -> None:
    with DeepSeekServer([Reply("12345678", reasoning="1234")], rules=Rules(count_tokens=len)) as server:
        usage = ask(server).json["usage"]
    assert usage["prompt_tokens"] == usage["prompt_cache_hit_tokens"] + usage["prompt_cache_miss_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_cache_hit_tokens"] == 0
    assert (usage["completion_tokens"], usage["completion_tokens_details"]["reasoning_tokens"]) == (12, 4)
    assert usage["total_tokens"] == usage["prompt_tokens"] + 12


def test_the_server_counts_four_characters_or_one_of_chinese_as_a_token() -> None:
    assert [estimate_tokens(text) for text in ("", "a", "abcd", "abcde", "你好", "你好abcd")] == [0, 1, 1, 2, 2, 3]


def test_tool_calls_have_ids_that_count_up_and_arguments_as_text() -> None:
    reply = Reply(tool_calls=[wire_call("get_weather", city="上海"), WireCall("get_weather", '{"city": ')])
    with DeepSeekServer([reply, reply]) as server:
        answer = ask(server, tools=[TOOL]).json["choices"][0]
        again = ask(server, tools=[TOOL]).message["tool_calls"]
    calls = answer["message"]["tool_calls"]
    assert answer["finish_reason"] == "tool_calls"
    assert [(made["index"], made["type"]) for made in calls] == [(0, "function"), (1, "function")]
    assert [bool(re.fullmatch(rf"call_{n:02d}_\w{{24}}", made["id"])) for n, made in enumerate(calls)] == [True, True]
    assert [made["function"]["arguments"] for made in calls] == ['{"city": "上海"}', '{"city": ']
    assert not {made["id"] for made in calls} & {made["id"] for made in again}


@pytest.mark.parametrize("reason", ["length", "content_filter", "insufficient_system_resource", "aborted"])
def test_a_reply_can_name_its_finish_reason_and_its_usage(reason: str) -> None:
    with DeepSeekServer([Reply("x", finish_reason=reason, usage={"prompt_tokens": 7})]) as server:
        answer = ask(server).json
    assert (answer["choices"][0]["finish_reason"], answer["usage"]["prompt_tokens"]) == (reason, 7)


def test_thinking_is_on_unless_the_request_turns_it_off() -> None:
    with DeepSeekServer([Reply("a", reasoning="why")] * 3) as server:
        assert ask(server).message["reasoning_content"] == "why"
        assert ask(server, thinking={"type": "enabled"}).message["reasoning_content"] == "why"
        assert "reasoning_content" not in ask(server, thinking={"type": "disabled"}).message


def test_ignored_fields_are_accepted(server: DeepSeekServer) -> None:
    ignored: dict[str, Any] = {"temperature": 2, "top_p": 0.1, "frequency_penalty": 1, "presence_penalty": 1, "seed": 4}
    efforts = ["minimal", "low", "medium", "high", "xhigh", "max", "ultra"]
    answers = [ask(server, **ignored, reasoning_effort=effort, parallel_tool_calls=False) for effort in efforts]
    assert {answer.status for answer in answers} == {200}


def test_keep_alives_of_an_answer_in_one_piece_are_blank_lines() -> None:
    with DeepSeekServer(wire=Wire(keep_alives=3)) as server:
        answer = ask(server)
    assert answer.raw.startswith(b"\n\n\n{")
    assert answer.message["content"] == "ok"


def test_replies_come_in_order_and_then_the_script_is_exhausted() -> None:
    with DeepSeekServer(["one", "two"]) as server:
        assert [ask(server).message["content"] for _ in "12"] == ["one", "two"]
        refused = ask(server)
        assert (refused.status, len(server.errors)) == (418, 1)
    assert "the script has 2 replies, and one more was asked for" in refused.error


def test_a_function_sees_each_request() -> None:
    with DeepSeekServer(lambda request: f"{request.number}: {request.messages[-1]['content']}") as server:
        assert [ask(server).message["content"] for _ in "12"] == ["0: hi", "1: hi"]


def test_an_async_function_may_wait() -> None:
    both = asyncio.Barrier(2)

    async def reply(request: DeepSeekRequest) -> Reply:
        await both.wait()
        return Reply(request.user_id)

    said: list[str] = []
    with DeepSeekServer(reply) as server:
        asks = [
            threading.Thread(target=lambda u=user: said.append(ask(server, user_id=u).message["content"]))
            for user in "ab"
        ]
        for thread in asks:
            thread.start()
        for thread in asks:
            thread.join()
    assert sorted(said) == ["a", "b"]


def test_what_a_script_raises_is_kept_and_no_client_tries_it_again() -> None:
    def reply(request: DeepSeekRequest) -> str:
        raise LookupError("no reply for this")

    with DeepSeekServer(reply) as server:
        assert (ask(server).status, ask(server).error) == (418, "LookupError: no reply for this")
        assert [type(error) for error in server.errors] == [LookupError, LookupError]


def test_a_script_must_be_one() -> None:
    with pytest.raises(TypeError, match="a sequence of replies or a function"):
        DeepSeekServer("hello")
    with DeepSeekServer([7]) as server:  # type: ignore[list-item]
        assert "must be a str or a Reply, got 7" in ask(server).error


def test_requests_are_recorded_with_the_refused_ones() -> None:
    with DeepSeekServer() as server:
        ask(server, user_id="ann", stream_options={"include_usage": True})
        ask(server, key="sk-2", model="gpt-4", stream=True, thinking={"type": "disabled"})
        first, second = server.requests
    assert (first.user_id, first.api_key, first.model, first.thinking) == ("ann", "sk-test", "deepseek-flash", True)
    assert (first.stream, first.include_usage, first.messages, first.tools) == (False, True, [USER], [])
    assert (second.api_key, second.stream, second.thinking, second.number) == ("sk-2", True, False, 1)
    assert json.loads(second.raw) == second.body
    assert second.headers["authorization"] == "Bearer sk-2"


def test_a_connection_can_serve_several_requests(server: DeepSeekServer) -> None:
    assert ask(server).headers["connection"] == "close"
    server.wire = Wire(keep_open=True)
    with closing(http.client.HTTPConnection(server.root_url.removeprefix("http://"), timeout=30)) as connection:
        for stream in (False, True, False):
            body = json.dumps({"model": "deepseek-flash", "messages": [USER], "stream": stream}).encode()
            headers = {"Authorization": "Bearer k"}
            connection.request("POST", "/v1/chat/completions", iter([body[:9], body[9:]]), headers, encode_chunked=True)
            assert b"ok" in connection.getresponse().read()
    assert len(server.requests) == 4


async def test_the_server_is_an_async_context_manager_too() -> None:
    async with DeepSeekServer() as server:
        assert (await asyncio.to_thread(ask, server)).status == 200


def test_a_server_that_is_not_running_has_no_address() -> None:
    server = DeepSeekServer()
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.base_url
    server.close()
    server.start()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1", server.base_url)
    with pytest.raises(RuntimeError, match="running already"):
        server.start()
    server.close()
    server.close()
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.root_url
