from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import regnexe
from regnexe import demo
from regnexe.cli import main
from regnexe.models.offline import OfflineChatModel


def run(*arguments: str, **env: str) -> Result:
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1", "FORCE_COLOR": None, **env}).invoke(main, arguments)


def rows(output: str) -> list[tuple[int, int]]:
    """Return the figures of the table: messages in the log, messages sent."""
    return [(int(a), int(b)) for a, b in re.findall(r"[│|] +(\d+) [│|] +(\d+) [│|]$", output, re.M)]


def test_the_demo_shows_its_five_steps_with_figures_that_fit() -> None:
    result = run("demo")
    assert result.exit_code == 0, result.output
    assert re.findall(r"^(\d)\. ", result.output, re.M) == ["1", "2", "3", "4", "5"]
    assert result.output.count("→ get_weather(city='Beijing')") == 1
    assert result.output.count("← get_weather: Beijing: sunny, 22 C") == 1
    checks = re.search(r"^All (\d+) checks passed in [\d.]+ s\.$", result.output, re.M)
    assert checks
    assert int(checks[1]) == len(re.findall("^  \\[ok\\] ", result.output, re.M)) > 10
    figures = rows(result.output)
    assert len(figures) == len(demo.LONG_TALK)
    assert [log for log, _ in figures] == sorted({log for log, _ in figures})
    assert all(sent == log for log, sent in figures if log < demo.TRIGGER)
    assert all(sent < demo.TRIGGER < log for log, sent in figures if log >= demo.TRIGGER)


def test_the_second_process_is_another_process() -> None:
    output = run("demo").output
    here = re.search(r"this one is\s+process (\d+)\.", output)
    there = re.search(r"^Process (\d+) has opened the file\.$", output, re.M)
    assert here
    assert there
    assert int(here[1]) == os.getpid() != int(there[1])


def test_the_demo_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    assert run("demo").exit_code == 0
    assert [*tmp_path.iterdir()] == [temporary]
    assert [*temporary.iterdir()] == []


def test_the_file_is_kept_on_request_and_holds_every_session(tmp_path: Path) -> None:
    db = tmp_path / "demo sessions.db"
    result = run("demo", "--db", str(db))
    assert result.exit_code == 0
    assert result.output.endswith(f"The sessions are kept in {db}.\n")
    assert [path.name for path in tmp_path.iterdir()] == [db.name]
    with sqlite3.connect(db) as connection:
        threads = {thread for (thread,) in connection.execute("SELECT DISTINCT thread_id FROM checkpoints")}
    connection.close()
    assert threads == {"demo:ann:first", "demo:ann:second", "demo:ann:long", "demo:bob:first"}


def test_a_file_that_is_there_is_refused_and_left_alone(tmp_path: Path) -> None:
    db = tmp_path / "mine.db"
    db.write_text("mine")
    result = run("demo", "--db", str(db))
    assert result.exit_code == 2
    assert "is there already" in result.output
    assert db.read_text() == "mine"


def test_an_empty_file_is_taken(tmp_path: Path) -> None:
    db = tmp_path / "empty.db"
    db.touch()
    assert run("demo", "--db", str(db)).exit_code == 0


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = run("demo", "--db", str(tmp_path / "nowhere" / "demo.db"))
    assert result.exit_code == 2
    assert "nowhere does not exist" in " ".join(result.output.split())


def test_what_no_file_can_be_at_is_refused_in_a_message(tmp_path: Path) -> None:
    for db, told in (
        ("", "the name is empty; name a file."),
        (tmp_path, "is a directory; name a file in it."),
        (os.devnull, "is no file that can be written to; name another."),
    ):
        result = run("demo", "--db", str(db), COLUMNS="400")
        assert result.exit_code == 2
        assert told in result.output
        assert "Regnexe demo" not in result.output


def test_a_file_that_cannot_be_made_ends_the_demo_with_the_reason(tmp_path: Path) -> None:
    result = run("demo", "--db", str(tmp_path / ("x" * 300)))
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert "Error: the SQLite database " in result.output
    assert "cannot be opened" in result.output


def test_a_file_that_becomes_unusable_ends_the_second_process_with_the_reason(tmp_path: Path) -> None:
    db = tmp_path / "text.db"
    db.write_text("This is no database. " * 100)
    result = run("demo-reopen", str(db), "--report", str(tmp_path / "report.json"))
    assert result.exit_code == 1
    assert "is no SQLite database" in result.output


def test_a_claim_that_does_not_hold_ends_the_demo_with_what_differed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "FOLLOW_UP", "Check the weather in Paris.")
    result = run("demo")
    assert result.exit_code == 1
    assert "No tool was called again." in result.output
    assert "Expected 0, got 1." in result.output
    assert "checks passed" not in result.output


def test_a_model_that_forgets_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = OfflineChatModel._reply
    monkeypatch.setattr(OfflineChatModel, "_reply", lambda self, messages, *rest: reply(self, messages[-1:], *rest))
    result = run("demo")
    assert result.exit_code == 1
    assert "the demo did not go as it says it does" in result.output


def test_a_second_process_that_fails_ends_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "false")
    result = run("demo")
    assert result.exit_code == 1
    assert "the second process failed with exit code 1" in result.output


def in_a_process(cwd: Path, env: Mapping[str, str]) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "regnexe", "demo"],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == b""
    return ran.stdout.decode(env.get("PYTHONIOENCODING", "utf-8"))


def test_it_runs_as_a_module_in_a_narrow_pipe_that_takes_only_ascii(tmp_path: Path) -> None:
    output = in_a_process(tmp_path, {"COLUMNS": "40", "NO_COLOR": "1", "PYTHONIOENCODING": "ascii"})
    assert "checks passed" in output
    assert "\x1b" not in output
    assert len(rows(output)) == len(demo.LONG_TALK)
    beginning = output.partition("The file is deleted")[0]
    assert [line for line in beginning.splitlines() if len(line) > 40 and "/" not in line] == []


def test_colour_reaches_the_second_processs_lines_too(tmp_path: Path) -> None:
    output = in_a_process(tmp_path, {"FORCE_COLOR": "1", "NO_COLOR": "", "TERM": "xterm-256color"})
    third = output.partition("3. The same")[2].partition("4. Another")[0]
    line = next(line for line in third.splitlines() if "demo:ann:first" in line)
    assert line.startswith("\x1b[")


def test_version_and_help() -> None:
    assert run("--version").output == f"regnexe, version {regnexe.__version__}\n"
    shown = run("--help").output
    assert "demo" in shown
    assert "demo-reopen" not in shown
