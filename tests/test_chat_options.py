"""Options and plugins: what they do, and those that cannot work."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from chat_helpers import (
    TRIALS,
    WEATHER,
    run,
    said,
)
from click.testing import CliRunner
from langchain_core.messages import AIMessage

from regnexe import RegnexeAgentBuilder
from regnexe.chat.hints import as_options
from regnexe.chat.lines import _edit_lines
from regnexe.chat.plugins import load_plugin
from regnexe.cli import main
from regnexe.errors import ConfigurationError
from regnexe.models.offline import OfflineChatModel

pytest_plugins = ["chat_fixtures"]
pytestmark = pytest.mark.usefixtures("modules_and_paths")


def test_options_that_cannot_work_are_refused(tmp_path: Path) -> None:
    for arguments, told in (
        (["--model", "offlin:demo"], "did you mean 'offline'?"),
        (["--model", "demo"], '"vendor:name"'),
        (["--model", "openai:gpt"], "OPENAI_API_KEY"),
        (["--session", ""], "session_id must not be empty"),
        (["--user", "a\nb"], "user_id must not hold control characters"),
        (["--system", " "], "non-empty str"),
        (["--plugin", "nowhere"], "neither a folder that exists nor"),
    ):
        result = run(*arguments, OPENAI_API_KEY=None, OPENAI_KEY=None)
        assert result.exit_code == 2, result.output
        assert told in result.output
        assert "Regnexe chat" not in result.output


def sqlite_file(path: Path, statement: str) -> Path:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    return path


def test_a_database_that_cannot_be_one_is_refused_in_a_message(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("This is no database. " * 100)
    foreign = sqlite_file(tmp_path / "foreign.db", "CREATE TABLE checkpoints (id INTEGER, note TEXT)")
    # SQLite's own mark of a file that this version of it may only read.
    read_only = sqlite_file(tmp_path / "read_only.db", "CREATE TABLE other (id INTEGER)")
    content = bytearray(read_only.read_bytes())
    content[18] = 3
    read_only.write_bytes(content)
    os.mkfifo(fifo := tmp_path / "fifo")
    for db, told in (
        ("", "the name is empty; name a file."),
        (tmp_path, f"{tmp_path} is a directory; name a file in it."),
        (tmp_path / "nowhere" / "s.db", f"the directory {tmp_path / 'nowhere'} does not exist; make it first."),
        (fifo, f"{fifo} is no file that can be written to; name another."),
        (os.devnull, f"{os.devnull} is no file that can be written to; name another."),
        (tmp_path / ("x" * 300), "cannot be opened"),
        (text, "is no SQLite database; name another file"),
        (foreign, "has a table 'checkpoints' of another program"),
        (read_only, "may not be written"),
    ):
        result = run("--db", str(db), typed="hello\n", COLUMNS="400")
        assert result.exit_code == 2, result.output
        assert isinstance(result.exception, SystemExit)
        assert told in result.output
        assert "Regnexe chat" not in result.output


def test_the_name_of_a_database_may_hold_what_has_a_meaning_in_urls(tmp_path: Path) -> None:
    db = tmp_path / "a?b=c#d %41é.db"
    said("--db", str(db), "--session", "s", typed="hello\n")
    assert [path.name for path in tmp_path.iterdir()] == [db.name]
    assert "Session s, which holds 2 messages" in said("--db", str(db), "--session", "s", typed="")


def test_what_the_chat_keeps_in_a_file_is_listed_by_the_command_for_sessions(tmp_path: Path) -> None:
    db = tmp_path / "s.db"
    said("--db", str(db), "--session", "s1", typed="hello\n")
    listed = CliRunner().invoke(main, ["sessions", "list", "--db", str(db)])
    assert listed.exit_code == 0
    assert "s1" in listed.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--model", "openai:gpt"], "or use --model offline:demo to try things out"),
        (["--system", " "], "--system takes a non-empty str"),
        (["--plugin", "chat_made:alone"], "--plugin takes a class that is decorated with @plugin"),
    ],
)
def test_advice_names_options_and_no_calls_of_the_builder(
    arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chat_made.py").write_text(
        'from regnexe import agent_tool\n\n\n@agent_tool\ndef alone() -> str:\n    """Do it."""\n    return ""\n'
    )
    monkeypatch.chdir(tmp_path)
    result = run(*arguments, OPENAI_API_KEY=None, OPENAI_KEY=None, COLUMNS="400")
    assert result.exit_code == 2
    assert told in result.output
    assert "with_" not in result.output


def test_advice_in_the_error_of_a_run_names_options_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*_: Any) -> AIMessage:
        raise ValueError("Example does not serve the model 'x'; check the name in with_default_model")

    monkeypatch.setattr(OfflineChatModel, "_reply", refusing)
    output = said(typed="hello\n", code=1)
    assert "✗ the run failed: ValueError: Example does not serve the model 'x'; check the name in --model" in output


def test_every_call_of_the_builder_that_an_option_does_has_its_option_in_advice() -> None:
    calls = {name for name in vars(RegnexeAgentBuilder) if name.startswith("with_")}
    no_option = {"with_tool", "with_middleware", "with_event_listener", "with_store", "with_response_format"}
    assert {name for name in calls if as_options(f"see {name}(...).") == f"see {name}(...)."} == no_option
    assert all(as_options(f"see {name}(...).").startswith("see --") for name in calls - no_option)


def test_a_wrong_option_makes_no_file(tmp_path: Path) -> None:
    assert run("--db", str(tmp_path / "s.db"), "--plugin", "nowhere").exit_code == 2
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("doc", ["Importing this module enables command line editing using libedit readline.", None])
def test_a_line_editor_that_is_not_gnu_readline_is_told_nothing(
    doc: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = None  # makes the import fail, as in a Python without readline
    if doc is not None:
        editor = ModuleType("readline", doc)  # without `parse_and_bind`, so that a call of it would fail
    monkeypatch.setitem(sys.modules, "readline", editor)
    _edit_lines()


@pytest.mark.parametrize(
    ("manifest", "module", "told"),
    [
        (None, "", "there is no plugin.yaml in"),
        ("entry: [", "", "plugin.yaml cannot be read: "),
        ("- a list", "", 'plugin.yaml must say entry: "module:Class", got None'),
        ("id: x", "", 'plugin.yaml must say entry: "module:Class", got None'),
        ("entry: chat_made", "", "got 'chat_made'"),
        ("entry: ../chat_made:Made", "", "got '../chat_made:Made'"),
        ("entry: chat_made:Made", "1 +", "plugin.yaml: importing 'chat_made' failed: SyntaxError"),
        ("entry: chat_other:Made", "", "plugin.yaml: importing 'chat_other' failed: ModuleNotFoundError"),
        ("entry: json:Made", "", "plugin.yaml: another module is named 'json'"),
        ("entry: sys:Made", "", "another module is named 'sys' (built in)"),
        ("entry: chat_made:Made", "", "plugin.yaml: there is no 'Made' in the module 'chat_made'"),
        ("entry: chat_made:Made", "class Made:\n def __init__(self): 1 / 0", "Made() failed: ZeroDivisionError"),
        ("entry: chat_made:Made", "raise SystemExit", "plugin.yaml: importing 'chat_made' failed: SystemExit"),
        ("entry: chat_made:Made", "class Made:\n def __init__(self): exit(3)", "Made() failed: SystemExit: 3"),
        (
            "entry: chat_made:Made",
            "def __getattr__(name): raise SystemExit(name) if name == 'Made' else AttributeError(name)",
            "looking for 'Made' in the module 'chat_made' failed: SystemExit: Made",
        ),
    ],
)
def test_a_plugin_folder_that_cannot_be_loaded_is_named(
    tmp_path: Path, manifest: str | None, module: str, told: str
) -> None:
    (tmp_path / "chat_made.py").write_text(module)
    if manifest is not None:
        (tmp_path / "plugin.yaml").write_text(manifest)
    with pytest.raises(ConfigurationError) as caught:
        load_plugin(str(tmp_path))
    assert told in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_plugin_that_exits_ends_the_command_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "plugin.yaml").write_text("entry: chat_made:Made")
    (tmp_path / "chat_made.py").write_text("import sys\nsys.exit(0)")
    result = run("--plugin", str(tmp_path), COLUMNS="400")
    assert result.exit_code == 2
    assert f"{tmp_path / 'plugin.yaml'}: importing 'chat_made' failed: SystemExit: 0" in result.output


def test_what_is_no_plugin_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "plugin.yaml").write_text("entry: chat_made:Made")
    (tmp_path / "chat_made.py").write_text("class Made: ...")
    result = run("--plugin", str(tmp_path))
    assert result.exit_code == 2
    assert f"{tmp_path}: " in result.output


def test_a_plugin_twice_is_refused() -> None:
    result = run("--plugin", WEATHER, "--plugin", WEATHER)
    assert result.exit_code == 2
    assert "was added twice" in result.output


def test_a_plugin_can_be_named_by_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chat_made.py").write_text(TRIALS)
    monkeypatch.chdir(tmp_path)
    assert "← paint_screen" in said("--plugin", "chat_made:Trials", typed="Paint the screen.\n")
    with pytest.raises(ConfigurationError, match="plugin 'chat_made:No': there is no 'No' in the module"):
        load_plugin("chat_made:No")
