"""What goes wrong with the local DeepSeek server on purpose."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from test_deepseek_server import USER, Answered, ask

from regnexe.testing import DeepSeekServer
from regnexe.testing.deepseek import Fault, Reply, Rules, Wire, wire_call

STREAM: dict[str, Any] = {"stream": True}
CONCURRENCY = (
    "Too many requests. Your current concurrency is 26, which exceeds your concurrency limit of 25 based on your "
    "remaining balance. Please top up your balance to restore your concurrency."
)
BUSY = "Service is too busy. We advise users to temporarily switch to alternative LLM API service providers."


def failed(fault: Fault, reply: Reply | str = "one two three", **body: Any) -> Answered:
    with DeepSeekServer([reply]) as server:
        server.fail_next(fault)
        return ask(server, **body)


@pytest.mark.parametrize("body", [{}, STREAM])
@pytest.mark.parametrize(
    ("fault", "status", "kind", "message"),
    [
        (Fault.unauthorized(), 401, "authentication_error", "Authentication Fails, Your api key: ****fcc2 is invalid"),
        (Fault.insufficient_balance(), 402, "unknown_error", "Insufficient Balance"),
        (Fault.rate_limited(), 429, "rate_limit_error", CONCURRENCY),
        (Fault.server_error(), 500, "internal_error", "Internal Server Error"),
        (Fault.busy(), 503, "service_unavailable_error", BUSY),
    ],
)
def test_an_error_has_its_status_type_and_text(
    fault: Fault, status: int, kind: str, message: str, body: dict[str, Any]
) -> None:
    answer = failed(fault, **body)
    assert (answer.status, answer.json["error"]["type"], answer.error) == (status, kind, message)
    assert "retry-after" not in answer.headers


def test_retry_after_comes_only_if_it_is_asked_for() -> None:
    assert failed(Fault.rate_limited(retry_after=2)).headers["retry-after"] == "2"
    assert failed(Fault.rate_limited(retry_after_ms=1)).headers["retry-after-ms"] == "1"


def test_too_large_is_a_page_and_unprocessable_is_bare_text() -> None:
    page = failed(Fault.too_large())
    assert (page.status, page.headers["content-type"], page.raw[:6]) == (413, "text/html", b"<html>")
    bare = failed(Fault.unprocessable())
    assert (bare.status, bare.headers["content-type"]) == (422, "text/plain; charset=utf-8")
    assert bare.raw.startswith(b"Failed to deserialize the JSON body into the target type: messages[1]: invalid type")


def test_faults_come_in_order_so_many_times_and_use_up_no_reply() -> None:
    with DeepSeekServer(["one"]) as server:
        server.fail_next(Fault.busy(), times=2)
        server.fail_next(Fault.insufficient_balance())
        assert [ask(server).status for _ in "1234"] == [503, 503, 402, 200]
        assert (len(server.requests), server.errors) == (4, [])


def test_a_fault_can_wait_for_the_request_that_it_is_for() -> None:
    with DeepSeekServer() as server:
        server.fail_next(Fault.busy(), when=lambda request: request.user_id == "ann")
        assert [ask(server, user_id=user).status for user in ("bob", "ann", "ann")] == [200, 503, 200]


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_stream_is_cut_after_so_many_events(after: int) -> None:
    answer = failed(Fault.cut(after=after), **STREAM)
    assert (answer.status, len(answer.chunks)) == (200, after)
    assert b"[DONE]" not in answer.raw


@pytest.mark.parametrize("body", [{}, STREAM])
def test_a_cut_that_is_not_clean_breaks_the_body_off(body: dict[str, Any]) -> None:
    with pytest.raises(http.client.IncompleteRead):
        failed(Fault.cut(clean=False), **body)


def test_an_answer_in_one_piece_loses_its_second_half() -> None:
    answer = failed(Fault.cut())
    assert (answer.status, answer.raw[:1]) == (200, b"{")
    with pytest.raises(json.JSONDecodeError):
        _ = answer.json


def test_a_body_can_be_no_json() -> None:
    with pytest.raises(json.JSONDecodeError):
        _ = failed(Fault.invalid_json()).json
    events = failed(Fault.invalid_json(after=2), **STREAM).raw.decode().split("\n\n")
    assert json.loads(events[1].removeprefix("data: "))
    with pytest.raises(json.JSONDecodeError):
        json.loads(events[2].removeprefix("data: "))
    assert events[-2] == "data: [DONE]"


def test_a_connection_is_reset_or_closed_before_an_answer() -> None:
    with pytest.raises(ConnectionResetError):
        failed(Fault.reset())
    with pytest.raises(http.client.RemoteDisconnected):
        failed(Fault.close())


@pytest.mark.parametrize("body", [{}, STREAM])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.length(), "length"),
        (Fault.content_filter(), "content_filter"),
        (Fault.insufficient_system_resource(), "insufficient_system_resource"),
    ],
)
def test_an_answer_stops_half_way_with_its_finish_reason(fault: Fault, reason: str, body: dict[str, Any]) -> None:
    answer = failed(fault, "12345678", **body)
    ended = (answer.chunks[-1] if body else answer.json)["choices"][0]
    text = "".join(delta["content"] or "" for delta in answer.deltas) if body else answer.message["content"]
    assert (text, ended["finish_reason"]) == ("1234", reason)


def test_a_length_fault_cuts_the_last_calls_arguments_or_the_reasoning() -> None:
    calls = failed(Fault.length(), Reply("x", tool_calls=[wire_call("f", a=1), wire_call("g", b=2)])).json
    choice = calls["choices"][0]
    arguments = [call["function"]["arguments"] for call in choice["message"]["tool_calls"]]
    assert (arguments, choice["finish_reason"]) == (['{"a": 1}', '{"b"'], "length")
    assert failed(Fault.length(), Reply(reasoning="1234")).message["reasoning_content"] == "12"


def test_a_completed_answer_can_be_empty() -> None:
    answer = failed(Fault.empty(), Reply("x", reasoning="y"))
    assert answer.message == {"role": "assistant", "content": "", "reasoning_content": ""}
    assert answer.json["choices"][0]["finish_reason"] == "stop"
    assert len(failed(Fault.empty(), **STREAM).chunks) == 2


@pytest.mark.parametrize("body", [{}, STREAM])
def test_a_held_answer_comes_after_the_release(body: dict[str, Any]) -> None:
    with DeepSeekServer(["one"]) as server, ThreadPoolExecutor() as pool:
        server.fail_next(Fault.hold())
        answer: Future[Answered] = pool.submit(ask, server, **body)
        server.wait_until(lambda server: server.held == 1)
        assert ask(server, messages=[]).status == 400  # others are served meanwhile
        assert not answer.done()
        server.release()
        assert b"one" in answer.result(30).raw
        assert (server.held, server.disconnects) == (0, 0)


def test_a_connection_that_stays_open_serves_on_after_a_hold() -> None:
    with DeepSeekServer(wire=Wire(keep_open=True)) as server:
        server.fail_next(Fault.hold())
        connection = http.client.HTTPConnection(server.root_url.removeprefix("http://"), timeout=30)
        body = json.dumps({"model": "deepseek-flash", "messages": [USER]})
        for held in (1, 0):
            connection.request("POST", "/v1/chat/completions", body, {"Authorization": "Bearer k"})
            server.wait_until(lambda server, held=held: server.held == held)  # type: ignore[misc]
            server.release()
            assert b"ok" in connection.getresponse().read()
        connection.close()


def test_a_stream_can_be_held_in_its_middle() -> None:
    with DeepSeekServer(["one two"]) as server, ThreadPoolExecutor() as pool:
        server.fail_next(Fault.hold(after=2))
        connection = http.client.HTTPConnection(server.root_url.removeprefix("http://"), timeout=30)
        body = json.dumps({"model": "deepseek-flash", "messages": [USER], **STREAM})
        connection.request("POST", "/v1/chat/completions", body, {"Authorization": "Bearer k"})
        response = connection.getresponse()
        lines = [response.readline() for _ in "1234"]
        assert b'"one"' in lines[2]
        server.wait_until(lambda server: server.held == 1)
        rest = pool.submit(response.read)
        server.release()
        assert b'" two"' in rest.result(30)
        connection.close()


def left(count: int, server: DeepSeekServer) -> bool:
    return server.disconnects == count and not server.held


def test_a_client_that_leaves_a_held_request_is_noticed_and_uses_up_no_reply() -> None:
    with DeepSeekServer(["one"]) as server:
        server.fail_next(Fault.hold(), times=2)
        for count, abrupt in enumerate((False, True), start=1):
            connection = http.client.HTTPConnection(server.root_url.removeprefix("http://"), timeout=30)
            body = json.dumps({"model": "deepseek-flash", "messages": [USER]})
            connection.request("POST", "/v1/chat/completions", body, {"Authorization": "Bearer k"})
            server.wait_until(lambda server: server.held == 1)
            if abrupt:
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
            server.wait_until(partial(left, count))
        assert ask(server).message["content"] == "one"


def test_closing_the_server_ends_what_it_holds() -> None:
    server = DeepSeekServer().start()
    server.fail_next(Fault.hold())
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(ask, server)
        server.wait_until(lambda server: server.held == 1)
        server.close()
        with pytest.raises(ConnectionError):
            answer.result(30)


def test_closing_the_server_does_not_wait_for_a_client_that_does_not_read() -> None:
    with DeepSeekServer(["x" * 20_000_000]) as server:
        connection = http.client.HTTPConnection(server.root_url.removeprefix("http://"), timeout=30)
        body = json.dumps({"model": "deepseek-flash", "messages": [USER]})
        connection.request("POST", "/v1/chat/completions", body, {"Authorization": "Bearer k"})
        response = connection.getresponse()  # the head has come, so the body is on its way
    response.close()
    connection.close()


def test_waiting_ends_with_an_error_when_nothing_comes() -> None:
    with DeepSeekServer() as server, pytest.raises(TimeoutError, match=r"after 0\.01 seconds"):
        server.wait_until(lambda server: server.held == 1, timeout=0.01)


def test_more_requests_at_once_than_the_rules_allow_get_status_429() -> None:
    with DeepSeekServer(rules=Rules(concurrency=1)) as server:
        server.fail_next(Fault.hold())
        held = threading.Thread(target=ask, args=[server])
        held.start()
        server.wait_until(lambda server: server.held == 1)
        refused = ask(server)
        server.release()
        held.join()
        assert (refused.status, ask(server).status) == (429, 200)
    assert refused.error.startswith("Too many requests. Your current concurrency is 2, which exceeds your concurrency")


@pytest.mark.parametrize("sent", [b"hello\r\n\r\n", b"GET /models HTTP/1.1\r\nnonsense\r\n\r\n", b""])
def test_what_is_no_http_closes_the_connection_and_nothing_else(sent: bytes) -> None:
    with DeepSeekServer() as server:
        with socket.create_connection(("127.0.0.1", int(server.root_url.rpartition(":")[2])), timeout=30) as client:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(100) == b""
        assert ask(server).status == 200
