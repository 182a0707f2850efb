from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from regnexe.compaction.view import HUMAN_LIMIT, TOOL_RESULT_LIMIT, clip_view, repair_view
from regnexe.messages import clean_text, history_faults, is_blank
from regnexe.testing import InvalidHistory, ScriptedChatModel
from regnexe.tokens import estimate_tokens

# --- an oracle of its own: what a provider refuses, written as its error messages have it ---


def refused(messages: list[BaseMessage]) -> str | None:
    """Return why a provider would refuse this history, None when it would not."""
    used: list[str] = []
    index = 0
    while index < len(messages):
        message = messages[index]
        if isinstance(message, SystemMessage) and not all(isinstance(m, SystemMessage) for m in messages[:index]):
            return "System message must be at the beginning."
        index += 1
        if isinstance(message, ToolMessage):
            return "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
        if not isinstance(message, AIMessage):
            continue
        if not (message.text or message.tool_calls or message.invalid_tool_calls):
            return "Invalid assistant message: content or tool_calls must be set"
        wanted = [str(call["id"] or "") for call in message.tool_calls]
        if fault := refused_call(message):
            return fault
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


def refused_call(message: AIMessage) -> str | None:
    if message.invalid_tool_calls:
        return "arguments are not JSON"
    for call in message.tool_calls:
        if not re.search(r"\A[a-zA-Z0-9_-]{1,64}\Z", call["name"]):
            return "Invalid 'messages[0].tool_calls[0].function.name': string does not match pattern"
        try:
            json.dumps(call["args"], allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            return "arguments are not JSON"
    return None


ids = st.sampled_from(["a", "b", "c", ""])
# Deeper than the JSON writer of any Python goes; Python 3.13's goes deeper than those before it.
deep: list[Any] = []
for _ in range(200_000):
    deep = [deep]
arguments: Any = st.sampled_from([{}, {"x": 1}, {"x": float("nan")}, {"x": {1, 2}}, {"x": b"b"}, {"x": 10**5000}])
good_names = st.sampled_from(["f", "get-weather_2", "x" * 64])
bad_names = st.sampled_from(["", "multi_tool_use.parallel", "functions.t", "天气", "x" * 65, "f\n", "get weather"])
names = st.one_of(good_names, good_names, bad_names)
calls = st.builds(lambda n, i, a: {"name": n, "args": a, "id": i or None, "type": "tool_call"}, names, ids, arguments)
broken = st.builds(
    lambda n, i, a: {"name": n, "args": a, "id": i or None, "error": None, "type": "invalid_tool_call"},
    st.one_of(st.none(), names),
    ids,
    st.sampled_from(["{", None, '{"a": 1']),
)
answers = st.builds(
    lambda text, c, b: AIMessage(text, tool_calls=c, invalid_tool_calls=b),
    st.text(max_size=3),
    st.lists(calls, max_size=3),
    st.lists(broken, max_size=1),
)
results = st.builds(
    lambda i, n, name: ToolMessage(f"result {n}", tool_call_id=i, name=name),
    ids,
    st.integers(0, 99),
    st.one_of(st.none(), names),
)
humans = st.builds(HumanMessage, st.text(max_size=3))
systems = st.builds(SystemMessage, st.text(max_size=3))
histories = st.lists(st.one_of(humans, answers, results, systems), max_size=9)


@given(histories)
def test_the_history_check_agrees_with_what_providers_refuse(history: list[BaseMessage]) -> None:
    assert bool(history_faults(history)) == bool(refused(history))


@given(histories)
def test_a_repaired_view_is_one_that_a_provider_takes(history: list[BaseMessage]) -> None:
    repaired = repair_view(history)
    assert refused(repaired) is None
    assert repair_view(repaired) == repaired


@given(histories)
def test_the_strict_model_takes_a_repaired_view_and_refuses_an_empty_one_for_nothing_else(
    history: list[BaseMessage],
) -> None:
    repaired = repair_view(history)
    model = ScriptedChatModel(["taken"])
    try:
        assert model.invoke(repaired).text == "taken"
    except InvalidHistory as refusal:
        assert (repaired, refusal.faults) == ([], ("messages is empty",))


def test_an_empty_view_stays_empty_since_nothing_is_said_in_the_users_place() -> None:
    assert repair_view([]) == []
    assert repair_view([ToolMessage("orphan", tool_call_id="a"), AIMessage("")]) == []


@given(histories)
def test_a_repair_keeps_everything_but_blank_answers_and_results_that_answer_nothing(
    history: list[BaseMessage],
) -> None:
    repaired = repair_view(history)
    kept = [m for m in history if not isinstance(m, ToolMessage) and not is_blank(m)]
    kept.sort(key=lambda m: not isinstance(m, SystemMessage))
    assert [m.text for m in repaired if not isinstance(m, ToolMessage)] == [m.text for m in kept]
    made = {m.text for m in repaired if isinstance(m, ToolMessage)} - {m.text for m in history}
    assert all("did not complete" in text for text in made)


@given(histories)
def test_a_repair_changes_neither_the_list_nor_its_messages(history: list[BaseMessage]) -> None:
    before = [message.model_copy(deep=True) for message in history]
    repair_view(history)
    assert all(vars(m) == vars(b) or str(m) == str(b) for m, b in zip(history, before, strict=True))


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


@pytest.mark.parametrize(
    ("name", "mapped"),
    [
        ("multi_tool_use.parallel", "multi_tool_use_parallel"),
        ("", "unknown"),
        ("天气", "__"),
        ("x" * 65, "x" * 64),
        ("f\n", "f_"),
    ],
)
def test_a_made_up_tool_name_is_mapped_in_the_call_and_in_its_result(name: str, mapped: str) -> None:
    call: Any = {"name": name, "args": {"a": 1}, "id": "a", "type": "tool_call"}
    content: Any = [{"type": "text", "text": "t"}, {"type": "tool_use", "id": "a", "name": name, "input": {}}]
    asked = AIMessage(content, tool_calls=[call])
    called, told = repair_view([asked, ToolMessage("not a tool", tool_call_id="a", name=name)])
    assert isinstance(called, AIMessage) and isinstance(told, ToolMessage)
    assert (called.tool_calls[0]["name"], told.name, told.text) == (mapped, mapped, "not a tool")
    assert called.content == content[:1], "a block that repeats the call would repeat its name"
    assert asked.tool_calls[0]["name"] == name


def test_arguments_nested_too_deeply_for_json_are_wrapped() -> None:
    call: Any = {"name": "f", "args": {"x": deep}, "id": "a", "type": "tool_call"}
    history = [AIMessage("").model_copy(update={"tool_calls": [call]}), ToolMessage("r", tool_call_id="a")]
    assert history_faults(history)
    assert refused(repair_view(history)) is None


def test_a_late_system_message_moves_to_the_front_where_every_provider_takes_it() -> None:
    first, late, later = SystemMessage("1"), SystemMessage("2"), SystemMessage("3")
    human, answer = HumanMessage("h"), AIMessage("a")
    assert repair_view([first, human, late, answer, later]) == [first, late, later, human, answer]


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
    if limit is None or size <= limit + 200:
        assert clipped is message, "a cut that saves no more than its own note takes is none"
    else:
        assert limit <= len(clipped.text) <= limit + 200
        assert f"{size - limit:,} of {size:,} characters are left out" in clipped.text


blocks = st.one_of(
    st.builds(lambda n, c: {"type": "text", "text": c * n}, st.integers(0, 90_000), st.sampled_from("x中")),
    st.integers(0, 90_000).map(lambda n: "s" * n),
    st.integers(0, 90_000).map(lambda n: {"type": "json", "data": "j" * n}),
    st.integers(0, 200_000).map(lambda n: {"type": "image", "base64": "A" * n}),
)
contents = st.one_of(st.text(max_size=4).map(lambda t: t * 60_000), st.lists(blocks, max_size=5))


@given(contents, st.sampled_from([ToolMessage, HumanMessage]), st.integers(100, 100_000))
def test_clipping_twice_is_clipping_once_and_makes_no_message_longer(content: Any, kind: Any, window: int) -> None:
    message = kind(content, tool_call_id="a") if kind is ToolMessage else kind(content)
    for view in ([message], [message, HumanMessage("newest")]):
        once = clip_view(view, window_tokens=window)
        twice = clip_view(once, window_tokens=window)
        assert all(one is other for one, other in zip(once, twice, strict=True))
        if once[0] is not message:
            assert len(json.dumps(once[0].content)) < len(json.dumps(message.content))


def test_the_newest_human_message_is_cut_only_when_it_alone_is_larger_than_the_window() -> None:
    newest = HumanMessage("x" * 500_000)
    assert clip_view([newest])[0] is newest
    assert clip_view([newest], window_tokens=125_000)[0] is newest
    assert len(clip_view([newest], window_tokens=100_000)[0].text) <= 400_000


@given(st.integers(1, 5), st.integers(100, 20_000))
def test_what_is_cut_to_the_window_fits_it_whatever_the_script(chinese: int, window: int) -> None:
    text = ("中" * chinese + "abcd ") * 6_000
    newest = HumanMessage(text)
    clipped = clip_view([newest], window_tokens=window)[0]
    if estimate_tokens(text) <= window:
        assert clipped is newest
    else:
        assert window - 70 <= estimate_tokens(clipped.text) <= window
        assert clipped.text.startswith(text[:10]) and clipped.text.endswith(text[-5:])


def test_a_large_text_block_is_cut_and_its_neighbours_that_are_no_text_stay() -> None:
    image = {"type": "image", "url": "http://localhost/x.png"}
    message = ToolMessage([{"type": "text", "text": "x" * 100_000}, image], tool_call_id="a")
    clipped = clip_view([message])[0]
    assert clipped.content[1] == image
    assert len(clipped.text) < 81_000
    assert len(message.text) == 100_000


def test_text_and_its_neighbours_keep_their_order_and_the_first_block_its_cache_mark() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 500_000}}
    first: Any = {"type": "text", "text": "a" * 70_000, "cache_control": {"type": "ephemeral"}}
    middle: Any = {"type": "text", "text": "b" * 50_000}
    last: Any = {"type": "text", "text": "c" * 30_000}
    message = ToolMessage([first, image, middle, "loose", image, last], tool_call_id="a")
    cut: Any = clip_view([message])[0].content
    assert [block.get("type") for block in cut] == ["text", "image_url", "image_url", "text"]
    assert cut[0]["text"].startswith("a" * 60_000 + "\n\n[... 70,005 of 150,005 characters are left out")
    assert cut[0]["cache_control"] == {"type": "ephemeral"}
    assert cut[3]["text"] == "c" * 20_000
    assert message.content == [first, image, middle, "loose", image, last]


def test_a_giant_block_of_data_becomes_text_that_is_cut_and_media_stay_as_they_are() -> None:
    data = {"type": "json", "json": {"rows": ["row"] * 70_000}}
    picture = {"type": "image", "base64": "A" * 5_000_000, "mime_type": "image/png"}
    small = {"type": "json", "json": {"rows": []}}
    cut: Any = clip_view([ToolMessage([data, picture], tool_call_id="a")])[0].content
    assert (cut[0]["type"], cut[1]) == ("text", picture)
    assert cut[0]["text"].startswith('{"type": "json", "json": {"rows": ["row"')
    assert len(cut[0]["text"]) < 80_300
    untouched = ToolMessage([small, picture], tool_call_id="a")
    assert clip_view([untouched])[0] is untouched


def test_a_block_that_is_no_json_is_left_alone() -> None:
    looped: dict[str, Any] = {"type": "odd"}
    looped["self"] = looped
    message = ToolMessage("x", tool_call_id="a").model_copy(update={"content": [looped]})
    assert clip_view([message])[0] is message


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("中文", 2), ("中a", 2), ("é", 1), ("\ud800", 1)],
)
def test_a_token_is_a_character_beyond_ascii_or_four_others_rounded_up(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_tokens_of_messages_are_those_of_their_text_and_calls_and_not_of_media() -> None:
    call: Any = {"name": "f", "args": {"q": "中"}, "id": "a", "type": "tool_call"}
    media = {"type": "image", "base64": "A" * 9_999}
    messages = [HumanMessage(["abcd", media]), AIMessage("ab", tool_calls=[call]), HumanMessage("")]
    assert estimate_tokens(messages) == 1 + 1 + estimate_tokens('f{"q": "中"}')
    assert estimate_tokens([]) == 0


@given(st.text(st.one_of(st.characters(), st.sampled_from("\ud800\udbff\udc00\udfff"))))
def test_cleaned_text_can_be_stored_and_text_without_lone_surrogates_stays_as_it_is(text: str) -> None:
    cleaned = clean_text(text)
    cleaned.encode("utf-8")
    assert len(cleaned) == len(text)
    assert (cleaned == text) == (not any("\ud800" <= c <= "\udfff" for c in text))
