"""Prints sessions, for people and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from regnexe.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_core.messages import BaseMessage

    from regnexe.persistence.index.base import SessionInfo, SessionPage
    from regnexe.sessions.manager import SessionSize

__all__ = ["message_fields", "print_json", "print_log", "print_page", "print_session", "session_fields"]

_PIPE_WIDTH = 160
_ROLES = {"human": "user", "ai": "model"}


def session_fields(info: SessionInfo) -> dict[str, Any]:
    """Return a session as JSON shows it."""
    return {
        "app_id": info.app_id,
        "user_id": info.user_id,
        "session_id": info.session_id,
        "thread_id": info.thread_id,
        "title": info.title,
        "created_at": info.created_at.isoformat(),
        "updated_at": info.updated_at.isoformat(),
        "turns": info.turns,
        "messages": info.messages,
        "tokens": info.tokens,
        "status": info.status,
        "tags": list(info.tags),
    }


def message_fields(number: int, message: BaseMessage) -> dict[str, Any]:
    """Return a message as JSON shows it."""
    from regnexe.json_values import to_json
    from regnexe.messages import text_of

    calls = getattr(message, "tool_calls", None) or []
    return {
        "number": number,
        "type": message.type,
        "id": message.id,
        "name": message.name,
        "text": text_of(message),
        "tool_calls": [{name: to_json(call[name]) for name in ("id", "name", "args")} for call in calls],
        "tool_call_id": getattr(message, "tool_call_id", None),
        "status": getattr(message, "status", None),
    }


def print_json(document: dict[str, Any]) -> None:
    """Print a JSON document."""
    # In ASCII alone: no terminal acts on it, and every encoding takes it.
    click.echo(json.dumps(document, indent=2).replace("\x7f", "\\u007f"))


def print_page(page: SessionPage, app: str, user: str | None) -> None:
    """Print a page of a list."""
    from rich.table import Table
    from rich.text import Text

    if not page.sessions:
        of = f"app {app!r}" if user is None else f"user {user!r} in app {app!r}"
        click.echo(printable(f"No sessions of {of}."))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    whose = [("user", lambda info: info.user_id)] if user is None else []
    columns: list[tuple[str, Callable[[SessionInfo], str]]] = [
        ("session", lambda info: info.session_id),
        *whose,
        ("title", lambda info: info.title),
        ("turns", lambda info: f"{info.turns:,}"),
        ("messages", lambda info: f"{info.messages:,}"),
        ("tokens", lambda info: f"{info.tokens:,}"),
        ("status", lambda info: info.status),
        ("updated", lambda info: f"{info.updated_at.astimezone():%Y-%m-%d %H:%M}"),
    ]
    for name, _ in columns:
        is_number = name in ("turns", "messages", "tokens")
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for info in page.sessions:
        table.add_row(*(Text(printable(show(info))) for _, show in columns))
    _console().print(table)
    if page.cursor is not None:
        click.echo(f"There are more: --cursor {page.cursor}")


def print_session(info: SessionInfo, size: SessionSize) -> None:
    """Print one session."""
    rows = {
        "session": info.session_id,
        "user": info.user_id,
        "app": info.app_id,
        "thread": info.thread_id,
        "title": info.title,
        "status": info.status,
        "created": f"{info.created_at.astimezone():%Y-%m-%d %H:%M:%S}",
        "updated": f"{info.updated_at.astimezone():%Y-%m-%d %H:%M:%S}",
        "turns": f"{info.turns:,}",
        "messages": f"{size.messages:,}",
        "tokens": f"{info.tokens:,}",
        "stored": f"{size.bytes:,} bytes in {size.checkpoints:,} checkpoints",
        **({"tags": ", ".join(info.tags)} if info.tags else {}),
    }
    for name, value in rows.items():
        click.echo(f"{name:<9} {printable(value)}".rstrip())


def print_log(numbered: Sequence[tuple[int, BaseMessage]], total: int) -> None:
    """Print messages with their numbers in the log."""
    if not numbered:
        click.echo("The log of this session is empty.")
        return
    digits = len(str(total))
    for number, message in numbered:
        found = message_fields(number, message)
        role = f"tool {found['name'] or ''}".rstrip() if message.type == "tool" else _ROLES.get(message.type, "")
        called = [f"calls {call['name']}({json.dumps(call['args'])})" for call in found["tool_calls"]]
        text = "\n".join([*([found["text"]] if found["text"].strip() else []), *called])
        lines = printable(text or "(nothing that can be shown as text)").replace("\n", "\n" + " " * (digits + 2))
        click.echo(f"{number:>{digits}}. {printable(role or message.type)}: {lines}")


def _console() -> Any:
    from rich.console import Console

    console = Console(highlight=False)
    # In a pipe nobody sees the edge of a page, and ids are better in one piece.
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)
