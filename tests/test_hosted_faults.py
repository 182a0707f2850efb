"""Other vendors' streams: one that breaks off is no answer, and what is said twice counts once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from regnexe import AgentResult, AnswerCutOff, RegnexeAgentBuilder, RunStatus, Vendor, chat_model
from regnexe.models import vendors
from regnexe.testing import DeepSeekServer
from regnexe.testing.deepseek import Fault, Reply
from regnexe.testing.deepseek.errors import ErrorAnswer
from regnexe.testing.deepseek.rules import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from regnexe import RegnexeAgent

VENDORS = sorted(set(Vendor) - {Vendor.OFFLINE, Vendor.OLLAMA})
LABELS = {"lingyi": "01.AI", "deepseek": "DeepSeek", "openai": "OpenAI", "minimax": "MiniMax", "stepfun": "StepFun"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeepSeekServer]:
    with DeepSeekServer() as running:
        for vendor, hosted in vendors._HOSTED.items():
            monkeypatch.setenv(hosted.key_variables[0], "sk-test-0123456789")
            monkeypatch.setenv(f"{vendor.upper()}_BASE_URL", running.base_url)
        yield running


def agent_of(vendor: str) -> RegnexeAgent:
    return RegnexeAgentBuilder().with_default_model(vendor, "deepseek-flash").build()


async def streamed(agent: RegnexeAgent) -> AgentResult:
    async with agent.astream("hello", session_id="s") as stream:
        async for _ in stream:
            pass
    return stream.result


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("after", [0, 1, 2])
async def test_a_stream_that_ends_too_early_is_no_answer_of_any_vendors(
    vendor: Vendor, after: int, server: DeepSeekServer
) -> None:
    agent = agent_of(vendor)
    server.fail_next(Fault.cut(after=after))
    result = await streamed(agent)
    assert (result.status, result.final_text) == (RunStatus.ERROR, "")
    assert isinstance(result.error, AnswerCutOff)
    said = f"{LABELS.get(vendor, vendor.title())}'s answer stopped before its end; send the message again"
    assert str(result.error) == said
    assert (await streamed(agent)).final_text == "ok"


@pytest.mark.parametrize("vendor", [Vendor.DEEPSEEK, Vendor.MOONSHOT])
def test_a_synchronous_stream_that_ends_too_early_raises(vendor: Vendor, server: DeepSeekServer) -> None:
    server.fail_next(Fault.cut(after=2))
    with pytest.raises(AnswerCutOff):
        list(chat_model(vendor, "deepseek-flash").stream("hello"))
    assert "".join(part.text for part in chat_model(vendor, "deepseek-flash").stream("hello")) == "ok"


@pytest.mark.parametrize("vendor", [Vendor.DEEPSEEK, Vendor.MOONSHOT])
@pytest.mark.parametrize("usage", ["finish", "trailing", "both"])
async def test_a_stream_counts_its_usage_once(vendor: Vendor, usage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with DeepSeekServer([Reply("ok", usage={"prompt_tokens": 100})], wire=Wire(usage=usage)) as server:
        monkeypatch.setenv(f"{vendor.upper()}_BASE_URL", server.base_url)
        monkeypatch.setenv(f"{vendor.upper()}_API_KEY", "sk-test-0123456789")
        assert (await streamed(agent_of(vendor))).usage.input_tokens == 100


def event(delta: dict[str, Any], total: int, finish: str | None = None) -> str:
    usage = {"prompt_tokens": 10, "completion_tokens": total, "total_tokens": 10 + total}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "system_fingerprint": "fp"}
    return f"data: {json.dumps({**head, 'choices': [choice], 'usage': usage})}\n\n"


@pytest.mark.parametrize("vendor", [Vendor.DEEPSEEK, Vendor.MOONSHOT])
async def test_a_running_total_and_a_reason_that_comes_twice_count_once(vendor: Vendor, server: DeepSeekServer) -> None:
    events = [
        event({"role": "assistant", "content": "o"}, 1),
        event({"content": "k"}, 2),
        event({}, 3, "length"),
        event({"content": ""}, 3, "length"),
        "data: [DONE]\n\n",
    ]
    server.fail_next(Fault(ErrorAnswer(200, "".join(events).encode(), {"content-type": "text/event-stream"})))
    result = await streamed(agent_of(vendor))
    assert (result.status, result.final_text) == (RunStatus.COMPLETED, "ok")
    assert (result.usage.input_tokens, result.usage.output_tokens) == (10, 3)
    assert result.metadata["finish_reason"] == "length"
    answer: Any = result.messages[-1]
    assert (answer.response_metadata["model_name"], answer.response_metadata["system_fingerprint"]) == ("m", "fp")
