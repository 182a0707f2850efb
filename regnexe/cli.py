"""The command line: `regnexe chat`, `regnexe demo` and `regnexe sessions`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from regnexe import __version__
from regnexe.sessions_cli.commands import sessions
from regnexe.terminal import printable

__all__ = ["main"]


def _database_file(context: click.Context, option: click.Parameter, value: str | None) -> Path | None:
    """Return the path, absolute; refuse what no SQLite file can be at, before anything is opened."""
    if value is None:
        return None
    path = Path(value).absolute()
    fault = None
    # Not Path's own methods, which raise where something may not be looked at.
    if not value:
        fault = "the name is empty; name a file."
    elif os.path.isdir(path):
        fault = f"{path} is a directory; name a file in it."
    elif os.path.lexists(path) and not os.path.isfile(path):
        fault = f"{path} is no file that can be written to; name another."
    elif not os.path.isdir(path.parent):
        fault = f"the directory {path.parent} does not exist; make it first."
    if fault is not None:
        raise click.BadParameter(printable(fault), context, option)
    return path


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="regnexe")
def main() -> None:
    """Regnexe: the session layer for LangGraph and deepagents agents."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal or pipe that is not UTF-8 then gets a ? for an arrow, and the command goes on.
            stream.reconfigure(errors="replace")


main.add_command(sessions)


@main.command()
@click.option(
    "--model",
    metavar="VENDOR:NAME",
    help="The model. By default DeepSeek's when DEEPSEEK_API_KEY or DEEPSEEK_KEY is set, otherwise offline:demo, "
    "a scripted stand-in.",
)
@click.option("--session", help="The session to go on with, or the name of a new one.")
@click.option("--user", default="default", show_default=True, help="Whose session it is.")
@click.option("--app", default="default", show_default=True, help="The application that it belongs to.")
@click.option(
    "--db",
    metavar="FILE",
    callback=_database_file,
    help="Keep sessions in this SQLite file. By default they end with the program.",
)
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="PLUGIN",
    help='Add a plugin: a folder that holds a plugin.yaml, or "package.module:Class". Can be given several times.',
)
@click.option("--system", metavar="TEXT", help="The system prompt.")
def chat(db: Path | None, plugins: tuple[str, ...], **options: Any) -> None:
    """Talk to an agent.

    On a terminal this is a session with editing and history; /help lists what can be typed beside messages, Ctrl-C
    stops a run, Ctrl-D ends the program. From a pipe each line is a message.

    The exit code is 2 when the chat cannot begin. Of a pipe it is 0 when every line was done, 1 when one was not (a run
    that did not complete, a command that failed), and 130 when Ctrl-C ended it; the lines after one that failed are
    still taken.
    """
    from rich.console import Console

    from regnexe.chat.app import ChatOptions
    from regnexe.chat.app import chat as run_chat
    from regnexe.chat.hints import as_options
    from regnexe.errors import RegnexeError

    try:
        code = run_chat(ChatOptions(db=db, plugins=plugins, **options), console=Console(highlight=False))
    except RegnexeError as error:
        raise click.UsageError(printable(as_options(str(error)))) from error
    sys.exit(code)


@main.command()
@click.option(
    "--db",
    metavar="FILE",
    callback=_database_file,
    help="Make the SQLite file here and keep it; there must be none yet.",
)
def demo(db: Path | None) -> None:
    """Show in a few seconds what Regnexe does, offline.

    A tool call, a follow-up, the same session in a new process, other users' sessions, and a long conversation.
    The exit code is 0 when everything went as shown.
    """
    from rich.console import Console

    from regnexe.demo import run

    if db is not None:
        _check_new(db)
    with tempfile.TemporaryDirectory(prefix="regnexe-demo-") as work, _told():
        asyncio.run(run(db or Path(work) / "sessions.db", Path(work), console=Console(highlight=False)))
    click.echo(f"The sessions are kept in {db}." if db else "The file is deleted again; --db PATH keeps it.")


@main.command(hidden=True)
@click.argument("db", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--report", required=True, type=click.Path(dir_okay=False, path_type=Path))
def demo_reopen(db: Path, report: Path) -> None:
    """Be the second process of the demo."""
    from rich.console import Console

    from regnexe.demo import reopen

    with _told():
        session = asyncio.run(reopen(db, console=Console(highlight=False)))
    report.write_text(session.model_dump_json(), encoding="utf-8")


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Tell in a message what went wrong with the file; everything else is a fault of the demo."""
    from regnexe.errors import RegnexeError

    try:
        yield
    except RegnexeError as error:
        raise click.ClickException(printable(str(error))) from error


def _check_new(db: Path) -> None:
    if os.path.exists(db) and os.path.getsize(db):
        raise click.BadParameter(
            f"{printable(str(db))} is there already, and the demo writes only into a file that it made. Name another, "
            "or delete it.",
            param_hint="--db",
        )
