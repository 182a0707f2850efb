"""The chat in a process of its own, mostly on a terminal."""

from __future__ import annotations

import os
import random
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from chat_helpers import (
    ANSWER,
    ASK,
    DEADLINE,
    FOLLOW_UP,
    WEATHER,
    Process,
    needs_pty,
)

pytest_plugins = ["chat_fixtures"]
pytestmark = pytest.mark.usefixtures("modules_and_paths")

INTERRUPTS = '''
import signal
import threading

from regnexe import agent_tool, plugin


def interrupt() -> None:
    with open("FIFO") as bell:
        bell.read()
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


@plugin(id="interrupts")
class Interrupts:
    """Brings a thread that takes a Ctrl-C."""

    def __init__(self):
        threading.Thread(target=interrupt, daemon=True).start()

    @agent_tool
    def wait(self) -> str:
        """Wait."""
        return ""
'''


@needs_pty
def test_a_session_in_a_terminal(start: Callable[..., Process], trials: Path) -> None:
    chat = start("--plugin", WEATHER, "--plugin", str(trials), "--session", "first")
    chat.expect("Session first, a new one")
    chat.enter(ASK)
    chat.expect("→ get_weather(city='Beijing')\n")
    chat.expect("← get_weather: Beijing: sunny")
    chat.expect(ANSWER)
    chat.expect("(2 model calls, 1 tool call, ")
    chat.enter("Please hold the line.")
    chat.expect("→ hold_the_line()")
    chat.type("\x03")
    chat.expect("stopped; the session can go on")
    chat.expect("1 tool call, ")
    chat.expect("you> ")
    chat.type("half a line")
    chat.expect("half a line")
    chat.type("\x03")
    chat.expect("you> ")
    chat.type(f"{FOLLOW_UP}\r")
    chat.expect("Beijing")
    chat.expect("(1 model call, ")
    chat.enter("/view")
    chat.expect("demo was last sent 8 messages:")
    chat.expect("8. user: Which city")
    chat.enter("/log")
    chat.expect("The log of this session holds 9 messages:")
    listed = chat.expect("you> ")
    assert "half a line" not in listed
    chat.type("/new second\r")
    chat.expect("Session second, a new one")
    chat.enter("Paint the screen.")
    chat.expect(r"← paint_screen: \x1b]0;owned\x07\x1b[2Jred")
    chat.expect("(2 model calls, ")
    chat.enter("/sessions")
    chat.expect("2 sessions in this process:")
    found = re.findall(r"([*-] \w+) \d{4}-", chat.expect("you> "))
    assert found == ["* second", "- first"]
    chat.type("/hlep\r")
    chat.expect("Did you mean /help?")
    chat.enter("/help")
    chat.expect("/quit")
    chat.expect("you> ")
    chat.type("\x1b[A\x1b[A\r")  # two up in the history
    chat.expect("Did you mean /help?")
    chat.expect("you> ")
    chat.type("\x04")
    assert chat.end() == 0
    assert "thinking" in chat.raw.decode()
    assert b"\x1b[36m" in chat.raw
    assert b"\x1b]0;" not in chat.raw
    assert b"\x07" not in chat.raw


@needs_pty
def test_a_restart_remembers(start: Callable[..., Process], tmp_path: Path) -> None:
    arguments = ("--plugin", WEATHER, "--db", str(tmp_path / "s.db"), "--session", "s")
    chat = start(*arguments)
    chat.enter(ASK)
    chat.expect(ANSWER)
    chat.enter("/quit")
    assert chat.end() == 0
    chat = start(*arguments, NO_COLOR="1")
    chat.expect("Session s, which holds 4 messages")
    chat.enter(FOLLOW_UP)
    chat.expect("Beijing")
    chat.expect("(1 model call, 0 tool calls")
    chat.expect("you> ")
    chat.type("\x04")
    assert chat.end() == 0
    assert re.findall(rb"\x1b\[[0-9;]*3[0-7]m", chat.raw) == []


@needs_pty
def test_a_synchronous_tool_that_was_stopped_does_not_hold_up_the_end(
    start: Callable[..., Process], trials: Path
) -> None:
    chat = start("--plugin", str(trials))
    chat.enter("Fetch the parcel.")
    chat.expect("→ fetch_parcel()")
    chat.type("\x03")
    chat.expect("stopped; the session can go on")
    chat.enter("hello")
    chat.expect("Hello")
    chat.enter("/quit")
    chat.expect("still runs in a thread; it is left behind")
    assert chat.end() == 0


@needs_pty
def test_a_tool_that_blocks_everything_can_be_left_with_the_program(
    start: Callable[..., Process], trials: Path
) -> None:
    chat = start("--plugin", str(trials))
    chat.enter("Freeze everything.")
    chat.expect("→ freeze_everything()")
    until = time.monotonic() + DEADLINE
    while chat.process.poll() is None:
        chat.type("\x03")
        assert time.monotonic() < until
        select.select([], [], [], 0.05)
    assert chat.end() == 128 + signal.SIGINT
    assert "Ctrl-C once more leaves the program at once." in chat.rest()


@needs_pty
def test_ctrl_c_ends_a_chat_that_reads_from_a_pipe(start: Callable[..., Process], trials: Path) -> None:
    chat = start("--plugin", str(trials), terminal=False, PYTHONIOENCODING="ascii", PYTHONUNBUFFERED="1")
    chat.type("Paint the screen.\nHold the line.\nhello\n")
    chat.expect("-> paint_screen()\n<- paint_screen: \\x1b]0;owned\\x07\\x1b[2Jred \\x9b31mpaint\n")
    chat.expect("-> hold_the_line()")
    os.kill(chat.process.pid, signal.SIGINT)
    chat.expect("stopped; the session can go on")
    assert chat.end() == 130
    assert "hello" not in chat.rest()
    assert b"\x1b" not in chat.raw
    assert chat.raw.isascii()


@needs_pty
def test_ctrl_c_clears_the_line_also_when_it_comes_with_the_key_before_it(start: Callable[..., Process]) -> None:
    # The terminal forgets what was typed when Ctrl-C comes: the key that readline was woken for, too.
    chat = start()
    chat.expect("you> ")
    delays = random.Random(7)
    for _ in range(400):
        chat.type("a")
        until = time.perf_counter() + delays.uniform(0, 0.0003)
        while time.perf_counter() < until:
            pass
        chat.type("\x03")
        chat.expect("you> ")
    chat.type("/quit\r")
    assert chat.end() == 0


@needs_pty
def test_a_ctrl_c_that_did_not_interrupt_the_wait_for_a_line_is_heeded(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    # Taken by another thread, as one that comes just before the wait is taken by this one.
    bell = tmp_path / "bell"
    os.mkfifo(bell)
    (tmp_path / "plugin.yaml").write_text('entry: "chat_interrupts:Interrupts"')
    (tmp_path / "chat_interrupts.py").write_text(INTERRUPTS.replace("FIFO", str(bell)))
    chat = start("--plugin", str(tmp_path))
    chat.expect("you> ")
    chat.type("half a line")
    chat.expect("half a line")
    bell.write_text("now")
    chat.expect("you> ")
    chat.type("\x04")
    assert chat.end() == 0


@needs_pty
def test_a_paste_of_several_lines_is_one_message(start: Callable[..., Process]) -> None:
    chat = start()
    chat.expect("you> ")
    chat.paste("one\ntwo\n\nthree")
    chat.expect("three")
    chat.type(" and more\r")
    chat.expect("(1 model call, ")
    chat.enter("/log")
    chat.expect("The log of this session holds 2 messages:")
    chat.expect("1. user: one two three and more\n")
    chat.enter("/quit")
    assert chat.end() == 0


@needs_pty
def test_what_failed_does_not_change_the_exit_code_of_a_chat_that_somebody_types(start: Callable[..., Process]) -> None:
    chat = start()
    chat.enter("/lgo")
    chat.expect("Did you mean /log?")
    chat.enter("/quit")
    assert chat.end() == 0


@needs_pty
def test_the_terminal_is_as_it_was_afterwards(start: Callable[..., Process]) -> None:
    chat = start()
    before = chat.settings()
    chat.enter("hello")
    chat.expect("(1 model call, ")
    chat.enter("/quit")
    assert chat.end() == 0
    assert chat.settings() == before


def test_without_standard_input_the_chat_says_so() -> None:
    command = [sys.executable, "-m", "regnexe", "chat"]
    closed = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *command], capture_output=True, text=True, timeout=DEADLINE
    )
    assert closed.returncode == 2
    assert "Error: standard input is closed" in closed.stderr
    assert "Traceback" not in closed.stderr


def test_standard_input_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "regnexe", "chat"]
    with open(tmp_path / "out", "wb") as unreadable:
        ran = subprocess.run(command, stdin=unreadable, capture_output=True, text=True, timeout=DEADLINE)
    assert ran.returncode == 2
    assert "Error: standard input cannot be read: " in ran.stderr
    assert "Traceback" not in ran.stderr


def test_without_standard_output_the_chat_goes_on() -> None:
    command = [sys.executable, "-m", "regnexe", "chat"]
    closed = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command],
        input="hello\n",
        stderr=subprocess.PIPE,
        text=True,
        timeout=DEADLINE,
    )
    assert (closed.returncode, closed.stderr) == (0, "")
