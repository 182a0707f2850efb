"""Plugins and tools where they are used: injected arguments, names side by side, the sample plugin."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException
from langchain_core.tools import tool as langchain_tool
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from plugin_helpers import pair, print_it, refused, schema_of, tools_of

from regnexe.capabilities.decorators import agent_tool, plugin, plugin_from, tool_from
from regnexe.capabilities.model import WITH_TOOL, check_unique

ROOT = Path(__file__).parents[1]


class ModelWithTools(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


class CountState(AgentState[Any]):
    count: int


@plugin
class InjectedPlugin:
    """Uses everything that is injected."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    @agent_tool
    async def use_all(
        self,
        word: str,
        state: Annotated[dict[str, Any], InjectedState],
        count: Annotated[int, InjectedState("count")],
        store: Annotated[BaseStore, InjectedStore()],
        call_id: Annotated[str, InjectedToolCallId],
        runtime: ToolRuntime,
        config: RunnableConfig,
    ) -> str:
        """Use it all.

        Args:
            word: From the model.
            state: Injected.
            runtime: Injected.
            config: Injected.
        """
        item = await store.aget(("n",), "k")
        thread = config["configurable"]["thread_id"]
        self.seen.append((len(state["messages"]), count, item and item.value, call_id, runtime.tool_call_id, thread))
        return word

    @agent_tool
    def use_in_thread(self, word: str, count: Annotated[int, InjectedState("count")], config: RunnableConfig) -> str:
        """Use it in a thread."""
        self.seen.append((word, count, config["configurable"]["thread_id"]))
        return word


def test_injected_arguments_stay_out_of_the_schema() -> None:
    for tool in plugin_from(InjectedPlugin()).tools:
        assert list(schema_of(tool)["parameters"]["properties"]) == ["word"]
    assert tools_of(InjectedPlugin())["use_all"].args["word"]["description"] == "From the model."


async def test_injected_arguments_reach_methods_in_an_agent() -> None:
    maker = InjectedPlugin()
    calls = [
        ToolCall(name="use_all", args={"word": "a"}, id="c1", type="tool_call"),
        ToolCall(name="use_in_thread", args={"word": "b"}, id="c2", type="tool_call"),
    ]
    model = ModelWithTools(messages=iter([AIMessage("", tool_calls=calls), AIMessage("done")]))
    store = InMemoryStore()
    await store.aput(("n",), "k", {"v": 1})
    agent = create_agent(model, list(plugin_from(maker).tools), state_schema=CountState, store=store)
    given: Any = {"messages": [HumanMessage("go")], "count": 7}
    result = await agent.ainvoke(given, {"configurable": {"thread_id": "t"}})
    replies = [m.content for m in result["messages"] if isinstance(m, ToolMessage)]
    assert replies == ["a", "b"]
    assert sorted(maker.seen, key=str) == [("b", 7, "t"), (2, 7, {"v": 1}, "c1", "c1", "t")]


def test_two_tools_of_one_name_are_refused_with_both_origins() -> None:
    tool = tool_from(print_it)
    with refused(r"'print_it': one from plugin 'weather', one from with_tool\(\)"):
        check_unique([("weather", tool), (WITH_TOOL, tool)], reserved=())


def test_name_of_a_built_in_tool_is_refused() -> None:
    with refused(r"'print_it' from with_tool\(\) has the name of a tool that is built in"):
        check_unique([(WITH_TOOL, tool_from(print_it))], reserved={"print_it"})


def test_different_names_pass() -> None:
    check_unique([("a", tool_from(print_it)), ("b", tool_from(pair))], reserved={"write_file"})


def test_decorators_do_not_load_the_agent_libraries() -> None:
    code = (
        "import sys, types; package = types.ModuleType('regnexe'); package.__path__ = ['regnexe']; "
        "sys.modules['regnexe'] = package; "  # in place of the real one, which imports more than this module
        "import regnexe.capabilities.decorators; "
        "print([m for m in ('langchain', 'langgraph', 'deepagents') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def weather() -> BaseTool:
    path = ROOT / "plugins" / "weather" / "weather_plugin.py"
    spec = importlib.util.spec_from_file_location("sample_weather_plugin", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    built = plugin_from(module.WeatherPlugin())
    manifest = dict(line.split(": ", 1) for line in (path.parent / "plugin.yaml").read_text("utf-8").splitlines())
    assert (manifest["id"], manifest["name"], manifest["version"].strip('"'), manifest["description"]) == (
        built.id, built.name, built.version, built.description,
    )  # fmt: skip
    (tool,) = built.tools
    return tool


@pytest.mark.parametrize("city", ["Beijing", " beijing ", "BEIJING", "北京", "北京市"])
async def test_sample_plugin_knows_beijing(weather: BaseTool, city: str) -> None:
    assert weather.name == "get_weather"
    assert await weather.ainvoke({"city": city}) == "Beijing: sunny, 22 C, excellent air quality."


async def test_sample_plugin_says_when_it_has_no_data(weather: BaseTool) -> None:
    assert (await weather.ainvoke({"city": "Atlantis"})).startswith("Atlantis: no data.")
    assert (await weather.ainvoke({"city": "New  York"})).startswith("New York: windy")


async def test_a_tool_that_exits_fails_and_does_not_end_the_process() -> None:
    def leave(x: int) -> str:
        """Leave."""
        sys.exit(f"usage: {x}")

    async def leave_later(x: int) -> str:
        """Leave."""
        sys.exit(x)

    for func, code in ((leave, "'usage: 3'"), (leave_later, "3")):
        for tool in (tool_from(func), tool_from(langchain_tool(func))):
            with pytest.raises(ToolException, match=f"the tool tried to exit the process with {code}"):
                await tool.ainvoke({"x": 3})
