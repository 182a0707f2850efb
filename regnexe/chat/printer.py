"""Shows a run while it goes on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from regnexe.chat.hints import as_options
from regnexe.events import AgentStarted, LlmDelta, LlmEnd, LlmStart, ToolCalled, ToolResult
from regnexe.listeners import error_text as kind_and_text
from regnexe.messages import text_of
from regnexe.results import RunStatus
from regnexe.terminal import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from regnexe.chat.screen import Screen
    from regnexe.events import Event
    from regnexe.results import AgentResult, Usage

__all__ = ["RunPrinter", "called", "error_text", "waiting"]


class RunPrinter:
    """Prints the events of one run, then how it ended.

    The agent's own answer is streamed; what sub-agents do is indented under their names, and their answers are
    the results of the calls that started them.

    Attributes:
        sent: the newest of the agent's own model calls, as it was sent.
    """

    def __init__(self, screen: Screen) -> None:
        self.sent: LlmStart | None = None
        self._screen = screen
        self._began = time.monotonic()
        self._open_tools = 0
        self._streamed = False
        self._said = ""

    def show(self, event: Event) -> None:
        """Print one event."""
        match event:
            case AgentStarted():
                self._screen.wait("thinking")
            case LlmStart():
                self._model_called(event)
            case LlmDelta() if self._is_own(event) and event.text:
                self._streamed = True
                self._screen.piece(event.text)
            case LlmEnd() if self._is_own(event):
                self._answered(event)
            case ToolCalled() | ToolResult():
                self._tool(event)
            case _:
                pass

    def finish(self, result: AgentResult) -> None:
        """Print how the run ended; of a run that was stopped, no event tells that."""
        if result.final_text and result.final_text != self._said:
            self._screen.piece(result.final_text)  # a tool's result that is the answer
        self._screen.settle()
        failed = self._screen.marks.failed
        match result.status:
            case RunStatus.CANCELLED:
                self._screen.line("stopped; the session can go on", style="yellow")
            case RunStatus.LIMITED:
                self._screen.line(f"{failed} stopped at a limit:", error_text(result.error), "red")
            case RunStatus.ERROR:
                self._screen.line(f"{failed} the run failed:", error_text(result.error), "red")
            case _:
                pass
        seconds = time.monotonic() - self._began
        self._screen.line(f"({_used(result.usage)}, {seconds:.1f} s)", style="dim")

    def _model_called(self, event: LlmStart) -> None:
        if event.purpose != "answer":
            self._screen.wait("summing up older messages")
            return
        # A model that a tool calls on its own has the same path; the agent's own waits until its tools have ended.
        if not event.path and not self._open_tools:
            self.sent = event
            self._streamed = False
        self._screen.wait("thinking")

    def _is_own(self, event: LlmDelta | LlmEnd) -> bool:
        return self.sent is not None and event.call_id == self.sent.call_id

    def _answered(self, event: LlmEnd) -> None:
        self._said = text_of(event.message) if event.message is not None else ""
        if not self._streamed:
            self._screen.piece(self._said)
        self._screen.settle()

    def _tool(self, event: ToolCalled | ToolResult) -> None:
        marks = self._screen.marks
        inside = f"{event.path[-1]}: " if event.path else ""
        indent = 2 * len(event.path)
        began = isinstance(event, ToolCalled)
        if not event.path:
            self._open_tools += 1 if began else -1
        if isinstance(event, ToolCalled):
            style, head, text = "cyan", marks.call, f"{inside}{_call(event)}"
        elif event.error is None:
            style, head, text = "green", f"{marks.result} {inside}{event.name}:", event.content
        else:
            # What was cancelled says nothing of itself.
            said = event.content.strip() or kind_and_text(event.error)
            style, head, text = "red", f"{marks.failed} {inside}{event.name}:", said
        self._screen.line(head, text, style, indent=indent)
        self._screen.wait(event.name if began else "thinking")


def error_text(error: BaseException | None) -> str:
    """Return the kind of an error and what it says; what it says to do names options of this program."""
    return as_options(kind_and_text(error)) if error is not None else "no reason given"


def called(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call as Python would write it."""
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def waiting(values: Iterable[Any]) -> list[str]:
    """Return what waits for a decision, one text each; `values` are what the interrupts carry."""
    texts: list[str] = []
    for value in values:
        # The form of LangChain's HumanInTheLoopMiddleware; anything else is shown as it is.
        requests = value.get("action_requests") if isinstance(value, dict) else None
        if isinstance(requests, list) and all(isinstance(one, dict) and "name" in one for one in requests):
            texts += [called(str(one["name"]), _mapping(one.get("args"))) for one in requests]
        else:
            texts.append(str(value))
    return texts


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _call(event: ToolCalled) -> str:
    if event.subagent is not None:
        return f"{event.name}: {event.arguments.get('description', '')}"
    return called(event.name, event.arguments)


def _used(usage: Usage) -> str:
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    calls = f"{count(usage.model_calls, 'model call')}, {count(usage.tool_calls, 'tool call')}"
    return f"{calls}, {usage.input_tokens:,} tokens in{cached}, {usage.output_tokens:,} out"
