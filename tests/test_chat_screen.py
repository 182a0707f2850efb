"""What the screen and the printer do with texts and events."""

from __future__ import annotations

import asyncio
import io
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from chat_helpers import (
    WEATHER,
    said,
    screen,
)
from langchain_core.messages import AIMessage
from rich.console import Console

from regnexe import RegnexeAgentBuilder
from regnexe.chat.printer import RunPrinter
from regnexe.chat.screen import Screen
from regnexe.events import LlmDelta, LlmEnd, ToolResult
from regnexe.testing import ScriptedChatModel, tool_call

pytest_plugins = ["chat_fixtures"]
pytestmark = pytest.mark.usefixtures("modules_and_paths")


def test_the_screen_shows_what_a_terminal_would_obey_and_takes_a_line_that_ends_as_on_windows() -> None:
    console = Console(file=io.StringIO(), width=80)
    screen = Screen(console)
    screen.piece("a\r\nb\x1b[2J\u202ec\rd\n")
    screen.say("say\x9b")
    screen.line("head\x07", "text\r\n\x00more")
    assert console.file.getvalue() == (  # type: ignore[attr-defined]
        "a\nb\\x1b[2J\\u202ec\\x0dd\nsay\\x9b\nhead\\x07 text \\x00more\n"
    )


async def test_an_answer_is_printed_piece_by_piece() -> None:
    model = ScriptedChatModel(["\n\none two\nthree"], stream_words=True)
    printed, shown = screen()
    printer = RunPrinter(printed)
    seen = []
    async with RegnexeAgentBuilder().with_model(model).build() as agent, agent.astream("hello") as stream:
        async for event in stream:
            printer.show(event)
            if isinstance(event, LlmDelta | LlmEnd):
                seen.append(shown())
    assert len(seen) > 3
    assert seen[0] == "" or seen[0] in "one two\nthree"
    assert all(late.startswith(early) for early, late in pairwise(seen))
    assert seen[-2:] == ["one two\nthree", "one two\nthree\n"]


async def test_a_model_that_a_tool_calls_itself_is_not_taken_for_the_agent() -> None:
    inner = ScriptedChatModel(["the inner answer"], model_name="inner")

    async def consult() -> str:
        """Consult another model."""
        return (await inner.ainvoke("inner question")).text.upper()

    model = ScriptedChatModel([AIMessage("", tool_calls=[tool_call("consult")]), "The outer answer."])
    printed, shown = screen()
    printer = RunPrinter(printed)
    async with RegnexeAgentBuilder().with_model(model).with_tool(consult).build() as agent:
        async with agent.astream("hello") as stream:
            async for event in stream:
                printer.show(event)
                if isinstance(event, LlmEnd) and event.name == "inner":
                    assert printer.sent is not None
                    assert printer.sent.name == "scripted"
            printer.finish(stream.result)
    assert "the inner answer" not in shown()
    assert "The outer answer." in shown()


async def test_a_tools_result_that_is_the_answer_is_printed() -> None:
    from langchain_core.tools import tool

    @tool(return_direct=True)
    def lookup() -> str:
        """Look it up."""
        return "line one\nline two"

    model = ScriptedChatModel([AIMessage("I look.", tool_calls=[tool_call("lookup")])])
    printed, shown = screen()
    printer = RunPrinter(printed)
    async with RegnexeAgentBuilder().with_model(model).with_tool(lookup).build() as agent:
        async with agent.astream("hello") as stream:
            async for event in stream:
                printer.show(event)
        printer.finish(stream.result)
    assert shown().startswith("I look.\n→ lookup()\n← lookup: line one line two\nline one\nline two\n(")


def test_sub_agents_are_indented_under_their_names() -> None:
    output = said("--plugin", WEATHER, typed="Use a subagent: task general-purpose check the weather in Paris.\n")
    assert "→ general-purpose: " in output
    assert "\n  → general-purpose: get_weather(city='Paris')\n" in output
    assert "\n  ← general-purpose: get_weather: Paris: " in output
    assert "\n← general-purpose: From get_weather: Paris: " in output


def test_a_line_that_ends_as_on_windows_may_come_in_two_pieces() -> None:
    printed, shown = screen()
    for piece in ("a\r", "\nb", "\r", "\n", "c\r", "d\r"):
        printed.piece(piece)
    printed.settle()
    printed.piece("e\r")
    printed.line("f")
    assert shown() == "a\nb\nc\\x0dd\\x0d\ne\\x0d\nf\n"


def test_a_call_that_was_cancelled_says_that_it_was() -> None:
    printed, shown = screen()
    printer = RunPrinter(printed)
    ids: Any = dict(app_id="a", user_id="u", session_id="s", thread_id="a:u:s", run_id="r", tool_call_id="c")
    cancelled = asyncio.CancelledError()
    when = datetime.now(UTC)
    printer.show(ToolResult(name="wait", tool="wait", content="", error=cancelled, sequence=1, time=when, **ids))
    assert shown() == "✗ wait: CancelledError\n"


def test_narrow_encodings_get_marks_that_they_have() -> None:
    printed, shown = screen("ascii")
    printed.line(printed.marks.call, "f(x='é')")
    printed.piece("naïve → ")
    printed.settle()
    assert shown() == "-> f(x='?')\nna?ve ? \n"
