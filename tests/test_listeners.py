from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import logging
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from rich.console import Console

from regnexe import (
    AbstractEventListener,
    AgentCompleted,
    AgentEventListener,
    AgentStarted,
    ApprovalRequested,
    ConfigurationError,
    ConsoleEventListener,
    Event,
    EventType,
    JsonLinesEventListener,
    LlmEnd,
    LlmStart,
    PendingApproval,
    RegnexeAgent,
    RegnexeAgentBuilder,
    RunStatus,
    ToolCalled,
    ToolResult,
    Usage,
)
from regnexe.json_values import from_json
from regnexe.runtime import dispatch
from regnexe.terminal import printable
from regnexe.testing import RecordingListener, ScriptedChatModel, tool_call


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


async def test_the_console_names_a_cancellation_which_has_no_text() -> None:
    out = io.StringIO()
    listener = ConsoleEventListener(console=Console(file=out, width=200), token_usage=False)
    cancelled = asyncio.CancelledError()
    for event in (
        ToolResult(**about(name="wait"), tool_call_id="c", tool="wait", content="", error=cancelled),
        LlmEnd(**about(name="model"), call_id="c", message=None, usage=Usage(), error=cancelled),
        AgentCompleted(**about(name="agent"), status=RunStatus.CANCELLED, final_text="", error=cancelled),
    ):
        await listener.on_event(event.type, event.name, event)
    assert [line.strip() for line in out.getvalue().splitlines()] == [
        "✗ wait: CancelledError",
        "✗ model: CancelledError",
        "■ cancelled: CancelledError",
    ]


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


async def test_what_a_file_listener_cannot_write_is_logged_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "folder").mkdir()
    listener = JsonLinesEventListener(tmp_path / "folder" / "events.jsonl")
    (tmp_path / "folder").rmdir()
    with caplog.at_level(logging.ERROR, "regnexe"):
        result = await build(listener).ainvoke("hi")
    assert result.status is RunStatus.COMPLETED
    assert "the run goes on" in caplog.text


STEERING = [
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31m\x9d8;;http://x\x9c",
    "a\rb\x08\x00\x7f",
    "\u202eevil\u2066\u2069\u200f\u061c",
    "\ud800",
]
FORBIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.mark.parametrize("text", STEERING, ids=ascii)
async def test_nothing_that_others_wrote_can_steer_the_terminal(text: str, caplog: pytest.LogCaptureFixture) -> None:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="utf-8", write_through=True), width=200)
    listener = ConsoleEventListener(system_prompt=True, console=console)
    for event in events_with(text):
        await listener.on_event(event.type, event.name, event)
    out = raw.getvalue().decode()
    assert not FORBIDDEN.search(out)
    assert len(out.splitlines()) == 14
    await build(listener, replies=[AIMessage(text + "x")]).ainvoke(text + "x")
    out = raw.getvalue().decode()
    assert not FORBIDDEN.search(out)
    assert "■ completed" in out.splitlines()[-1], "the listener was silenced"
    assert caplog.text == ""


async def test_what_could_steer_the_terminal_is_shown_and_the_rest_left_as_it_is() -> None:
    out = io.StringIO()
    listener = ConsoleEventListener(console=Console(file=out, width=200))
    await build(listener, replies=["\x1b[31mred\u202e \x9b 好 é 🙂"]).ainvoke("hi")
    assert "“\\x1b[31mred\\u202e \\x9b 好 é 🙂”" in out.getvalue()
    assert printable("a\tb\nc\ud83d") == "a\tb\nc\\ud83d"


def about(**fields: Any) -> Any:
    ids = {"app_id": "a", "user_id": "u", "session_id": "s", "thread_id": "a:u:s", "run_id": "r"}
    return {**ids, "sequence": 0, "time": datetime.now(UTC), **fields}


def events_with(text: str) -> list[Event]:
    """Return events that hold this text wherever one can come from outside; printed, they make 14 lines."""
    name = about(name=f"{text}\nspoof")
    kind = type("E\x1b[2J\n", (Exception,), {})
    tool_named = {**name, "tool": text, "tool_call_id": text}
    return [
        AgentStarted(goal=text, **{**name, "thread_id": text}),
        LlmStart(call_id="1", messages=(), system_prompt=text, purpose=text, **name),
        LlmEnd(call_id="1", message=AIMessage(text + "x"), usage=Usage(), error=None, **name),
        LlmEnd(call_id="1", message=None, usage=Usage(), error=kind(text), **name),
        ToolCalled(arguments={text: text, "y": Plain(text)}, **tool_named),
        ToolResult(content=text, error=None, **tool_named),
        ToolResult(content=text, error=kind(text), **tool_named),
        ApprovalRequested(pending=PendingApproval(id="1", value=Plain(text)), **name),
        AgentCompleted(status=RunStatus.ERROR, final_text=text, error=kind(text), **name),
        AgentCompleted(status=RunStatus.COMPLETED, final_text=text, **name),
        ToolCalled(arguments={"x": Unspeakable()}, **tool_named),
        AgentCompleted(status=RunStatus.ERROR, final_text="", error=Unspeakable(), **name),
    ]


class Plain:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


async def test_a_call_whose_tokens_nobody_reported_is_not_said_to_have_used_none() -> None:
    out = io.StringIO()
    listener = ConsoleEventListener(console=Console(file=out, width=200))
    (event,) = [event for event in events_with("x") if isinstance(event, LlmEnd) and event.error is None]
    await listener.on_event(event.type, event.name, event)
    assert "tokens not reported" in out.getvalue()
    assert "0 tokens" not in out.getvalue()
    reported = dataclasses.replace(event, usage=Usage(input_tokens=1200, cached_tokens=1000, output_tokens=0))
    await listener.on_event(event.type, event.name, reported)
    assert "1,200 tokens in (1,000 cached), 0 out" in out.getvalue()


@pytest.mark.parametrize("length", [-1, 1.5, "10", True, float("nan")])
def test_a_content_length_that_is_none_is_refused(length: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"content_length must be a whole number .* got"):
        ConsoleEventListener(content_length=length)


async def test_a_content_length_of_nothing_prints_no_content() -> None:
    assert "▶ a:u:s  … (8 characters)" in await printed(content_length=0)


@pytest.mark.parametrize("console", [io.StringIO(), "stdout", 1, Unspeakable()], ids=["file", "text", "int", "odd"])
def test_a_console_that_is_none_is_refused(console: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"console must be a rich\.console\.Console"):
        ConsoleEventListener(console=console)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "must name a file"),
        ("a\0b", "must name a file"),
        (".", "is a directory"),
        (Path("."), "is a directory"),
        ("missing/events.jsonl", "missing', the directory of .* is not there"),
        (Path("missing") / "deeper" / "events.jsonl", "is not there; make it first"),
        (None, "must be the path of a file"),
        (3, "must be the path of a file"),
        (b"events.jsonl", "must be the path of a file"),
    ],
)
def test_a_path_that_no_file_can_have_is_refused(path: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        JsonLinesEventListener(path)


async def test_a_relative_path_stays_where_it_was_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "later").mkdir()
    monkeypatch.chdir(tmp_path)
    listener = JsonLinesEventListener("events.jsonl")
    monkeypatch.chdir(tmp_path / "later")
    await build(listener).ainvoke("hi")
    assert len((tmp_path / "events.jsonl").read_text("utf-8").splitlines()) == 8


async def test_every_event_is_a_line_of_valid_json_whatever_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    listener = JsonLinesEventListener(path)
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    odd = {"nan": float("nan"), "inf": [float("-inf")], "raw": b"\xff", "lone": "\ud800", "tuple": {(1, 2): 3}}
    odd |= {"cycle": cycle, "deep": deep, "unspeakable": Unspeakable(), "set": {1}, "nul\0": "\0"}
    unreadable = AIMessage("x", tool_calls=[tool_call("t", n=float("nan"))]).model_copy(update={"content": None})
    events = [
        *events_with("\ud800\0\n"),
        ToolCalled(name="t", tool="t", tool_call_id="1", **about(arguments=odd)),
        LlmEnd(name="m", call_id="1", message=unreadable, usage=Usage(), error=None, **about()),
        ApprovalRequested(name="m", pending=PendingApproval(id="1", value=odd), **about()),
    ]
    for event in events:
        await listener.on_event(event.type, event.name, event)
    lines = path.read_bytes().decode("utf-8").splitlines()
    assert len(lines) == len(events)
    told = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert [line["type"] for line in told] == [event.type.value for event in events]
    assert told[1]["messages"] == 0
    arguments = from_json(told[-3]["arguments"])
    assert arguments["raw"] == b"\xff"
    assert arguments["tuple"] == {(1, 2): 3}
    assert arguments["lone"] == "\ud800"
    assert arguments["unspeakable"] == "<Unspeakable>"
    assert from_json(told[0]["goal"]) == "\ud800\0\n"
