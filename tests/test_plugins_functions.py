"""Tools written as methods and functions: what the model is told of them, and what is refused."""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langchain_core.tools import tool as langchain_tool
from plugin_helpers import Area, CityMapsPlugin, DocumentedPlugin, copy_of, pair, print_it, refused, schema_of
from pydantic import ValidationError

from regnexe.capabilities.decorators import agent_tool, tool_from


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
