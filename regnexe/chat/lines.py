"""Where the lines come from: a prompt with editing and history, or a pipe."""

from __future__ import annotations

import contextlib
import io
import re
import signal
import sys
from typing import TYPE_CHECKING

from regnexe.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from regnexe.chat.screen import Screen

__all__ = ["Lines", "NotText"]

PROMPT = "you> "

# How often the wait for a line is interrupted, in seconds.
_LOOK = 0.2

# What `surrogateescape` makes of bytes that are no text.
_BYTES = re.compile("[\udc80-\udcff]")


class NotText(Exception):
    """A line is not text in the encoding of standard input; the message says what to do."""


class Lines:
    """The lines of standard input, one by one.

    Attributes:
        typed: whether somebody types them, rather than a pipe or a file giving them.

    Raises:
        ConfigurationError: there is no standard input.
    """

    def __init__(self) -> None:
        if sys.stdin is None:
            raise ConfigurationError(
                "standard input is closed, so no message can come from it; use a terminal, or pipe lines into it"
            )
        self._input: TextIO = sys.stdin
        self.typed = self._input.isatty()
        if isinstance(self._input, io.TextIOWrapper):
            # A byte that is no text must neither end the program nor become another character without a word.
            self._input.reconfigure(errors="surrogateescape")
        if self.typed and sys.stdout is not None and sys.stdout.isatty():
            _edit_lines()

    def next(self, screen: Screen) -> str | None:
        """Return the next line without its end, None when there are no more.

        Raises:
            NotText: the line cannot be read as text; the one after it can be asked for.
            ConfigurationError: standard input cannot be read at all.
        """
        try:
            line = self._typed(screen) if self.typed else self._piped(screen)
        except OSError as error:
            raise ConfigurationError(f"standard input cannot be read: {error}") from error
        if line is not None and (wrong := _BYTES.search(line)):
            name = self._input.encoding
            raise NotText(
                f"that line was not sent, since it is not {name.upper()}: character {wrong.start() + 1} is the byte "
                f"0x{ord(wrong[0]) - 0xDC00:02x}. Convert the input to {name.upper()}, for example with iconv, or name "
                "its encoding in the environment variable PYTHONIOENCODING"
            )
        return line

    def _typed(self, screen: Screen) -> str | None:
        try:
            with _unflushed(self._input), _looking_up():
                return input(PROMPT)
        except EOFError:
            screen.newline()
            return None

    def _piped(self, screen: Screen) -> str | None:
        line = self._input.readline()
        if not line:
            return None
        if line.strip():
            screen.line(PROMPT.rstrip(), line)
        return line.rstrip("\r\n")


def _edit_lines() -> None:
    try:
        import readline  # its import gives `input` a history and editing
    except ImportError:
        return
    # Python turns this off. With it a paste of several lines is one message, which Enter sends; without it each of its
    # lines would be sent at once. libedit, which macOS has in readline's place, knows nothing of the kind.
    if "libedit" not in (readline.__doc__ or ""):
        readline.parse_and_bind("set enable-bracketed-paste on")


@contextlib.contextmanager
def _looking_up() -> Iterator[None]:
    """Let Ctrl-C end the wait for a line also when it comes just before the wait, or in another thread.

    A signal runs its handler here only if it interrupts the wait itself; any other is remembered, and nothing happens
    until the next key or signal. So there always is a next signal.
    """
    if not hasattr(signal, "setitimer"):  # Windows
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda number, frame: None)
    rest = signal.setitimer(signal.ITIMER_REAL, _LOOK, _LOOK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *rest)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)


@contextlib.contextmanager
def _unflushed(terminal: TextIO) -> Iterator[None]:
    """Keep what was typed when Ctrl-C comes.

    A terminal forgets it then. If that is the key that readline was woken for and has not read yet, readline waits for
    another inside its own code, where no Ctrl-C reaches it any more.
    """
    try:
        import termios
    except ImportError:  # Windows
        yield
        return
    try:
        before = termios.tcgetattr(terminal)
    except termios.error:  # gone; `input` will tell
        yield
        return
    flags = [*before]
    flags[3] |= termios.NOFLSH
    termios.tcsetattr(terminal, termios.TCSANOW, flags)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSANOW, before)
