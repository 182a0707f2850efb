"""The command line: `regnexe chat` and `regnexe demo`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from regnexe import __version__

__all__ = ["main"]

_NEW_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="regnexe")
def main() -> None:
    """Regnexe: the session layer for LangGraph and deepagents agents."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal or pipe that is not UTF-8 then gets a ? for an arrow, and the command goes on.
            stream.reconfigure(errors="replace")


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
@click.option("--db", type=_NEW_FILE, help="Keep sessions in this SQLite file. By default they end with the program.")
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
    """
    from rich.console import Console

    from regnexe.chat.app import ChatOptions
    from regnexe.chat.app import chat as run_chat
    from regnexe.errors import RegnexeError
    from regnexe.terminal import printable

    if db is not None:
        db = db.absolute()
        _check_parent(db)
    try:
        code = run_chat(ChatOptions(db=db, plugins=plugins, **options), console=Console(highlight=False))
    except RegnexeError as error:
        raise click.UsageError(printable(str(error))) from error
    sys.exit(code)


@main.command()
@click.option("--db", type=_NEW_FILE, help="Make the SQLite file here and keep it; there must be none yet.")
def demo(db: Path | None) -> None:
    """Show in a few seconds what Regnexe does, offline.

    A tool call, a follow-up, the same session in a new process, other users' sessions, and a long conversation.
    The exit code is 0 when everything went as shown.
    """
    from rich.console import Console

    from regnexe.demo import run

    if db is not None:
        db = db.absolute()
        _check_new(db)
    with tempfile.TemporaryDirectory(prefix="regnexe-demo-") as work:
        asyncio.run(run(db or Path(work) / "sessions.db", Path(work), console=Console(highlight=False)))
    click.echo(f"The sessions are kept in {db}." if db else "The file is deleted again; --db PATH keeps it.")


@main.command(hidden=True)
@click.argument("db", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--report", required=True, type=_NEW_FILE)
def demo_reopen(db: Path, report: Path) -> None:
    """Be the second process of the demo."""
    from rich.console import Console

    from regnexe.demo import reopen

    session = asyncio.run(reopen(db, console=Console(highlight=False)))
    report.write_text(session.model_dump_json(), encoding="utf-8")


def _check_new(db: Path) -> None:
    if db.exists() and db.stat().st_size:
        raise click.BadParameter(
            f"{db} is there already, and the demo writes only into a file that it made. Name another, or delete it.",
            param_hint="--db",
        )
    _check_parent(db)


def _check_parent(db: Path) -> None:
    if not db.parent.is_dir():
        raise click.BadParameter(f"the directory {db.parent} does not exist.", param_hint="--db")
