"""What the tests of `regnexe chat` share: the program in this process, and in one of its own, on a terminal or not."""

from __future__ import annotations

import codecs
import io
import os
import re
import select
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from regnexe.chat.screen import Screen
from regnexe.cli import main

if sys.platform != "win32":
    import fcntl
    import pty
    import struct
    import termios

needs_pty = pytest.mark.skipif(sys.platform == "win32", reason="platform: Windows has no pseudo-terminals of this kind")

WEATHER = str(Path(__file__).parent.parent / "plugins" / "weather")
ASK = "Check the weather in Beijing."
ANSWER = "From get_weather: Beijing: sunny, 22 C"
FOLLOW_UP = "Which city did I ask about earlier?"
NO_KEYS = {"DEEPSEEK_API_KEY": None, "DEEPSEEK_KEY": None}
DEADLINE = 30.0

TRIALS = '''
import asyncio

from langgraph.types import interrupt

from regnexe import agent_tool, plugin


@plugin(id="trials")
class Trials:
    """Tools that are trying."""

    @agent_tool
    async def hold_the_line(self) -> str:
        """Hold the line until somebody lets go."""
        await asyncio.Event().wait()
        return "never"

    @agent_tool
    def fetch_parcel(self) -> str:
        """Fetch the parcel from the depot."""
        with open("FIFO") as depot:
            return depot.read()

    @agent_tool
    async def freeze_everything(self) -> str:
        """Freeze everything, the event loop included."""
        with open("FIFO") as depot:
            return depot.read()

    @agent_tool
    async def paint_screen(self) -> str:
        """Paint the screen red."""
        return "\\x1b]0;owned\\x07\\x1b[2Jred \\x9b31mpaint"

    @agent_tool
    async def break_window(self) -> str:
        """Break the window."""
        raise RuntimeError("glass \\x1b[2Jeverywhere")

    @agent_tool
    async def send_mail(self, to: str) -> str:
        """Send a mail to somebody."""
        return str(interrupt({"action_requests": [{"name": "send_mail", "args": {"to": to}}]}))
'''


def run(*arguments: str, typed: str | bytes = "", **env: str | None) -> Result:
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "FORCE_COLOR": None, **NO_KEYS, **env})
    return runner.invoke(main, ["chat", *arguments], input=typed)


def said(*arguments: str, typed: str, code: int = 0, **env: str | None) -> str:
    result = run(*arguments, typed=typed, **env)
    assert result.exit_code == code, result.output
    return result.output


def environment(**env: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in (*NO_KEYS, "NO_COLOR", "FORCE_COLOR")}
    return {**kept, "COLUMNS": "160", "INPUTRC": "/dev/null", "LC_ALL": "C.UTF-8", **env}


def screen(encoding: str = "utf-8") -> tuple[Screen, Callable[[], str]]:
    buffer = io.BytesIO()
    file = io.TextIOWrapper(buffer, encoding=encoding, errors="replace")

    def shown() -> str:
        file.flush()
        return buffer.getvalue().decode(encoding)

    return Screen(Console(file=file, width=80, highlight=False)), shown


def until(found: Callable[[], bool], read: Callable[[], bytes], seen: Callable[[], str]) -> None:
    """Read until it is found; fail, with what was seen, at the end of the output or of the time."""
    while not found():
        data = read()
        assert data, f"the output ended or stood still; it ends with\n{seen()[-3000:]}"


class Process:
    """The chat in a process: what it prints can be waited for."""

    def __init__(self, *arguments: str, env: Mapping[str, str], terminal: bool) -> None:
        self.raw = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._position = 0
        program = "from regnexe.cli import main; main(prog_name='regnexe')"
        if terminal:
            # Without a controlling terminal Ctrl-C would be a character like any other.
            program = f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); {program}"
            self._output, inner = pty.openpty()
            fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
            self._input = self._output
        else:
            inner, self._input = os.pipe()
            self._output, written = os.pipe()
        ends = {"stdin": inner, "stdout": inner if terminal else written, "stderr": subprocess.STDOUT}
        command = [sys.executable, "-c", program, "chat", *arguments]
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command, env=environment(**env), start_new_session=True, **ends
        )  # type: ignore[call-overload]
        for end in {inner, ends["stdout"]}:
            os.close(end)

    def expect(self, text: str) -> str:
        """Wait for the text after what was expected before, and return what came before it."""
        until(lambda: text in self._text[self._position :], self._read, lambda: self._text)
        before = self._text[self._position :].partition(text)[0]
        self._position += len(before) + len(text)
        return before

    def type(self, text: str) -> None:
        os.write(self._input, text.encode())

    def paste(self, text: str) -> None:
        """Paste as a terminal does: marked as a paste if the program has asked for that."""
        asked = self.raw.rfind(b"\x1b[?2004h") > self.raw.rfind(b"\x1b[?2004l")
        pasted = text.replace("\n", "\r")
        self.type(f"\x1b[200~{pasted}\x1b[201~" if asked else pasted)

    def enter(self, text: str) -> None:
        """Wait for the prompt, then type a line."""
        self.expect("you> ")
        self.type(f"{text}\r")

    def end(self) -> int:
        """Read to the end, and return the exit code."""
        while self._read():
            pass
        code: int = self.process.wait(DEADLINE)
        return code

    def settings(self) -> list[Any]:
        """Return the settings of the terminal."""
        return termios.tcgetattr(self._input)

    def rest(self) -> str:
        return self._text[self._position :]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(DEADLINE)
        for end in {self._input, self._output}:
            os.close(end)

    def _read(self) -> bytes:
        ready, _, _ = select.select([self._output], [], [], DEADLINE)
        assert ready, f"nothing came for {DEADLINE} s; the output ends with\n{self._text[-3000:]}"
        try:
            data = os.read(self._output, 65536)
        except OSError:  # Linux says so that the other end of a terminal is closed
            return b""
        self.raw += data
        self._text += self._decoder.decode(data)
        self._text = re.sub("\x1b\\[[0-9;?]*[a-zA-Z]|\r", "", self._text)
        return data
