"""Plugins and tools as ordinary classes and functions: `@plugin`, `@agent_tool` and what they become.

A tool's description is its docstring without the `Args`, `Returns`, `Yields` and `Raises` sections. A
parameter's description is the one in `Annotated[..., Field(description=...)]` or `Annotated[..., "text"]`,
else the one in `Args`. LangChain reads the types; what it injects (`InjectedState`, `ToolRuntime`,
`RunnableConfig`, ...) stays out of the model's sight. A parameter without a type takes anything.

A subclass inherits the tools of its bases, and the plugin's id unless it is decorated itself. A method that
overrides a tool stays that tool, with the same name and options, also without `@agent_tool`; its own
docstring describes it, else the inherited one. `name = None` in a subclass takes the tool away.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from langchain_core.tools import BaseTool

from regnexe.capabilities.functions import ToolOptions, build_tool, without_exits
from regnexe.capabilities.model import Plugin, check_plugin_id, check_tool_name
from regnexe.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["agent_tool", "plugin", "plugin_from", "tool_from"]

C = TypeVar("C", bound=type)
F = TypeVar("F", bound="Callable[..., Any]")

_TOOL_MARK = "__regnexe_tool__"
_PLUGIN_MARK = "__regnexe_plugin__"
_WORD = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[^A-Z_]+|[A-Z]+")
_FORMATS = ("content", "content_and_artifact")


@dataclass(frozen=True, slots=True)
class _PluginOptions:
    id: str
    name: str
    description: str
    version: str


@overload
def plugin(cls: C, /) -> C: ...
@overload
def plugin(
    *, id: str | None = None, name: str | None = None, description: str | None = None, version: str = ""
) -> Callable[[C], C]: ...
def plugin(
    cls: type | None = None,
    /,
    *,
    id: str | None = None,
    name: str | None = None,
    description: str | None = None,
    version: str = "",
) -> Any:
    """Make the instances of a class plugins; their tools are the methods with `@agent_tool`.

    Args:
        cls: the class, when the decorator is used without arguments.
        id: see `Plugin`; by default the class name in kebab-case without a trailing `Plugin`, so
            `CityMapsPlugin` has the id `city-maps`.
        name: by default the same words as they are in the class name: `City Maps`.
        description: by default the first paragraph of the class's docstring.
        version: as its author writes it.

    Raises:
        ConfigurationError: when it decorates something else than a class, or a value breaks the rules.
    """

    def decorate(cls: C) -> C:
        if not isinstance(cls, type):
            raise ConfigurationError(f"@plugin decorates a class, got {cls!r}; for a function use @agent_tool")
        words = _words(cls.__name__)
        chosen = "-".join(words).lower() if id is None else id
        try:
            check_plugin_id(chosen)
        except ConfigurationError as error:
            raise ConfigurationError(f"class {cls.__qualname__}: {error}; pass @plugin(id=...)") from None
        options = _PluginOptions(
            chosen,
            " ".join(words) if name is None else name,
            _first_paragraph(cls) if description is None else description,
            version,
        )
        Plugin(options.id, options.name, options.description, (), options.version)
        setattr(cls, _PLUGIN_MARK, options)
        return cls

    return decorate if cls is None else decorate(cls)


@overload
def agent_tool(func: F, /) -> F: ...
@overload
def agent_tool(
    *,
    name: str | None = None,
    description: str | None = None,
    return_direct: bool = False,
    response_format: Literal["content", "content_and_artifact"] = "content",
) -> Callable[[F], F]: ...
def agent_tool(
    func: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    return_direct: bool = False,
    response_format: Literal["content", "content_and_artifact"] = "content",
) -> Any:
    """Make a method of a plugin class, or a plain function, a tool; it stays callable as before.

    It may stand above or below `@staticmethod` and `@classmethod`. A synchronous function runs in a thread.

    Args:
        func: the function, when the decorator is used without arguments.
        name: what the model calls it; by default the function's name.
        description: by default from the docstring.
        return_direct: end the run with the tool's result as its answer.
        response_format: `"content_and_artifact"` for a function that returns a pair of both.

    Raises:
        ConfigurationError: when it decorates something else than a named function, or an option can't work.
    """

    def decorate(func: F) -> F:
        plain: Any = func.__func__ if isinstance(func, staticmethod | classmethod) else func
        _check_function(plain)
        if name is not None:
            check_tool_name(name)
        if description is not None and (not isinstance(description, str) or not description.strip()):
            raise ConfigurationError(f"the description of tool {name or plain.__name__!r} must be a text, not empty")
        if response_format not in _FORMATS:
            raise ConfigurationError(
                f"tool {name or plain.__name__!r} has the response_format {response_format!r}; use one of "
                f"{', '.join(map(repr, _FORMATS))}"
            )
        setattr(plain, _TOOL_MARK, ToolOptions(name, description, return_direct, response_format))
        return func

    return decorate if func is None else decorate(func)


def plugin_from(instance: object) -> Plugin:
    """Return the plugin that an instance of a `@plugin` class is; a `Plugin` is returned as it is.

    Only the class is searched for tools, so no property or attribute of the instance is evaluated. Each
    instance gives tools of its own, bound to it.

    Raises:
        ConfigurationError: when it is anything else, or the plugin has no tools.
    """
    built = instance if isinstance(instance, Plugin) else _plugin_of(instance)
    if not built.tools:
        raise ConfigurationError(
            f"plugin {built.id!r} has no tools: mark at least one method of {type(instance).__qualname__} with "
            "@agent_tool"
        )
    return built


def tool_from(obj: object) -> BaseTool:
    """Return the tool that a function, a bound method or a LangChain tool is.

    Raises:
        ConfigurationError: when it is anything else, has no description, or can't be described to a model.
    """
    if isinstance(obj, BaseTool):
        check_tool_name(obj.name)
        if not obj.description.strip():
            raise ConfigurationError(f"tool {obj.name!r} has no description; set its description=")
        return without_exits(obj)
    _check_function(obj)
    func = cast("Callable[..., Any]", obj)
    owner = getattr(func, "__self__", None)
    cls = owner if isinstance(owner, type) else type(owner)
    options = _options_of(func) or _inherited_options(cls, func.__name__) or ToolOptions()
    return build_tool(func, options.name or func.__name__, options)


def _plugin_of(instance: object) -> Plugin:
    if isinstance(instance, type):
        name = instance.__qualname__
        if _static(instance, _PLUGIN_MARK) is None:
            raise ConfigurationError(f"{name} is a class and no plugin: decorate it with @plugin and pass {name}()")
        raise ConfigurationError(f"pass {name}() not {name}: a plugin is an instance of its class")
    if isinstance(instance, BaseTool) or inspect.isroutine(instance):
        raise ConfigurationError(f"{instance!r} is a tool and no plugin: use with_tool()")
    cls = type(instance)
    options = _static(cls, _PLUGIN_MARK)
    if options is None:
        raise ConfigurationError(f"{cls.__qualname__} is no plugin: decorate the class with @plugin")
    tools = tuple(build_tool(func, tool.name or name, tool) for name, func, tool in _tool_methods(instance))
    return Plugin(options.id, options.name, options.description, tools, options.version)


def _tool_methods(instance: object) -> Iterator[tuple[str, Callable[..., Any], ToolOptions]]:
    """Yield the tool methods of an instance, bound, those of base classes first, in the order of their definition."""
    cls = type(instance)
    for name in {name: None for base in reversed(cls.__mro__) for name in vars(base)}:
        found = inspect.getattr_static(cls, name)
        options = _inherited_options(cls, name)
        if options is not None and (callable(found) or isinstance(found, classmethod)):
            bound = found.__get__(instance, cls) if hasattr(type(found), "__get__") else found
            _check_function(bound)
            yield name, bound, options


def _inherited_options(cls: type, name: str) -> ToolOptions | None:
    """Return the options of the nearest `@agent_tool` on a method of this name."""
    marked = (_options_of(vars(base)[name]) for base in cls.__mro__ if name in vars(base))
    return next((options for options in marked if options is not None), None)


def _options_of(func: object) -> ToolOptions | None:
    plain = func.__func__ if isinstance(func, staticmethod | classmethod) or inspect.ismethod(func) else func
    options = _static(plain, _TOOL_MARK)
    return options if isinstance(options, ToolOptions) else None


def _static(obj: object, name: str) -> Any:
    return inspect.getattr_static(obj, name, None)


def _check_function(func: object) -> None:
    if isinstance(func, BaseTool):
        raise ConfigurationError(f"{func.name!r} is a LangChain tool already: pass it to with_tool() as it is")
    if isinstance(func, type):
        raise ConfigurationError(
            f"the class {func.__qualname__} is no tool: pass a function, a method of an instance, or a LangChain tool"
        )
    name = getattr(func, "__name__", None)
    if callable(func) and name == "<lambda>":
        raise ConfigurationError("a lambda can't be a tool: write a function with a name, types and a docstring")
    if callable(func) and not isinstance(name, str):
        raise ConfigurationError(f"{func!r} has no name, so it can't be a tool: wrap it in a function with a docstring")
    if not callable(func):
        hint = "; a plugin goes to with_plugin()" if _static(type(func), _PLUGIN_MARK) else ""
        hint = "; options of @agent_tool are written with their names" if isinstance(func, str) else hint
        raise ConfigurationError(f"{func!r:.200} can't be a tool: it is not a function{hint}")
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise ConfigurationError(f"{name!r} yields, and a tool has one result: return it instead")


def _words(class_name: str) -> list[str]:
    return _WORD.findall(class_name.removesuffix("Plugin")) or [class_name]


def _first_paragraph(cls: type) -> str:
    doc = cls.__doc__ or ""
    if doc.startswith(f"{cls.__name__}("):  # the signature, which @dataclass writes where there is no docstring
        return ""
    return " ".join(inspect.cleandoc(doc).split("\n\n")[0].split())
