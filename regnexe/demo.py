"""What `regnexe demo` shows: five steps on the offline model and an SQLite file, each checked as it goes."""

from __future__ import annotations

import os
import reprlib
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from rich.console import Console
from rich.table import Table
from rich.text import Text

from regnexe.builder import RegnexeAgentBuilder
from regnexe.capabilities.decorators import agent_tool, plugin
from regnexe.document import Session
from regnexe.events import EventType, LlmStart
from regnexe.listeners import AbstractEventListener, ConsoleEventListener
from regnexe.models.vendors import Vendor, chat_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from langchain.agents.middleware.types import AgentMiddleware
    from langchain_core.messages import BaseMessage

    from regnexe.agent import RegnexeAgent
    from regnexe.events import Event
    from regnexe.listeners import AgentEventListener
    from regnexe.results import AgentResult

__all__ = ["DemoFailed", "reopen", "run"]

APP, ANN, BOB = "demo", "ann", "bob"
FIRST, SECOND, LONG = "first", "second", "long"

ASK = "Check today's weather in Beijing and tell me if it's good for outdoor running."
FOLLOW_UP = "Based on the weather you just looked up, what should I wear? No need to check it again."
AFTER_REOPENING = "Which city did I ask about earlier?"
LONG_TALK = (
    "My name is Ann.",
    "Check the weather in Beijing.",
    "Check the weather in Paris.",
    "Check the weather in Tokyo.",
    "Check the weather in London.",
    "What is my name?",
)
TRIGGER, KEEP = 8, 4

_WEATHER = {
    "Beijing": "sunny, 22 C, excellent air quality.",
    "London": "drizzle, 12 C, good air quality.",
    "Paris": "partly cloudy, 16 C, good air quality.",
    "Tokyo": "clear, 20 C, excellent air quality.",
}


class DemoFailed(click.ClickException):
    """The run showed something else than the demo says."""


@plugin(id="weather", name="Weather")
class _WeatherPlugin:
    """Invented weather for a handful of cities."""

    @agent_tool
    async def get_weather(self, city: str) -> str:
        """Get today's weather in a city.

        Args:
            city: Name of the city, for example Beijing.
        """
        return f"{city}: {_WEATHER.get(city, 'no data.')}"


class _Requests(AbstractEventListener):
    """Keeps what each model call was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[BaseMessage, ...]] = []

    def should_handle(self, event_type: EventType) -> bool:
        return event_type is EventType.LLM_START

    async def on_event(self, event_type: EventType, name: str, data: Event) -> None:
        if isinstance(data, LlmStart):
            self.sent.append(data.messages)


@dataclass
class _Stage:
    """Where the demo prints, and how it counts what it has checked."""

    console: Console
    checks: int = 0

    def step(self, title: str, text: str) -> None:
        self.console.print()
        self.console.print(Text(title, style="bold"))
        self.say(text)
        self.console.print()

    def say(self, text: str) -> None:
        self.console.print(Text(text))

    def check(self, claim: str, found: object, wanted: object) -> None:
        """Print the claim if it holds.

        Raises:
            DemoFailed: it does not.
        """
        if found != wanted:
            differ = f"Expected {_short(wanted)}, got {_short(found)}."
            raise DemoFailed(f"the demo did not go as it says it does.\n{claim}\n{differ}")
        self.checks += 1
        line = Table.grid(padding=(0, 1, 0, 0))
        line.add_row(Text("  [ok]", style="green"), Text(claim, style="green"))
        self.console.print(line)


async def run(db: Path, work: Path, *, console: Console) -> None:
    """Show everything.

    Args:
        db: the SQLite file to make.
        work: a directory for the file that the second process reports in.
        console: where to print.

    Raises:
        DemoFailed: something went another way than the demo says.
        PersistenceError: the file cannot be used.
    """
    began = time.perf_counter()
    stage = _Stage(console)
    console.print(Text("Regnexe demo", style="bold"))
    stage.say(
        "Everything here happens on this computer. The model is a small scripted stand-in that needs no key and no "
        f"network, and the sessions are in the SQLite file {db}. Lines marked [ok] were checked against this very run."
    )
    session = await _first_process(db, stage)
    _new_process(db, work, session, stage)
    await _strangers(db, stage)
    await _compaction(db, stage)
    console.print()
    stage.say(f"All {stage.checks} checks passed in {time.perf_counter() - began:.1f} s.")


async def _first_process(db: Path, stage: _Stage) -> Session:
    async with _agent(db, ConsoleEventListener(console=stage.console, token_usage=False)) as agent:
        stage.step(
            "1. A question that needs a tool",
            "Ann asks in a new session. The lines below are printed while it happens: first the session's name "
            "(app:user:session) and the question; then what the model, here called demo, reads, which tool it calls, "
            "what that gives back, and the answer.",
        )
        asked = (await _ask(agent, ASK, ANN, FIRST)).raise_for_status()
        stage.check("The model called the tool once.", asked.usage.tool_calls, 1)
        kinds = [type(message) for message in asked.messages]
        stage.check(
            f"The session's log holds {len(kinds)} messages: question, tool call, tool result, answer.",
            kinds,
            [HumanMessage, AIMessage, ToolMessage, AIMessage],
        )
        stage.step(
            "2. A follow-up in the same session",
            "The same three ids (app, user, session) name the same conversation, so the model is sent what was said.",
        )
        followed = (await _ask(agent, FOLLOW_UP, ANN, FIRST)).raise_for_status()
        stage.check("No tool was called again.", followed.usage.tool_calls, 0)
        stage.check("The answer has the weather from before.", _WEATHER["Beijing"] in followed.final_text, True)
        return followed.session


def _new_process(db: Path, work: Path, before: Session, stage: _Stage) -> None:
    stage.step(
        "3. The same session in a new process",
        f"The agent and the file are closed. A second process opens the file; this one is process {os.getpid()}.",
    )
    report = work / "session.json"
    command = [sys.executable, "-m", "regnexe", "demo-reopen", str(db), "--report", str(report)]
    console = stage.console
    environment = {**os.environ, "COLUMNS": str(console.width), "PYTHONIOENCODING": console.encoding}
    if console.color_system is not None and not console.no_color:
        environment["FORCE_COLOR"] = "1"
    child = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding=console.encoding,
        errors="replace",
        timeout=60,
    )
    console.print(Text.from_ansi(child.stdout.rstrip()))
    if child.returncode != 0:
        raise DemoFailed(f"the second process failed with exit code {child.returncode}:\n{child.stderr.strip()}")
    after = Session.model_validate_json(report.read_text(encoding="utf-8"))
    count = len(before.messages)
    stage.check(f"All {count} earlier messages are there, unchanged.", after.messages[:count], before.messages)
    new = after.messages[count:]
    stage.check("One question and one answer came to them.", [type(m) for m in new], [HumanMessage, AIMessage])
    stage.check("The answer has the city from before.", "Beijing" in new[-1].text, True)


async def reopen(db: Path, *, console: Console) -> Session:
    """Be the second process: go on with Ann's session, and return the whole of it."""
    console.print(Text(f"Process {os.getpid()} has opened the file."))
    async with _agent(db, ConsoleEventListener(console=console, token_usage=False)) as agent:
        return (await _ask(agent, AFTER_REOPENING, ANN, FIRST)).raise_for_status().session


async def _strangers(db: Path, stage: _Stage) -> None:
    stage.step(
        "4. Another session, another user",
        f'The same question ("{AFTER_REOPENING}") under other ids. Nothing of Ann\'s first session may be known there.',
    )
    requests = _Requests()
    async with _agent(db, requests) as agent:
        for who, user, session in (
            ("Ann in another session", ANN, SECOND),
            ("Bob in a session of the same name", BOB, FIRST),
        ):
            result = (await _ask(agent, AFTER_REOPENING, user, session)).raise_for_status()
            stage.say(f"{result.thread_id}: {result.final_text}")
            sent = [message.text for message in requests.sent[-1]]
            stage.check(f"{who}: the model was sent the question and nothing else.", sent, [AFTER_REOPENING])


async def _compaction(db: Path, stage: _Stage) -> None:
    stage.step(
        "5. A long conversation",
        f"When the model would be sent {TRIGGER} messages or more, all but the newest {KEEP} are summed up for it. (So "
        "few only to show it here; by default it happens near the end of the model's context window.) The log keeps "
        "every message; only what is sent changes.",
    )
    model = chat_model(Vendor.OFFLINE, "demo")
    # Regnexe itself imports deepagents in two files only; this is what a user of it writes.
    from deepagents.backends import StateBackend
    from deepagents.middleware.summarization import SummarizationMiddleware

    summing_up = SummarizationMiddleware(
        model=model, backend=StateBackend(), trigger=("messages", TRIGGER), keep=("messages", KEEP)
    )
    requests = _Requests()
    rows: list[tuple[str, int, int]] = []
    logs: list[list[Any]] = [[]]
    async with _agent(db, requests, summing_up) as agent:
        for text in LONG_TALK:
            result = (await _ask(agent, text, ANN, LONG)).raise_for_status()
            logs.append(result.session.messages)
            # The turn's last call gave the answer, and all but that answer was in the log by then.
            rows.append((text, len(logs[-1]) - 1, len(requests.sent[-1])))
    stage.console.print(_table(rows))
    stage.say(f'Answer to the last one: "{result.final_text}"')
    log, view = logs[-1], requests.sent[-1]
    most = max(len(messages) for messages in requests.sent)
    stage.check(f"Never were more than {most} messages sent, with {rows[-1][1]} in the log.", most < TRIGGER, True)
    stage.check("Ann's first message is not sent any more.", LONG_TALK[0] in [one.text for one in view], False)
    stage.check("A summary that tells of it is sent instead.", LONG_TALK[0] in view[0].text, True)
    stage.check("So the model still knows her name.", LONG_TALK[0] in result.final_text, True)
    kept = all(late[: len(early)] == early for early, late in pairwise(logs))
    stage.check("Each turn only added to the log; nothing in it was changed.", kept, True)
    said = [one.text for one in log if isinstance(one, HumanMessage)]
    stage.check(f"The log holds all {len(log)} messages, all of Ann's among them.", said, [*LONG_TALK])


def _short(value: object) -> str:
    shortened = reprlib.Repr()
    shortened.maxstring = shortened.maxother = 200
    return shortened.repr(value)


def _table(rows: list[tuple[str, int, int]]) -> Table:
    table = Table(caption="Counted when the model is asked for its answer.", caption_justify="left")
    table.add_column("Ann says", overflow="fold")
    table.add_column("Messages in the log", justify="right")
    table.add_column("Messages sent", justify="right")
    for text, log, sent in rows:
        table.add_row(Text(text), str(log), str(sent))
    return table


@asynccontextmanager
async def _agent(
    db: Path, listener: AgentEventListener, *middleware: AgentMiddleware[Any, Any, Any]
) -> AsyncIterator[RegnexeAgent]:
    """Open the file, and close it again with everything that was made for it."""
    builder = RegnexeAgentBuilder().with_default_model(Vendor.OFFLINE, "demo").with_plugin(_WeatherPlugin())
    builder.with_persistence(f"sqlite:///{quote(os.fsencode(db))}")
    async with builder.with_event_listener(listener).with_middleware(*middleware).build() as agent:
        yield agent


async def _ask(agent: RegnexeAgent, text: str, user: str, session: str) -> AgentResult:
    return await agent.ainvoke(text, app_id=APP, user_id=user, session_id=session)
