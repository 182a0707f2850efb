from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from pydantic import BaseModel, ValidationError

from regnexe import PendingApproval, RegnexeAgentBuilder, RegnexeError, RunStatus, Session, SessionKey, Usage
from regnexe.errors import InvalidDocument
from regnexe.testing import ScriptedChatModel, tool_call

KEY = SessionKey("app", "user", "session")
TAG = "$regnexe"

# Lone surrogates and NUL are meant; hypothesis leaves surrogates out unless asked.
text = st.text(st.characters() | st.sampled_from("\x00\ud800\udfff\\\u2028"), max_size=8)
keys = text | st.sampled_from([TAG, "value"])
exact = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | text
    | st.binary(max_size=8)
    | st.sampled_from([datetime(2026, 1, 2, 3, 4, 5, 6, UTC), date(2026, 1, 2), time(1, 2), timedelta(1, 2, 3)])
    | st.decimals(allow_nan=False)
    | st.uuids()
)
hashable = st.recursive(exact, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=2), max_leaves=3)
values = st.recursive(
    exact,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=3)
        | st.dictionaries(hashable, inner, max_size=2)
        | st.tuples(inner, inner)
        | st.sets(hashable, max_size=2)
    ),
    max_leaves=10,
)
free = st.dictionaries(keys, values, max_size=3)
content = text | st.lists(
    text | st.builds(lambda said, more: {"type": "text", "text": said, "more": more}, text, values), max_size=2
)
calls = st.lists(st.builds(ToolCall, name=text, args=free, id=text, type=st.just("tool_call")), max_size=2)
invalid = st.lists(
    st.builds(InvalidToolCall, name=text, args=text, id=text, error=text, type=st.just("invalid_tool_call")), max_size=1
)
about = {"content": content, "response_metadata": free, "id": st.none() | text}
messages = st.one_of(
    st.builds(HumanMessage, **about, additional_kwargs=free),
    st.builds(SystemMessage, **about, additional_kwargs=free),
    st.builds(AIMessage, **about, tool_calls=calls, invalid_tool_calls=invalid),
    st.builds(ToolMessage, **about, tool_call_id=text, artifact=values, status=st.sampled_from(["success", "error"])),
    st.builds(ChatMessage, **about, role=text),
    st.builds(FunctionMessage, **about, name=text),
    st.builds(AIMessageChunk, **about),
)
sessions = st.builds(
    Session,
    key=st.just(KEY),
    messages=st.lists(messages, max_size=3),
    files=free,
    todos=st.lists(values, max_size=2),
    status=st.sampled_from(RunStatus),
    pending=st.lists(st.builds(PendingApproval, id=text, value=values), max_size=2),
    usage=st.builds(Usage, input_tokens=st.integers(0, 9)),
    updated_at=st.none() | st.just(datetime(2026, 1, 1, tzinfo=UTC)),
    metadata=free,
    a_newer_field=values,
)


def session(artifact: Any = None, **fields: Any) -> Session:
    return Session(key=KEY, messages=[ToolMessage("ok", tool_call_id="1", artifact=artifact)], **fields)


def artifact_after(artifact: Any) -> Any:
    again = Session.model_validate_json(session(artifact).model_dump_json()).messages[0]
    assert isinstance(again, ToolMessage)
    return again.artifact


def document(**changed: Any) -> dict[str, Any]:
    return {**json.loads(session().model_dump_json()), **changed}


@given(sessions)
def test_a_session_is_the_same_after_json_and_after_a_jsonb_column(before: Session) -> None:
    written = before.model_dump_json()
    assert "\\u0000" not in written.replace("\\\\", "")
    assert "\\ud8" not in written.replace("\\\\", "")
    assert Session.model_validate_json(written) == before
    assert Session.model_validate_json(written.encode()) == before
    column = json.loads(written, parse_constant=pytest.fail)
    assert Session.model_validate_json(column) == before
    assert Session.model_validate_json(column).model_dump_json() == written


def test_what_is_not_valid_utf_8_or_not_json_is_kept_exactly() -> None:
    for value in [b"\xff\xfe", bytearray(b"\xff"), math.inf, -math.inf, (1, (2,)), {3, "x"}, {1: "a", (2, "b"): None}]:
        again = artifact_after(value)
        assert again == value
        assert type(again) is type(value)
    assert math.isnan(artifact_after({"x": [math.nan]})["x"][0])
    assert artifact_after(UUID(int=1)) == UUID(int=1)
    assert artifact_after(Decimal("1.10")).as_tuple() == Decimal("1.10").as_tuple()
    assert artifact_after([Document("page", metadata={"at": date(2026, 1, 1)})]) == [
        Document("page", metadata={"at": date(2026, 1, 1)})
    ]
    assert artifact_after(10**5000) == 10**5000
    assert artifact_after({TAG: "bytes", "value": "!"}) == {TAG: "bytes", "value": "!"}


@pytest.mark.parametrize("depth", [90, 110, 150])
def test_nesting_deeper_than_parsers_go_is_kept(depth: int) -> None:
    nested: Any = {"end": (b"\x00", "\ud800")}
    for level in range(depth):
        nested = [nested] if level % 2 else {"\x00": nested}
    assert artifact_after(nested) == nested


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Color(Enum):
    RED = "red"


@dataclass(frozen=True)
class Point:
    x: int
    other: Any = None


class Pair(NamedTuple):
    a: int
    b: int


class Model(BaseModel):
    point: Point


def test_other_objects_become_their_fields_or_their_repr_and_never_fail() -> None:
    assert artifact_after(Model(point=Point(1))) == {"point": {"x": 1, "other": None}}
    assert artifact_after({"a": Point(1, object)}) == {"a": {"x": 1, "other": "<class 'object'>"}}
    assert artifact_after([Color.RED, Odd(), range(3)]) == ["red", "<Odd>", "range(0, 3)"]
    assert artifact_after({Point(1): 1, Odd(): 2}) == {"Point(x=1, other=None)": 1, "<Odd>": 2}
    assert artifact_after({Point(1)}) == {"Point(x=1, other=None)"}
    assert artifact_after(Pair(1, 2)) == (1, 2)
    cycle: list[Any] = [1]
    cycle.append(cycle)
    assert artifact_after(cycle) == [1, "[1, [...]]"]
    bottomless: Any = []
    for _ in range(100_000):
        bottomless = [bottomless]
    assert isinstance(artifact_after(bottomless), list)


def test_unknown_fields_survive_wherever_they_are() -> None:
    written = document(
        key={"app_id": "app", "user_id": "user", "session_id": "session", "tenant": 1, "thread_id": "x"},
        usage={**vars(Usage(model_calls=2)), "cost": 0.5},
        pending=[{"id": "1", "value": {"a": 1}, "asked_at": "now"}],
        view={"anchor": "m1", "odd": "\x00"},
    )
    written["messages"][0]["rating"] = 5
    again = Session.model_validate_json(json.dumps(written))
    assert (again.key, again.key.thread_id, again.usage.model_calls) == (KEY, "app:user:session", 2)
    assert hash(again.key) == hash(KEY)
    told = json.loads(again.model_dump_json())
    assert told.pop("view") == {"anchor": "m1", "odd": {TAG: "str", "value": "\\u0000"}}
    written.pop("view")
    assert told == written


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        ('{"key": {"app', "not valid JSON, or was cut off: .* EOF"),
        ("", "not valid JSON, or was cut off"),
        (b"\xff\xfe", "not valid JSON"),
        ('"\ud800"', "not valid JSON"),
        (None, "not valid JSON"),
        (7, "not valid JSON"),
        ("[]", "is a JSON object, got list"),
        ("null", "is a JSON object, got NoneType"),
        ({}, "not valid: key: Field required"),
        ({1: object()}, "cannot be read: TypeError"),
        ("[" * 100_000, "not valid JSON"),
        (document(schema_version=2, key=None), "schema_version 2, and this version .* reads 1; .* upgrade"),
        (document(messages="none"), "messages: Input should be a valid array"),
        (document(messages=[{"type": "alien", "content": ""}]), "messages.0"),
        (document(messages=[{"type": "human", "content": 5}]), "messages.0"),
        (document(messages=[{"type": "ai", "usage_metadata": {}}]), "messages.0"),
        (document(key={"app_id": "", "user_id": "u", "session_id": "s"}), "app_id must not be empty"),
        (document(files=[]), "files: Input should be an object"),
        (document(status="asleep"), "status: Input should be"),
        (document(metadata={"x": {TAG: "quark", "value": 1}}), "kind 'quark', which this version"),
        (document(metadata={"x": {TAG: ["bytes"]}}), "kind .*, which this version"),
        *[
            (document(metadata={"x": {TAG: kind, "value": value}}), f"damaged value of the kind '{kind}'")
            for kind, value in [
                ("bytes", "!"),
                ("decimal", "x"),
                ("timedelta", 1),
                ("timedelta", [10**20]),
                ("set", [[]]),
                ("dict", [1]),
                ("str", None),
                ("json", "{"),
                ("document", {}),
            ]
        ],
        (document(metadata={"x": {TAG: "bytes"}}), "damaged value of the kind 'bytes'"),
    ],
)
def test_a_document_that_cannot_be_read_is_an_error_that_says_why(damaged: Any, said: str) -> None:
    with pytest.raises(InvalidDocument, match=said) as caught:
        Session.model_validate_json(damaged)
    assert isinstance(caught.value, RegnexeError)
    assert isinstance(caught.value, ValueError)
    assert caught.value.__cause__ is not None
    if not isinstance(damaged, dict) or 1 not in damaged:
        assert isinstance(caught.value.__cause__, ValidationError)


def test_what_a_driver_hands_over_can_be_text_bytes_or_a_dict() -> None:
    before = session(b"\xff")
    written = before.model_dump_json()
    for form in (written, written.encode(), bytearray(written.encode()), memoryview(written.encode())):
        assert Session.model_validate_json(form) == before
    assert Session.model_validate_json(json.loads(written)) == before


def test_a_message_with_incomplete_token_counts_can_be_read_again() -> None:
    message = AIMessage("hi")
    counts: Any = {"input_tokens": 5, "input_token_details": None}
    message.usage_metadata = counts
    before = Session(key=KEY, messages=[message])
    assert Session.model_validate_json(before.model_dump_json()) == before


def test_a_session_inside_another_model_is_read_and_written_the_same_way() -> None:
    class Envelope(BaseModel):
        session: Session

    before = Envelope(session=session((b"\xff", "\x00")))
    assert Envelope.model_validate_json(before.model_dump_json()) == before
    assert Session.model_validate_json(before.session.model_dump(mode="json")) == before.session


def test_a_session_can_be_dumped_as_python_and_in_part() -> None:
    before = session((1, b"\xff"), files={"/a": "x"})
    assert Session.model_validate(before.model_dump()) == before
    assert json.loads(before.model_dump_json(include={"files"})) == {"files": {"/a": "x"}}
    assert "messages" not in json.loads(before.model_dump_json(exclude={"messages"}))
    assert Session.model_json_schema(mode="serialization")["title"] == "Session"


async def test_the_session_of_a_run_survives_with_its_artifacts_and_what_is_pending() -> None:
    from langchain_core.tools import tool
    from langgraph.types import interrupt

    @tool(response_format="content_and_artifact")
    async def fetch(x: str) -> tuple[str, Any]:
        """Fetch."""
        return "fetched", {"raw": b"\xff\x00", "size": (1, 2)}

    async def ask(x: str) -> str:
        """Ask."""
        return str(interrupt({"question": x, "deadline": date(2026, 1, 1)}))

    script = [
        AIMessage("", tool_calls=[tool_call("fetch", x="\x00")]),
        AIMessage("", tool_calls=[tool_call("ask", x="?")]),
    ]
    agent = RegnexeAgentBuilder().with_model(ScriptedChatModel(script)).with_tool(fetch, ask).build()
    before = (await agent.ainvoke("hi\x00")).session
    assert before.pending[0].value == {"question": "?", "deadline": date(2026, 1, 1)}
    assert Session.model_validate_json(before.model_dump_json()) == before
