"""A tool runs with the arguments that the model wrote, or not at all: over HTTP, awaited and streamed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_deepseek import ChatDeepSeek
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from regnexe import AgentResult, InvalidToolCalls, RegnexeAgentBuilder, RunStatus
from regnexe.errors import AnswerCutOff
from regnexe.messages import call_arguments, finish_reason_of
from regnexe.models.deepseek import DeepSeekChatModel
from regnexe.models.hosted import HostedChatModel
from regnexe.runtime.raw_calls import no_guessed_calls
from regnexe.testing import DeepSeekServer
from regnexe.testing.deepseek import DeepSeekRequest, Fault, Reply, WireCall
from regnexe.testing.deepseek.rules import Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

Way = Literal["awaited", "streamed"]

WHOLE = ("stop", "tool_calls")
CUT = ("length", "content_filter", "insufficient_system_resource")
BROKEN = {
    "cut in a number": '{"amount": 12',
    "cut in a string": '{"amount": 12, "note": "for',
    "cut in a key": '{"amount": 12, "no',
    "cut at its first sign": "{",
    "no JSON": "amount=12",
    "two objects": '{"amount": 12}{"amount": 13}',
    "something behind": '{"amount": 12} and that is all',
    "an array": "[12]",
    "an empty array": "[]",
    "a number": "12",
    "a string": '"12"',
    "blank": "  ",
    "not a number": '{"amount": NaN}',
    "infinite": '{"amount": -Infinity}',
    "larger than any float": '{"amount": 1e999}',
}
VALID = {
    "all": ('{"amount": 12, "note": "x"}', (12.0, "x")),
    "one": ('{"amount": 12}', (12.0, "")),
    "none": ("{}", (0.0, "")),
    "no text": ("", (0.0, "")),
    "null": ("null", (0.0, "")),
    "line break": ('{"note": "a\nb"}', (0.0, "a\nb")),
}


class Till:
    """A tool that notes what was paid; it can be called without arguments, as a bad guess would."""

    def __init__(self) -> None:
        self.paid: list[tuple[float, str]] = []

    async def pay(self, amount: float = 0, note: str = "") -> str:
        """Pay an amount."""
        self.paid.append((amount, note))
        return "paid"


@pytest.fixture(params=["awaited", "streamed"])
def way(request: pytest.FixtureRequest) -> Way:
    chosen: Way = request.param
    return chosen


def calls_once(*calls: WireCall, finish: str | None = None) -> Any:
    """Answers what a user says with these calls, and anything else with a text."""

    def reply(request: DeepSeekRequest) -> Reply:
        if request.messages[-1]["role"] == "user":
            return Reply(reasoning="hm", tool_calls=calls, finish_reason=finish)
        return Reply("done", reasoning="hm")

    return reply


def deepseek(server: DeepSeekServer, cls: Any = DeepSeekChatModel, **settings: Any) -> BaseChatModel:
    model: BaseChatModel = cls(
        model="deepseek-flash", api_key=SecretStr("sk-test"), base_url=server.base_url, max_retries=0, **settings
    )
    return model


async def run(model: BaseChatModel, till: Till, way: Way, goal: str = "Pay.") -> AgentResult:
    agent = RegnexeAgentBuilder().with_model(model).with_tool(till.pay).build()
    if way == "awaited":
        return await agent.ainvoke(goal)
    async with agent.astream(goal) as stream:
        async for _ in stream:
            pass
    return stream.result


def results(result: AgentResult) -> list[str]:
    return [message.status for message in result.messages if isinstance(message, ToolMessage)]


# --- every finish reason, with every kind of arguments ---


@pytest.mark.parametrize("finish", [None, *WHOLE, *CUT])
@pytest.mark.parametrize("arguments", BROKEN)
async def test_broken_arguments_are_never_completed_by_guessing(arguments: str, finish: str | None, way: Way) -> None:
    till = Till()
    with DeepSeekServer(calls_once(WireCall("pay", BROKEN[arguments]), finish=finish)) as server:
        result = await run(deepseek(server), till, way)
    assert till.paid == []
    assert (result.status, result.final_text, result.error) == (RunStatus.COMPLETED, "done", None)
    assert results(result) == ["error"]
    called = result.messages[1]
    assert isinstance(called, AIMessage)
    assert [call["id"] for call in called.invalid_tool_calls] == [result.messages[2].tool_call_id]  # type: ignore[attr-defined]
    assert called.tool_calls == []
    assert called.invalid_tool_calls[0]["args"] == BROKEN[arguments]
    assert server.errors == []


@pytest.mark.parametrize("finish", [None, *WHOLE])
@pytest.mark.parametrize("arguments", VALID)
async def test_valid_arguments_reach_the_tool_as_they_are(arguments: str, finish: str | None, way: Way) -> None:
    till = Till()
    written, expected = VALID[arguments]
    with DeepSeekServer(calls_once(WireCall("pay", written), finish=finish)) as server:
        result = await run(deepseek(server), till, way)
    assert till.paid == [expected]
    assert (result.status, results(result)) == (RunStatus.COMPLETED, ["success"])


@pytest.mark.parametrize("finish", CUT)
async def test_the_last_call_of_an_answer_that_was_cut_off_is_not_run_though_it_looks_whole(
    finish: str, way: Way
) -> None:
    till = Till()
    calls = [WireCall("pay", '{"amount": 1}'), WireCall("pay", '{"amount": 2}')]
    with DeepSeekServer(calls_once(*calls, finish=finish)) as server:
        result = await run(deepseek(server), till, way)
    assert till.paid == [(1.0, "")]
    assert sorted(results(result)) == ["error", "success"]
    (told,) = [m.text for m in result.messages if isinstance(m, ToolMessage) and m.status == "error"]
    assert f"cut off by {'the token limit' if finish == 'length' else f'the provider ({finish})'}" in told


@pytest.mark.parametrize("after", range(1, 7))
async def test_a_stream_that_ends_within_a_call_runs_nothing(after: int) -> None:
    till = Till()
    with DeepSeekServer(calls_once(WireCall("pay", '{"amount": 12, "note": "xyz"}'))) as server:
        server.fail_next(Fault.cut(after=after))
        result = await run(deepseek(server), till, "streamed")
    assert till.paid == []
    assert (result.status, result.final_text) == (RunStatus.ERROR, "")
    assert isinstance(result.error, AnswerCutOff)


async def test_a_body_that_ends_within_a_call_runs_nothing() -> None:
    till = Till()
    with DeepSeekServer(calls_once(WireCall("pay", '{"amount": 12}'))) as server:
        server.fail_next(Fault.cut())
        result = await run(deepseek(server), till, "awaited")
    assert (till.paid, result.status, result.final_text) == ([], RunStatus.ERROR, "")


async def test_a_model_that_only_writes_broken_arguments_ends_the_run_as_an_error(way: Way) -> None:
    till = Till()
    with DeepSeekServer([Reply(tool_calls=[WireCall("pay", '{"amount": 12')])] * 2) as server:
        result = await run(deepseek(server), till, way)
    assert (till.paid, result.status) == ([], RunStatus.ERROR)
    assert isinstance(result.error, InvalidToolCalls)


# --- several calls, and every class of model ---


@pytest.mark.parametrize("wire", [Wire(), Wire(interleave=True, cut=1), Wire(interleave=True, cut=3)])
async def test_of_several_calls_only_the_broken_ones_are_refused(wire: Wire, way: Way) -> None:
    till = Till()
    calls = [
        WireCall("pay", '{"amount": 1}'),
        WireCall("pay", '{"amount": 2'),
        WireCall("pay", '{"amount": 3}'),
        WireCall("pay", "[4]"),
        WireCall("pay", '{"amount": 5}'),
    ]
    with DeepSeekServer(calls_once(*calls), wire=wire) as server:
        result = await run(deepseek(server), till, way)
    assert sorted(till.paid) == [(1.0, ""), (3.0, ""), (5.0, "")]
    assert sorted(results(result)) == ["error"] * 2 + ["success"] * 3
    assert server.errors == []


@pytest.mark.parametrize("cls", [ChatOpenAI, ChatDeepSeek, DeepSeekChatModel, HostedChatModel])
@pytest.mark.parametrize("settings", [{}, {"streaming": True}])
async def test_no_class_of_model_guesses(cls: Any, settings: dict[str, Any], way: Way) -> None:
    till = Till()
    calls = [WireCall("pay", '{"amount": 1'), WireCall("pay", '{"amount": 2}')]
    with DeepSeekServer(calls_once(*calls)) as server:
        model = deepseek(server, cls, extra_body={"thinking": {"type": "disabled"}}, **settings)
        result = await run(model, till, way)
    assert till.paid == [(2.0, "")]
    assert (result.status, sorted(results(result))) == (RunStatus.COMPLETED, ["error", "success"])


@pytest.mark.parametrize("arguments", ["not a number", "infinite", "larger than any float"])
async def test_no_class_of_model_passes_a_number_on_that_json_has_not(arguments: str, way: Way) -> None:
    till = Till()
    with DeepSeekServer(calls_once(WireCall("pay", BROKEN[arguments]))) as server:
        result = await run(deepseek(server, ChatOpenAI, extra_body={"thinking": {"type": "disabled"}}), till, way)
    assert (till.paid, result.status, results(result)) == ([], RunStatus.COMPLETED, ["error"])


async def test_a_cache_of_answers_gives_no_guess_either(way: Way) -> None:
    till = Till()
    with DeepSeekServer(calls_once(WireCall("pay", '{"amount": 12'))) as server:
        model = deepseek(server, cache=InMemoryCache())
        for _ in range(2):
            assert (await run(model, till, way)).status is RunStatus.COMPLETED
        assert len(server.requests) < 4
    assert till.paid == []


# --- what comes in pieces of another form ---


class Pieces(BaseChatModel):
    """Streams these pieces of calls first, and then says that it is done."""

    pieces: list[ToolCallChunk]
    own: bool = False
    """Whether its awaited form streams within itself, as some integrations do."""

    @property
    def _llm_type(self) -> str:
        return "pieces"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _chunks(self, messages: Sequence[Any]) -> Iterator[ChatGenerationChunk]:
        if isinstance(messages[-1], HumanMessage):
            for piece in self.pieces:
                yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[piece]))
        else:
            yield ChatGenerationChunk(message=AIMessageChunk(content="done"))

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        whole: Any = None
        for chunk in self._chunks(messages):
            await run_manager.on_llm_new_token("", chunk=chunk)
            whole = chunk.message if whole is None else whole + chunk.message
        calls, invalid = whole.tool_calls, whole.invalid_tool_calls
        message = AIMessage(whole.content, tool_calls=calls, invalid_tool_calls=invalid)
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._chunks(messages):
            yield chunk


def pieces(*given: tuple[str | None, str, str | None, int | None]) -> list[ToolCallChunk]:
    return [tool_call_chunk(name=name, args=args, id=id, index=index) for name, args, id, index in given]


FORMS: dict[str, tuple[list[ToolCallChunk], list[float]]] = {
    "without ids": (pieces(("pay", '{"amount": 1', None, 0), ("pay", '{"amount": 2}', None, 1)), [2]),
    "the same guess twice": (pieces(("pay", '{"amount": 1', None, 0), ("pay", '{"amount": 1}', None, 1)), [1]),
    "without indexes": (pieces(("pay", '{"amount": 1', "a", None), ("pay", '{"amount": 2}', "b", None)), [2]),
    "an index again, with another id": (pieces(("pay", '{"amount": 1', "a", 0), ("pay", '{"amount": 2}', "b", 0)), [2]),
    "one id twice": (pieces(("pay", '{"amount": 1', "a", 0), ("pay", '{"amount": 2}', "a", 1)), [2]),
    "an orphan piece": (pieces((None, '{"amount": 3}', None, None)), []),
    "pieces in turns": (
        pieces(("pay", '{"amo', "a", 0), ("pay", '{"amo', "b", 1))
        + pieces((None, 'unt": 1', None, 0), (None, 'unt": 2}', None, 1)),
        [2],
    ),
}  # fmt: skip


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("head", ["", '{"amount"'])
async def test_pieces_without_an_index_belong_to_the_call_before_them(head: str, own: bool) -> None:
    till = Till()
    rest = '{"amount": 7}'.removeprefix(head)
    given = pieces(("pay", head, "a", None), *[(None, letter, None, None) for letter in rest])
    result = await run(Pieces(pieces=given), till, "awaited" if own else "streamed")
    assert till.paid == [(7.0, "")]
    assert results(result) == ["success"]


async def test_a_call_without_arguments_in_an_answer_without_an_end_is_not_run() -> None:
    till = Till()
    result = await run(Pieces(pieces=pieces(("pay", "", "a", 0))), till, "streamed")
    assert till.paid == []
    assert results(result) == ["error"]


@pytest.mark.parametrize("finish", CUT)
async def test_of_a_cut_answer_the_last_call_and_those_without_arguments_are_not_run(way: Way, finish: str) -> None:
    for calls in (
        (WireCall("pay", '{"amount": oops}'), WireCall("pay", "")),
        (WireCall("pay", ""), WireCall("pay", '{"amount": 3}')),
        (WireCall("pay", '{"amount": 12'), WireCall("pay", '{"amount": 5}')),
    ):
        till = Till()
        with DeepSeekServer(calls_once(*calls, finish=finish)) as server:
            result = await run(deepseek(server), till, way)
        assert till.paid == []
        assert set(results(result)) == {"error"}


@pytest.mark.parametrize("reason", CUT)
def test_a_reason_that_came_on_two_pieces_is_the_same_reason(reason: str) -> None:
    for said in (reason, reason * 2, reason * 3):
        assert finish_reason_of(AIMessage("", response_metadata={"finish_reason": said})) == reason


async def test_a_sub_agent_that_was_cut_off_is_an_error_for_its_parent(way: Way) -> None:
    def reply(request: DeepSeekRequest) -> Reply:
        last = request.messages[-1]
        if last["role"] == "user" and "Pay." in str(last["content"]):
            task = json.dumps({"description": "take it", "subagent_type": "general-purpose"})
            return Reply(reasoning="hm", tool_calls=[WireCall("task", task)])
        if "take it" in str(request.messages):
            if any(
                message["role"] == "tool" and "sub-agent" in str(message["content"]) for message in request.messages
            ):
                return Reply("given up", reasoning="hm")
            return Reply(reasoning="hm", tool_calls=[WireCall("pay", '{"amount": 12')], finish_reason="length")
        return Reply("done", reasoning="hm")

    till = Till()
    with DeepSeekServer(reply) as server:
        result = await run(deepseek(server), till, way)
    assert till.paid == []
    tasks = [message for message in result.messages if isinstance(message, ToolMessage) and message.name == "task"]
    assert [message.status for message in tasks] == ["error"]
    assert "ended without an answer" in tasks[0].text


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("own", [False, True])
async def test_no_form_of_pieces_is_guessed_at(form: str, own: bool) -> None:
    till = Till()
    given, expected = FORMS[form]
    result = await run(Pieces(pieces=given), till, "awaited" if own else "streamed")
    assert [amount for amount, _ in till.paid] == expected
    assert "error" in results(result)


async def test_a_message_that_a_model_made_in_its_own_way_keeps_what_was_no_guess() -> None:
    class Renames(Pieces):
        """Gives each call but the first an id of its own."""

        async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
            result = await super()._agenerate(messages, stop, run_manager)
            if isinstance(messages[-1], ToolMessage):
                return result
            for call in result.generations[0].message.tool_calls[1:]:  # type: ignore[attr-defined]
                call["id"] = "renamed"
            return result

    till = Till()
    given = pieces(("pay", '{"amount": 1', "a", 0), ("pay", '{"amount": 2}', "b", 1))
    result = await run(Renames(pieces=given), till, "awaited")
    assert (till.paid, sorted(results(result))) == ([(2.0, "")], ["error", "success"])


async def test_outside_of_the_block_a_model_is_left_as_it_is() -> None:
    model = Pieces(pieces=pieces(("pay", '{"amount": 1', "a", 0)))
    with no_guessed_calls():
        assert (await model.ainvoke("x")).tool_calls == []
    assert [call["args"] for call in (await model.ainvoke("x")).tool_calls] == [{"amount": 1}]


@pytest.mark.parametrize("text", BROKEN.values())
def test_a_text_that_is_no_object_holds_no_arguments(text: str) -> None:
    assert call_arguments(text) is None


@pytest.mark.parametrize("text", ["[" * 100_000, '{"x": ' * 100_000, '{"x": ' + "1" * 5_000 + "}"])
def test_a_text_that_python_cannot_read_holds_no_arguments(text: str) -> None:
    assert call_arguments(text) is None


@pytest.mark.parametrize("given", [{}, {"a": [1, 2.5, None, True, {"b": "é"}]}])
def test_arguments_are_read_as_they_were_written(given: dict[str, Any]) -> None:
    assert call_arguments(json.dumps(given)) == given
