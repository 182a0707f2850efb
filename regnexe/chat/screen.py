"""Where the chat prints: nothing that passes through here can steer the terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from regnexe.terminal import is_narrow, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

__all__ = ["Screen"]

# Longest part of a text that stands on one line, in characters, where no terminal says how wide a line is.
_LINE = 200


def _shown(text: str) -> str:
    # A line may end as on Windows; any other carriage return would print over what stands there.
    return printable(text.replace("\r\n", "\n"))


@dataclass(frozen=True)
class Marks:
    """The signs in front of lines."""

    call: str = "→"
    result: str = "←"
    failed: str = "✗"
    spinner: str = "dots"


_ASCII = Marks(call="->", result="<-", failed="x", spinner="line")


class Screen:
    """Prints lines, pieces of an answer, and a spinner while there is nothing to print."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._animated = console.is_terminal and not console.is_dumb_terminal and sys.stdout.isatty()
        self._status: Status | None = None
        self._within_line = False
        self._held = ""
        self.marks = _ASCII if is_narrow(console.encoding) else Marks()

    def say(self, text: str, style: str = "") -> None:
        """Print a sentence or several, wrapped between words."""
        self.settle()
        self._console.print(Text(_shown(text), style=style))

    def line(self, head: str, text: str = "", style: str = "", *, indent: int = 0) -> None:
        """Print one line: the head whole, then as much of the text as fits."""
        self.settle()
        width = self._console.width if self._animated else _LINE
        head = " " * indent + printable(" ".join(head.split()))
        shown = f"{head} {printable(' '.join(text.split()))}" if text else head
        if cell_len(shown) > max(width, cell_len(head)):
            shown = set_cell_size(shown, max(width, cell_len(head)) - 3).rstrip() + "..."
        self._console.print(Text(shown, style=style), soft_wrap=True)

    def piece(self, text: str) -> None:
        """Print a piece of an answer where the piece before it ended."""
        text = self._held + text
        # The next piece tells whether this ends a line as on Windows, or would print over what stands there.
        self._held = "\r" if text.endswith("\r") else ""
        self._put(text.removesuffix("\r"))

    def _put(self, text: str) -> None:
        text = _shown(text)
        if not self._within_line:
            text = text.lstrip("\n")
        if not text:
            return
        self._rest()
        self._console.out(text, end="", highlight=False)
        self._within_line = not text.endswith("\n")

    def settle(self) -> None:
        """Stop the spinner, and end the line that pieces have begun."""
        self._rest()
        held, self._held = self._held, ""
        self._put(held)
        if self._within_line:
            self._within_line = False
            self._console.out("")

    def newline(self) -> None:
        """Begin a new line, wherever the cursor is."""
        self._rest()
        self._held = ""
        self._within_line = False
        self._console.out("")

    def wait(self, what: str) -> None:
        """Show a spinner until something is printed; on a terminal only."""
        if not self._animated:
            return
        self.settle()
        # Text, not markup: a tool's name may be part of it.
        self._status = self._console.status(Text(printable(what), style="dim"), spinner=self.marks.spinner)
        self._status.start()

    def _rest(self) -> None:
        if self._status is not None:
            status, self._status = self._status, None
            status.stop()
