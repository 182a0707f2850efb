from __future__ import annotations

import asyncio
import io
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage
from rich.console import Console

from regnexe import (
    AbstractEventListener,
    AgentEventListener,
    ConsoleEventListener,
    EventType,
    JsonLinesEventListener,
    RegnexeAgent,
    RegnexeAgentBuilder,
    RunStatus,
)
from regnexe.runtime import dispatch
from regnexe.testing import RecordingListener, ScriptedChatModel, tool_call

if TYPE_CHECKING:
    from pathlib import Path


async def get_weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: [bold]sunny[/bold]\nand warm"


def build(*listeners: Any, replies: Any = None) -> RegnexeAgent:
    script = replies or [AIMessage("", tool_calls=[tool_call("get_weather", city="Rome")]), "It is sunny."]
    return (
        RegnexeAgentBuilder()
        .with_model(ScriptedChatModel(script))
        .with_tool(get_weather)
        .with_system_prompt("Be brief.")
        .with_event_listener(*listeners)
        .build()
    )


class Raising(AbstractEventListener):
    """Raises on every event, in every way that a listener may."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.heard = 0

    async def on_event(self, event_type: EventType, name: str, data: Any) -> None:
        self.heard += 1
        raise self.error


@pytest.mark.parametrize("error", [RuntimeError("mine"), SystemExit(3), asyncio.CancelledError()], ids=repr)
async def test_a_listener_that_raises_changes_nothing_and_goes_on_hearing(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    raising, recording = Raising(error), RecordingListener()
    result = await build(raising, recording).ainvoke("hi")
    assert (result.status, result.final_text) == (RunStatus.COMPLETED, "It is sunny.")
    assert raising.heard == len(recording.events) == 8
    assert "the run goes on" in caplog.text


async def test_a_filter_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(RecordingListener):
        def should_handle(self, event_type: EventType) -> bool:
            raise ValueError("mine")

    broken, recording = Broken(), RecordingListener()
    assert (await build(broken, recording).ainvoke("hi")).status is RunStatus.COMPLETED
    assert (len(broken.events), len(recording.events)) == (0, 8)
    assert "failed in should_handle" in caplog.text


async def test_a_listener_that_stalls_holds_no_run_up_for_long_and_no_later_run_at_all(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dispatch, "DRAIN_SECONDS", 0.05)

    class Stalling(RecordingListener):
        gate = asyncio.Event()

        async def on_event(self, event_type: EventType, name: str, data: Any) -> None:
            await self.gate.wait()
            await super().on_event(event_type, name, data)

    stalling, recording = Stalling(), RecordingListener()
    agent = build(stalling, recording, replies=["one", "two"])
    async with asyncio.timeout(20):
        assert (await agent.ainvoke("a", session_id="s")).final_text == "one"
        monkeypatch.setattr(dispatch, "DRAIN_SECONDS", 1000)
        assert (await agent.ainvoke("b", session_id="s")).final_text == "two"
    assert "runs no longer wait for it" in caplog.text
    assert stalling.events == []
    stalling.gate.set()
    async with asyncio.timeout(20):
        await agent.aclose()
    assert stalling.events == recording.events


async def test_a_listener_that_never_comes_back_does_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dispatch, "DRAIN_SECONDS", 0.01)
    monkeypatch.setattr(dispatch, "QUEUE_LIMIT", 5)

    class Stalled(AbstractEventListener):
        async def on_event(self, event_type: EventType, name: str, data: Any) -> None:
            await asyncio.Event().wait()

    async with build(Stalled(), replies=["x"] * 5) as agent:
        for _ in range(5):
            assert (await agent.ainvoke("hi")).status is RunStatus.COMPLETED
    assert caplog.text.count("dropping events until it catches up") == 1


async def test_an_object_with_just_the_method_is_a_listener_and_one_with_a_filter_gets_only_what_it_wants() -> None:
    class Plain:
        def __init__(self) -> None:
            self.heard: list[tuple[EventType, str]] = []

        async def on_event(self, event_type: EventType, name: str, data: Any) -> None:
            assert (data.type, data.name) == (event_type, name)
            self.heard.append((event_type, name))

    class Picky(Plain):
        def should_handle(self, event_type: EventType) -> bool:
            return event_type is EventType.TOOL_CALLED

    plain, picky = Plain(), Picky()
    assert isinstance(plain, AgentEventListener)
    await build(plain, picky).ainvoke("hi")
    assert len(plain.heard) == 8
    assert picky.heard == [(EventType.TOOL_CALLED, "get_weather")]


async def test_a_listener_that_runs_a_model_of_its_own_is_not_told_about_it() -> None:
    class Asking(RecordingListener):
        async def on_event(self, event_type: EventType, name: str, data: Any) -> None:
            await super().on_event(event_type, name, data)
            await ScriptedChatModel(["aside"]).ainvoke("what do you think?")

    asking = Asking()
    result = await build(asking).ainvoke("hi")
    assert len(asking.events) == 8
    assert result.usage.model_calls == 2


async def printed(**switches: Any) -> str:
    out = io.StringIO()
    listener = ConsoleEventListener(console=Console(file=out, width=100), **switches)
    task = tool_call("task", description="look", subagent_type="general-purpose")
    script = [
        AIMessage("", tool_calls=[task]),
        AIMessage("", tool_calls=[tool_call("get_weather", city="Rome")]),
        "inner " * 100,
        "It is sunny.",
    ]
    await build(listener, replies=script).ainvoke("Weather?", app_id="a", user_id="u", session_id="s")
    return out.getvalue()


async def test_the_console_shows_the_run_with_sub_agents_by_name_and_indented() -> None:
    lines = [line.rstrip() for line in (await printed()).splitlines()]
    assert lines[0] == "▶ a:u:s  Weather?"
    assert "  → general-purpose(description='look', subagent_type='general-purpose')" in lines
    assert "    → get_weather(city='Rome')" in lines
    assert "    ← get_weather: Rome: [bold]sunny[/bold] and warm" in lines
    assert "  “It is sunny.”" in lines
    assert lines[-1].startswith("■ completed  (4 model calls, 2 tool calls, ")


async def test_the_console_switches_turn_off_or_on_what_they_name() -> None:
    assert "reads" not in await printed(llm_events=False)
    assert "tokens" not in await printed(token_usage=False)
    assert "Be brief." not in await printed()
    assert "Be brief." in await printed(system_prompt=True)
    assert "… (599 characters)" in await printed(content_length=20)
    assert "characters)" not in await printed(content_length=None)


async def test_the_console_makes_do_where_the_terminal_has_few_characters(caplog: pytest.LogCaptureFixture) -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    await build(ConsoleEventListener(console=Console(file=out, width=100)), replies=["好的, ok"]).ainvoke("hi")
    assert '"??, ok"' in raw.getvalue().decode("ascii")
    assert "# completed  (1 model call, 0 tool calls," in raw.getvalue().decode("ascii")
    assert caplog.text == ""


async def test_the_console_says_what_failed() -> None:
    out = io.StringIO()
    agent = build(ConsoleEventListener(console=Console(file=out, width=100)), replies=[RuntimeError("provider down")])
    await agent.ainvoke("hi")
    assert "■ error: RuntimeError: provider down" in out.getvalue()


async def test_the_json_lines_file_has_one_parsable_line_for_each_event(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    agent = build(
        JsonLinesEventListener(path), replies=[AIMessage("", tool_calls=[tool_call("get_weather", city="北京")]), "好"]
    )
    await agent.ainvoke("天气?", user_id="u")
    await build(JsonLinesEventListener(path), replies=[RuntimeError("down")]).ainvoke("again")
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [line["type"] for line in lines[:8]] == [
        "agent_started",
        "llm_start",
        "llm_end",
        "tool_called",
        "tool_result",
        "llm_start",
        "llm_end",
        "agent_completed",
    ]
    assert (lines[0]["goal"], lines[0]["user_id"], lines[0]["sequence"], lines[0]["path"]) == ("天气?", "u", 0, [])
    assert lines[3]["arguments"] == {"city": "北京"}
    assert lines[5]["messages"] == 3
    assert lines[6]["message"]["text"] == "好"
    assert lines[7]["usage"]["model_calls"] == 2
    assert lines[-1]["error"] == {"type": "RuntimeError", "message": "down"}
    assert "北京" in path.read_text("utf-8")


async def test_what_a_console_or_file_listener_cannot_do_is_logged_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "regnexe"):
        result = await build(JsonLinesEventListener(tmp_path / "missing" / "events.jsonl")).ainvoke("hi")
    assert result.status is RunStatus.COMPLETED
    assert "the run goes on" in caplog.text
