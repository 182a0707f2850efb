"""Lines from a pipe: messages, commands, and the exit code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from chat_helpers import (
    ANSWER,
    ASK,
    FOLLOW_UP,
    NO_KEYS,
    WEATHER,
    run,
    said,
)
from langchain_core.messages import AIMessage

from regnexe import SessionManager
from regnexe.chat import commands
from regnexe.chat.app import DEFAULT
from regnexe.chat.printer import waiting
from regnexe.models.deepseek import MODELS
from regnexe.models.offline import OfflineChatModel

pytest_plugins = ["chat_fixtures"]
pytestmark = pytest.mark.usefixtures("modules_and_paths")


def test_each_line_of_a_pipe_is_answered_and_the_end_of_it_ends_the_program() -> None:
    output = said("--plugin", WEATHER, typed=f"{ASK}\n\n{FOLLOW_UP}")
    shown = output.splitlines()
    first = shown.index(f"you> {ASK}")
    assert shown[first + 1] == "→ get_weather(city='Beijing')"
    assert shown[first + 2] == "← get_weather: Beijing: sunny, 22 C, excellent air quality."
    assert shown[first + 3].startswith(ANSWER)
    assert re.fullmatch(r"\(2 model calls, 1 tool call, [\d,]+ tokens in, [\d,]+ out, \d+\.\d s\)", shown[first + 4])
    assert shown[first + 5] == f"you> {FOLLOW_UP}"
    assert "Beijing" in shown[first + 6]
    assert output.count("you> ") == 2


def test_the_greeting_says_which_model_answers_and_where_sessions_are(tmp_path: Path) -> None:
    memory = said(typed="")
    assert "The model is offline:demo" in memory
    assert "neither DEEPSEEK_API_KEY nor DEEPSEEK_KEY is set" in memory
    assert "in memory and end with this program" in memory
    session = re.search(r"^Session (\w{8}), a new one \(app default, user default\)\.$", memory, re.M)
    assert session
    named = said("--model", "offline:other", "--app", "a", "--user", "u", "--session", "s:1", typed="")
    assert "The model is offline:other." in named
    assert "Session s:1, a new one (app a, user u)." in named
    file = said("--db", str(tmp_path / "s.db"), typed="")
    assert f"Sessions are kept in {tmp_path / 's.db'}. --session " in file


@pytest.mark.parametrize("variable", [*NO_KEYS])
def test_deepseek_is_the_default_when_there_is_a_key(variable: str) -> None:
    vendor, _, name = DEFAULT.partition(":")
    key: Any = {variable: "k"}
    assert f"The model is {DEFAULT}; --model" in said(typed="", **key)
    assert vendor == "deepseek"
    assert name in MODELS


def test_the_system_prompt_is_sent() -> None:
    output = said("--system", "Answer in verse.", typed="hello\n/view\n")
    length = re.search(r"demo was last sent 1 message, after a system prompt of ([\d,]+) characters:", output)
    assert length


def test_view_and_log_list_messages_one_line_each() -> None:
    output = said("--plugin", WEATHER, typed=f"/view\n/log\n{ASK}\n/view\n/log\n/new\n/view\n/log\n")
    assert output.count("the model has not been sent anything yet") == 2
    assert output.count("The log of this session is empty.") == 2
    view = output.partition("demo was last sent 3 messages:\n")[2].splitlines()[:3]
    assert view == [
        f"  1. user: {ASK}",
        "  2. model: calls get_weather(city='Beijing')",
        "  3. tool get_weather: Beijing: sunny, 22 C, excellent air quality.",
    ]
    log = output.partition("The log of this session holds 4 messages:\n")[2].splitlines()[:4]
    assert log[:3] == view
    assert log[3].startswith(f"  4. model: {ANSWER}")


def test_long_messages_are_cut_to_one_line() -> None:
    output = said(typed="hello " + "very long " * 100 + "\n/log\n")
    line = next(line for line in output.splitlines() if line.startswith("  1. user: hello"))
    assert line.endswith("...")
    assert len(line) <= 200


def listed(output: str, heading: str) -> list[str]:
    lines = output.partition(f"{heading}\n")[2].splitlines()
    return [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME", line) for line in lines]


def test_new_changes_the_session_and_comes_back_to_one() -> None:
    output = said(
        "--session",
        "one",
        typed="hello\n/new two\nhello\n/new one\n/new\n/new " + "x" * 256 + "\n/sessions\n",
        code=1,
    )
    assert "Session two, a new one" in output
    assert "Session one, which holds 2 messages" in output
    assert len(re.findall(r"^Session \w{8}, a new one", output, re.M)) == 1
    assert "at most 255 characters" in output
    assert listed(output, "2 sessions in this process:") == ["  - two TIME hello", "  - one TIME hello"]


def test_of_many_sessions_in_memory_the_newest_are_listed_and_one_that_is_used_again_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "_MOST_SESSIONS", 2)
    used = "".join(f"/new {name}\nhello\n" for name in ("one", "two", "three", "one"))
    output = said(typed=f"{used}/sessions\n")
    assert listed(output, "the newest 2 sessions in this process:") == ["  * one TIME hello", "  - three TIME hello"]


def test_sessions_are_those_of_this_app_and_user(tmp_path: Path) -> None:
    db = str(tmp_path / "s.db")
    for user, session in (("ann", "a:1"), ("ann", "a2"), ("bob", "b1")):
        said("--db", db, "--app", "x", "--user", user, "--session", session, typed="hello\n")
    output = said("--db", db, "--app", "x", "--user", "ann", "--session", "a:1", typed="/sessions\n")
    found = listed(output, f"App x, user ann: 2 sessions in {db}:")
    assert found == ["  - a2 TIME hello", "  * a:1 TIME hello"]
    assert "user nobody: no sessions yet" in said("--db", db, "--user", "nobody", typed="/sessions\n")


def test_a_file_keeps_sessions_and_a_log_can_be_read_before_a_message(tmp_path: Path) -> None:
    db = str(tmp_path / "s.db")
    said("--db", db, "--session", "s", "--plugin", WEATHER, typed=f"{ASK}\n")
    output = said("--db", db, "--session", "s", typed=f"/log\n{FOLLOW_UP}\n")
    assert "Session s, which holds 4 messages" in output
    assert f"  1. user: {ASK}" in output
    assert "Beijing" in output.partition(f"you> {FOLLOW_UP}")[2]


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("/lgo", "There is no command /lgo. Did you mean /log?"),
        ("/VIEWS", "There is no command /views. Did you mean /view?"),
        ("/zzz", "There is no command /zzz. There are /view, /log, /new, /sessions, /help, /quit."),
        ("/log all", "/log takes nothing after it, got 'all'."),
    ],
)
def test_a_command_that_is_not_one_is_answered_with_the_nearest(typed: str, answer: str) -> None:
    assert answer in said(typed=f"{typed}\n", code=1)


def test_help_lists_every_command_and_a_slash_after_a_space_is_a_message() -> None:
    output = said(typed="/help\n /help me\n/quit\nhello\n")
    for name in commands.COMMANDS:
        assert re.search(rf"^  {name}\b.* \w", output, re.M)
    assert "(1 model call" in output
    assert "you> hello" not in output


def test_what_tools_write_cannot_steer_the_terminal(trials: Path) -> None:
    output = said(
        "--plugin", str(trials), typed="Paint the screen.\nBreak the window.\n\x1b[2J/help\n/log\n/\x1b[2J\n", code=1
    )
    assert r"← paint_screen: \x1b]0;owned\x07\x1b[2Jred \x9b31mpaint" in output
    assert r"✗ break_window: RuntimeError: glass \x1b[2Jeverywhere" in output
    assert (
        output.count("glass") == output.count("RuntimeError: glass") == 4
    )  # its line, the answer, and both in the log
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", output)


def test_a_pending_approval_is_named_and_the_chat_goes_on(trials: Path, tmp_path: Path) -> None:
    arguments = ("--plugin", str(trials), "--db", str(tmp_path / "s.db"), "--session", "s")
    output = said(*arguments, typed="Send a mail to Ann.\nhello\n/new\nhello\n", code=1)
    asked, again, other = output.split("you> ")[1:4]
    for part in (asked, again):
        assert "? waits for a decision: send_mail(to='Ann')" in part
        assert "Deciding is not possible here yet" in part
        assert "(default:default:s)" in part
    assert "a new one" in other
    assert "(1 model call" in output.split("you> ")[4]
    restarted = said(*arguments, typed="")
    assert "? waits for a decision: send_mail(to='Ann')" in restarted


def test_what_waits_is_shown_in_any_form() -> None:
    assert waiting([{"action_requests": [{"name": "f"}, {"name": "g", "args": {"x": 1}}]}]) == ["f()", "g(x=1)"]
    assert waiting(["why?", {"action_requests": "odd"}]) == ["why?", "{'action_requests': 'odd'}"]


def test_a_failed_run_is_one_line_and_the_chat_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = OfflineChatModel._reply

    def failing(self: OfflineChatModel, messages: Any, *rest: Any) -> AIMessage:
        if "fail" in messages[-1].text:
            raise ConnectionError("the line\nis \x1b[31mdead")
        return reply(self, messages, *rest)

    monkeypatch.setattr(OfflineChatModel, "_reply", failing)
    shown = said(typed="fail\nhello\n", code=1).splitlines()
    failed = shown.index(r"✗ the run failed: ConnectionError: the line is \x1b[31mdead")
    assert shown[failed + 1].startswith("(1 model call, 0 tool calls")
    assert shown[failed + 3].startswith("Hello")


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("hello\n/log\n", 0),
        ("hello\nSend a mail to Ann.\n", 1),
        ("Send a mail to Ann.\n/quit\n", 1),
        ("/lgo\nhello\n", 1),
        ("/log all\nhello\n", 1),
    ],
)
def test_the_exit_code_of_a_pipe_tells_whether_every_line_was_done(trials: Path, typed: str, code: int) -> None:
    assert run("--plugin", str(trials), typed=typed).exit_code == code


def test_help_says_what_the_exit_code_of_a_pipe_is() -> None:
    assert "Of a pipe it is 0 when every line was done" in " ".join(run("--help").output.split())


def test_bytes_that_are_no_text_are_not_sent_and_are_named() -> None:
    result = run(typed=b"hello caf\xe9\nhello\n/log\n")
    assert result.exit_code == 1
    refused = result.output.partition(r"you> hello caf\udce9")[2].partition("you>")[0]
    assert "that line was not sent, since it is not UTF-8: character 10 is the byte 0xe9." in refused
    assert "PYTHONIOENCODING" in refused
    assert "The log of this session holds 2 messages" in result.output


def test_an_error_outside_the_run_is_one_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any, **options: Any) -> None:
        raise OSError("no disk")

    async def refused(*_: Any) -> None:
        raise OSError("no rows")

    monkeypatch.setattr(SessionManager, "list", broken)
    monkeypatch.setattr("regnexe.runtime.runner.Runner._settle", refused)
    output = said("--db", str(tmp_path / "s.db"), typed="/sessions\nhello\n/help\n", code=1)
    assert "✗ that failed: OSError: no disk" in output
    assert "✗ the run failed: OSError: no rows" in output
    assert "this list" in output
