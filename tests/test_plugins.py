"""Plugins and tools written as classes and functions: what they become, and what is refused."""

import asyncio
import functools
import importlib.util
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain.agents import AgentState, create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, ToolException
from langchain_core.tools import tool as langchain_tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel, Field, ValidationError

from regnexe.capabilities.decorators import agent_tool, plugin, plugin_from, tool_from
from regnexe.capabilities.model import WITH_TOOL, Plugin, check_unique
from regnexe.errors import ConfigurationError

ROOT = Path(__file__).parents[1]


class Area(BaseModel):
    north: float
    east: float = 0.0


@plugin(version="2.1")
class CityMapsPlugin:
    """Maps of
    cities.

    Not sent to anybody.
    """

    evaluated = False

    def __init__(self, country: str = "CN") -> None:
        self.country = country

    @property
    def expensive(self) -> str:
        type(self).evaluated = True
        raise RuntimeError("a scan must not evaluate this")

    @agent_tool
    async def find_city(self, name: str) -> str:
        """Find a city."""
        return f"{name}, {self.country}"

    @agent_tool(name="where", description="Tell which thread runs it.")
    def thread_name(self) -> str:
        return threading.current_thread().name

    @agent_tool
    @staticmethod
    def above_static(n: int) -> int:
        """Double a number."""
        return 2 * n

    @staticmethod
    @agent_tool
    async def below_static(n: int) -> int:
        """Double a number."""
        return 2 * n

    @agent_tool
    @classmethod
    def above_class(cls) -> str:
        """Tell the class."""
        return cls.__name__

    @classmethod
    @agent_tool
    def below_class(cls) -> str:
        """Tell the class."""
        return cls.__name__

    def helper(self) -> str:
        """Not a tool."""
        return ""


class DocumentedPlugin:
    @agent_tool
    async def search(  # type: ignore[no-untyped-def]
        self,
        query: str,
        kind: Literal["map", "photo"],
        limit: Annotated[int, Field(ge=1, le=5, description="how many")] = 3,
        language: Annotated[str, "two letters"] = "en",
        area: Area | None = None,
        tags: list[str] = Field(default_factory=list, description="any"),  # noqa: B008 - the form that pydantic's users write
        anything=None,
    ) -> str:
        """Search the atlas.

        Two ways:

        - by words
        - by area

        Args:
            query: The words,
                order: any.

            kind (str): Map or photo.
            limit: Not used, the annotation says more.
            tags: Not used either.
            anything: Any value.

        Returns:
            What was found.

        Example:
            search("Beijing")

        Raises:
            KeyError: never.
        """
        return repr((query, kind, limit, language, area, tags, anything))


def tools_of(obj: object) -> dict[str, BaseTool]:
    return {tool.name: tool for tool in plugin_from(obj).tools}


def schema_of(tool: BaseTool) -> dict[str, Any]:
    return cast("dict[str, Any]", convert_to_openai_tool(tool)["function"])


def refused(pattern: str) -> Any:
    return pytest.raises(ConfigurationError, match=pattern)


# --- plugins ---------------------------------------------------------------------------------------------


def test_plugin_is_described_by_its_class() -> None:
    built = plugin_from(CityMapsPlugin())
    assert (built.id, built.name, built.version) == ("city-maps", "City Maps", "2.1")
    assert built.description == "Maps of cities."


def test_plugin_takes_the_given_values() -> None:
    @plugin(id="acme.maps", name="地图", description="All maps")
    class Maps(CityMapsPlugin):
        """Not this."""

    built = plugin_from(Maps())
    assert (built.id, built.name, built.description, built.version) == ("acme.maps", "地图", "All maps", "")


@pytest.mark.parametrize(
    ("class_name", "id", "name"),
    [
        ("WeatherPlugin", "weather", "Weather"),
        ("Weather", "weather", "Weather"),
        ("Plugin", "plugin", "Plugin"),
        ("HTTPToolsPlugin", "http-tools", "HTTP Tools"),
        ("S3Plugin", "s3", "S3"),
        ("Base64CodecPlugin", "base64-codec", "Base64 Codec"),
        ("My_old_plugin", "my-old-plugin", "My old plugin"),
    ],
)
def test_default_id_is_the_class_name_in_kebab_case(class_name: str, id: str, name: str) -> None:
    cls = plugin(type(class_name, (CityMapsPlugin,), {}))
    built = plugin_from(cls())
    assert (built.id, built.name, built.description) == (id, name, "")


@settings(deadline=None)
@given(st.from_regex(r"[A-Z][A-Za-z0-9]{0,40}", fullmatch=True))
def test_every_ascii_class_name_gives_an_id(class_name: str) -> None:
    cls = plugin(type(class_name, (CityMapsPlugin,), {}))
    kept = class_name.removesuffix("Plugin") or class_name
    assert plugin_from(cls()).id.replace("-", "") == kept.lower()


def test_class_name_that_gives_no_id_asks_for_one() -> None:
    with refused(r"class 天气Plugin.*pass @plugin\(id="):
        plugin(type("天气Plugin", (CityMapsPlugin,), {}))


def test_dataclass_signature_is_no_description() -> None:
    @plugin
    @dataclass
    class UnitsPlugin:
        unit: str = "C"

        @agent_tool
        def show_unit(self) -> str:
            """Show the unit."""
            return self.unit

    assert plugin_from(UnitsPlugin()).description == ""
    assert tools_of(UnitsPlugin("F"))["show_unit"].invoke({}) == "F"


@pytest.mark.parametrize("id", ["", "Weather", "we ather", "-a", "a-", "a--b", "a_b", "天气", "a\n", "x" * 65, None, 3])
def test_bad_plugin_id_is_refused(id: Any) -> None:
    with refused("is not a plugin id"):
        Plugin(id, "Name", "", ())


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", "\x7f", "\ud800", "x" * 65])
def test_bad_plugin_name_is_refused(name: str) -> None:
    with refused("can't be the name of plugin 'maps'"):
        plugin(id="maps", name=name)(CityMapsPlugin)


def test_values_of_other_types_are_refused() -> None:
    with refused("the version of plugin 'a' must be a str, got float"):
        Plugin("a", "A", "", (), cast("Any", 1.0))
    with refused("the tools of plugin 'a' must be a tuple, got list"):
        Plugin("a", "A", "", cast("Any", []))
    with refused("plugin 'a' holds a function"):
        Plugin("a", "A", "", cast("Any", (print_it,)))


def test_built_plugin_is_returned_as_it_is() -> None:
    built = plugin_from(CityMapsPlugin())
    assert plugin_from(built) is built


def test_class_in_place_of_an_instance_is_refused() -> None:
    with refused(r"pass CityMapsPlugin\(\) not CityMapsPlugin"):
        plugin_from(CityMapsPlugin)


def test_undecorated_class_is_refused() -> None:
    with refused("DocumentedPlugin is no plugin: decorate the class with @plugin"):
        plugin_from(DocumentedPlugin())
    with refused(r"decorate it with @plugin and pass DocumentedPlugin\(\)"):
        plugin_from(DocumentedPlugin)


def test_tools_are_no_plugins() -> None:
    for obj in (print_it, tool_from(print_it), CityMapsPlugin().find_city):
        with refused(r"use with_tool\(\)"):
            plugin_from(obj)


def test_plugin_without_tools_is_refused() -> None:
    @plugin
    class Empty:
        pass

    with refused("plugin 'empty' has no tools.*Empty.*@agent_tool"):
        plugin_from(Empty())
    with refused("plugin 'built' has no tools"):
        plugin_from(Plugin("built", "Built", "", ()))


def test_plugin_decorates_only_classes() -> None:
    with refused("@plugin decorates a class.*use @agent_tool"):
        plugin(cast("Any", print_it))


# --- tools of a plugin -----------------------------------------------------------------------------------


def test_tools_come_in_order_of_definition() -> None:
    names = ["find_city", "where", "above_static", "below_static", "above_class", "below_class"]
    assert list(tools_of(CityMapsPlugin())) == names


async def test_every_kind_of_method_runs() -> None:
    tools = tools_of(CityMapsPlugin())
    assert await tools["find_city"].ainvoke({"name": "Beijing"}) == "Beijing, CN"
    assert await tools["above_static"].ainvoke({"n": 2}) == 4
    assert await tools["below_static"].ainvoke({"n": 3}) == 6
    assert await tools["above_class"].ainvoke({}) == "CityMapsPlugin"
    assert await tools["below_class"].ainvoke({}) == "CityMapsPlugin"


async def test_decorated_method_stays_callable() -> None:
    maps = CityMapsPlugin("UK")
    assert await maps.find_city("London") == "London, UK"
    assert maps.above_static(2) == CityMapsPlugin.above_static(2) == 4
    assert maps.below_class() == CityMapsPlugin.above_class() == "CityMapsPlugin"


async def test_synchronous_tool_runs_in_a_thread() -> None:
    where = await tools_of(CityMapsPlugin())["where"].ainvoke({})
    assert where != threading.current_thread().name


async def test_each_instance_has_tools_of_its_own() -> None:
    tools = [tools_of(CityMapsPlugin(country))["find_city"] for country in ("CN", "UK")]
    found = await asyncio.gather(*(tool.ainvoke({"name": "X"}) for tool in tools))
    assert found == ["X, CN", "X, UK"]


def test_scan_evaluates_nothing_of_the_instance() -> None:
    class Guarded(CityMapsPlugin):
        def __getattribute__(self, name: str) -> Any:
            if not name.startswith("__"):
                raise RuntimeError(f"a scan must not read {name}")
            return super().__getattribute__(name)

    assert len(plugin_from(Guarded()).tools) == 6
    assert not CityMapsPlugin.evaluated


def test_instance_attribute_does_not_replace_a_tool() -> None:
    maps = CityMapsPlugin()
    maps.__dict__["above_static"] = "shadow"
    assert tools_of(maps)["above_static"].invoke({"n": 1}) == 2


async def test_subclass_inherits_overrides_and_removes_tools() -> None:
    class Sub(CityMapsPlugin):
        below_class = None  # type: ignore[assignment]
        above_class = property(lambda self: self.expensive)

        async def find_city(self, name: str) -> str:
            return "overridden " + name

        def thread_name(self) -> str:
            """Say where."""
            return "nowhere"

        @agent_tool
        def extra(self) -> str:
            """Give more."""
            return "more"

    built = plugin_from(Sub())
    tools = {tool.name: tool for tool in built.tools}
    assert built.id == "city-maps"
    assert list(tools) == ["find_city", "where", "above_static", "below_static", "extra"]
    assert await tools["find_city"].ainvoke({"name": "X"}) == "overridden X"
    assert tools["find_city"].description == "Find a city."
    assert tools["where"].invoke({}) == "nowhere"
    assert tool_from(Sub().thread_name).name == "where"


def test_override_with_the_decorator_has_its_own_options() -> None:
    class Sub(CityMapsPlugin):
        @agent_tool
        def thread_name(self) -> str:
            """Say where."""
            return ""

    tool = tools_of(Sub())["thread_name"]
    assert tool.description == "Say where."


def test_diamond_gives_each_tool_once() -> None:
    class Left(CityMapsPlugin): ...

    class Right(CityMapsPlugin): ...

    class Both(Left, Right): ...

    assert list(tools_of(Both())) == list(tools_of(CityMapsPlugin()))


def test_two_methods_of_one_tool_name_are_refused() -> None:
    class Twice(CityMapsPlugin):
        @agent_tool(name="find_city")
        def other(self) -> str:
            """Find it too."""
            return ""

    with refused("two tools are named 'find_city': one from plugin 'city-maps', one from plugin 'city-maps'"):
        plugin_from(Twice())


# --- what the model sees ---------------------------------------------------------------------------------


def test_description_is_the_docstring_without_its_sections() -> None:
    description = tool_from(DocumentedPlugin().search).description
    assert description == ('Search the atlas.\n\nTwo ways:\n\n- by words\n- by area\n\nExample:\n    search("Beijing")')


def test_parameters_are_described_and_typed() -> None:
    parameters = schema_of(tool_from(DocumentedPlugin().search))["parameters"]
    assert parameters["required"] == ["query", "kind"]
    properties = parameters["properties"]
    assert list(properties) == ["query", "kind", "limit", "language", "area", "tags", "anything"]
    assert properties["query"] == {"type": "string", "description": "The words, order: any."}
    assert properties["kind"]["enum"] == ["map", "photo"]
    assert properties["kind"]["description"] == "Map or photo."
    assert properties["limit"] == {
        "type": "integer", "minimum": 1, "maximum": 5, "default": 3, "description": "how many",
    }  # fmt: skip
    assert properties["language"] == {"type": "string", "default": "en", "description": "two letters"}
    assert properties["area"]["anyOf"][0]["required"] == ["north"]
    assert properties["tags"] == {"type": "array", "items": {"type": "string"}, "description": "any"}
    assert properties["anything"] == {"default": None, "description": "Any value."}


async def test_arguments_arrive_validated() -> None:
    search = tool_from(DocumentedPlugin().search)
    found = await search.ainvoke({"query": "q", "kind": "map", "area": {"north": "1.5"}, "limit": "2"})
    assert found == repr(("q", "map", 2, "en", Area(north=1.5), [], None))
    for wrong in ({"query": "q"}, {"query": "q", "kind": "x"}, {"query": "q", "kind": "map", "limit": 9}):
        with pytest.raises(ValidationError):
            await search.ainvoke(wrong)


def test_args_need_no_blank_line_and_returns_may_be_inline() -> None:
    def convert(amount: float, unit: str) -> str:
        """Convert an amount.
        Args:
            amount: How much.
            unit: To what.
        Returns: the result,
        as text.

        Slow.
        """
        return ""

    tool = tool_from(convert)
    assert tool.description == "Convert an amount.\nSlow."
    assert {name: value["description"] for name, value in tool.args.items()} == {
        "amount": "How much.", "unit": "To what.",
    }  # fmt: skip


def test_given_description_keeps_the_documented_parameters() -> None:
    @agent_tool(description="Better.")
    def echo(text: str) -> str:
        """Worse.

        Args:
            text: What to say.
        """
        return text

    assert schema_of(tool_from(echo))["description"] == "Better."
    assert tool_from(echo).args["text"]["description"] == "What to say."


def test_documented_parameter_that_is_not_there_is_refused() -> None:
    def echo(text: str) -> str:
        """Say it.

        Args:
            txt: What to say.
        """
        return text

    with refused("tool 'echo' .*describes the parameter 'txt'.*did you mean 'text'"):
        tool_from(echo)


# --- functions and LangChain tools -----------------------------------------------------------------------


def print_it(text: str) -> str:
    """Print a text."""
    return text


@agent_tool(name="pair-of_both", return_direct=True, response_format="content_and_artifact")
def pair() -> tuple[str, dict[str, int]]:
    """Give content and artifact."""
    return "content", {"artifact": 1}


def test_plain_function_is_a_tool_without_the_decorator() -> None:
    tool = tool_from(print_it)
    assert (tool.name, tool.description, tool.invoke({"text": "hi"})) == ("print_it", "Print a text.", "hi")


async def test_options_pass_through() -> None:
    tool = tool_from(pair)
    assert (tool.name, tool.return_direct) == ("pair-of_both", True)
    message = await tool.ainvoke(ToolCall(name=tool.name, args={}, id="c1", type="tool_call"))
    assert isinstance(message, ToolMessage)
    assert (message.content, message.artifact) == ("content", {"artifact": 1})
    assert pair() == ("content", {"artifact": 1})


def test_wrapped_function_keeps_mark_and_types() -> None:
    @functools.wraps(pair)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return "wrapped", None

    tool = tool_from(wrapper)
    assert (tool.name, tool.invoke({})) == ("pair-of_both", "wrapped")


def test_langchain_tool_is_taken_as_it_is_but_for_its_exits() -> None:
    tool = langchain_tool(print_it)
    taken = tool_from(tool)
    assert (taken.name, taken.description, taken.args_schema) == (tool.name, tool.description, tool.args_schema)
    with refused("'print_it' is a LangChain tool already"):
        agent_tool(cast("Any", tool))


def test_tool_without_description_is_refused() -> None:
    def silent(x: int) -> int:
        return x

    def only_args(x: int) -> int:
        """
        Args:
            x: A number.
        """
        return x

    for func in (silent, only_args):
        with refused(f"tool '{func.__name__}' .*has no description.*docstring, or pass description="):
            tool_from(func)
    with refused("tool 'bare' has no description"):
        tool_from(StructuredTool.from_function(silent, name="bare", description=""))
    with refused("description of tool 'silent' must be a text"):
        agent_tool(description=" ")(silent)


def yields() -> Iterator[int]:
    """Yield."""
    yield 1


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (lambda x: x, "a lambda can't be a tool"),
        (functools.partial(print_it, "x"), "has no name"),
        (3, "3 can't be a tool: it is not a function"),
        (None, "None can't be a tool"),
        (CityMapsPlugin, "the class CityMapsPlugin is no tool"),
        (CityMapsPlugin(), r"a plugin goes to with_plugin\(\)"),
        (CityMapsPlugin.find_city, "'find_city'.*without its instance: pass it as instance.method"),
        (yields, "'yields' yields"),
        (dict.get, "'get'"),
    ],
)
def test_what_is_no_tool_is_refused(obj: object, message: str) -> None:
    with refused(message):
        tool_from(obj)


def test_decorator_refuses_options_without_their_names() -> None:
    with refused("options of @agent_tool are written with their names"):
        agent_tool(cast("Any", "get_weather"))
    with refused("tool 'print_it' has the response_format 'text'"):
        agent_tool(response_format=cast("Any", "text"))(print_it)


def varargs(x: int, *rest: int) -> None:
    """Doc."""


def varkwargs(x: int, **rest: int) -> None:
    """Doc."""


def positional(x: int, /) -> None:
    """Doc."""


def underscore(_x: int) -> None:
    """Doc."""


def renamed(args: str) -> None:
    """Doc."""


def manager(run_manager: str) -> None:
    """Doc."""


def own_config(config: str) -> None:
    """Doc."""


def optional_config(config: RunnableConfig | None = None) -> None:
    """Doc."""


def own_runtime(runtime: str) -> None:
    """Doc."""


def unresolved(x: "Missing") -> None:  # type: ignore[name-defined]  # noqa: F821
    """Doc."""


def no_schema(x: Callable[[], int]) -> None:
    """Doc."""


@pytest.mark.parametrize(
    ("func", "message"),
    [
        (varargs, r"parameter '\*rest', which is variadic positional"),
        (varkwargs, r"parameter '\*\*rest', which is variadic keyword"),
        (positional, "parameter 'x', which is positional-only"),
        (underscore, "parameter '_x' .*rename it"),
        (renamed, "parameter 'args' .*rename it"),
        (manager, "parameter 'run_manager' .*rename it"),
        (own_config, "parameter 'config' .*annotate it as RunnableConfig"),
        (optional_config, r"parameter 'config' .*without \| None"),
        (own_runtime, "parameter 'runtime' .*annotate it as ToolRuntime"),
        (unresolved, "can't be read: name 'Missing' is not defined"),
        (no_schema, "can't be described to a model"),
    ],
)
def test_parameter_that_no_model_can_give_is_refused(func: Callable[..., Any], message: str) -> None:
    with refused(message) as caught:
        tool_from(func)
    assert f"tool '{func.__name__}'" in str(caught.value)


NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}\Z")


@settings(deadline=None)
@given(st.text(max_size=70) | st.from_regex(r"[a-zA-Z0-9_-]{1,66}\n?", fullmatch=True))
@example("x" * 64)
@example("x" * 65)
@example("\x00")
def test_tool_names_are_those_that_providers_take(name: str) -> None:
    tool = StructuredTool.from_function(print_it)
    tool.name = name
    if NAME.match(name):
        assert tool_from(tool).name == name
        assert tool_from(agent_tool(name=name)(copy_of(print_it))).name == name
    else:
        with refused(f"{re.escape(repr(name))} can't be the name of a tool.*1 to 64"):
            tool_from(tool)
        with refused("can't be the name of a tool"):
            agent_tool(name=name)(copy_of(print_it))


def copy_of(func: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(func)(lambda *args, **kwargs: func(*args, **kwargs))


# --- injected arguments ----------------------------------------------------------------------------------


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


# --- names across plugins --------------------------------------------------------------------------------


def test_two_tools_of_one_name_are_refused_with_both_origins() -> None:
    tool = tool_from(print_it)
    with refused(r"'print_it': one from plugin 'weather', one from with_tool\(\)"):
        check_unique([("weather", tool), (WITH_TOOL, tool)], reserved=())


def test_name_of_a_built_in_tool_is_refused() -> None:
    with refused(r"'print_it' from with_tool\(\) has the name of a tool that is built in"):
        check_unique([(WITH_TOOL, tool_from(print_it))], reserved={"print_it"})


def test_different_names_pass() -> None:
    check_unique([("a", tool_from(print_it)), ("b", tool_from(pair))], reserved={"write_file"})


# --- the rest --------------------------------------------------------------------------------------------


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
