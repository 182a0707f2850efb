"""The one form that every plugin ends in, and the rules for names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_core.tools import BaseTool

from regnexe.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = [
    "MAX_NAME_LENGTH",
    "WITH_TOOL",
    "Plugin",
    "check_plugin_id",
    "check_tool_name",
    "check_unique",
]

MAX_NAME_LENGTH = 64
"""Longest id of a plugin and longest name of a plugin or tool, in characters."""

WITH_TOOL = "with_tool"
"""Origin of a tool that came from no plugin. No plugin id can equal it: ids hold no underscore."""

# OpenAI and Anthropic refuse any other function name.
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PLUGIN_ID = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")
# Control characters (C0, DEL, C1) and lone surrogates: neither terminals nor databases take them.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Plugin:
    """A named group of tools.

    Attributes:
        id: lower-case words joined with `-` or `.`, at most 64 characters, for example `"weather"`.
        name: for people, one line of at most 64 characters.
        description: for people and for search; may be empty.
        tools: LangChain tools, no two of one name.
        version: as its author writes it; may be empty.

    Raises:
        ConfigurationError: when a value breaks these rules.
    """

    id: str
    name: str
    description: str
    tools: tuple[BaseTool, ...]
    version: str = ""

    def __post_init__(self) -> None:
        check_plugin_id(self.id)
        for field, value in (("name", self.name), ("description", self.description), ("version", self.version)):
            if not isinstance(value, str):
                raise ConfigurationError(f"the {field} of plugin {self.id!r} must be a str, got {type(value).__name__}")
        if not self.name.strip() or len(self.name) > MAX_NAME_LENGTH or _FORBIDDEN.search(self.name):
            raise ConfigurationError(
                f"{self.name!r} can't be the name of plugin {self.id!r}: a name is one line of 1 to "
                f"{MAX_NAME_LENGTH} characters, not all spaces and without control characters"
            )
        if not isinstance(self.tools, tuple):
            raise ConfigurationError(
                f"the tools of plugin {self.id!r} must be a tuple, got {type(self.tools).__name__}"
            )
        for tool in self.tools:
            if not isinstance(tool, BaseTool):
                raise ConfigurationError(
                    f"plugin {self.id!r} holds a {type(tool).__name__} among its tools; make it a tool with "
                    "tool_from() first"
                )
            check_tool_name(tool.name)
        check_unique(((self.id, tool) for tool in self.tools), reserved=())


def check_plugin_id(id: str) -> None:
    """Refuse an id that no plugin may have.

    Raises:
        ConfigurationError: naming the id and the rule.
    """
    if not isinstance(id, str) or len(id) > MAX_NAME_LENGTH or not _PLUGIN_ID.fullmatch(id):
        raise ConfigurationError(
            f"{id!r} is not a plugin id: use lower-case ASCII letters and digits in words joined with - or ., at "
            f"most {MAX_NAME_LENGTH} characters, for example 'weather' or 'acme.weather-maps'"
        )


def check_tool_name(name: str) -> None:
    """Refuse a tool name that model providers refuse.

    Raises:
        ConfigurationError: naming the tool and the rule.
    """
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} can't be the name of a tool: model providers take only 1 to {MAX_NAME_LENGTH} of the "
            "characters a-z, A-Z, 0-9, _ and -"
        )


def check_unique(tools: Iterable[tuple[str, BaseTool]], reserved: Collection[str]) -> None:
    """Refuse two tools of one name, and a tool with the name of a built-in one.

    Args:
        tools: pairs of an origin and a tool; the origin is a plugin id or `WITH_TOOL`.
        reserved: the names of the agent's built-in tools.

    Raises:
        ConfigurationError: naming the tool and where each of the two comes from.
    """
    seen: dict[str, str] = {}
    for origin, tool in tools:
        if tool.name in reserved:
            raise ConfigurationError(
                f"tool {tool.name!r} from {_label(origin)} has the name of a tool that is built in; give it another "
                f"name, for example @agent_tool(name='my_{tool.name}')"
            )
        if tool.name in seen:
            raise ConfigurationError(
                f"two tools are named {tool.name!r}: one from {_label(seen[tool.name])}, one from {_label(origin)}; "
                "rename one with @agent_tool(name=...) or leave one out"
            )
        seen[tool.name] = origin


def _label(origin: str) -> str:
    return f"{WITH_TOOL}()" if origin == WITH_TOOL else f"plugin {origin!r}"
