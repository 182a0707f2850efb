"""The commands of `regnexe sessions`."""

from __future__ import annotations

import asyncio
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regnexe.errors import InvalidInput, RegnexeError
from regnexe.identity import SessionKey
from regnexe.sessions_cli.database import Database
from regnexe.sessions_cli.printing import (
    message_fields,
    print_json,
    print_log,
    print_page,
    print_session,
    session_fields,
)
from regnexe.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["sessions"]


@click.group()
def sessions() -> None:
    """Look at the sessions in a database, which is never changed.

    The exit code is 0 when what was asked for is there, 1 when it is not or the database cannot be read, and 2 when
    the command is not right. With --json, standard output is one JSON document; times are in UTC, ISO 8601.
    """


def _reading(function: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Add the options that say which database, and run the command on it."""

    def command(db: Path | None, url: str | None, **options: Any) -> None:
        try:
            asyncio.run(function(Database(db, url), **options))
        except InvalidInput as error:
            raise click.UsageError(printable(str(error))) from error
        except RegnexeError as error:
            raise click.ClickException(printable(str(error))) from error

    command = update_wrapper(command, function)
    command = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)
    command = click.option("--app", default="default", show_default=True, help="The application.")(command)
    command = click.option("--url", metavar="URL", help="The database: sqlite:///file.db or postgresql://...")(command)
    path = click.Path(exists=True, dir_okay=False, path_type=Path)
    return click.option("--db", type=path, help="The SQLite file that holds the sessions.")(command)


@sessions.command("list")
@_reading
@click.option("--user", help="Only this user's sessions.")
@click.option("--limit", type=int, default=20, show_default=True, help="How many to show, at most 1000.")
@click.option("--cursor", help="Go on after the page that gave this cursor.")
async def _list(
    database: Database, *, app: str, user: str | None, limit: int, cursor: str | None, as_json: bool
) -> None:
    """List sessions, the latest updated first.

    As JSON: {"sessions": [...], "cursor": "..." or null}, each session as `show` has it.
    """
    async with database.opened(listing=True) as manager:
        page = await manager.list(app, user, limit=limit, cursor=cursor)
    if as_json:
        print_json({"sessions": [session_fields(info) for info in page.sessions], "cursor": page.cursor})
    else:
        print_page(page, app, user)


@sessions.command("show")
@_reading
@click.option("--user", default="default", show_default=True, help="Whose session it is.")
@click.option("--session", required=True, help="The session.")
async def _show(database: Database, *, app: str, user: str, session: str, as_json: bool) -> None:
    """Show one session, and what it takes in the database.

    As JSON: {"session": {"app_id", "user_id", "session_id", "thread_id", "title", "created_at", "updated_at",
    "turns", "messages", "tokens", "status", "tags"}, "size": {"bytes", "messages", "checkpoints"}}.
    """
    async with database.opened() as manager:
        info = await manager.get(app_id=app, user_id=user, session_id=session)
        size = await manager.size(info.key)
    if as_json:
        print_json({"session": session_fields(info), "size": vars(size)})
    else:
        print_session(info, size)


@sessions.command("log")
@_reading
@click.option("--user", default="default", show_default=True, help="Whose session it is.")
@click.option("--session", required=True, help="The session.")
@click.option("--limit", type=click.IntRange(min=1), help="Only the newest messages, so many.")
async def _log(database: Database, *, app: str, user: str, session: str, limit: int | None, as_json: bool) -> None:
    """Show the messages of a session, oldest first.

    As JSON: {"thread_id": "...", "total": 12, "messages": [{"number", "type", "id", "name", "text", "tool_calls",
    "tool_call_id", "status"}]}; "tool_calls" is a list of {"id", "name", "args"}, and what a message lacks is null.
    """
    key = SessionKey(app, user, session)
    async with database.opened() as manager:
        messages = await manager.log(key)
    first = 0 if limit is None else max(0, len(messages) - limit)
    numbered = list(enumerate(messages, 1))[first:]
    if as_json:
        shown = [message_fields(number, message) for number, message in numbered]
        print_json({"thread_id": key.thread_id, "total": len(messages), "messages": shown})
    else:
        print_log(numbered, len(messages))
