"""What a tool or a model gives is stored, whatever it holds: no turn is lost to what a checkpointer refuses."""

from __future__ import annotations

import logging
import timeit
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command
from pydantic import BaseModel

from regnexe import AgentResult, InvalidToolCalls, RegnexeAgentBuilder, RunStatus
from regnexe.runtime.storable import Storable
from regnexe.testing import ScriptedChatModel, tool_call

STORABLE = Storable(JsonPlusSerializer())


def nested(depth: int, kind: type = list) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


def cycle() -> Any:
    value: list[Any] = [1]
    value += [value, value]
    return value


class NoRepr:
    """An object that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__


class NoTruth(list[Any]):
    """A list that has no truth value, as arrays and tables have none."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")


class Broken(Mapping[str, Any]):
    """A mapping that cannot be read."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("gone")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("gone")

    def __len__(self) -> int:
        return 1


def giving(result: Any, name: str = "give") -> Any:
    async def give(x: str) -> tuple[str, Any]:
        """Give an artifact."""
        return "TEXT", result

    return StructuredTool.from_function(coroutine=give, name=name, response_format="content_and_artifact")


async def turn(saver: Any, model: ScriptedChatModel, *tools: Any) -> AgentResult:
    """Return one turn, after a second one has shown that the session goes on from what was stored."""
    agent = RegnexeAgentBuilder().with_model(model).with_tool(*tools).with_checkpointer(saver).build()
    result = await agent.ainvoke("hi", session_id="s")
    again = await agent.ainvoke("again", session_id="s")
    assert (again.status, again.error) == (RunStatus.COMPLETED, None)
    stored = again.session.messages[: len(result.messages)]
    assert [(m.type, m.text) for m in stored] == [(m.type, m.text) for m in result.messages]
    return result


def calling(name: str = "give") -> ScriptedChatModel:
    return ScriptedChatModel([AIMessage("", tool_calls=[tool_call(name, x="1")]), "done", "fine"])


# --- what a tool gives ---

ARTIFACTS: dict[str, tuple[Any, Any]] = {
    "a cycle": (cycle(), [1]),
    "deep lists": ({"deep": nested(1500), "ok": 1}, None),
    "deep dicts": ({"deep": nested(1500, dict), "ok": 1}, None),
    "just too deep": ({"deep": nested(260), "ok": 1}, None),
    "surrogate keys": ({"\ud800": 1, "ok": {"\udfff": "\ud800"}}, {"\ufffd": 1, "ok": {"\ufffd": "\ufffd"}}),
    "surrogate values": ({"ok": ["\ud800", ("\ud800",)]}, {"ok": ["\ufffd", ["\ufffd"]]}),
    "None in a list": ([None, 1, object(), 2], [None, 1, 2]),
    "a tuple": ((None, object(), 2), [None, 2]),
    "None in a dict": ({"a": None, "b": object()}, {"a": None}),
    "keys that do not fit": ({2**80: 1, NoRepr: 2, "ok": 3}, {"ok": 3}),
    "no repr": ({"a": NoRepr(), "ok": 1}, {"ok": 1}),
    "no truth value": (NoTruth([1, object()]), None),
    "a broken mapping": ({"a": Broken(), "ok": 1}, {"ok": 1}),
}


@pytest.mark.parametrize(("artifact", "kept"), ARTIFACTS.values(), ids=ARTIFACTS.keys())
async def test_a_tool_that_succeeded_has_succeeded_whatever_its_artifact(
    saver: Any, artifact: Any, kept: Any, caplog: pytest.LogCaptureFixture
) -> None:
    model = calling()
    result = await turn(saver, model, giving(artifact))
    assert (result.status, result.error) == (RunStatus.COMPLETED, None)
    message = result.messages[2]
    assert isinstance(message, ToolMessage)
    assert (message.status, message.text) == ("success", "TEXT")
    if kept is not None:
        assert message.artifact == kept
    elif isinstance(artifact, dict):
        assert message.artifact["ok"] == 1
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert all("'give'" in text and "artifact" in text and len(text) < 500 for text in warned)
    assert bool(warned) == ("\ufffd" not in str(kept)), "only what is dropped is warned of"


def test_a_warning_names_tool_and_key_and_many_of_them_are_few(caplog: pytest.LogCaptureFixture) -> None:
    artifact = {"a": {"b": [1, object()]}, "c": [object() for _ in range(1000)], 2**80: 1}
    message = ToolMessage("x", tool_call_id="a", artifact=artifact)
    STORABLE.mended(message, "tool 'give'")
    warned = [record.getMessage() for record in caplog.records]
    assert warned[0] == (
        "tool 'give': artifact['a']['b'][1] was dropped, since a value of type object cannot be stored in a "
        "checkpoint; the text is kept"
    )
    assert len(warned) < 20
    assert "997" in warned[-1]


async def test_every_message_of_a_command_and_every_result_of_a_list_is_mended(saver: Any) -> None:
    async def commanding(x: str, tool_call_id: Any = None) -> Any:
        """Give a command."""
        return Command(
            update={
                "messages": (
                    ToolMessage("A \ud800", tool_call_id=calls[0]["id"], artifact={"\ud800": cycle()}),
                    HumanMessage("B \ud800", additional_kwargs={"n": 2**80, "ok": 1}),
                )
            }
        )

    async def listing(x: str) -> Any:
        """Give a list."""
        message = ToolMessage("C \ud800", tool_call_id=calls[1]["id"], artifact=object())
        return [Command(update={"messages": [message]})]

    calls: list[Any] = [tool_call("commanding", x="1"), tool_call("listing", x="1")]
    model = ScriptedChatModel([AIMessage("", tool_calls=calls), "done", "fine"])
    result = await turn(saver, model, commanding, listing)
    assert (result.status, result.error) == (RunStatus.COMPLETED, None)
    assert sorted(m.text for m in result.messages[2:-1]) == ["A \ufffd", "B \ufffd", "C \ufffd"]


async def test_the_text_of_a_tools_exception_is_cleaned(saver: Any) -> None:
    async def give(x: str) -> str:
        """Fail."""
        raise RuntimeError("boom \ud800")

    model = calling()
    result = await turn(saver, model, give)
    assert (result.messages[2].text, result.status) == ("RuntimeError: boom \ufffd", RunStatus.COMPLETED)
    assert model.requests[1].messages[-1].text == "RuntimeError: boom \ufffd"


async def test_an_exception_without_a_text_is_told_by_its_name(saver: Any) -> None:
    class Silent(RuntimeError):
        def __str__(self) -> str:
            raise ValueError("no text")

    async def give(x: str) -> str:
        """Fail."""
        raise Silent

    result = await turn(saver, calling(), give)
    assert (result.messages[2].text, result.status) == ("Silent", RunStatus.COMPLETED)


# --- what a model gives ---


class Weather:
    """A tool that counts how often it ran."""

    def __init__(self) -> None:
        self.cities: list[Any] = []

    async def get_weather(self, city: Any) -> str:
        """Tell the weather of a city."""
        self.cities.append(city)
        return f"{city}: sunny"


@pytest.mark.parametrize("city", [2**80, {"n": [-(2**80)]}, 10**5000, nested(400), cycle()], ids=lambda v: type(v))
async def test_a_call_with_arguments_that_cannot_be_stored_gets_an_error_and_one_more_try(
    saver: Any, city: Any
) -> None:
    weather = Weather()
    bad = AIMessage("", tool_calls=[tool_call("get_weather", city=city)])
    model = ScriptedChatModel([bad, "Sorry.", "fine"])
    result = await turn(saver, model, weather.get_weather)
    assert (result.status, result.final_text, result.error) == (RunStatus.COMPLETED, "Sorry.", None)
    assert [m.type for m in result.messages] == ["human", "ai", "tool", "ai"]
    told = result.messages[2]
    assert isinstance(told, ToolMessage)
    assert (told.status, "cannot be stored" in told.text) == ("error", True)
    assert weather.cities == []


async def test_beside_it_a_call_that_can_be_stored_runs(saver: Any) -> None:
    weather = Weather()
    calls = [tool_call("get_weather", city=2**80), tool_call("get_weather", city="Rome")]
    model = ScriptedChatModel([AIMessage("", tool_calls=calls), "Sunny.", "fine"])
    result = await turn(saver, model, weather.get_weather)
    assert (result.status, weather.cities) == (RunStatus.COMPLETED, ["Rome"])
    assert sorted(m.status for m in result.messages if isinstance(m, ToolMessage)) == ["error", "success"]


async def test_a_model_that_gives_such_arguments_again_ends_the_run_and_not_the_session(saver: Any) -> None:
    weather = Weather()
    replies: list[Any] = [AIMessage("", tool_calls=[tool_call("get_weather", city=2**80)]) for _ in range(2)]
    result = await turn(saver, ScriptedChatModel([*replies, "fine"]), weather.get_weather)
    assert isinstance(result.error, InvalidToolCalls)
    assert [m.type for m in result.messages] == ["human", "ai", "tool", "ai", "tool"]


ANSWERS: dict[str, dict[str, Any]] = {
    "an object": {"response_metadata": {"raw": object(), "ok": 1}},
    "no repr": {"response_metadata": {"raw": NoRepr(), "ok": 1}},
    "a big integer": {"additional_kwargs": {"n": 2**80, "ok": 1}},
    "a cycle": {"additional_kwargs": {"n": cycle(), "ok": 1}},
    "surrogate keys": {"response_metadata": {"\ud800": 1, "ok": "\ud800"}},
    "a surrogate name": {"name": "a\ud800"},
    "a surrogate id": {"id": "a\ud800"},
    "a big count": {"usage_metadata": {"input_tokens": 2**80, "output_tokens": 1, "total_tokens": 2**80 + 1}},
    "a field of its own": {"of_its_own": [object(), 2**80]},
}


@pytest.mark.parametrize("fields", ANSWERS.values(), ids=ANSWERS.keys())
async def test_an_answer_is_stored_whatever_comes_with_it(
    saver: Any, fields: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    answer = AIMessage("paid for", **fields)
    result = await turn(saver, ScriptedChatModel([answer, "fine"]))
    assert (result.status, result.final_text, result.error) == (RunStatus.COMPLETED, "paid for", None)
    kept = result.messages[-1]
    for field, value in fields.items():
        if isinstance(value, dict) and "ok" in value:
            assert getattr(kept, field)["ok"] in (1, "\ufffd")
    assert "\\ud" not in ascii(kept)


async def test_surrogates_in_calls_that_are_no_json_are_cleaned(saver: Any) -> None:
    invalid: Any = {
        "name": "give\ud800",
        "args": '{"\ud800',
        "id": "b\ud800",
        "error": "no \ud800",
        "type": "invalid_tool_call",
    }
    model = ScriptedChatModel([AIMessage("", invalid_tool_calls=[invalid]), "Sorry.", "fine"])
    result = await turn(saver, model)
    assert (result.status, result.final_text) == (RunStatus.COMPLETED, "Sorry.")
    assert "\\ud8" not in ascii(result.messages)


class Count(BaseModel):
    """A count."""

    n: int


async def test_a_structured_answer_that_cannot_be_stored_gets_one_more_try(saver: Any) -> None:
    model = ScriptedChatModel([AIMessage("", tool_calls=[tool_call("Count", n=n)]) for n in (2**80, 7)])
    agent = RegnexeAgentBuilder().with_model(model).with_response_format(Count).with_checkpointer(saver).build()
    result = await agent.ainvoke("How many?")
    assert (result.status, result.structured) == (RunStatus.COMPLETED, Count(n=7))
    assert [m.status for m in result.messages if isinstance(m, ToolMessage)] == ["error", "success"]


# --- the mending itself ---

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(2**80),
    st.floats(),
    st.text(st.sampled_from("a\ud800中"), max_size=3),
    st.builds(object),
    st.builds(NoRepr),
    st.builds(cycle),
    st.builds(Broken),
    st.just(b"bytes"),
)
keys = st.one_of(st.text(st.sampled_from("a\ud800"), max_size=2), st.integers(-3, 3), st.just(2**80), st.none())
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=3).map(tuple), st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=2), values, max_size=3), values)
def test_whatever_a_message_holds_it_can_be_stored_when_mended(extra: dict[Any, Any], artifact: Any) -> None:
    made: list[BaseMessage] = [
        ToolMessage("T \ud800", tool_call_id="a", artifact=artifact, additional_kwargs=extra),
        AIMessage("T \ud800", response_metadata=extra, of_its_own=artifact),
    ]
    for message in made:
        mended = STORABLE.mended(message, "test")
        assert STORABLE.ready(mended)
        assert mended.text == "T \ufffd"
        assert message.text == "T \ud800", "the message itself is left as it is"


def test_a_mended_message_shares_what_was_shared() -> None:
    shared: Any = [object(), 1]
    mended = STORABLE.mended(ToolMessage("x", tool_call_id="a", artifact=[shared, shared]), "test")
    assert mended.artifact == [[1], [1]]
    assert mended.artifact[0] is mended.artifact[1]


def test_when_all_else_fails_the_text_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    class Picky(JsonPlusSerializer):
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            if isinstance(obj, BaseMessage) and (obj.additional_kwargs or getattr(obj, "artifact", None)):
                raise ValueError("no")
            return super().dumps_typed(obj)

    message = ToolMessage("TEXT", tool_call_id="a", artifact=[1], additional_kwargs={"a": 1}, status="error")
    mended = Storable(Picky()).mended(message, "tool 'x'")
    assert (mended.text, mended.artifact, mended.additional_kwargs, mended.status) == ("TEXT", None, {}, "error")
    assert mended.tool_call_id == "a"
    assert "tool 'x': all but the text was dropped" in caplog.text


def test_a_message_that_can_be_stored_is_ready_and_the_check_costs_little() -> None:
    message = AIMessage(
        "A sentence of an ordinary answer. " * 60,
        tool_calls=[tool_call("get_weather", city="Rome", days=3)],
        response_metadata={"model_name": "m", "finish_reason": "stop", "logprobs": None, "id": "x" * 30},
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    )
    assert STORABLE.ready(message)
    seconds = min(timeit.repeat(lambda: STORABLE.ready(message), number=100, repeat=5)) / 100
    assert seconds < 0.001, "about 0.02 ms where this was written"


async def test_the_memory_saver_of_a_test_refuses_what_any_saver_refuses() -> None:
    with pytest.raises(TypeError):
        InMemorySaver().serde.dumps_typed(AIMessage("x", response_metadata={"n": 2**80}))
