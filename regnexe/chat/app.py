"""The program: opens everything, takes lines until there are no more, and closes it again.

The prompt waits in the main thread while no event loop runs, because only there does Ctrl-C reach `input`. Each line
is then worked on in one `Runner.run`, all on the same loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from regnexe.builder import RegnexeAgentBuilder
from regnexe.chat.commands import run_command, short_session_id
from regnexe.chat.conversation import Conversation
from regnexe.chat.hints import as_options
from regnexe.chat.lines import Lines, NotText
from regnexe.chat.plugins import load_plugin
from regnexe.chat.printer import error_text
from regnexe.chat.screen import Screen
from regnexe.errors import ConfigurationError
from regnexe.identity import SessionKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

__all__ = ["ChatOptions", "chat"]

OFFLINE = "offline:demo"
DEFAULT = "deepseek:deepseek-flash"
DEFAULT_KEYS = ("DEEPSEEK_API_KEY", "DEEPSEEK_KEY")

_TOOL_THREADS = "regnexe-chat-tool"
_SECONDS_FOR_TOOLS = 1.0


@dataclass(frozen=True, kw_only=True)
class ChatOptions:
    """What the command line asks for; `None` where it says nothing."""

    model: str | None = None
    session: str | None = None
    user: str = "default"
    app: str = "default"
    db: Path | None = None
    plugins: Sequence[str] = ()
    system: str | None = None


def chat(options: ChatOptions, *, console: Console) -> int:
    """Chat until there is no more input, and return the exit code.

    That is 130 when Ctrl-C ended it, and 1 when something that a pipe asked for was not done, after the rest of it.

    Raises:
        ConfigurationError: something that was asked for cannot work; nothing was opened or stored.
        PersistenceError: the file cannot hold the sessions.
        InvalidSessionId: an id is not usable.
    """
    lines = Lines()
    model, greeting = _model(options)
    session = short_session_id() if options.session is None else options.session
    key = SessionKey(options.app, options.user, session)
    builder = _builder(options, model)
    screen = Screen(console)
    tool_threads = ThreadPoolExecutor(thread_name_prefix=_TOOL_THREADS)
    with asyncio.Runner() as runner, _warnings_on(screen):
        runner.get_loop().set_default_executor(tool_threads)
        opened = contextlib.AsyncExitStack()
        conversation = runner.run(_open(builder, key, options.db, screen, opened))
        try:
            screen.say("Regnexe chat", "bold")
            screen.say(greeting)
            screen.say(_place(options.db, key, named=options.session is not None))
            runner.run(conversation.say_where())
            screen.say("/help lists the commands, /quit ends.")
            code = _converse(conversation, lines, runner)
        finally:
            runner.run(opened.aclose())
        _leave_tools_behind(tool_threads, screen, code)
    return code


def _model(options: ChatOptions) -> tuple[str, str]:
    if options.model is not None:
        return options.model, f"The model is {options.model}."
    standard, short = DEFAULT_KEYS
    if any(os.environ.get(name) for name in DEFAULT_KEYS):
        return DEFAULT, f"The model is {DEFAULT}; --model vendor:name takes another."
    return OFFLINE, (
        f"The model is {OFFLINE}, a scripted stand-in that needs no network: neither {standard} nor {short} is set. "
        "--model vendor:name takes another."
    )


def _builder(options: ChatOptions, model: str) -> RegnexeAgentBuilder:
    builder = RegnexeAgentBuilder().with_model_spec(model)
    if options.system is not None:
        builder.with_system_prompt(options.system)
    for place in options.plugins:
        loaded = load_plugin(place)
        try:
            builder.with_plugin(loaded)
        except ConfigurationError as error:
            raise ConfigurationError(f"{place}: {error}") from error
    builder.build()  # tells what does not fit together before a file is made
    return builder


async def _open(
    builder: RegnexeAgentBuilder, key: SessionKey, db: Path | None, screen: Screen, opened: contextlib.AsyncExitStack
) -> Conversation:
    if db is not None:
        builder.with_persistence(f"sqlite:///{quote(os.fsencode(db))}")
    agent = await opened.enter_async_context(builder.build())
    return Conversation(agent=agent, screen=screen, key=key, db=db)


def _place(db: Path | None, key: SessionKey, *, named: bool) -> str:
    if db is None:
        return "Sessions are kept in memory and end with this program; --db FILE keeps them."
    again = "" if named else f" --session {key.session_id} comes back to this one."
    return f"Sessions are kept in {db}.{again}"


def _converse(conversation: Conversation, lines: Lines, runner: asyncio.Runner) -> int:
    """Take lines until there are no more; return the exit code."""
    screen = conversation.screen
    while not conversation.ended:
        interrupted = False
        try:
            line = lines.next(screen)
            if line is None:
                break
            runner.run(_work_on(line, conversation))
            interrupted = conversation.stopped
        except NotText as error:
            conversation.failed = True
            screen.say(f"{screen.marks.failed} {error}", "red")
        except KeyboardInterrupt:
            screen.newline()
            interrupted = True
        # Who pipes lines in has no prompt to come back to.
        if interrupted and not lines.typed:
            return 130
    # Who types has seen what failed.
    return 1 if conversation.failed and not lines.typed else 0


async def _work_on(line: str, conversation: Conversation) -> None:
    conversation.stopped = False
    if not line.startswith("/"):
        if line.strip():
            await conversation.answer(line.strip())
        return
    try:
        await run_command(line.rstrip(), conversation)
    except Exception as error:
        conversation.fail("that failed:", error_text(error))


class _Warnings(logging.Handler):
    """Prints what libraries warn of, one line each; such a text may come from a tool or a model."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record, unless the chat shows what it tells anyway."""
        if not str(record.msg).startswith("tool %r failed"):
            self._screen.line("!", as_options(record.getMessage()), "yellow")


@contextlib.contextmanager
def _warnings_on(screen: Screen) -> Iterator[None]:
    handler = _Warnings(screen)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def _leave_tools_behind(tool_threads: ThreadPoolExecutor, screen: Screen, code: int) -> None:
    """End the program here and now if a stopped synchronous tool still runs: Python would wait for its thread."""
    tool_threads.shutdown(wait=False)
    until = time.monotonic() + _SECONDS_FOR_TOOLS
    for thread in threading.enumerate():
        if not thread.name.startswith(_TOOL_THREADS):
            continue
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            screen.say("A tool that was stopped still runs in a thread; it is left behind.", "yellow")
            if sys.stdout is not None:
                sys.stdout.flush()
            os._exit(code)
