"""What a turn costs late in a session, and what the session takes on disk: deepagents alone and Regnexe.

    python -m benchmarks.long_session [--saver sqlite|postgres] [--turns 1250] [--repeats 3] [--quick]
                                      [--json FILE] [--plot FILE.png]

Three sides grow one session each, in one process, turn by turn in changing order: bare deepagents, Regnexe as it
comes, and Regnexe with a view of the last 20 messages. Each side has a saver of the same kind of its own. A turn is
one human message, one tool call, its result, and an answer: about 1,200 characters in four messages.

Up to each mark (50, 250, ... turns) the last 50 turns are timed, and between them turns of fresh sessions on the same
side, which end after ten turns and have a database of their own. A row holds medians of the long session's turns and
of the fresh ones', and the mean time that the garbage collector took in a turn of the long session. `disk` is what
its database takes at that mark.

At the end each log is opened cold, with nothing remembered, and that time is set beside one `loads_typed` of the
same list of messages.
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
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from deepagents import create_deep_agent
from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from pydantic import PrivateAttr

from benchmarks.databases import Database, open_database
from regnexe import RegnexeAgentBuilder, SessionKey

Turn = Callable[[str, str], Awaitable[object]]

SIDES = ("bare", "regnexe", "regnexe, 20 messages")
WINDOW = 20
TIMED = 50
FRESH_TURNS = 10
MARKS = (50, 250, 500, 750, 1000, 1250)
SESSION = "long"

_SENTENCE = "The ferry across the river runs every quarter of an hour until late in the evening, and costs two coins. "
GOAL = _SENTENCE * 5
ANSWER = _SENTENCE * 5
WEATHER = "mild and dry, wind from the west at 12 km/h, few clouds; " * 3


class ScriptedModel(BaseChatModel):
    """Calls its tool after a human message and answers after the result; without tools, as a summariser, it answers."""

    _numbers: Any = PrivateAttr(default_factory=count)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: Any) -> Any:
        """Return a model that knows of tools."""
        return self.bind(has_tools=True)

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        message = AIMessage(ANSWER)
        if kwargs.get("has_tools") and isinstance(messages[-1], HumanMessage):
            call = {
                "name": "weather",
                "args": {"city": "Lisbon"},
                "id": f"call_{next(self._numbers)}_{uuid.uuid4().hex}",
            }
            message = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._generate(messages, **kwargs)


@tool
async def weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"{city}: {WEATHER}"


class Window(AgentMiddleware[Any, Any, Any]):
    """The last messages only, in the place of the summariser."""

    @property
    def name(self) -> str:
        """The name of deepagents' summariser, whose place it takes."""
        return "SummarizationMiddleware"

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        """Call the model with a short view that begins with no orphan."""
        view = request.messages[-WINDOW:]
        while view and view[0].type == "tool":
            view = view[1:]
        return await handler(request.override(messages=view))


class GcClock:
    """How long the garbage collector has run."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begun = 0.0
        gc.callbacks.append(self._tick)

    def _tick(self, phase: str, _: Any) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._begun = now
        else:
            self.seconds += now - self._begun


@dataclass(kw_only=True)
class Row:
    """One side at one mark: times in milliseconds, bytes on disk."""

    side: str
    turn: int
    long_ms: float
    fresh_ms: float
    gc_ms: float
    disk_bytes: int

    @property
    def ratio(self) -> float:
        """A late turn over a fresh session's."""
        return self.long_ms / self.fresh_ms


@dataclass(kw_only=True)
class Cold:
    """A log opened with nothing remembered, beside one decode of it."""

    side: str
    messages: int
    open_ms: float
    decode_ms: float
    text_bytes: int


@dataclass(kw_only=True)
class Repeat:
    """Everything measured in one go."""

    rows: list[Row] = field(default_factory=list)
    cold: list[Cold] = field(default_factory=list)


@dataclass(kw_only=True)
class Side:
    """One way to run turns, on its own database."""

    name: str
    turn: Turn
    database: Database
    graph: Any
    long: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)
    collected: list[float] = field(default_factory=list)


async def measure(saver: str, names: Sequence[str], turns: int, marks: Sequence[int], gc_clock: GcClock) -> Repeat:
    """Grow the sessions once."""
    found = Repeat()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = [await open_side(name, saver, folder, stack) for name in names]
        beside = {name: await open_side(name, saver, folder / "fresh", stack) for name in names}
        fresh = dict.fromkeys(names, ("", FRESH_TURNS))
        for number in range(1, turns + 1):
            order = sides if number % 2 else sides[::-1]
            timed = any(mark - TIMED < number <= mark for mark in marks)
            for side in order:
                before = gc_clock.seconds
                taken = await _timed(side, SESSION, number)
                if not timed:
                    continue
                side.long.append(taken)
                side.collected.append((gc_clock.seconds - before) * 1e3)
                session, used = fresh[side.name]
                if used == FRESH_TURNS:
                    session, used = f"fresh-{uuid.uuid4().hex}", 0
                side.fresh.append(await _timed(beside[side.name], session, used))
                fresh[side.name] = (session, used + 1)
            if number in marks:
                for side in sides:
                    found.rows.append(await _row(side, number))
                    print(_line(found.rows[-1]), flush=True)
        for side in sides:
            found.cold.append(await _cold(side))
    return found


async def open_side(name: str, saver: str, folder: Path, stack: AsyncExitStack) -> Side:
    """Return one of `SIDES` on a new database of this kind."""
    database = await stack.enter_async_context(open_database(saver, folder, name))
    if name == "bare":
        graph: Any = create_deep_agent(ScriptedModel(), [weather], checkpointer=database.saver)

        async def bare(session: str, goal: str) -> object:
            config = {"configurable": {"thread_id": SessionKey("default", "default", session).thread_id}}
            return await graph.ainvoke({"messages": [HumanMessage(goal)]}, config)

        return Side(name=name, turn=bare, database=database, graph=graph)
    builder = RegnexeAgentBuilder().with_model(ScriptedModel()).with_tool(weather).with_checkpointer(database.saver)
    if name != "regnexe":
        builder.with_middleware(Window())
    agent = await stack.enter_async_context(builder.build())

    async def regnexe(session: str, goal: str) -> object:
        result = await agent.ainvoke(goal, session_id=session)
        result.raise_for_status()
        return result

    return Side(name=name, turn=regnexe, database=database, graph=agent.graph)


async def _timed(side: Side, session: str, number: int) -> float:
    begun = time.perf_counter_ns()
    await side.turn(session, f"Turn {number}. {GOAL}")
    return (time.perf_counter_ns() - begun) / 1e6


async def _row(side: Side, number: int) -> Row:
    row = Row(
        side=side.name,
        turn=number,
        long_ms=statistics.median(side.long),
        fresh_ms=statistics.median(side.fresh),
        gc_ms=statistics.mean(side.collected),
        disk_bytes=await side.database.size(),
    )
    side.long.clear()
    side.fresh.clear()
    side.collected.clear()
    return row


async def _cold(side: Side) -> Cold:
    """Open the log with a graph that has read nothing before."""
    config: Any = {"configurable": {"thread_id": SessionKey("default", "default", SESSION).thread_id}}
    async with side.database.again() as saver:
        cold = side.graph.copy({"checkpointer": side.database.cold(side.graph, saver)})
        gc.collect()
        begun = time.perf_counter_ns()
        state = await cold.aget_state(config)
        opened = time.perf_counter_ns()
        messages = state.values["messages"]
        stored = saver.serde.dumps_typed(messages)
        gc.collect()
        decode_begun = time.perf_counter_ns()
        saver.serde.loads_typed(stored)
        decoded = time.perf_counter_ns()
    return Cold(
        side=side.name,
        messages=len(messages),
        open_ms=(opened - begun) / 1e6,
        decode_ms=(decoded - decode_begun) / 1e6,
        text_bytes=sum(len(str(message.content)) for message in messages),
    )


def _line(row: Row) -> str:
    return (
        f"{row.side:22} {row.turn:6} {row.long_ms:9.1f} {row.fresh_ms:9.1f} {row.ratio:7.2f} {row.gc_ms:7.2f}"
        f" {row.disk_bytes / 1e6:9.1f}"
    )


_HEAD = f"{'side':22} {'turn':>6} {'long ms':>9} {'fresh ms':>9} {'ratio':>7} {'gc ms':>7} {'disk MB':>9}"


def table(repeats: Sequence[Repeat]) -> str:
    """Return the medians over the repeats, as text."""
    lines = [_HEAD]
    keys = list(dict.fromkeys((row.side, row.turn) for row in repeats[0].rows))
    for side, turn in keys:
        rows = [row for repeat in repeats for row in repeat.rows if (row.side, row.turn) == (side, turn)]
        middle = {
            name: statistics.median(getattr(row, name) for row in rows)
            for name in ("long_ms", "fresh_ms", "gc_ms", "disk_bytes")
        }
        lines.append(_line(Row(side=side, turn=turn, **{**middle, "disk_bytes": int(middle["disk_bytes"])})))
    lines += ["", f"{'cold open':22} {'messages':>9} {'open ms':>9} {'decode ms':>10} {'ratio':>7} {'text MB':>8}"]
    for index, side in enumerate(cold.side for cold in repeats[0].cold):
        colds = [repeat.cold[index] for repeat in repeats]
        opened = statistics.median(cold.open_ms for cold in colds)
        decoded = statistics.median(cold.decode_ms for cold in colds)
        lines.append(
            f"{side:22} {colds[0].messages:9} {opened:9.0f} {decoded:10.0f} {opened / decoded:7.2f}"
            f" {colds[0].text_bytes / 1e6:8.2f}"
        )
    return "\n".join(lines)


def plot(repeats: Sequence[Repeat], path: Path) -> None:
    """Draw turn times and bytes against turns."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (times, sizes) = plt.subplots(1, 2, figsize=(11, 4.2))
    for side in dict.fromkeys(row.side for row in repeats[0].rows):
        turns = [row.turn for row in repeats[0].rows if row.side == side]

        def middle(name: str, turn: int, side: str = side) -> float:
            return float(
                statistics.median(
                    getattr(row, name)
                    for repeat in repeats
                    for row in repeat.rows
                    if (row.side, row.turn) == (side, turn)
                )
            )

        times.plot(turns, [middle("long_ms", turn) for turn in turns], marker="o", label=side)
        sizes.plot(turns, [middle("disk_bytes", turn) / 1e6 for turn in turns], marker="o", label=side)
    times.set(title="One turn", xlabel="turns in the session", ylabel="ms", yscale="log")
    sizes.set(title="The database", xlabel="turns in the session", ylabel="MB")
    times.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.long_session", description="Time turns late in a long session.")
    parser.add_argument("--saver", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES, help="only some of the sides")
    parser.add_argument(
        "--turns", type=int, default=MARKS[-1], help=f"how long the sessions get (default: {MARKS[-1]})"
    )
    parser.add_argument("--repeats", type=int, default=3, help="how often, each from nothing (default: 3)")
    parser.add_argument("--quick", action="store_true", help="60 turns, once: shows that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured to this file")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw it (needs matplotlib)")
    options = parser.parse_args(arguments)
    turns, repeats = (60, 1) if options.quick else (options.turns, options.repeats)
    marks = [mark for mark in MARKS if mark <= turns]
    if turns not in marks and turns >= TIMED:
        marks.append(turns)
    print(f"Python {platform.python_version()} on {platform.platform()}, {options.saver}\n{_HEAD}", flush=True)
    clock = GcClock()
    found = []
    for number in range(repeats):
        print(f"repeat {number + 1} of {repeats}", flush=True)
        found.append(asyncio.run(measure(options.saver, options.sides, turns, marks, clock)))
    print(f"\nmedians of {repeats}\n{table(found)}")
    if options.json:
        options.json.write_text(json.dumps([asdict(repeat) for repeat in found], indent=2), encoding="utf-8")
    if options.plot:
        plot(found, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
