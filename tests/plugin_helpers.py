"""Plugins and tools that several tests of them use."""

import functools
import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal, cast

import pytest
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, Field

from regnexe.capabilities.decorators import agent_tool, plugin, plugin_from
from regnexe.errors import ConfigurationError


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


def print_it(text: str) -> str:
    """Print a text."""
    return text


@agent_tool(name="pair-of_both", return_direct=True, response_format="content_and_artifact")
def pair() -> tuple[str, dict[str, int]]:
    """Give content and artifact."""
    return "content", {"artifact": 1}


def copy_of(func: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(func)(lambda *args, **kwargs: func(*args, **kwargs))
