"""How a function becomes a tool: its name, its description, its parameters, and what it may not do."""

from __future__ import annotations

import functools
import inspect
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_type_hints

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException, create_schema_from_function
from pydantic import Field

from regnexe.capabilities.model import check_tool_name
from regnexe.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pydantic import BaseModel

__all__ = ["ToolOptions", "build_tool", "without_exits"]

_HEADER = re.compile(r"(Args|Arguments):\s*|(?:Returns|Yields|Raises):.*")
_ARG = re.compile(r"\s*(\w+)\s*(?:\([^)]*\))?:(.*)")


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """What `@agent_tool` was told; `None` stands for what the function itself says."""

    name: str | None = None
    description: str | None = None
    return_direct: bool = False
    response_format: Literal["content", "content_and_artifact"] = "content"


def build_tool(func: Callable[..., Any], name: str, options: ToolOptions) -> BaseTool:
    """Return the tool that calls `func`, described by its docstring and its types.

    Raises:
        ConfigurationError: when a model could not be told how to call it; the message names the tool.
    """
    check_tool_name(name)
    where = f"tool {name!r} ({getattr(func, '__qualname__', name)})"
    parameters, hints = _read(where, func)
    text, texts = _parse_docstring(inspect.getdoc(func) or "")
    _check_parameters(where, parameters, texts)
    description = options.description or text
    if not description:
        raise ConfigurationError(
            f"{where} has no description, and a model can't choose a tool without one: give it a docstring, or "
            "pass description= to @agent_tool"
        )
    is_async = inspect.iscoroutinefunction(func)
    try:
        tool = StructuredTool.from_function(
            func=None if is_async else func,
            coroutine=func if is_async else None,
            name=name,
            description=description,
            return_direct=options.return_direct,
            response_format=options.response_format,
        )
        visible = tool.args
        texts = {p: text for p, text in texts.items() if p in visible and "description" not in visible[p]}
        if texts:
            tool.args_schema = _described_schema(tool, parameters.values(), hints, texts)
    except Exception as error:
        raise ConfigurationError(f"the parameters of {where} can't be described to a model: {error}") from error
    _check_passed(where, tool, parameters, hints)
    return without_exits(tool)


def without_exits(tool: BaseTool) -> BaseTool:
    """Return the tool in a form whose function cannot end the process.

    A `SystemExit`, as command-line code raises it, would leave the event loop with everything that runs on
    it. Here it is the tool's failure, and the model is told.
    """
    if not isinstance(tool, StructuredTool):
        return tool
    func, coroutine = tool.func, tool.coroutine
    if func is not None:
        func = _without_exit(func)
    if coroutine is not None:
        coroutine = _without_exit_async(coroutine)
    return tool.model_copy(update={"func": func, "coroutine": coroutine})


def _without_exit(func: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except SystemExit as error:
            raise ToolException(f"the tool tried to exit the process with {error.code!r}") from error

    return call


def _without_exit_async(func: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(func)
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return await func(*args, **kwargs)
        except SystemExit as error:
            raise ToolException(f"the tool tried to exit the process with {error.code!r}") from error

    return call


def _check_parameters(where: str, parameters: Mapping[str, inspect.Parameter], documented: Iterable[str]) -> None:
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ConfigurationError(
                f"{where} has the parameter {str(parameter).split(':')[0]!r}, which is {parameter.kind.description}; "
                "a model passes arguments by name, so write each one out, without *, ** and /"
            )
    if next(iter(parameters), None) == "self":
        raise ConfigurationError(f"{where} is a method without its instance: pass it as instance.method")
    for name in documented:
        if name not in parameters:
            near = get_close_matches(name, parameters, 1)
            raise ConfigurationError(
                f"the docstring of {where} describes the parameter {name!r}, which it does not have"
                + (f"; did you mean {near[0]!r}?" if near else "")
            )


def _read(where: str, func: Callable[..., Any]) -> tuple[Mapping[str, inspect.Parameter], dict[str, Any]]:
    try:
        return inspect.signature(func).parameters, get_type_hints(func, include_extras=True)
    except Exception as error:
        raise ConfigurationError(
            f"the parameters of {where} can't be read: {error}; import or define their types at module level, not "
            "under TYPE_CHECKING or inside a function"
        ) from error


def _check_passed(where: str, tool: BaseTool, parameters: Iterable[str], hints: Mapping[str, Any]) -> None:
    """LangChain drops or renames some parameters, and the call then fails; so it is refused here."""
    for name, kind in (("config", "RunnableConfig"), ("runtime", "ToolRuntime")):
        if name in tool.args:
            raise ConfigurationError(
                f"the parameter {name!r} of {where} would get LangChain's own value: annotate it as {kind}, without "
                "| None, or give it another name"
            )
    fields = cast("type[BaseModel]", tool.args_schema).model_fields
    passed = {"callbacks", *fields, *(name for name, hint in hints.items() if hint is RunnableConfig)}
    for name in parameters:
        if name not in passed:
            raise ConfigurationError(
                f"the parameter {name!r} of {where} has a name that LangChain does not pass on; rename it"
            )


def _described_schema(
    tool: BaseTool, parameters: Iterable[inspect.Parameter], hints: Mapping[str, Any], texts: Mapping[str, str]
) -> Any:
    """Return the tool's schema again, with `texts` as descriptions of parameters.

    LangChain's own `parse_docstring` is not used: it joins paragraphs and list items into one line, needs a blank
    line before `Args:`, stops at a blank line inside it, and refuses a documented parameter that has no type.
    """

    def described(parameter: inspect.Parameter) -> inspect.Parameter:
        hint = hints.get(parameter.name, Any)
        text = texts.get(parameter.name)
        return parameter.replace(annotation=Annotated[hint, Field(description=text)] if text else hint)

    def stand_in() -> None: ...

    fields = cast("type[BaseModel]", tool.args_schema).model_fields
    signature = inspect.Signature([described(parameter) for parameter in parameters if parameter.name in fields])
    cast("Any", stand_in).__signature__ = signature
    stand_in.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return create_schema_from_function(tool.name, stand_in)


def _parse_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """Split a Google-style docstring into its text and what `Args` says of each parameter.

    A section ends at an unindented line after a blank one. Sections with other headings stay in the text.
    """
    text: list[str] = []
    args: list[str] = []
    lines, blank = text, False
    for line in docstring.splitlines():
        if header := _HEADER.fullmatch(line):
            lines = args if header[1] else []
        else:
            if blank and line[:1].strip():
                lines = text
            lines.append(line)
        blank = not line.strip()
    return re.sub(r"\n{3,}", "\n\n", "\n".join(text)).strip(), _parse_args(args)


def _parse_args(lines: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    name, indent = "", None
    for line in filter(str.strip, lines):
        depth = len(line) - len(line.lstrip())
        match = _ARG.fullmatch(line)
        if match and (indent is None or depth <= indent):
            name, indent = match[1], depth
            found[name] = match[2].strip()
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found
