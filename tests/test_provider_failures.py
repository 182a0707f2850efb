"""What a run says when the provider fails: over HTTP, with the real clients and their own retries."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Any, Literal

import httpx2
import openai
import pytest
from langchain_core.exceptions import ContextOverflowError, ModelAuthenticationError, ModelRateLimitError
from langchain_deepseek import ChatDeepSeek
from pydantic import SecretStr

from regnexe import RegnexeAgent, RegnexeAgentBuilder, RunFailed, RunStatus, chat_model
from regnexe.errors import AnswerCutOff
from regnexe.models.failures import ModelSource, explained
from regnexe.testing import DeepSeekServer, RecordingListener
from regnexe.testing.deepseek import Fault, Rules
from regnexe.testing.deepseek.errors import error_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from regnexe import AgentResult

KEY = "sk-nobody-may-read-this-0123456789"
Way = Literal["awaited", "streamed"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeepSeekServer]:
    with DeepSeekServer(keys=[KEY]) as running:
        for vendor, key in (("DEEPSEEK", "DEEPSEEK_API_KEY"), ("MOONSHOT", "MOONSHOT_API_KEY")):
            monkeypatch.setenv(f"{vendor}_BASE_URL", running.base_url)
            monkeypatch.setenv(key, KEY)
        yield running


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client wanted to wait before each retry; it does not."""
    waited: list[float] = []

    async def note(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("openai._base_client.anyio.sleep", note)
    return waited


@pytest.fixture(params=["awaited", "streamed"])
def way(request: pytest.FixtureRequest) -> Way:
    chosen: Way = request.param
    return chosen


def agent_of(vendor: str = "deepseek", name: str = "deepseek-flash", *listeners: Any) -> RegnexeAgent:
    return RegnexeAgentBuilder().with_default_model(vendor, name).with_event_listener(*listeners).build()


async def ask(agent: RegnexeAgent, way: Way) -> AgentResult:
    if way == "awaited":
        return await agent.ainvoke("hello", session_id="s")
    async with agent.astream("hello", session_id="s") as stream:
        async for _ in stream:
            pass
    return stream.result


# --- retries ---


@pytest.mark.parametrize("fault", [Fault.rate_limited(), Fault.server_error(), Fault.busy(), Fault.reset()])
async def test_what_passes_is_tried_again_by_the_client(
    fault: Fault, server: DeepSeekServer, way: Way, waits: list[float]
) -> None:
    server.fail_next(fault, 2)
    result = await ask(agent_of(), way)
    assert (result.status, result.final_text, len(server.requests)) == ("completed", "ok", 3)
    assert len(waits) == 2


@pytest.mark.parametrize(
    ("fault", "seconds"), [(Fault.rate_limited(retry_after=7), 7), (Fault.rate_limited(retry_after_ms=250), 0.25)]
)
async def test_a_retry_waits_as_long_as_the_provider_says(
    fault: Fault, seconds: float, server: DeepSeekServer, way: Way, waits: list[float]
) -> None:
    server.fail_next(fault)
    assert (await ask(agent_of(), way)).status == "completed"
    assert waits == [seconds]


# --- what does not pass ---

FAILURES: dict[str, tuple[Fault, type[Exception], str, int]] = {
    "429": (Fault.rate_limited(), openai.RateLimitError, "DeepSeek takes no more requests now", 3),
    "500": (Fault.server_error(), openai.InternalServerError, "DeepSeek has trouble", 3),
    "503": (Fault.busy(), openai.InternalServerError, "send the message again later", 3),
    "401": (Fault.unauthorized(), openai.AuthenticationError, "check the environment variable DEEPSEEK_API_KEY", 1),
    "402": (Fault.insufficient_balance(), openai.APIStatusError, "top it up", 1),
    "413": (Fault.too_large(), openai.APIStatusError, "larger than DeepSeek takes", 1),
    "reset": (Fault.reset(), openai.APIConnectionError, "check the network and DEEPSEEK_BASE_URL", 3),
    "close": (Fault.close(), openai.APIConnectionError, "no answer from http://127.0.0.1", 3),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failure_is_the_clients_own_and_says_what_to_do(failure: str, server: DeepSeekServer, way: Way) -> None:
    fault, kind, says, calls = FAILURES[failure]
    agent = agent_of()
    server.fail_next(fault, calls)
    result = await ask(agent, way)
    assert (result.status, result.final_text, len(server.requests)) == (RunStatus.ERROR, "", calls)
    assert isinstance(result.error, kind)
    assert str(result.error).count(says) == 1
    with pytest.raises(RunFailed, match=says):
        result.raise_for_status()
    assert (await ask(agent, way)).status == "completed"


@pytest.mark.parametrize(
    ("fault", "kind"), [(Fault.unauthorized(), ModelAuthenticationError), (Fault.rate_limited(), ModelRateLimitError)]
)
async def test_the_exceptions_are_langchains_too(fault: Fault, kind: type[Exception], server: DeepSeekServer) -> None:
    server.fail_next(fault, 3)
    assert isinstance((await ask(agent_of(), "awaited")).error, kind)


@pytest.mark.parametrize("name", ["deepseek-chat", "deepseek-reasoner", "deepseek-v5"])
async def test_an_unknown_model_is_answered_with_the_known_ones(name: str, server: DeepSeekServer, way: Way) -> None:
    result = await ask(agent_of("deepseek", name), way)
    assert result.status is RunStatus.ERROR
    assert str(result.error).endswith(
        f"DeepSeek does not serve the model '{name}'; use deepseek-flash or deepseek-v4-pro"
    )
    assert len(server.requests) == 1


async def test_another_vendors_failures_name_its_own_variables(server: DeepSeekServer, way: Way) -> None:
    server.fail_next(Fault.unauthorized())
    result = await ask(agent_of("moonshot"), way)
    assert isinstance(result.error, openai.AuthenticationError)
    assert "Moonshot does not accept the key: check the environment variable MOONSHOT_API_KEY" in str(result.error)
    result = await ask(agent_of("moonshot", "kimi-9"), way)
    assert "Moonshot does not serve the model 'kimi-9'; check the name" in str(result.error)


async def test_no_answer_in_time_is_a_failure_of_the_connection(server: DeepSeekServer) -> None:
    server.fail_next(Fault.hold())
    given = ChatDeepSeek(
        model="deepseek-flash", api_key=SecretStr(KEY), base_url=server.base_url, timeout=0.05, max_retries=0
    )
    result = await ask(RegnexeAgentBuilder().with_model(given).build(), "awaited")
    assert isinstance(result.error, openai.APITimeoutError)
    assert "no answer from http://127.0.0.1" in str(result.error)


# --- answers that are none ---


@pytest.mark.parametrize("after", [1, 2])
async def test_a_stream_that_ends_too_early_is_no_answer(after: int, server: DeepSeekServer) -> None:
    agent = agent_of()
    server.fail_next(Fault.cut(after=after))
    result = await ask(agent, "streamed")
    assert (result.status, result.final_text) == (RunStatus.ERROR, "")
    assert isinstance(result.error, AnswerCutOff)
    assert (await ask(agent, "streamed")).final_text == "ok"


@pytest.mark.parametrize("fault", [Fault.cut(clean=False), Fault.invalid_json(), Fault.cut()])
async def test_a_garbled_or_broken_body_ends_as_an_error(fault: Fault, server: DeepSeekServer, way: Way) -> None:
    agent = agent_of()
    server.fail_next(fault, 3)
    result = await ask(agent, way)
    assert (result.status, result.final_text) == (RunStatus.ERROR, "")
    assert result.error is not None


@pytest.mark.parametrize(
    "vendor", ["deepseek", "aliyun", "ark", "minimax", "moonshot", "ollama", "openai", "openai_limit", "openai_window",
               "qianfan", "zhipu"],
)  # fmt: skip
async def test_every_vendors_overflow_is_langchains(vendor: Any, server: DeepSeekServer, way: Way) -> None:
    server.rules = Rules(vendor=vendor, context_limit=10)
    for model in (chat_model("deepseek", "deepseek-flash"), chat_model("moonshot", "deepseek-flash")):
        with pytest.raises(ContextOverflowError) as caught:
            if way == "awaited":
                await model.ainvoke("x" * 400)
            else:
                [part async for part in model.astream("x" * 400)]
        assert isinstance(caught.value, openai.BadRequestError)


# --- secrets ---


@pytest.mark.parametrize("vendor", ["deepseek", "moonshot"])
@pytest.mark.parametrize("failure", [*FAILURES, "echo"])
async def test_a_key_is_in_no_error_event_log_or_repr(
    failure: str, vendor: str, server: DeepSeekServer, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    echo = Fault(error_answer(401, f"the key {KEY} is invalid", code=KEY))
    fault = echo if failure == "echo" else FAILURES[failure][0]
    server.fail_next(fault, 3)
    heard = RecordingListener()
    agent = agent_of(vendor, "deepseek-flash", heard)
    with caplog.at_level(logging.DEBUG):
        result = await ask(agent, way)
    assert result.status is RunStatus.ERROR
    error: Any = result.error
    told = [caplog.text, repr(result), str(error), repr(error), repr(agent), *map(repr, heard.events)]
    told += traceback.format_exception(error)
    while error is not None:
        told += [repr(getattr(error, "body", "")), repr(error.args), repr(getattr(error, "message", ""))]
        error = error.__cause__ or error.__context__
    assert server.requests[0].api_key == KEY
    assert [text for text in told if KEY in text] == []


def test_a_text_is_explained_once() -> None:
    request = httpx2.Request("POST", "https://x.test")
    source = ModelSource(vendor="V", model="m", base_url="https://x.test")
    error = openai.APIConnectionError(message="down", request=request)
    for _ in range(2):
        assert explained(error, source) is error
    assert str(error) == "down — no answer from https://x.test: check the network, then send the message again"
