"""The two-turn conversation that the package was specified by: same calls, same ids, same messages."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from deepagents.backends import StateBackend
from deepagents.middleware.summarization import SummarizationMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from regnexe import AgentResult, ConsoleEventListener, RegnexeAgent, RegnexeAgentBuilder, RunStatus, SessionKey, Vendor
from regnexe.testing import ScriptedChatModel, tool_call

PLUGIN = Path(__file__).parent.parent / "plugins" / "weather" / "weather_plugin.py"
FIRST = "Check today's weather in Beijing and tell me if it's good for outdoor running."
SECOND = (
    "Based on the weather you just looked up, what should I keep in mind while running? "
    "No need to check the weather again."
)
WEATHER = "Beijing: sunny, 22 C, excellent air quality."
IDS: Any = {"app_id": "readme", "user_id": "reader", "session_id": "07-memory-a"}


def weather_plugin() -> Any:
    spec = importlib.util.spec_from_file_location("weather_plugin", PLUGIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.WeatherPlugin()


def scripted() -> ScriptedChatModel:
    return ScriptedChatModel(
        [
            AIMessage("", tool_calls=[tool_call("get_weather", city="Beijing")]),
            "Yes, today is great for outdoor running.",
            "Since it's sunny and 22 C, here are a few tips: drink enough.",
        ]
    )


def offline() -> RegnexeAgentBuilder:
    return RegnexeAgentBuilder().with_default_model(Vendor.OFFLINE, "demo")


def with_script() -> RegnexeAgentBuilder:
    return RegnexeAgentBuilder().with_model(scripted())


def check_first(result: AgentResult) -> None:
    human, calling, tool, answer = result.messages
    assert isinstance(human, HumanMessage)
    assert human.text == FIRST
    assert isinstance(calling, AIMessage)
    assert [(call["name"], call["args"]) for call in calling.tool_calls] == [("get_weather", {"city": "Beijing"})]
    assert isinstance(tool, ToolMessage)
    assert tool.text == WEATHER
    assert isinstance(answer, AIMessage)
    assert result.final_text == answer.text != ""
    assert (result.status, result.thread_id) == (RunStatus.COMPLETED, "readme:reader:07-memory-a")


def check_second(result: AgentResult) -> None:
    human, answer = result.messages
    assert isinstance(human, HumanMessage)
    assert human.text == SECOND
    assert isinstance(answer, AIMessage)
    assert not answer.tool_calls
    assert "sunny" in result.final_text
    assert result.usage.tool_calls == 0


async def state_of(agent: RegnexeAgent) -> dict[str, Any]:
    thread = SessionKey(**IDS).thread_id
    return dict((await agent.graph.aget_state({"configurable": {"thread_id": thread}})).values)


@pytest.mark.parametrize("start", [offline, with_script])
async def test_two_turns_of_one_session_and_a_fresh_thread_for_another(start: Any) -> None:
    agent = start().with_plugin(weather_plugin()).with_event_listener(ConsoleEventListener()).build()
    result1 = await agent.ainvoke(FIRST, **IDS)
    check_first(result1)
    result2 = await agent.ainvoke(SECOND, **IDS)
    check_second(result2)
    assert (await state_of(agent))["messages"] == [*result1.messages, *result2.messages]


async def test_another_session_id_is_a_fresh_thread() -> None:
    model = ScriptedChatModel(lambda messages: str(len([m for m in messages if m.type != "system"])))
    agent = RegnexeAgentBuilder().with_model(model).build()
    await agent.ainvoke("one", **IDS)
    other = await agent.ainvoke("two", app_id="readme", user_id="reader", session_id="07-memory-b")
    assert (other.final_text, other.thread_id) == ("1", "readme:reader:07-memory-b")


async def test_with_a_sqlite_checkpointer_the_second_turn_works_in_a_new_process(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    async with AsyncSqliteSaver.from_conn_string(str(path)) as checkpointer:
        agent = offline().with_plugin(weather_plugin()).with_checkpointer(checkpointer).build()
        first = await agent.ainvoke(FIRST, **IDS)
        check_first(first)
    script = f"""
    import asyncio, json
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from regnexe import RegnexeAgentBuilder, Vendor
    async def main():
        async with AsyncSqliteSaver.from_conn_string({str(path)!r}) as checkpointer:
            agent = (RegnexeAgentBuilder().with_default_model(Vendor.OFFLINE, "demo")
                     .with_checkpointer(checkpointer).build())
            result = await agent.ainvoke({SECOND!r}, **{IDS!r})
        print(json.dumps([result.final_text, [m.id for m in result.session.messages]]))
    asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    text, ids = json.loads(done.stdout)
    assert "sunny, 22 C" in text
    assert ids[:4] == [m.id for m in first.messages]
    assert len(ids) == 6


async def test_deepagents_summariser_replaces_the_default_and_the_log_stays_whole() -> None:
    def answer(messages: list[Any]) -> str:
        return "SUMMARY of the talk" if "<messages>" in messages[-1].text else f"seen {len(messages)}"

    my_model = ScriptedChatModel(answer)
    summ: Any = SummarizationMiddleware(
        model=my_model,
        backend=StateBackend(),
        trigger=("messages", 8),
        keep=("messages", 4),
    )
    agent = RegnexeAgentBuilder().with_model(my_model).with_plugin(weather_plugin()).with_middleware(summ).build()
    said = [f"question {n}" for n in range(8)]
    for text in said:
        result = await agent.ainvoke(text, **IDS)
        assert result.status is RunStatus.COMPLETED
    state = await state_of(agent)
    assert [m.text for m in state["messages"] if isinstance(m, HumanMessage)] == said
    assert len(state["messages"]) == 16
    assert list(state["files"]) == ["/conversation_history/readme:reader:07-memory-a.md"]
    assert state["_summarization_event"]["file_path"] == "/conversation_history/readme:reader:07-memory-a.md"
    assert len(my_model.requests[-1].messages) < 10


async def test_the_default_summariser_names_its_history_file_by_the_thread_too() -> None:
    def answer(messages: list[Any]) -> str:
        return "SUMMARY of the talk" if "<messages>" in messages[-1].text else "ok " * 400

    model = ScriptedChatModel(answer)
    model.profile = {"max_input_tokens": 12_000}
    agent = RegnexeAgentBuilder().with_model(model).build()
    for n in range(16):
        await agent.ainvoke(f"question {n} " + "word " * 400, **IDS)
    state = await state_of(agent)
    assert len(state["messages"]) == 32
    assert list(state["files"]) == ["/conversation_history/readme:reader:07-memory-a.md"]
