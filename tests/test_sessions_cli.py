"""`regnexe sessions` reads what is there, changes nothing, and says in a sentence what it cannot do."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from regnexe import RegnexeAgentBuilder
from regnexe.cli import main
from regnexe.testing import ScriptedChatModel, tool_call

if TYPE_CHECKING:
    from pathlib import Path


def get_weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: sunny"


def builder() -> RegnexeAgentBuilder:
    def answer(messages: list[Any]) -> Any:
        if messages[-1].text == "weather":
            return AIMessage("", tool_calls=[tool_call("get_weather", city="Beijing")])
        return "fine"

    return RegnexeAgentBuilder().with_model(ScriptedChatModel(answer)).with_tool(get_weather)


def fill(url: str) -> None:
    """Make three sessions of two users."""
    with builder().with_persistence(url).build() as agent:
        agent.invoke("weather", user_id="ann", session_id="one")
        agent.invoke("\x1b[31mred\u202e title", user_id="ann", session_id="two")
        agent.invoke("hi", user_id="bob", session_id="three")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["sessions", *arguments])


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The options that name a database, of each kind, with sessions in it."""
    if request.param == "sqlite":
        fill(f"sqlite:///{tmp_path}/sessions.db")
        return ["--db", str(tmp_path / "sessions.db")]
    url = str(request.getfixturevalue("postgres_url"))
    fill(url)
    return ["--url", url]


def test_a_list_walks_all_sessions_page_by_page(where: list[str]) -> None:
    first = run("list", *where, "--limit", "2", "--json")
    assert (first.exit_code, first.stderr) == (0, "")
    page = json.loads(first.stdout)
    assert set(page) == {"sessions", "cursor"}
    assert [session["session_id"] for session in page["sessions"]] == ["three", "two"]
    last = json.loads(run("list", *where, "--limit", "2", "--cursor", page["cursor"], "--json").stdout)
    assert [session["session_id"] for session in last["sessions"]] == ["one"]
    assert last["cursor"] is None
    assert set(last["sessions"][0]) == {
        "app_id",
        "user_id",
        "session_id",
        "thread_id",
        "title",
        "created_at",
        "updated_at",
        "turns",
        "messages",
        "tokens",
        "status",
        "tags",
    }
    of_ann = json.loads(run("list", *where, "--user", "ann", "--json").stdout)
    assert [session["session_id"] for session in of_ann["sessions"]] == ["two", "one"]


def test_a_printed_list_names_each_session_and_holds_nothing_that_steers_a_terminal(where: list[str]) -> None:
    listed = run("list", *where, "--limit", "2")
    assert listed.exit_code == 0
    assert "three" in listed.stdout
    assert "[31mred" in listed.stdout
    assert not set(listed.stdout) & {"\x1b", "\u202e"}
    assert "\nThere are more: --cursor " in listed.stdout
    assert run("list", *where, "--app", "none").stdout == "No sessions of app 'none'.\n"


def test_one_session_is_shown_with_what_it_takes(where: list[str]) -> None:
    shown = run("show", *where, "--user", "ann", "--session", "one", "--json")
    assert (shown.exit_code, shown.stderr) == (0, "")
    document = json.loads(shown.stdout)
    assert (document["session"]["turns"], document["session"]["title"]) == (1, "weather")
    assert set(document["size"]) == {"bytes", "messages", "checkpoints"}
    assert document["size"]["messages"] == document["session"]["messages"] == 4
    assert document["size"]["bytes"] > 1000
    printed = run("show", *where, "--user", "ann", "--session", "one").stdout
    assert "title     weather\n" in printed
    assert "status    completed\n" in printed


def test_a_log_is_shown_with_calls_and_results(where: list[str]) -> None:
    shown = json.loads(run("log", *where, "--user", "ann", "--session", "one", "--json").stdout)
    assert (shown["thread_id"], shown["total"]) == ("default:ann:one", 4)
    assert [(message["number"], message["type"], message["text"]) for message in shown["messages"]] == [
        (1, "human", "weather"),
        (2, "ai", ""),
        (3, "tool", "Beijing: sunny"),
        (4, "ai", "fine"),
    ]
    (call,) = shown["messages"][1]["tool_calls"]
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Beijing"})
    assert shown["messages"][2]["tool_call_id"] == call["id"]
    assert all(
        set(message) == {"number", "type", "id", "name", "text", "tool_calls", "tool_call_id", "status"}
        for message in shown["messages"]
    )
    printed = run("log", *where, "--user", "ann", "--session", "one", "--limit", "3").stdout
    assert printed.splitlines() == [
        '2. model: calls get_weather({"city": "Beijing"})',
        "3. tool get_weather: Beijing: sunny",
        "4. model: fine",
    ]
    assert "\x1b" not in run("log", *where, "--user", "ann", "--session", "two").stdout


def test_a_session_that_is_not_there_ends_with_1_and_a_sentence(where: list[str]) -> None:
    for command in ("show", "log"):
        missing = run(command, *where, "--session", "nope")
        assert (missing.exit_code, missing.stdout) == (1, "")
        assert "Error: there is no session 'nope' of user 'default' in app 'default'" in missing.stderr


def test_reading_changes_nothing_in_the_directory(tmp_path: Path) -> None:
    fill(f"sqlite:///{tmp_path}/sessions.db")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for arguments in (["list"], ["show", "--user", "ann", "--session", "one"], ["log", "--session", "nope"]):
        run(*arguments, "--db", str(tmp_path / "sessions.db"))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_session_of_a_file_without_a_list_is_found_all_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / "threads.db")

    async def fill_file() -> None:
        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            async with builder().with_checkpointer(saver).build() as agent:
                await agent.ainvoke("hi", session_id="s")

    asyncio.run(fill_file())
    listed = run("list", "--db", path)
    assert (listed.exit_code, listed.stdout) == (1, "")
    assert "has no list of sessions yet" in listed.stderr
    assert json.loads(run("show", "--db", path, "--session", "s", "--json").stdout)["session"]["title"] == "hi"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["list"], 2, "name the database by --db PATH or by --url URL"),
        (["list", "--db", "{file}", "--url", "sqlite:///x"], 2, "not both"),
        (["list", "--db", "{folder}/none.db"], 2, "does not exist"),
        (["list", "--url", "sqlite:///{folder}/none.db"], 2, "there is no file"),
        (["list", "--url", "memory://"], 2, "there is nothing to read"),
        (["list", "--url", "mysql://x"], 2, "there is no persistence for mysql://"),
        (["list", "--db", "{file}", "--limit", "0"], 2, "limit must be an int from 1 to 1000, got 0"),
        (["list", "--db", "{file}", "--cursor", "x"], 2, "'x' is no cursor"),
        (["list", "--db", "{file}", "--app", ""], 2, "app_id must not be empty"),
        (["show", "--db", "{file}"], 2, "Missing option '--session'"),
        (["list", "--db", "{text}"], 1, "cannot be read: file is not a database"),
        (["list", "--db", "{other}"], 1, "is a SQLite file without sessions"),
        (["list", "--url", "postgresql://nobody@/none?host={folder}"], 1, "the database cannot be read"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence_and_makes_no_file(
    arguments: list[str], code: int, sentence: str, tmp_path: Path
) -> None:
    fill(f"sqlite:///{tmp_path}/sessions.db")
    (tmp_path / "text.db").write_text("this is no database, and long enough to be none " * 50)
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE things (name TEXT)")
    files = {"file": "sessions.db", "text": "text.db", "other": "other.db"}
    places = {name: str(tmp_path / file) for name, file in files.items()} | {"folder": str(tmp_path)}
    before = sorted(path.name for path in tmp_path.iterdir())
    ended = run(*(argument.format(**places) for argument in arguments))
    assert (ended.exit_code, ended.stdout) == (code, "")
    assert sentence in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before
