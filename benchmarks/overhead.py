"""What Regnexe adds to a turn, or saves: the same turns through deepagents alone and through Regnexe.

    python -m benchmarks.overhead [--pairs 200] [--quick] [--json] [--check]

A turn is one human message, one tool call, its result, and an answer of fifty words. Both sides run it in
this process with the same scripted model, the same tool, and a saver of their own of the same kind, in pairs
whose order changes from pair to pair (A B, B A, A B, ...), so that warm-up and drift fall on both alike. The
ratio of a row is the median of its pairs' ratios, Regnexe over bare: below 1, Regnexe is the faster one.

- `ainvoke`: an agent with one listener against `graph.ainvoke`, once with LangGraph's default durability
  "async" and once with "sync", which is what Regnexe uses.
- `astream`: every event of `agent.astream` against every part of `graph.astream` with the stream modes that
  carry the same news: updates, tools and messages, sub-graphs included.
- `fresh`: a new session each turn; `growing`: the session goes on for forty turns.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import count, product
from pathlib import Path
from typing import Any, Literal, get_args

from deepagents import create_deep_agent
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph.state import CompiledStateGraph
from pydantic import PrivateAttr

from regnexe import Event, EventType, RegnexeAgent, RegnexeAgentBuilder, SessionKey

Graph = CompiledStateGraph[Any, Any, Any, Any]
Turn = Callable[[str], Awaitable[object]]
Mode = Literal["ainvoke", "astream"]
SaverKind = Literal["memory", "sqlite"]
Sessions = Literal["fresh", "growing"]
Durability = Literal["async", "sync"]  # the first one is LangGraph's default

TURNS_PER_SESSION = 40
WARM_UP = 5
QUICK_PAIRS = 3
GOAL = "What is the weather like in Lisbon, and should I take the early ferry across the river?"
CALL_USAGE = UsageMetadata(input_tokens=60, output_tokens=12, total_tokens=72)
ANSWER_USAGE = UsageMetadata(input_tokens=90, output_tokens=66, total_tokens=156)
ANSWER = (
    "It is mild and dry in Lisbon this morning, with a light wind from the west and only a few high clouds. "
    "The early ferry runs on time and is rarely full before eight, so take it, sit on the left side, and keep "
    "a jacket at hand for the way back after sunset."
)


class ScriptedModel(BaseChatModel):
    """Calls the tool after a human message and answers after the tool's result; costs next to nothing."""

    _numbers: Iterator[int] = PrivateAttr(default_factory=count)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: Any) -> Any:
        """Return the model itself: what it calls is written down."""
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        message = AIMessage(ANSWER, usage_metadata=ANSWER_USAGE)
        if isinstance(messages[-1], HumanMessage):
            call = {"name": "weather", "args": {"city": "Lisbon"}, "id": f"call_{next(self._numbers)}"}
            message = AIMessage("", tool_calls=[call], usage_metadata=CALL_USAGE)
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._generate(messages)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        if isinstance(messages[-1], HumanMessage):
            call = {"name": "weather", "args": '{"city": "Lisbon"}', "id": f"call_{next(self._numbers)}", "index": 0}
            yield _chunk("", tool_call_chunks=[call], usage_metadata=CALL_USAGE, chunk_position="last")
            return
        for word in ANSWER.split(" "):
            yield _chunk(word if word == "It" else f" {word}")
        yield _chunk("", usage_metadata=ANSWER_USAGE, chunk_position="last")


def _chunk(content: str, **fields: Any) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(content=content, **fields))


@tool
async def weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"{city}: 18 °C, dry, wind from the west at 12 km/h, few clouds"


class CountingListener:
    """A listener that costs as little as one can."""

    def __init__(self) -> None:
        self.events = 0

    async def on_event(self, event_type: EventType, name: str, data: Event) -> None:
        """Count one event."""
        self.events += 1


@dataclass(frozen=True)
class Case:
    """What one row of the table measures."""

    mode: Mode
    saver: SaverKind
    sessions: Sessions
    bare_durability: Durability = "async"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A case and its numbers: times in milliseconds, ratios as Regnexe over bare."""

    case: Case
    bare_ms: float
    regnexe_ms: float
    ratio: float
    ratio_p10: float
    ratio_p90: float
    pairs: int

    @property
    def slower(self) -> bool:
        """Whether Regnexe is not as fast as `--check` asks for."""
        if self.case.mode == "astream":
            return self.ratio > 1.0
        return self.case.saver == "sqlite" and self.ratio >= 1.0


CASES = [
    *(Case("ainvoke", *what) for what in product(get_args(SaverKind), get_args(Sessions), get_args(Durability))),
    *(Case("astream", *what) for what in product(get_args(SaverKind), get_args(Sessions))),
]


async def measure(case: Case, pairs: int) -> Row:
    """Run one case and return its row."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        savers = [await _saver(case, folder / f"{side}.db", stack) for side in ("bare", "regnexe")]
        graph: Graph = create_deep_agent(ScriptedModel(), [weather], checkpointer=savers[0])
        listener = CountingListener()
        builder = RegnexeAgentBuilder().with_model(ScriptedModel()).with_tool(weather).with_checkpointer(savers[1])
        agent = await stack.enter_async_context(builder.with_event_listener(listener).build())

        turns = (_bare_turn(graph, case), _regnexe_turn(agent, case))
        await _times(turns, ["warm-up"] * WARM_UP)
        await _check_same_work(graph, agent, listener)

        length = 1 if case.sessions == "fresh" else TURNS_PER_SESSION
        gc.collect()
        gc.freeze()
        try:
            times = await _times(turns, [f"session-{pair // length}" for pair in range(pairs)])
        finally:
            gc.unfreeze()
    ratios = [regnexe / bare for bare, regnexe in times]
    deciles = statistics.quantiles(ratios, n=10, method="inclusive")
    return Row(
        case=case,
        bare_ms=statistics.median(bare for bare, _ in times),
        regnexe_ms=statistics.median(regnexe for _, regnexe in times),
        ratio=statistics.median(ratios),
        ratio_p10=deciles[0],
        ratio_p90=deciles[-1],
        pairs=pairs,
    )


async def _saver(case: Case, path: Path, stack: AsyncExitStack) -> BaseCheckpointSaver[Any]:
    if case.saver == "memory":
        return InMemorySaver()
    return await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(path)))


def _bare_turn(graph: Graph, case: Case) -> Turn:
    async def ainvoke(session: str) -> object:
        return await graph.ainvoke(_input(), _config(session), durability=case.bare_durability)

    modes: Any = ["updates", "tools", "messages"]  # the annotation of `stream_mode` lacks "tools"

    async def astream(session: str) -> object:
        parts = 0
        async for _ in graph.astream(_input(), _config(session), stream_mode=modes, subgraphs=True, version="v2"):
            parts += 1
        return parts

    return ainvoke if case.mode == "ainvoke" else astream


def _regnexe_turn(agent: RegnexeAgent, case: Case) -> Turn:
    async def ainvoke(session: str) -> object:
        return await agent.ainvoke(GOAL, session_id=session)

    async def astream(session: str) -> object:
        events = 0
        async with agent.astream(GOAL, session_id=session) as stream:
            async for _ in stream:
                events += 1
        return events

    return ainvoke if case.mode == "ainvoke" else astream


def _input() -> dict[str, Any]:
    return {"messages": [HumanMessage(GOAL)]}


def _config(session: str) -> RunnableConfig:
    # The thread that Regnexe uses for the session, so that both sides store under the same name.
    return {"configurable": {"thread_id": SessionKey("default", "default", session).thread_id}}


async def _times(turns: tuple[Turn, Turn], sessions: Sequence[str]) -> list[tuple[float, float]]:
    """Run one pair of turns for each session named, and return the milliseconds that each turn took."""
    times = []
    for pair, session in enumerate(sessions):
        taken = [0.0, 0.0]
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            begun = time.perf_counter_ns()
            await turns[side](session)
            taken[side] = (time.perf_counter_ns() - begun) / 1e6
        times.append((taken[0], taken[1]))
    return times


async def _check_same_work(graph: Graph, agent: RegnexeAgent, listener: CountingListener) -> None:
    """Raise unless both sides stored the same conversation in the warm-up, and the listener heard of it."""
    bare, regnexe = [await _stored(side) for side in (graph, agent.graph)]
    expected = ["human", "ai", "tool", "ai"] * WARM_UP
    if bare != regnexe or [kind for kind, _ in bare] != expected or bare[-1] != ("ai", ANSWER):
        raise RuntimeError(f"the two sides did different work: bare stored {bare}, Regnexe stored {regnexe}")
    if listener.events < 8 * WARM_UP:
        raise RuntimeError(f"the listener heard {listener.events} events in {WARM_UP} turns; 8 a turn were expected")


async def _stored(graph: Graph) -> list[tuple[str, object]]:
    state = await graph.aget_state(_config("warm-up"))
    return [(message.type, message.content) for message in state.values["messages"]]


def report(rows: Sequence[Row]) -> dict[str, Any]:
    """Return everything measured, as JSON can hold it."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: version(name) for name in ("regnexe", "deepagents", "langgraph", "langchain-core")},
        "turns_per_session": TURNS_PER_SESSION,
        "gc": "enabled on both sides; collected and frozen before each row",
        "rows": [{**(found := asdict(row)).pop("case"), **found} for row in rows],
        "slower": [asdict(row.case) for row in rows if row.slower],
    }


def table(rows: Sequence[Row]) -> str:
    """Return everything measured, as text."""
    about = report(rows)
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    lines = [
        f"Python {about['python']} on {about['platform']}",
        versions,
        f"gc {about['gc']}; growing sessions last {TURNS_PER_SESSION} turns",
        "ms: medians; ratio: median over pairs of regnexe/bare, with its 10th and 90th percentile",
        "",
        f"{'mode':8} {'saver':7} {'sessions':9} {'bare durability':16}"
        f" {'bare ms':>8} {'regnexe ms':>11} {'ratio':>6} {'p10':>6} {'p90':>6} {'pairs':>6}",
    ]
    lines += [
        f"{row.case.mode:8} {row.case.saver:7} {row.case.sessions:9} {row.case.bare_durability:16}"
        f" {row.bare_ms:8.2f} {row.regnexe_ms:11.2f} {row.ratio:6.3f} {row.ratio_p10:6.3f} {row.ratio_p90:6.3f}"
        f" {row.pairs:6}"
        for row in rows
    ]
    return "\n".join(lines)


async def run(pairs: int) -> list[Row]:
    """Measure every case, one after the other."""
    return [await measure(case, pairs) for case in CASES]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.overhead", description="Time turns with and without Regnexe.")
    parser.add_argument("--pairs", type=_pairs, default=200, help="pairs of turns for each row (default: 200)")
    parser.add_argument("--quick", action="store_true", help=f"only {QUICK_PAIRS} pairs: shows that it runs")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument(
        "--check",
        action="store_true",
        help="exit with 1 if an ainvoke ratio on SQLite is not below 1, or an astream ratio is above 1",
    )
    options = parser.parse_args(arguments)
    rows = asyncio.run(run(QUICK_PAIRS if options.quick else options.pairs))
    print(json.dumps(report(rows), indent=2) if options.json else table(rows))
    return int(options.check and any(row.slower for row in rows))


def _pairs(text: str) -> int:
    if (pairs := int(text)) < 2:
        raise argparse.ArgumentTypeError("a spread needs at least 2 pairs")
    return pairs


if __name__ == "__main__":
    sys.exit(main())
