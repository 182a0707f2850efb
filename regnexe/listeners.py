"""Observers of runs: the interface, and two that are ready to use."""

from __future__ import annotations

import json
import os
import threading
from abc import ABC, abstractmethod
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from langchain_core.messages import AIMessage, BaseMessage

from regnexe.errors import ConfigurationError
from regnexe.events import (
    AgentCompleted,
    AgentStarted,
    ApprovalRequested,
    Event,
    EventType,
    LlmEnd,
    LlmStart,
    ToolCalled,
    ToolResult,
)
from regnexe.json_values import safe_repr, safe_str, to_json
from regnexe.messages import text_of
from regnexe.results import Usage
from regnexe.terminal import count, is_narrow, printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "AbstractEventListener",
    "AgentEventListener",
    "ConsoleEventListener",
    "JsonLinesEventListener",
    "error_text",
]


@runtime_checkable
class AgentEventListener(Protocol):
    """What `with_event_listener` takes: anything with this method.

    A listener gets the events of each run in order, one at a time, on the event loop of the run. It
    never changes a run: what it raises is logged, and a slow one is not waited for beyond a second at
    the end of a run. It may also have a method `should_handle(event_type) -> bool` to leave out kinds.
    A listener given to an agent that is used from several loops or threads is called from all of them.
    """

    async def on_event(self, event_type: EventType, name: str, data: Event) -> None:
        """Take one event; `name` is `data.name`, `data` the event itself."""


class AbstractEventListener(ABC):
    """A base class for listeners: override `on_event`, and `should_handle` to leave out kinds."""

    def should_handle(self, event_type: EventType) -> bool:
        """Return whether `on_event` wants events of this kind; every kind unless overridden."""
        return True

    @abstractmethod
    async def on_event(self, event_type: EventType, name: str, data: Event) -> None:
        """Take one event; `name` is `data.name`, `data` the event itself."""


class ConsoleEventListener(AbstractEventListener):
    r"""Prints what happens in a run, indented by sub-agent.

    What models, tools and users wrote cannot steer the terminal: control characters, escape sequences and
    marks that turn the order of reading round are shown as `\x1b` or `\u202e`.

    Args:
        llm_events: print model calls and their answers, not only tools.
        token_usage: print the tokens of each model call and of the run.
        system_prompt: print the system prompt of each model call.
        content_length: longest text that is printed whole, in characters; None for no limit.
        console: where to print; a console on standard output by default.

    Raises:
        ConfigurationError: the length is no whole number from 0 up, or the console is none of rich's.
    """

    def __init__(
        self,
        *,
        llm_events: bool = True,
        token_usage: bool = True,
        system_prompt: bool = False,
        content_length: int | None = 500,
        console: Console | None = None,
    ) -> None:
        if content_length is not None and not (type(content_length) is int and content_length >= 0):
            raise ConfigurationError(
                f"content_length must be a whole number of characters from 0 up, or None, got {content_length!r}"
            )
        if console is not None:
            _check_console(console)
        self._llm_events = llm_events
        self._token_usage = token_usage
        self._system_prompt = system_prompt
        self._content_length = content_length
        self._console = console

    def should_handle(self, event_type: EventType) -> bool:
        """Return whether events of this kind are printed."""
        if event_type in (EventType.LLM_START, EventType.LLM_END):
            return self._llm_events
        return event_type is not EventType.LLM_DELTA

    async def on_event(self, event_type: EventType, name: str, data: Event) -> None:
        """Print one event."""
        for style, line in self._lines(data):
            self._print(line, style, indent=2 * len(data.path) + (0 if _is_outer(data) else 2))

    def _lines(self, event: Event) -> list[tuple[str, str]]:
        match event:
            case AgentStarted():
                return [("bold", f"▶ {event.thread_id}  {self._clip(event.goal)}")]
            case LlmStart():
                purpose = "" if event.purpose == "answer" else f" for {event.purpose}"
                lines = [("dim", f"· {event.name} reads {count(len(event.messages), 'message')}{purpose}")]
                if self._system_prompt and event.system_prompt:
                    lines.append(("dim", f"  system: {self._clip(event.system_prompt)}"))
                return lines
            case LlmEnd():
                return self._answer(event)
            case ToolCalled():
                arguments = ", ".join(f"{key}={safe_repr(value)}" for key, value in event.arguments.items())
                return [("cyan", f"→ {event.name}({self._clip(arguments)})")]
            case ToolResult(error=None):
                return [("green", f"← {event.name}: {self._clip(event.content)}")]
            case ToolResult(error=BaseException() as error):
                return [("red", f"✗ {event.name}: {self._clip(event.content.strip() or error_text(error))}")]
            case ApprovalRequested():
                return [("yellow", f"? {event.name} waits for a decision: {self._clip(safe_str(event.pending.value))}")]
            case AgentCompleted():
                return self._end(event)
            case _:
                return []

    def _answer(self, event: LlmEnd) -> list[tuple[str, str]]:
        if event.error is not None:
            return [("red", f"✗ {event.name}: {self._clip(error_text(event.error))}")]
        text = _text_of(event.message) if event.message else ""
        style = "" if event.purpose == "answer" else "dim"
        lines = [(style, f"“{self._clip(text)}”")] if text else []
        if self._token_usage:
            lines.append(("dim", f"  {_tokens(event.usage)}"))
        return lines

    def _end(self, event: AgentCompleted) -> list[tuple[str, str]]:
        style = "bold green" if event.error is None else "bold red"
        line = f"■ {event.status}"
        if event.error is not None:
            line += f": {self._clip(error_text(event.error))}"
        if self._token_usage:
            usage = event.usage
            calls = f"{count(usage.model_calls, 'model call')}, {count(usage.tool_calls, 'tool call')}"
            line += f"  ({calls}, {_tokens(usage)})"
        return [(style, line)]

    def _clip(self, text: str) -> str:
        text = " ".join(text.split())
        limit = self._content_length
        if limit is None or len(text) <= limit:
            return text
        return f"{text[:limit]}… ({len(text):,} characters)"

    def _print(self, line: str, style: str, *, indent: int) -> None:
        from rich.console import Console
        from rich.padding import Padding
        from rich.text import Text

        if self._console is None:
            self._console = Console()
        # A name may hold a newline, which would let it write a line of its own.
        line = printable(" ".join(line.splitlines()))
        encoding = self._console.encoding
        # Not every terminal can show every character; one that it can't must not stop the rest.
        shown = line.translate(_ASCII).encode(encoding, "replace").decode(encoding) if is_narrow(encoding) else line
        # Text, not markup: what a model or a tool wrote must not be read as styling.
        self._console.print(Padding(Text(shown, style=style), (0, 0, 0, indent), expand=False))


class JsonLinesEventListener(AbstractEventListener):
    """Appends each event to a file as one line of JSON.

    A line holds `type`, `name`, the ids, `sequence`, `time`, `path` and what the event itself tells;
    messages sent to the model are counted, not copied. Streamed pieces are left out. What JSON has no form for,
    such as NaN, bytes or a lone surrogate in a tool's arguments, is written as in a `Session`'s JSON.

    Args:
        path: the file; made when it is not there, never truncated. A relative path is meant from the directory
            that is the current one now.

    Raises:
        ConfigurationError: the path is empty, a directory, or in a directory that is not there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = _file_path(path)
        self._lock = threading.Lock()

    def should_handle(self, event_type: EventType) -> bool:
        """Return whether events of this kind are written."""
        return event_type is not EventType.LLM_DELTA

    async def on_event(self, event_type: EventType, name: str, data: Event) -> None:
        """Append one event."""
        encoded = (json.dumps(_as_json(data), ensure_ascii=False, allow_nan=False) + "\n").encode()
        # One small append; a thread hop would cost more than the write.
        with self._lock, open(self._path, "ab") as file:  # noqa: ASYNC230
            file.write(encoded)


def _is_outer(event: Event) -> bool:
    return isinstance(event, AgentStarted | AgentCompleted)


_ASCII = str.maketrans({"▶": ">", "·": "-", "→": ">", "←": "<", "✗": "x", "■": "#", "“": '"', "”": '"', "…": "..."})


def error_text(error: BaseException) -> str:
    """Return the kind of an error and what it says; the kind alone where it says nothing, as a cancellation does."""
    said = safe_str(error).strip()
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _tokens(usage: Usage) -> str:
    if not usage.total_tokens:
        return "tokens not reported"
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    return f"{usage.input_tokens:,} tokens in{cached}, {usage.output_tokens:,} out"


def _as_json(event: Event) -> dict[str, Any]:
    return {"type": event.type.value, **{field.name: _field(event, field.name) for field in fields(event)}}


def _field(event: Event, name: str) -> Any:
    value = getattr(event, name)
    match value:
        case datetime():
            return value.isoformat()
        case BaseException():
            return {"type": type(value).__name__, "message": to_json(safe_str(value))}
        case AIMessage():
            return {"text": to_json(_text_of(value)), "tool_calls": to_json(value.tool_calls)}
        case tuple():
            return len(value) if name == "messages" else to_json(list(value))
        case _:
            return to_json(value)


def _text_of(message: BaseMessage) -> str:
    try:
        return text_of(message)
    except Exception:  # content that no constructor would have let in
        return safe_repr(message.content)


def _check_console(console: object) -> None:
    from rich.console import Console

    if not isinstance(console, Console):
        raise ConfigurationError(f"console must be a rich.console.Console, got {safe_repr(console)}")


def _file_path(path: object) -> str:
    if not isinstance(path, str | os.PathLike) or not isinstance(name := os.fspath(path), str):
        raise ConfigurationError(f"path must be the path of a file (text or a Path), got {safe_repr(path)}")
    if not name or "\0" in name:
        raise ConfigurationError(f"path must name a file, got {name!r}")
    found = os.path.abspath(name)
    if os.path.isdir(found):
        raise ConfigurationError(f"{found!r} is a directory; name a file in it, for example 'events.jsonl'")
    if not os.path.isdir(folder := os.path.dirname(found)):
        raise ConfigurationError(f"{folder!r}, the directory of {name!r}, is not there; make it first")
    return found
