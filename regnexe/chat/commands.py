"""What can be typed at the prompt beside messages."""

from __future__ import annotations

import asyncio
import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_core.messages import AIMessage, ToolMessage

from regnexe.chat.printer import called
from regnexe.errors import InvalidSessionId
from regnexe.identity import SessionKey, new_session_id
from regnexe.messages import text_of
from regnexe.terminal import count

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from langchain_core.messages import BaseMessage

    from regnexe.chat.conversation import Conversation
    from regnexe.chat.screen import Screen

__all__ = ["COMMANDS", "run_command", "short_session_id"]

_MOST_SESSIONS = 100

_ROLES = {"human": "user", "ai": "model"}


@dataclass(frozen=True)
class Command:
    """One command: what it does, for `/help`, and what it takes."""

    does: str
    run: Callable[[Conversation, str], Awaitable[None]]
    takes: str = ""


def short_session_id() -> str:
    """Return a new session id that can be typed."""
    return new_session_id()[:8]


async def run_command(line: str, chat: Conversation) -> None:
    """Do what the line, which begins with a slash, asks for."""
    name, _, argument = line.partition(" ")
    name, argument = name.lower(), argument.strip()
    command = COMMANDS.get(name)
    if command is None:
        chat.failed = True
        near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(COMMANDS)}."
        chat.screen.say(f"There is no command {name}. {hint} (A message may begin with a space and then a slash.)")
    elif argument and not command.takes:
        chat.failed = True
        chat.screen.say(f"{name} takes nothing after it, got {argument!r}.")
    else:
        await command.run(chat, argument)


async def _view(chat: Conversation, _: str) -> None:
    sent = chat.sent.get(chat.key)
    if sent is None:
        chat.screen.say("In this session the model has not been sent anything yet since the program started.")
        return
    system = f", after a system prompt of {count(len(sent.system_prompt), 'character')}" if sent.system_prompt else ""
    chat.screen.say(f"{sent.name} was last sent {count(len(sent.messages), 'message')}{system}:")
    await _list(sent.messages, chat.screen)


async def _log(chat: Conversation, _: str) -> None:
    messages, _pending = await chat.stored_log()
    if not messages:
        chat.screen.say("The log of this session is empty.")
        return
    chat.screen.say(f"The log of this session holds {count(len(messages), 'message')}:")
    await _list(messages, chat.screen)


async def _new(chat: Conversation, argument: str) -> None:
    try:
        key = SessionKey(chat.key.app_id, chat.key.user_id, argument or short_session_id())
    except InvalidSessionId as error:
        chat.failed = True
        chat.screen.say(f"{error}.")
        return
    chat.key = key
    await chat.say_where()


async def _sessions(chat: Conversation, _: str) -> None:
    where = "in this process" if chat.db is None else f"in {chat.db}"
    page = await chat.agent.sessions.list(chat.key.app_id, chat.key.user_id, limit=_MOST_SESSIONS)
    about = f"App {chat.key.app_id}, user {chat.key.user_id}: "
    if page.cursor:
        chat.screen.say(f"{about}the newest {_MOST_SESSIONS} sessions {where}:")
    else:
        found = count(len(page.sessions), "session") if page.sessions else "no sessions yet"
        chat.screen.say(f"{about}{found} {where}{':' if page.sessions else '.'}")
    for info in page.sessions:
        mark = "*" if info.key == chat.key else "-"
        when = f"{info.updated_at.astimezone():%Y-%m-%d %H:%M}"
        chat.screen.line(f"{mark} {info.key.session_id}", f"{when} {info.title}", indent=2)


async def _help(chat: Conversation, _: str) -> None:
    chat.screen.say("What begins with a slash is a command, anything else is a message to the agent.")
    for name, command in COMMANDS.items():
        usage = f"{name} {command.takes}".rstrip()
        chat.screen.say(f"  {usage:<16}{command.does}")
    chat.screen.say("Ctrl-C stops a run or clears the line. Ctrl-D at the prompt ends the program.")


async def _quit(chat: Conversation, _: str) -> None:
    chat.ended = True


COMMANDS: Mapping[str, Command] = {
    "/view": Command("what the model was last sent", _view),
    "/log": Command("every message of this session", _log),
    "/new": Command("a new session, or the one of this name", _new, takes="[session]"),
    "/sessions": Command("the sessions there are", _sessions),
    "/help": Command("this list", _help),
    "/quit": Command("end the program", _quit),
}


async def _list(messages: Sequence[BaseMessage], screen: Screen) -> None:
    digits = len(str(len(messages)))
    for number, message in enumerate(messages, 1):
        screen.line(f"{number:>{digits}}. {_role(message)}:", _content(message), indent=2)
        await asyncio.sleep(0)  # where Ctrl-C ends a long list


def _role(message: BaseMessage) -> str:
    if isinstance(message, ToolMessage):
        return f"tool {message.name}" if message.name else "tool"
    return _ROLES.get(message.type, message.type)


def _content(message: BaseMessage) -> str:
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    parts = [text_of(message), *(f"calls {called(call['name'], call['args'])}" for call in calls)]
    text = "; ".join(part for part in parts if part.strip())
    return text or "(nothing that can be shown as text)"
