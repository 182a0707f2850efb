"""Plugins written as classes: what they become, and what is refused."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plugin_helpers import CityMapsPlugin, DocumentedPlugin, print_it, refused, tools_of

from regnexe.capabilities.decorators import agent_tool, plugin, plugin_from, tool_from
from regnexe.capabilities.model import Plugin


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
