"""Tool calls whose arguments are no JSON, or that the token limit cut off."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from regnexe import InvalidToolCalls, RegnexeAgent, RegnexeAgentBuilder, RunStatus
from regnexe.testing import ScriptedChatModel, tool_call


class Weather:
    """A tool that counts how often it ran."""

    def __init__(self) -> None:
        self.cities: list[str] = []

    async def get_weather(self, city: str) -> str:
        """Tell the weather of a city."""
        self.cities.append(city)
        return f"{city}: sunny"


def broken(*valid: Any, id: str | None = "b1", text: str = "") -> AIMessage:
    invalid: Any = {
        "name": "get_weather",
        "args": '{"city": "Bei',
        "id": id,
        "error": None,
        "type": "invalid_tool_call",
    }
    return AIMessage(text, tool_calls=list(valid), invalid_tool_calls=[invalid])


def build(weather: Weather, model: ScriptedChatModel, saver: Any) -> RegnexeAgent:
    return RegnexeAgentBuilder().with_model(model).with_tool(weather.get_weather).with_checkpointer(saver).build()


def view(model: ScriptedChatModel) -> list[BaseMessage]:
    return [message for message in model.requests[-1].messages if message.type != "system"]


@pytest.mark.parametrize("id", ["b1", None, ""])
async def test_the_model_is_told_and_asked_once_more_when_it_called_nothing_else(saver: Any, id: str | None) -> None:
    weather = Weather()
    model = ScriptedChatModel([broken(id=id), "Sorry, sunny.", "fine"])
    agent = build(weather, model, saver)
    result = await agent.ainvoke("Weather?", session_id="s")
    assert (result.status, result.final_text, result.usage.model_calls) == (RunStatus.COMPLETED, "Sorry, sunny.", 2)
    assert [m.type for m in result.messages] == ["human", "ai", "tool", "ai"]
    told = view(model)[-1]
    assert isinstance(told, ToolMessage)
    assert (told.status, "not valid JSON" in told.text) == ("error", True)
    assert weather.cities == []
    assert (await agent.ainvoke("next", session_id="s")).final_text == "fine"


async def test_its_second_try_may_call_a_tool_and_the_run_goes_on(saver: Any) -> None:
    weather = Weather()
    model = ScriptedChatModel(
        [broken(), AIMessage("", tool_calls=[tool_call("get_weather", city="Beijing")]), "Sunny."]
    )
    result = await build(weather, model, saver).ainvoke("Weather?")
    assert (result.status, result.final_text) == (RunStatus.COMPLETED, "Sunny.")
    assert [m.type for m in result.messages] == ["human", "ai", "tool", "ai", "tool", "ai"]
    assert weather.cities == ["Beijing"]


async def test_beside_a_valid_call_the_invalid_one_gets_its_error_and_the_valid_one_runs(saver: Any) -> None:
    weather = Weather()
    model = ScriptedChatModel([broken(tool_call("get_weather", city="Rome")), "Sunny in Rome."])
    result = await build(weather, model, saver).ainvoke("Weather?")
    assert (result.status, result.final_text) == (RunStatus.COMPLETED, "Sunny in Rome.")
    assert weather.cities == ["Rome"]
    assert sorted(m.status for m in result.messages if isinstance(m, ToolMessage)) == ["error", "success"]


async def test_a_model_that_does_it_again_ends_the_run_as_an_error_and_the_session_goes_on(saver: Any) -> None:
    weather = Weather()
    model = ScriptedChatModel([broken(), broken(id="b2"), "fine"])
    agent = build(weather, model, saver)
    result = await agent.ainvoke("Weather?", session_id="s")
    assert (result.status, result.final_text) == (RunStatus.ERROR, "")
    assert isinstance(result.error, InvalidToolCalls)
    assert result.error.tools == ("get_weather",)
    assert [m.type for m in result.messages] == ["human", "ai", "tool", "ai", "tool"]
    with pytest.raises(InvalidToolCalls, match="raise the model's max_tokens"):
        result.raise_for_status()
    assert (await agent.ainvoke("next", session_id="s")).final_text == "fine"


async def test_a_call_that_the_token_limit_cut_off_is_not_run_though_its_arguments_look_complete(saver: Any) -> None:
    weather = Weather()
    cut = AIMessage(
        "",
        tool_calls=[tool_call("get_weather", city="Rome"), tool_call("get_weather", city="Bei")],
        response_metadata={"finish_reason": "length"},
    )
    model = ScriptedChatModel([cut, "Only Rome."])
    result = await build(weather, model, saver).ainvoke("Weather?")
    assert (result.status, result.final_text) == (RunStatus.COMPLETED, "Only Rome.")
    assert weather.cities == ["Rome"]
    errors = [m.text for m in result.messages if isinstance(m, ToolMessage) and m.status == "error"]
    assert len(errors) == 1
    assert "cut off by the token limit" in errors[0]


async def test_broken_calls_of_an_imported_history_never_reach_the_model_as_they_are() -> None:
    model = ScriptedChatModel(["fine"])
    agent = RegnexeAgentBuilder().with_model(model).build()
    config: Any = {"configurable": {"thread_id": "default:default:s"}}
    await agent.graph.aupdate_state(config, {"messages": [HumanMessage("x"), broken()]}, as_node="model")
    assert (await agent.ainvoke("go on", session_id="s")).final_text == "fine"


# --- names and ids that no provider takes ---


NAMES = ["multi_tool_use.parallel", "functions.get_weather", "", "天气", "x" * 65, "get weather", "a\n"]


@pytest.mark.parametrize("name", NAMES)
async def test_a_tool_name_that_no_provider_takes_back_stays_in_the_log_and_not_in_the_view(
    saver: Any, name: str
) -> None:
    weather = Weather()
    made_up: Any = {"name": name, "args": {}, "id": "c1", "type": "tool_call"}
    model = ScriptedChatModel([AIMessage("", tool_calls=[made_up]), "Sorry.", "fine"])
    agent = build(weather, model, saver)
    result = await agent.ainvoke("Weather?", session_id="s")
    assert (result.status, result.final_text, result.error) == (RunStatus.COMPLETED, "Sorry.", None)
    called, told = result.messages[1:3]
    assert isinstance(called, AIMessage) and called.tool_calls[0]["name"] == name
    assert isinstance(told, ToolMessage) and told.status == "error"
    again = await agent.ainvoke("next", session_id="s")
    assert again.final_text == "fine"
    seen = view(model)[1]
    assert isinstance(seen, AIMessage)
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", seen.tool_calls[0]["name"])
    assert [m.text for m in view(model)] == ["Weather?", "", told.text, "Sorry.", "next"]


@pytest.mark.parametrize("id", [None, ""])
async def test_a_call_without_an_id_gets_one_and_its_tool_runs_once(saver: Any, id: str | None) -> None:
    weather = Weather()
    calls: Any = [
        {"name": "get_weather", "args": {"city": city}, "id": id, "type": "tool_call"} for city in ("Rome", "Oslo")
    ]
    model = ScriptedChatModel([AIMessage("", tool_calls=calls), "Sunny.", "fine"])
    agent = build(weather, model, saver)
    result = await agent.ainvoke("Weather?", session_id="s")
    assert (result.status, result.final_text, result.error) == (RunStatus.COMPLETED, "Sunny.", None)
    assert sorted(weather.cities) == ["Oslo", "Rome"]
    assert sorted(m.text for m in result.messages if isinstance(m, ToolMessage)) == ["Oslo: sunny", "Rome: sunny"]
    assert (await agent.ainvoke("next", session_id="s")).final_text == "fine"


async def test_a_call_that_repeats_an_id_of_its_message_runs_and_gets_its_own_result(saver: Any) -> None:
    weather = Weather()
    model = ScriptedChatModel(
        [broken({"name": "get_weather", "args": {"city": "Rome"}, "id": "b1", "type": "tool_call"}), "Sunny.", "fine"]
    )
    agent = build(weather, model, saver)
    result = await agent.ainvoke("Weather?", session_id="s")
    assert (result.status, weather.cities) == (RunStatus.COMPLETED, ["Rome"])
    assert sorted(m.status for m in result.messages if isinstance(m, ToolMessage)) == ["error", "success"]
