"""Answers in a form from models that cannot be made to give one: over HTTP, and from scripts."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage
from pydantic import BaseModel, SecretStr

from regnexe import AgentResult, AnswerCutOff, InvalidToolCalls, RegnexeAgent, RegnexeAgentBuilder, RunStatus
from regnexe.errors import StructuredAnswerMissing
from regnexe.models.deepseek import DeepSeekChatModel
from regnexe.testing import DeepSeekServer, ScriptedChatModel, tool_call
from regnexe.testing.deepseek import Reply, WireCall, wire_call

Way = Literal["awaited", "streamed"]


class City(BaseModel):
    """A city."""

    name: str


class River(BaseModel):
    """A river."""

    name: str


@pytest.fixture(params=["awaited", "streamed"])
def way(request: pytest.FixtureRequest) -> Way:
    chosen: Way = request.param
    return chosen


def look(x: str) -> str:
    """Look something up."""
    return f"found {x}"


def agent_of(model: Any, form: Any = City, saver: Any = None) -> RegnexeAgent:
    builder = RegnexeAgentBuilder().with_model(model).with_tool(look).with_response_format(form)
    return (builder if saver is None else builder.with_checkpointer(saver)).build()


def deepseek(server: DeepSeekServer) -> DeepSeekChatModel:
    return DeepSeekChatModel(
        model="deepseek-flash", api_key=SecretStr("sk-test"), base_url=server.base_url, max_retries=0
    )


async def ask(agent: RegnexeAgent, way: Way, goal: str = "Where?") -> AgentResult:
    if way == "awaited":
        return await agent.ainvoke(goal, session_id="s")
    async with agent.astream(goal, session_id="s") as stream:
        async for _ in stream:
            pass
    return stream.result


@pytest.mark.parametrize("form", [City, ToolStrategy(City), ToolStrategy(City | River)])
async def test_a_thinking_model_that_answers_in_plain_text_is_asked_once_more(form: Any, way: Way, saver: Any) -> None:
    replies: list[Reply | str] = [
        Reply(reasoning="hm", tool_calls=[wire_call("look", x="map")]),
        Reply("It is Oslo.", reasoning="ah"),
        Reply(reasoning="oh", tool_calls=[wire_call("City", name="Oslo")]),
        Reply(reasoning="well", tool_calls=[wire_call("City", name="Bergen")]),
    ]
    with DeepSeekServer(replies) as server:
        agent = agent_of(deepseek(server), form, saver)
        result = await ask(agent, way)
        assert (result.status, result.structured, result.error) == (RunStatus.COMPLETED, City(name="Oslo"), None)
        assert result.usage.model_calls == 3
        assert [m.type for m in result.messages] == ["human", "ai", "tool", "ai", "ai", "tool"]
        reminded = server.requests[-1].messages[-1]
        assert (reminded["role"], "Give this answer by calling the tool City" in reminded["content"]) == ("user", True)
        assert (await ask(agent, way, "And then?")).structured == City(name="Bergen")
        assert "Give this answer" not in str(server.requests[-1].messages)
        assert server.errors == []


async def test_one_that_does_it_again_ends_the_run_as_an_error_and_the_session_goes_on(way: Way, saver: Any) -> None:
    replies: list[Reply | str] = ["It is Oslo.", "Oslo, I said.", Reply(tool_calls=[wire_call("City", name="Oslo")])]
    with DeepSeekServer(replies) as server:
        agent = agent_of(deepseek(server), saver=saver)
        result = await ask(agent, way)
        assert (result.status, result.structured, result.final_text) == (RunStatus.ERROR, None, "")
        assert isinstance(result.error, StructuredAnswerMissing)
        assert result.error.text == "Oslo, I said."
        assert "instead of calling the tool City, and did so again when told" in str(result.error)
        assert (await ask(agent, way)).structured == City(name="Oslo")
        assert server.errors == []


async def test_an_empty_answer_is_no_structured_one_either(way: Way) -> None:
    with DeepSeekServer([Reply("", reasoning="hm"), Reply(tool_calls=[wire_call("City", name="Oslo")])]) as server:
        assert (await ask(agent_of(deepseek(server)), way)).structured == City(name="Oslo")


async def test_told_to_it_may_call_another_tool_first(way: Way) -> None:
    replies: list[Reply | str] = [
        "It is Oslo.",
        Reply(tool_calls=[wire_call("look", x="map")]),
        Reply(tool_calls=[wire_call("City", name="Oslo")]),
    ]
    with DeepSeekServer(replies) as server:
        result = await ask(agent_of(deepseek(server)), way)
        assert (result.structured, result.usage.tool_calls) == (City(name="Oslo"), 1)


async def test_a_form_that_was_cut_off_is_asked_for_again_and_never_guessed(way: Way) -> None:
    cut = Reply(tool_calls=[WireCall("City", '{"name": "Os')])
    with DeepSeekServer([cut, Reply(tool_calls=[wire_call("City", name="Oslo")])]) as server:
        assert (await ask(agent_of(deepseek(server)), way)).structured == City(name="Oslo")
    with DeepSeekServer([cut, cut]) as server:
        result = await ask(agent_of(deepseek(server)), way)
        assert (result.status, result.structured) == (RunStatus.ERROR, None)
        assert isinstance(result.error, InvalidToolCalls)


async def test_after_broken_calls_too_plain_text_is_asked_about(way: Way) -> None:
    replies: list[Reply | str] = [
        Reply(tool_calls=[WireCall("look", "{")]),
        "It is Oslo.",
        Reply(tool_calls=[wire_call("City", name="Oslo")]),
    ]
    with DeepSeekServer(replies) as server:
        result = await ask(agent_of(deepseek(server)), way)
        assert (result.status, result.structured) == (RunStatus.COMPLETED, City(name="Oslo"))
        assert server.errors == []


async def test_broken_calls_after_the_reminder_are_asked_about_once_too(way: Way, saver: Any) -> None:
    broken = Reply(tool_calls=[WireCall("City", '{"name": "Os')])
    with DeepSeekServer(["It is Oslo.", broken, Reply(tool_calls=[wire_call("City", name="Oslo")])]) as server:
        result = await ask(agent_of(deepseek(server), saver=saver), way)
        assert (result.status, result.structured) == (RunStatus.COMPLETED, City(name="Oslo"))
        assert [m.type for m in result.messages] == ["human", "ai", "ai", "tool", "ai", "tool"]
        sent = server.requests[-1].messages
        assert [m["role"] for m in sent][-5:] == ["user", "assistant", "user", "assistant", "tool"]
        assert server.errors == []


@pytest.mark.parametrize("form_first", [True, False])
async def test_the_same_fault_twice_ends_the_run_after_two_more_requests(form_first: bool, way: Way) -> None:
    broken = Reply(tool_calls=[WireCall("City", "{")])
    replies: list[Reply | str] = ["It is Oslo.", broken] if form_first else [broken, "It is Oslo."]
    for last, error in ((broken, InvalidToolCalls), ("Oslo.", StructuredAnswerMissing)):
        with DeepSeekServer([*replies, last]) as server:
            result = await ask(agent_of(deepseek(server)), way)
            assert (result.status, result.structured) == (RunStatus.ERROR, None)
            assert isinstance(result.error, error)
            assert len(server.requests) == 3


async def test_a_limit_before_the_first_word_is_told_as_what_it_is(way: Way) -> None:
    with DeepSeekServer([Reply(reasoning="so long", finish_reason="length")]) as server:
        result = await ask(agent_of(deepseek(server)), way)
        assert isinstance(result.error, AnswerCutOff)


async def test_any_model_that_answers_in_plain_text_is_asked_once_more(way: Way, saver: Any) -> None:
    schema = {"title": "place", "description": "A place.", "type": "object", "properties": {"name": {"type": "string"}}}
    call = AIMessage("", tool_calls=[tool_call("place", name="Oslo")])
    model = ScriptedChatModel(["It is Oslo.", call, "No.", "Never."])
    agent = agent_of(model, schema, saver)
    assert (await ask(agent, way)).structured == {"name": "Oslo"}
    later = await ask(agent, way)
    assert (later.status, later.structured) == (RunStatus.ERROR, None)
    assert isinstance(later.error, StructuredAnswerMissing)


async def test_without_a_form_plain_text_is_the_answer(way: Way) -> None:
    model = ScriptedChatModel(["It is Oslo."])
    result = await ask(RegnexeAgentBuilder().with_model(model).build(), way)
    assert (result.status, result.final_text, len(model.requests)) == (RunStatus.COMPLETED, "It is Oslo.", 1)
