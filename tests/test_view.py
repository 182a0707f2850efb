from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from regnexe.compaction.view import HUMAN_LIMIT, TOOL_RESULT_LIMIT, clip_view, repair_view
from regnexe.messages import clean_text, history_faults, is_blank

# --- an oracle of its own: what a provider refuses, written as its error messages have it ---


def refused(messages: list[BaseMessage]) -> str | None:
    """Return why a provider would refuse this history, None when it would not."""
    used: list[str] = []
    index = 0
    while index < len(messages):
        message = messages[index]
        index += 1
        if isinstance(message, ToolMessage):
            return "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
        if not isinstance(message, AIMessage):
            continue
        if not (message.text or message.tool_calls or message.invalid_tool_calls):
            return "Invalid assistant message: content or tool_calls must be set"
        wanted = [str(call["id"] or "") for call in message.tool_calls]
        if message.invalid_tool_calls:
            return "arguments are not JSON"
        for call in message.tool_calls:
            try:
                json.dumps(call["args"], allow_nan=False)
            except (TypeError, ValueError):
                return "arguments are not JSON"
        if "" in wanted or len(set(wanted)) < len(wanted) or set(wanted) & set(used):
            return "Duplicate value for 'tool_call_id'"
        used += wanted
        following = []
        while index < len(messages) and isinstance(result := messages[index], ToolMessage):
            following.append(result.tool_call_id)
            index += 1
        if sorted(following) != sorted(wanted):
            return "An assistant message with 'tool_calls' must be followed by tool messages"
    return None


ids = st.sampled_from(["a", "b", "c", ""])
arguments: Any = st.sampled_from([{}, {"x": 1}, {"x": float("nan")}, {"x": {1, 2}}, {"x": b"bytes"}])
calls = st.builds(lambda i, a: {"name": "f", "args": a, "id": i or None, "type": "tool_call"}, ids, arguments)
broken = st.builds(
    lambda i, a: {"name": "f", "args": a, "id": i or None, "error": None, "type": "invalid_tool_call"},
    ids,
    st.sampled_from(["{", None, '{"a": 1']),
)
answers = st.builds(
    lambda text, c, b: AIMessage(text, tool_calls=c, invalid_tool_calls=b),
    st.text(max_size=3),
    st.lists(calls, max_size=3),
    st.lists(broken, max_size=1),
)
results = st.builds(lambda i, n: ToolMessage(f"result {n}", tool_call_id=i), ids, st.integers(0, 99))
histories = st.lists(st.one_of(st.builds(HumanMessage, st.text(max_size=3)), answers, results), max_size=9)


@given(histories)
def test_the_history_check_agrees_with_what_providers_refuse(history: list[BaseMessage]) -> None:
    assert bool(history_faults(history)) == bool(refused(history))


@given(histories)
def test_a_repaired_view_is_one_that_a_provider_takes(history: list[BaseMessage]) -> None:
    repaired = repair_view(history)
    assert refused(repaired) is None
    assert repair_view(repaired) == repaired


@given(histories)
def test_a_repair_keeps_everything_but_blank_answers_and_results_that_answer_nothing(
    history: list[BaseMessage],
) -> None:
    repaired = repair_view(history)
    assert [m.text for m in repaired if not isinstance(m, ToolMessage)] == [
        m.text for m in history if not isinstance(m, ToolMessage) and not is_blank(m)
    ]
    made = {m.text for m in repaired if isinstance(m, ToolMessage)} - {m.text for m in history}
    assert all("did not complete" in text for text in made)


@given(histories)
def test_a_repair_changes_neither_the_list_nor_its_messages(history: list[BaseMessage]) -> None:
    before = [message.model_copy(deep=True) for message in history]
    repair_view(history)
    assert [repr(m) for m in history] == [repr(m) for m in before]


def test_a_valid_view_is_the_same_messages() -> None:
    call: Any = {"name": "f", "args": {}, "id": "a", "type": "tool_call"}
    history = [
        SystemMessage("s"),
        HumanMessage("h"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("r", tool_call_id="a"),
    ]
    assert all(one is other for one, other in zip(repair_view(history), history, strict=True))
    assert all(one is other for one, other in zip(clip_view(history), history, strict=True))


def test_a_result_that_stands_apart_moves_next_to_its_call_and_a_repeated_id_gets_its_own_result() -> None:
    call: Any = {"name": "f", "args": {}, "id": "a", "type": "tool_call"}
    history = [
        AIMessage("", tool_calls=[call]),
        HumanMessage("meanwhile"),
        ToolMessage("first", tool_call_id="a"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("second", tool_call_id="a"),
    ]
    repaired = repair_view(history)
    assert [m.text for m in repaired] == ["", "first", "meanwhile", "", "second"]
    assert [m.tool_call_id for m in repaired if isinstance(m, ToolMessage)] == ["a", "a_2"]


@given(st.integers(1, 400_000), st.sampled_from(["tool", "human", "ai", "system"]))
def test_only_what_is_too_large_is_cut_and_then_to_about_the_limit(size: int, kind: str) -> None:
    made: dict[str, BaseMessage] = {
        "tool": ToolMessage("x" * size, tool_call_id="a"),
        "human": HumanMessage("x" * size),
        "ai": AIMessage("x" * size),
        "system": SystemMessage("x" * size),
    }
    message = made[kind]
    clipped = clip_view([message, HumanMessage("newest")])[0]
    limit = {"tool": TOOL_RESULT_LIMIT, "human": HUMAN_LIMIT}.get(kind)
    if limit is None or size <= limit:
        assert clipped is message
    else:
        assert limit <= len(clipped.text) <= limit + 200
        assert f"of {size:,} characters are left out" in clipped.text


def test_the_newest_human_message_is_cut_only_when_it_alone_is_larger_than_the_window() -> None:
    newest = HumanMessage("x" * 500_000)
    assert clip_view([newest])[0] is newest
    assert clip_view([newest], window_characters=500_000)[0] is newest
    assert len(clip_view([newest], window_characters=400_000)[0].text) < 401_000


def test_a_large_text_block_is_cut_and_its_neighbours_that_are_no_text_stay() -> None:
    image = {"type": "image", "url": "http://localhost/x.png"}
    message = ToolMessage([{"type": "text", "text": "x" * 100_000}, image], tool_call_id="a")
    clipped = clip_view([message])[0]
    assert clipped.content[1] == image
    assert len(clipped.text) < 81_000
    assert len(message.text) == 100_000


@given(st.text(st.one_of(st.characters(), st.sampled_from("\ud800\udbff\udc00\udfff"))))
def test_cleaned_text_can_be_stored_and_text_without_lone_surrogates_stays_as_it_is(text: str) -> None:
    cleaned = clean_text(text)
    cleaned.encode("utf-8")
    assert len(cleaned) == len(text)
    assert (cleaned == text) == (not any("\ud800" <= c <= "\udfff" for c in text))
