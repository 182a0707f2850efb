"""How the local DeepSeek server streams."""

from __future__ import annotations

import socket
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from test_deepseek_server import ask

from regnexe.testing import DeepSeekServer
from regnexe.testing.deepseek import Reply, Wire, wire_call

FULL = Reply(
    "Oslo is sunny 你好",
    reasoning="They ask 天气 now",
    tool_calls=[wire_call("get_weather", city="Oslo"), wire_call("get_time", city="上海", unit="h")],
)
ASKED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


def kind(delta: dict[str, Any]) -> str:
    return next((name for name in ("tool_calls", "reasoning_content", "content") if delta.get(name)), "")


def fragments(deltas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [fragment for delta in deltas for fragment in delta.get("tool_calls", ())]


def test_a_stream_has_role_reasoning_content_calls_finish_and_done_in_that_order() -> None:
    with DeepSeekServer([FULL]) as server:
        answer = ask(server, **ASKED)
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.raw.endswith(b"\n\ndata: [DONE]\n\n")
    first, *middle, last = answer.chunks
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": None, "reasoning_content": ""}
    assert last["choices"][0]["delta"] == {"content": ""}
    kinds = [kind(delta) for delta in answer.deltas[1:-1]]
    order = ["reasoning_content", "content", "tool_calls"]
    assert kinds == sorted(kinds, key=order.index)
    assert set(kinds) == set(order)
    assert {chunk["choices"][0]["finish_reason"] for chunk in (first, *middle)} == {None}
    assert last["choices"][0]["finish_reason"] == "tool_calls"
    assert all(delta["content"] is None for delta in answer.deltas if kind(delta) == "reasoning_content")


def test_all_chunks_of_a_stream_have_the_same_head() -> None:
    with DeepSeekServer([FULL]) as server:
        chunks = ask(server, **ASKED).chunks
    heads = {(c["id"], c["object"], c["created"], c["model"], c["system_fingerprint"]) for c in chunks}
    assert len(heads) == 1
    assert next(iter(heads))[1] == "chat.completion.chunk"


def test_the_parts_of_a_stream_add_up() -> None:
    with DeepSeekServer([FULL]) as server:
        deltas = ask(server, stream=True).deltas
    assert "".join(delta.get("content") or "" for delta in deltas) == FULL.text
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == FULL.reasoning


def test_only_the_first_fragment_of_a_call_has_its_id_type_and_name() -> None:
    with DeepSeekServer([FULL]) as server:
        made = fragments(ask(server, stream=True).deltas)
    for index, scripted in enumerate(FULL.tool_calls):
        first, *rest = [fragment for fragment in made if fragment["index"] == index]
        assert first["id"].startswith(f"call_{index:02d}_")
        assert (first["type"], first["function"]["name"]) == ("function", scripted.name)
        assert all(set(fragment) == {"index", "function"} for fragment in rest)
        assert "".join(fragment["function"]["arguments"] for fragment in [first, *rest]) == scripted.arguments
        assert len(rest) > 1


def test_without_thinking_no_chunk_has_reasoning() -> None:
    with DeepSeekServer([FULL]) as server:
        deltas = ask(server, stream=True, thinking={"type": "disabled"}).deltas
    assert deltas[0] == {"role": "assistant", "content": None}
    assert not any("reasoning_content" in delta for delta in deltas)


@pytest.mark.parametrize(("place", "expected"), [("finish", [True]), ("trailing", [False]), ("both", [True, False])])
def test_usage_is_on_the_finish_chunk_or_in_a_trailing_one_or_on_both(place: Any, expected: list[bool]) -> None:
    with DeepSeekServer(wire=Wire(usage=place)) as server:
        chunks = ask(server, **ASKED).chunks
    assert [bool(chunk["choices"]) for chunk in chunks if chunk.get("usage")] == expected
    assert bool(chunks[-1]["choices"]) == expected[-1]


@pytest.mark.parametrize("unasked", [False, True])
def test_usage_that_nobody_asked_for_comes_if_the_wire_says_so(unasked: bool) -> None:
    with DeepSeekServer(wire=Wire(usage_unasked=unasked)) as server:
        chunks = ask(server, stream=True).chunks
    assert any("usage" in chunk for chunk in chunks) is unasked


def test_keep_alives_of_a_stream_are_comments() -> None:
    with DeepSeekServer(wire=Wire(keep_alives=2)) as server:
        assert ask(server, stream=True).raw.startswith(b": keep-alive\n\n: keep-alive\n\ndata: {")


def test_text_comes_word_by_word_unless_it_is_cut_otherwise() -> None:
    cuts: list[Callable[[str, str], list[str]] | int | None] = [
        None,
        5,
        lambda kind, text: [kind[:0], text[:1], text[1:]],
    ]
    texts = []
    for cut in cuts:
        with DeepSeekServer(["one two three"], wire=Wire(cut=cut)) as server:
            texts.append([delta["content"] for delta in ask(server, stream=True).deltas[1:-1]])
    assert texts == [["one", " two", " three"], ["one t", "wo th", "ree"], ["", "o", "ne two three"]]


def test_a_cut_must_keep_the_whole_text() -> None:
    with DeepSeekServer(["one"], wire=Wire(cut=lambda kind, text: [text[1:]])) as server:
        refused = ask(server, stream=True)
        assert (refused.status, len(server.errors)) == (418, 1)
    assert "do not add up" in refused.error


def test_empty_deltas_come_between_the_others() -> None:
    with DeepSeekServer(["one two"], wire=Wire(empty_deltas=True)) as server:
        deltas = ask(server, stream=True).deltas
    assert [delta["content"] for delta in deltas] == [None, "one", "", " two", "", ""]


def test_fragments_of_parallel_calls_alternate_if_the_wire_says_so() -> None:
    with DeepSeekServer([FULL] * 2, wire=Wire(interleave=True)) as server:
        mixed = [fragment["index"] for fragment in fragments(ask(server, stream=True).deltas)]
        server.wire = Wire()
        ordered = [fragment["index"] for fragment in fragments(ask(server, stream=True).deltas)]
    assert mixed[:4] == [0, 1, 0, 1]
    assert ordered == sorted(mixed)


def http_chunks(server: DeepSeekServer, body: bytes) -> list[bytes]:
    """The chunks of an HTTP body, read off the socket."""
    with socket.create_connection(("127.0.0.1", int(server.root_url.rpartition(":")[2])), timeout=30) as client:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer k\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        with client.makefile("rb") as lines:
            while lines.readline().strip():
                pass
            chunks = []
            while size := int(lines.readline(), 16):
                chunks.append(lines.read(size))
                lines.readline()
            return chunks


BODY = b'{"model": "deepseek-flash", "messages": [{"role": "user", "content": "hi"}], "stream": true}'


def test_a_body_is_cut_anywhere_inside_characters_too() -> None:
    with DeepSeekServer(["你好"] * 3, wire=Wire(cut_body=1)) as server:
        pieces = http_chunks(server, BODY)
        server.wire = Wire(cut_body=lambda body: [body[:7], body[7:]])
        halves = http_chunks(server, BODY)
        server.wire = Wire()
        whole = http_chunks(server, BODY)
    assert {len(piece) for piece in pieces} == {1}
    assert "你好".encode() in b"".join(pieces)
    assert [len(piece) for piece in halves[::2]] == [7] * (len(halves) // 2)
    assert all(piece.endswith(b"\n\n") for piece in whole)


def test_a_seed_gives_the_same_cuts_again_and_others_for_the_next_request() -> None:
    taken = []
    for _ in "12":
        with DeepSeekServer([FULL] * 2, wire=Wire(seed=5)) as server:
            taken.append([[len(chunk) for chunk in http_chunks(server, BODY)] for _ in "12"])
    assert taken[0] == taken[1]
    assert taken[0][0] != taken[0][1]


@pytest.mark.parametrize("seed", range(20))
def test_at_random_too_calls_begin_in_the_order_of_their_indexes(seed: int) -> None:
    reply = Reply(tool_calls=[wire_call("f", n=n) for n in range(4)])
    with DeepSeekServer([reply], wire=Wire(seed=seed)) as server:
        made = fragments(ask(server, stream=True).deltas)
    begun = [fragment["index"] for fragment in made if "id" in fragment]
    assert begun == [0, 1, 2, 3]
    assert all(one["index"] != other["index"] or "id" not in other for one, other in pairwise(made))


def test_text_that_utf8_cannot_hold_is_escaped() -> None:
    with DeepSeekServer(["\ud83d"]) as server:
        assert ask(server, stream=True).deltas[1]["content"] == "\ud83d"
