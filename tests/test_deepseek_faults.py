"""Every fault of DeepSeek's, through the real client: what the run says, and that the session goes on after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import openai
import pytest
from deepagents.backends import StateBackend
from deepagents.middleware.summarization import SummarizationMiddleware
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import ToolMessage

from regnexe import AgentResult, AnswerCutOff, InvalidToolCalls, RegnexeAgent, RegnexeAgentBuilder, RunStatus, Vendor
from regnexe.testing import DeepSeekServer
from regnexe.testing.deepseek import DeepSeekRequest, Fault, Reply, Rules, wire_call

if TYPE_CHECKING:
    from collections.abc import Iterator

Way = Literal["awaited", "streamed"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeepSeekServer]:
    async def no_wait(seconds: float) -> None: ...

    monkeypatch.setattr("openai._base_client.anyio.sleep", no_wait)
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-test")
    with DeepSeekServer() as running:
        monkeypatch.setenv("DEEPSEEK_BASE_URL", running.base_url)
        yield running


@pytest.fixture(params=["awaited", "streamed"])
def way(request: pytest.FixtureRequest) -> Way:
    chosen: Way = request.param
    return chosen


class Weather:
    """A tool that notes what it was asked."""

    def __init__(self) -> None:
        self.cities: list[str] = []

    async def get_weather(self, city: str) -> str:
        """Tell the weather of a city."""
        self.cities.append(city)
        return f"{city}: sunny"


def agent_of(saver: Any, weather: Weather | None = None, *middleware: Any) -> RegnexeAgent:
    return (
        RegnexeAgentBuilder()
        .with_default_model(Vendor.DEEPSEEK, "deepseek-flash")
        .with_tool((weather or Weather()).get_weather)
        .with_checkpointer(saver)
        .with_middleware(*middleware)
        .build()
    )


async def ask(agent: RegnexeAgent, goal: str, way: Way) -> AgentResult:
    if way == "awaited":
        return await agent.ainvoke(goal, session_id="s")
    async with agent.astream(goal, session_id="s") as stream:
        async for _ in stream:
            pass
    return stream.result


FAULTS: dict[str, tuple[Fault, type[BaseException] | None]] = {
    "401": (Fault.unauthorized(), openai.AuthenticationError),
    "402": (Fault.insufficient_balance(), openai.APIStatusError),
    "413": (Fault.too_large(), openai.APIStatusError),
    "422": (Fault.unprocessable(), openai.UnprocessableEntityError),
    "429": (Fault.rate_limited(), openai.RateLimitError),
    "500": (Fault.server_error(), openai.InternalServerError),
    "503": (Fault.busy(), openai.InternalServerError),
    "reset": (Fault.reset(), openai.APIConnectionError),
    "close": (Fault.close(), openai.APIConnectionError),
    "broken body": (Fault.cut(clean=False), Exception),
    "no JSON": (Fault.invalid_json(), Exception),
    "empty answer": (Fault.empty(), None),
    "content filter": (Fault.content_filter(), None),
    "out of resources": (Fault.insufficient_system_resource(), None),
    "length": (Fault.length(), None),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_is_told_and_the_next_turn_of_the_session_works(
    name: str, server: DeepSeekServer, way: Way, saver: Any
) -> None:
    fault, kind = FAULTS[name]
    agent = agent_of(saver)
    server.fail_next(fault, times=3)  # the client tries twice more where that can help
    result = await ask(agent, "hello", way)
    if kind is not None:
        assert (result.status, result.final_text) == (RunStatus.ERROR, "")
        assert isinstance(result.error, kind)
        assert str(result.error)
    elif result.status is RunStatus.ERROR:
        assert isinstance(result.error, AnswerCutOff)
    else:
        assert (result.status, result.error) == (RunStatus.COMPLETED, None)
        assert result.metadata["finish_reason"]
    server.fail_next(fault, times=0)
    for _ in range(3):
        if (after := await ask(agent, "and now?", way)).final_text == "ok":
            break
    assert (after.status, after.final_text) == (RunStatus.COMPLETED, "ok")
    assert after.session.messages[0].text == "hello"


async def test_a_context_that_overflows_is_told_and_the_next_turn_works_when_it_fits(
    server: DeepSeekServer, way: Way, saver: Any
) -> None:
    agent = agent_of(saver)
    server.rules = Rules(context_limit=100)
    result = await ask(agent, "hello", way)
    assert result.status is RunStatus.ERROR
    assert isinstance(result.error, ContextOverflowError)
    server.rules = Rules()
    assert (await ask(agent, "again", way)).final_text == "ok"


@pytest.mark.parametrize("finish", ["length", "content_filter", "insufficient_system_resource"])
async def test_an_answer_that_a_limit_ends_before_its_first_word_is_an_error(
    finish: str, monkeypatch: pytest.MonkeyPatch, server: DeepSeekServer, way: Way, saver: Any
) -> None:
    replies = iter([Reply(reasoning="I am thinking and thinking", finish_reason=finish), Reply("fine")])
    with DeepSeekServer(lambda request: next(replies)) as cutting:
        monkeypatch.setenv("DEEPSEEK_BASE_URL", cutting.base_url)
        agent = agent_of(saver)
        result = await ask(agent, "hello", way)
        assert (result.status, result.final_text) == (RunStatus.ERROR, "")
        assert isinstance(result.error, AnswerCutOff)
        assert f"finish reason '{finish}'" in str(result.error)
        assert (await ask(agent, "again", way)).final_text == "fine"


async def test_a_tool_call_that_is_cut_off_is_not_run_and_the_model_is_asked_once_more(
    monkeypatch: pytest.MonkeyPatch, server: DeepSeekServer, way: Way, saver: Any
) -> None:
    def reply(request: DeepSeekRequest) -> Reply:
        newest = request.messages[-1]
        if newest["role"] == "user":
            arguments = '{"city": "Bei' if len(request.messages) < 4 else '{"city": "Rome"}'
            call = wire_call("get_weather", city="x")
            cut = type(call)("get_weather", arguments)
            return Reply(reasoning="hm", tool_calls=[cut], finish_reason="length" if "Bei" in arguments else None)
        return Reply(f"told: {str(newest['content'])[:22]}", reasoning="hm")

    weather = Weather()
    with DeepSeekServer(reply) as cutting:
        monkeypatch.setenv("DEEPSEEK_BASE_URL", cutting.base_url)
        agent = agent_of(saver, weather)
        result = await ask(agent, "Weather?", way)
        assert (result.status, result.final_text) == (RunStatus.COMPLETED, "told: The call was not made:")
        assert weather.cities == []
        assert [m.status for m in result.messages if isinstance(m, ToolMessage)] == ["error"]
        later = await ask(agent, "Weather in Rome?", way)
        assert (later.status, weather.cities) == (RunStatus.COMPLETED, ["Rome"])
    assert cutting.errors == []


async def test_a_model_that_only_cuts_off_ends_the_run_as_an_error_and_the_session_goes_on(
    monkeypatch: pytest.MonkeyPatch, server: DeepSeekServer, way: Way, saver: Any
) -> None:
    def reply(request: DeepSeekRequest) -> Reply:
        if "enough" in str(request.messages[-1]["content"]):
            return Reply("fine", reasoning="hm")
        cut = type(wire_call("x"))("get_weather", '{"city": "Bei')
        return Reply(reasoning="hm", tool_calls=[cut], finish_reason="length")

    with DeepSeekServer(reply) as cutting:
        monkeypatch.setenv("DEEPSEEK_BASE_URL", cutting.base_url)
        agent = agent_of(saver)
        result = await ask(agent, "Weather?", way)
        assert (result.status, result.final_text) == (RunStatus.ERROR, "")
        assert isinstance(result.error, InvalidToolCalls)
        assert (await ask(agent, "that is enough", way)).final_text == "fine"


@pytest.mark.parametrize("enforcement", ["strict_tools", "strict_calls", "lenient"])
async def test_reasoning_goes_back_after_a_compaction_too(
    enforcement: Any, monkeypatch: pytest.MonkeyPatch, server: DeepSeekServer, way: Way, saver: Any
) -> None:
    def reply(request: DeepSeekRequest) -> Reply:
        newest = request.messages[-1]
        if "<messages>" in str(newest["content"]):
            return Reply("They asked for the weather.", reasoning="short")
        if newest["role"] == "user":
            return Reply(reasoning="look", tool_calls=[wire_call("get_weather", city="Rome")])
        return Reply("sunny", reasoning="seen")

    with DeepSeekServer(reply, rules=Rules(reasoning=enforcement)) as compacting:
        monkeypatch.setenv("DEEPSEEK_BASE_URL", compacting.base_url)
        model: Any = RegnexeAgentBuilder().with_default_model(Vendor.DEEPSEEK, "deepseek-flash")._model
        summariser = SummarizationMiddleware(
            model=model, backend=StateBackend(), trigger=("messages", 8), keep=("messages", 4)
        )
        agent = agent_of(saver, None, summariser)
        for turn in range(8):
            result = await ask(agent, f"question {turn}", way)
            assert (result.status, result.final_text, result.error) == (RunStatus.COMPLETED, "sunny", None)
        assert len(result.session.messages) == 32
        assert max(len(request.messages) for request in compacting.requests) < 14
    assert compacting.errors == []
