from __future__ import annotations

import asyncio
import codecs
import io
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from langchain_core.messages import AIMessage
from rich.console import Console

from regnexe import RegnexeAgentBuilder
from regnexe.chat import commands, conversation
from regnexe.chat.conversation import Conversation
from regnexe.chat.plugins import load_plugin
from regnexe.chat.printer import RunPrinter, waiting
from regnexe.chat.screen import Screen
from regnexe.cli import main
from regnexe.errors import ConfigurationError
from regnexe.events import LlmDelta, LlmEnd
from regnexe.identity import SessionKey
from regnexe.models.offline import OfflineChatModel
from regnexe.testing import ScriptedChatModel, tool_call

if sys.platform != "win32":
    import fcntl
    import pty
    import struct
    import termios

needs_pty = pytest.mark.skipif(sys.platform == "win32", reason="platform: Windows has no pseudo-terminals of this kind")

WEATHER = str(Path(__file__).parent.parent / "plugins" / "weather")
ASK = "Check the weather in Beijing."
ANSWER = "From get_weather: Beijing: sunny, 22 C"
FOLLOW_UP = "Which city did I ask about earlier?"
NO_KEYS = {"DEEPSEEK_API_KEY": None, "DEEPSEEK_KEY": None}
DEADLINE = 30.0

TRIALS = '''
import asyncio

from langgraph.types import interrupt

from regnexe import agent_tool, plugin


@plugin(id="trials")
class Trials:
    """Tools that are trying."""

    @agent_tool
    async def hold_the_line(self) -> str:
        """Hold the line until somebody lets go."""
        await asyncio.Event().wait()
        return "never"

    @agent_tool
    def fetch_parcel(self) -> str:
        """Fetch the parcel from the depot."""
        with open("FIFO") as depot:
            return depot.read()

    @agent_tool
    async def freeze_everything(self) -> str:
        """Freeze everything, the event loop included."""
        with open("FIFO") as depot:
            return depot.read()

    @agent_tool
    async def paint_screen(self) -> str:
        """Paint the screen red."""
        return "\\x1b]0;owned\\x07\\x1b[2Jred \\x9b31mpaint"

    @agent_tool
    async def break_window(self) -> str:
        """Break the window."""
        raise RuntimeError("glass \\x1b[2Jeverywhere")

    @agent_tool
    async def send_mail(self, to: str) -> str:
        """Send a mail to somebody."""
        return str(interrupt({"action_requests": [{"name": "send_mail", "args": {"to": to}}]}))
'''


@pytest.fixture
def trials(tmp_path: Path) -> Path:
    """A plugin folder whose tools wait for ever, write what a terminal would obey, fail, or ask."""
    folder = tmp_path / "trials"
    folder.mkdir()
    fifo = tmp_path / "depot"
    if sys.platform != "win32":
        os.mkfifo(fifo)
    (folder / "plugin.yaml").write_text('id: trials\nentry: "trials_of_chat:Trials"\n')
    (folder / "trials_of_chat.py").write_text(TRIALS.replace("FIFO", str(fifo)))
    return folder


@pytest.fixture(autouse=True)
def modules_and_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Forget the modules of plugins, and where they were."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


def run(*arguments: str, typed: str = "", **env: str | None) -> Result:
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "FORCE_COLOR": None, **NO_KEYS, **env})
    return runner.invoke(main, ["chat", *arguments], input=typed)


def said(*arguments: str, typed: str, **env: str | None) -> str:
    result = run(*arguments, typed=typed, **env)
    assert result.exit_code == 0, result.output
    return result.output


def environment(**env: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in (*NO_KEYS, "NO_COLOR", "FORCE_COLOR")}
    return {**kept, "COLUMNS": "160", "INPUTRC": "/dev/null", "LC_ALL": "C.UTF-8", **env}


# Lines from a pipe.


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
    assert "The model is deepseek:deepseek-v4-flash; --model" in said(typed="", **{variable: "k"})


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


def test_new_changes_the_session_and_comes_back_to_one() -> None:
    output = said(
        "--session", "one", typed="hello\n/new two\nhello\n/new one\n/new\n/new " + "x" * 256 + "\n/sessions\n"
    )
    assert "Session two, a new one" in output
    assert "Session one, which holds 2 messages" in output
    assert len(re.findall(r"^Session \w{8}, a new one", output, re.M)) == 1
    assert "at most 255 characters" in output
    listed = output.partition("2 sessions in this process:\n")[2].splitlines()
    assert listed == ["  - one", "  - two"]


def test_sessions_are_those_of_this_app_and_user(tmp_path: Path) -> None:
    db = str(tmp_path / "s.db")
    for user, session in (("ann", "a:1"), ("ann", "a2"), ("bob", "b1")):
        said("--db", db, "--app", "x", "--user", user, "--session", session, typed="hello\n")
    output = said("--db", db, "--app", "x", "--user", "ann", "--session", "a:1", typed="/sessions\n")
    listed = output.partition(f"App x, user ann: 2 sessions in this process and in {db}:\n")[2].splitlines()
    assert [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME", line) for line in listed] == ["  - a2 TIME", "  * a:1 TIME"]
    assert "user nobody: no sessions yet" in said("--db", db, "--user", "nobody", typed="/sessions\n")


def test_a_look_into_a_large_file_is_bounded_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = str(tmp_path / "s.db")
    said("--db", db, typed="/new one\nhello\n/new two\nhello\n")
    monkeypatch.setattr(conversation, "_MOST_STEPS", 2)
    output = said("--db", db, typed="/sessions\n")
    assert "only its newest 2 steps were looked at" in output
    assert "- one" not in output
    monkeypatch.setattr(conversation, "_MOST_STEPS", 100)
    monkeypatch.setattr(conversation, "_MOST_SECONDS", -1.0)
    monkeypatch.setattr(commands, "_LARGE_FILE", 1)
    output = said("--db", db, typed="/sessions\nhello\n/sessions\n")
    assert "this may take a while" in output
    assert "only its newest 1 step were looked at" in output
    assert "the run failed" not in output


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
    assert answer in said(typed=f"{typed}\n")


def test_help_lists_every_command_and_a_slash_after_a_space_is_a_message() -> None:
    output = said(typed="/help\n /help me\n/quit\nhello\n")
    for name in commands.COMMANDS:
        assert re.search(rf"^  {name}\b.* \w", output, re.M)
    assert "(1 model call" in output
    assert "you> hello" not in output


def test_what_tools_write_cannot_steer_the_terminal(trials: Path) -> None:
    output = said("--plugin", str(trials), typed="Paint the screen.\nBreak the window.\n\x1b[2J/help\n/log\n/\x1b[2J\n")
    assert r"← paint_screen: \x1b]0;owned\x07\x1b[2Jred \x9b31mpaint" in output
    assert r"✗ break_window: RuntimeError: glass \x1b[2Jeverywhere" in output
    assert (
        output.count("glass") == output.count("RuntimeError: glass") == 4
    )  # its line, the answer, and both in the log
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", output)


def test_the_screen_shows_what_a_terminal_would_obey_and_takes_a_line_that_ends_as_on_windows() -> None:
    console = Console(file=io.StringIO(), width=80)
    screen = Screen(console)
    screen.piece("a\r\nb\x1b[2J\u202ec\rd\n")
    screen.say("say\x9b")
    screen.line("head\x07", "text\r\n\x00more")
    assert console.file.getvalue() == (  # type: ignore[attr-defined]
        "a\nb\\x1b[2J\\u202ec\\x0dd\nsay\\x9b\nhead\\x07 text \\x00more\n"
    )


def test_a_pending_approval_is_named_and_the_chat_goes_on(trials: Path, tmp_path: Path) -> None:
    arguments = ("--plugin", str(trials), "--db", str(tmp_path / "s.db"), "--session", "s")
    output = said(*arguments, typed="Send a mail to Ann.\nhello\n/new\nhello\n")
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
    shown = said(typed="fail\nhello\n").splitlines()
    failed = shown.index(r"✗ the run failed: ConnectionError: the line is \x1b[31mdead")
    assert shown[failed + 1].startswith("(1 model call, 0 tool calls")
    assert shown[failed + 3].startswith("Hello")


def test_an_error_outside_the_run_is_one_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: Conversation) -> None:
        raise OSError("no disk")

    async def refused(*_: Any) -> None:
        raise OSError("no rows")

    monkeypatch.setattr(Conversation, "stored_sessions", broken)
    monkeypatch.setattr("regnexe.runtime.runner.Runner._settle", refused)
    output = said("--db", str(tmp_path / "s.db"), typed="/sessions\nhello\n/help\n")
    assert "✗ that failed: OSError: no disk" in output
    assert "✗ the run failed: OSError: no rows" in output
    assert "this list" in output


# Options and plugins that cannot work.


def test_options_that_cannot_work_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("This is no database. " * 100)
    for arguments, told in (
        (["--model", "offlin:demo"], "did you mean 'offline'?"),
        (["--model", "demo"], '"vendor:name"'),
        (["--model", "openai:gpt"], "OPENAI_API_KEY"),
        (["--session", ""], "session_id must not be empty"),
        (["--user", "a\nb"], "user_id must not hold control characters"),
        (["--system", " "], "non-empty str"),
        (["--db", str(tmp_path / "nowhere" / "s.db")], "nowhere does not exist"),
        (["--db", str(tmp_path)], "is a directory"),
        (["--db", str(text)], f"{text} cannot be used as an SQLite file"),
        (["--plugin", "nowhere"], "neither a folder that exists nor"),
    ):
        result = run(*arguments, OPENAI_API_KEY=None, OPENAI_KEY=None)
        assert result.exit_code == 2, result.output
        assert told in result.output
        assert "Regnexe chat" not in result.output


def test_a_wrong_option_makes_no_file(tmp_path: Path) -> None:
    assert run("--db", str(tmp_path / "s.db"), "--plugin", "nowhere").exit_code == 2
    assert [*tmp_path.iterdir()] == []


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


# What the printer does with events.


def screen(encoding: str = "utf-8") -> tuple[Screen, Callable[[], str]]:
    buffer = io.BytesIO()
    file = io.TextIOWrapper(buffer, encoding=encoding, errors="replace")

    def shown() -> str:
        file.flush()
        return buffer.getvalue().decode(encoding)

    return Screen(Console(file=file, width=80, highlight=False)), shown


async def test_an_answer_is_printed_piece_by_piece() -> None:
    model = ScriptedChatModel(["\n\none two\nthree"], stream_words=True)
    printed, shown = screen()
    printer = RunPrinter(printed)
    seen = []
    async with RegnexeAgentBuilder().with_model(model).build() as agent, agent.astream("hello") as stream:
        async for event in stream:
            printer.show(event)
            if isinstance(event, LlmDelta | LlmEnd):
                seen.append(shown())
    assert len(seen) > 3
    assert seen[0] == "" or seen[0] in "one two\nthree"
    assert all(late.startswith(early) for early, late in pairwise(seen))
    assert seen[-2:] == ["one two\nthree", "one two\nthree\n"]


async def test_a_model_that_a_tool_calls_itself_is_not_taken_for_the_agent() -> None:
    inner = ScriptedChatModel(["the inner answer"], model_name="inner")

    async def consult() -> str:
        """Consult another model."""
        return (await inner.ainvoke("inner question")).text.upper()

    model = ScriptedChatModel([AIMessage("", tool_calls=[tool_call("consult")]), "The outer answer."])
    printed, shown = screen()
    printer = RunPrinter(printed)
    async with RegnexeAgentBuilder().with_model(model).with_tool(consult).build() as agent:
        async with agent.astream("hello") as stream:
            async for event in stream:
                printer.show(event)
                if isinstance(event, LlmEnd) and event.name == "inner":
                    assert printer.sent is not None
                    assert printer.sent.name == "scripted"
            printer.finish(stream.result)
    assert "the inner answer" not in shown()
    assert "The outer answer." in shown()


async def test_a_tools_result_that_is_the_answer_is_printed() -> None:
    from langchain_core.tools import tool

    @tool(return_direct=True)
    def lookup() -> str:
        """Look it up."""
        return "line one\nline two"

    model = ScriptedChatModel([AIMessage("I look.", tool_calls=[tool_call("lookup")])])
    printed, shown = screen()
    printer = RunPrinter(printed)
    async with RegnexeAgentBuilder().with_model(model).with_tool(lookup).build() as agent:
        async with agent.astream("hello") as stream:
            async for event in stream:
                printer.show(event)
        printer.finish(stream.result)
    assert shown().startswith("I look.\n→ lookup()\n← lookup: line one line two\nline one\nline two\n(")


def test_sub_agents_are_indented_under_their_names() -> None:
    output = said("--plugin", WEATHER, typed="Use a subagent: task general-purpose check the weather in Paris.\n")
    assert "→ general-purpose: " in output
    assert "\n  → general-purpose: get_weather(city='Paris')\n" in output
    assert "\n  ← general-purpose: get_weather: Paris: " in output
    assert "\n← general-purpose: From get_weather: Paris: " in output


def test_narrow_encodings_get_marks_that_they_have() -> None:
    printed, shown = screen("ascii")
    printed.line(printed.marks.call, "f(x='é')")
    printed.piece("naïve → ")
    printed.settle()
    assert shown() == "-> f(x='?')\nna?ve ? \n"


async def test_leaving_a_listing_early_frees_the_file(tmp_path: Path) -> None:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    printed, _ = screen()
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "s.db")) as saver:
        async with (
            RegnexeAgentBuilder().with_default_model("offline", "demo").with_checkpointer(saver).build() as agent
        ):
            key = SessionKey("a", "u", "s")
            chat = Conversation(agent=agent, saver=saver, screen=printed, key=key)
            await chat.answer("hello")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(conversation, "_MOST_SECONDS", -1.0)
                stored = await chat.stored_sessions()
            assert (list(stored.sessions), stored.steps, stored.complete) == ([key], 1, False)
            assert not saver.lock.locked()
            assert (await asyncio.wait_for(chat.stored_sessions(), DEADLINE)).complete


# Real processes.


def until(found: Callable[[], bool], read: Callable[[], bytes], seen: Callable[[], str]) -> None:
    """Read until it is found; fail, with what was seen, at the end of the output or of the time."""
    while not found():
        data = read()
        assert data, f"the output ended or stood still; it ends with\n{seen()[-3000:]}"


class Process:
    """The chat in a process: what it prints can be waited for."""

    def __init__(self, *arguments: str, env: Mapping[str, str], terminal: bool) -> None:
        self.raw = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._position = 0
        program = "from regnexe.cli import main; main(prog_name='regnexe')"
        if terminal:
            # Without a controlling terminal Ctrl-C would be a character like any other.
            program = f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); {program}"
            self._output, inner = pty.openpty()
            fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
            self._input = self._output
        else:
            inner, self._input = os.pipe()
            self._output, written = os.pipe()
        ends = {"stdin": inner, "stdout": inner if terminal else written, "stderr": subprocess.STDOUT}
        command = [sys.executable, "-c", program, "chat", *arguments]
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command, env=environment(**env), start_new_session=True, **ends
        )  # type: ignore[call-overload]
        for end in {inner, ends["stdout"]}:
            os.close(end)

    def expect(self, text: str) -> str:
        """Wait for the text after what was expected before, and return what came before it."""
        until(lambda: text in self._text[self._position :], self._read, lambda: self._text)
        before = self._text[self._position :].partition(text)[0]
        self._position += len(before) + len(text)
        return before

    def type(self, text: str) -> None:
        os.write(self._input, text.encode())

    def enter(self, text: str) -> None:
        """Wait for the prompt, then type a line."""
        self.expect("you> ")
        self.type(f"{text}\r")

    def end(self) -> int:
        """Read to the end, and return the exit code."""
        while self._read():
            pass
        code: int = self.process.wait(DEADLINE)
        return code

    def rest(self) -> str:
        return self._text[self._position :]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(DEADLINE)
        for end in {self._input, self._output}:
            os.close(end)

    def _read(self) -> bytes:
        ready, _, _ = select.select([self._output], [], [], DEADLINE)
        assert ready, f"nothing came for {DEADLINE} s; the output ends with\n{self._text[-3000:]}"
        try:
            data = os.read(self._output, 65536)
        except OSError:  # Linux says so that the other end of a terminal is closed
            return b""
        self.raw += data
        self._text += self._decoder.decode(data)
        self._text = re.sub("\x1b\\[[0-9;?]*[a-zA-Z]|\r", "", self._text)
        return data


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Start the chat, on a terminal unless told otherwise; end it after the test."""
    started: list[Process] = []

    def begin(*arguments: str, terminal: bool = True, **env: str) -> Process:
        started.append(Process(*arguments, env={"TERM": "xterm", **env}, terminal=terminal))
        return started[-1]

    yield begin
    for process in started:
        process.close()


@needs_pty
def test_a_session_in_a_terminal(start: Callable[..., Process], trials: Path) -> None:
    chat = start("--plugin", WEATHER, "--plugin", str(trials), "--session", "first")
    chat.expect("Session first, a new one")
    chat.enter(ASK)
    chat.expect("→ get_weather(city='Beijing')\n")
    chat.expect("← get_weather: Beijing: sunny")
    chat.expect(ANSWER)
    chat.expect("(2 model calls, 1 tool call, ")
    chat.enter("Please hold the line.")
    chat.expect("→ hold_the_line()")
    chat.type("\x03")
    chat.expect("stopped; the session can go on")
    chat.expect("1 tool call, ")
    chat.enter(FOLLOW_UP)
    chat.expect("Beijing")
    chat.expect("(1 model call, ")
    chat.enter("/view")
    chat.expect("demo was last sent 8 messages:")
    chat.expect("8. user: Which city")
    chat.enter("/log")
    chat.expect("The log of this session holds 9 messages:")
    listed = chat.expect("you> ")
    assert "half a line" not in listed
    chat.type("/new second\r")
    chat.expect("Session second, a new one")
    chat.enter("Paint the screen.")
    chat.expect(r"← paint_screen: \x1b]0;owned\x07\x1b[2Jred")
    chat.expect("(2 model calls, ")
    chat.enter("/sessions")
    chat.expect("2 sessions in this process:")
    assert "- first\n  * second" in chat.expect("you> ")
    chat.type("/hlep\r")
    chat.expect("Did you mean /help?")
    chat.enter("/help")
    chat.expect("/quit")
    chat.expect("you> ")
    chat.type("\x1b[A\x1b[A\r")  # two up in the history
    chat.expect("Did you mean /help?")
    chat.expect("you> ")
    chat.type("\x04")
    assert chat.end() == 0
    assert "thinking" in chat.raw.decode()
    assert b"\x1b[36m" in chat.raw
    assert b"\x1b]0;" not in chat.raw
    assert b"\x07" not in chat.raw


@needs_pty
def test_a_restart_remembers(start: Callable[..., Process], tmp_path: Path) -> None:
    arguments = ("--plugin", WEATHER, "--db", str(tmp_path / "s.db"), "--session", "s")
    chat = start(*arguments)
    chat.enter(ASK)
    chat.expect(ANSWER)
    chat.enter("/quit")
    assert chat.end() == 0
    chat = start(*arguments, NO_COLOR="1")
    chat.expect("Session s, which holds 4 messages")
    chat.enter(FOLLOW_UP)
    chat.expect("Beijing")
    chat.expect("(1 model call, 0 tool calls")
    chat.expect("you> ")
    chat.type("\x04")
    assert chat.end() == 0
    assert re.findall(rb"\x1b\[[0-9;]*3[0-7]m", chat.raw) == []


@needs_pty
def test_a_synchronous_tool_that_was_stopped_does_not_hold_up_the_end(
    start: Callable[..., Process], trials: Path
) -> None:
    chat = start("--plugin", str(trials))
    chat.enter("Fetch the parcel.")
    chat.expect("→ fetch_parcel()")
    chat.type("\x03")
    chat.expect("stopped; the session can go on")
    chat.enter("hello")
    chat.expect("Hello")
    chat.enter("/quit")
    chat.expect("still runs in a thread; it is left behind")
    assert chat.end() == 0


@needs_pty
def test_a_tool_that_blocks_everything_can_be_left_with_the_program(
    start: Callable[..., Process], trials: Path
) -> None:
    chat = start("--plugin", str(trials))
    chat.enter("Freeze everything.")
    chat.expect("→ freeze_everything()")
    until = time.monotonic() + DEADLINE
    while chat.process.poll() is None:
        chat.type("\x03")
        assert time.monotonic() < until
        select.select([], [], [], 0.05)
    assert chat.end() == 128 + signal.SIGINT
    assert "Ctrl-C once more leaves the program at once." in chat.rest()


@needs_pty
def test_ctrl_c_ends_a_chat_that_reads_from_a_pipe(start: Callable[..., Process], trials: Path) -> None:
    chat = start("--plugin", str(trials), terminal=False, PYTHONIOENCODING="ascii", PYTHONUNBUFFERED="1")
    chat.type("Paint the screen.\nHold the line.\nhello\n")
    chat.expect("-> paint_screen()\n<- paint_screen: \\x1b]0;owned\\x07\\x1b[2Jred \\x9b31mpaint\n")
    chat.expect("-> hold_the_line()")
    os.kill(chat.process.pid, signal.SIGINT)
    chat.expect("stopped; the session can go on")
    assert chat.end() == 130
    assert "hello" not in chat.rest()
    assert b"\x1b" not in chat.raw
    assert chat.raw.isascii()
