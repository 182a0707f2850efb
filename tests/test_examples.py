"""Every script in `examples` runs without a key and shows what it is there to show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from regnexe.testing.deepseek import DeepSeekRequest, DeepSeekServer, Reply, wire_call

EXAMPLES = Path(__file__).parent.parent / "examples" / "readme"

# What each script must print, in this order.
KEY_LINES = {
    "01_multi_tool.py": [
        "▶ readme:reader:01-multi-tool",
        "→ get_weather(city='Beijing')",
        "← sunrise: Beijing: sunrise at 06:42.",
        "■ completed",
        "status: completed",
        "answer: ",
        "used: 2 model calls, 3 tool calls",
    ],
    "07_three_layer_memory.py": [
        "Turn 1, thread readme:reader:07-memory-a:",
        "HumanMessage: Check today's weather in Beijing and tell me if it's good for outdoor running.",
        "AIMessage: get_weather({'city': 'Beijing'})",
        "ToolMessage: Beijing: sunny, 22 C, excellent air quality.",
        "AIMessage: ",
        "Turn 2, thread readme:reader:07-memory-a:",
        "HumanMessage: Based on the weather you just looked up, what should I keep in mind while running? "
        "No need to check the weather again.",
        "Beijing: sunny, 22 C, excellent air quality.",
        "Another session, thread readme:reader:07-memory-b:",
        "There is nothing about that in this conversation",
        "== AsyncSqliteSaver",
        "ToolMessage: Beijing: sunny, 22 C, excellent air quality.",
        "Turn 2, thread readme:reader:07-memory-a:",
        "Beijing: sunny, 22 C, excellent air quality.",
        "== SummarizationMiddleware",
        "Beijing: 4 messages in the log, 3 sent to the model",
        "London: 16 messages in the log, 7 sent to the model",
    ],
}


NOTICE = (
    "regnexe: no key for deepseek: set the environment variable DEEPSEEK_API_KEY (or DEEPSEEK_KEY); "
    "the offline model answers until then\n"
)


def output_of(name: str, directory: Path, **variables: str) -> str:
    unset = ("DEEPSEEK_API_KEY", "DEEPSEEK_KEY", "DEEPSEEK_BASE_URL", "FORCE_COLOR")
    env = {key: value for key, value in os.environ.items() if key not in unset} | variables
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        cwd=directory,
        env={**env, "COLUMNS": "120", "NO_COLOR": "1", "PYTHONUTF8": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ("" if variables else NOTICE)
    assert [*directory.iterdir()] == []
    return ran.stdout


def test_every_example_is_here() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(KEY_LINES)


@pytest.mark.parametrize("name", sorted(KEY_LINES))
def test_an_example_prints_its_key_lines_in_order(name: str, tmp_path: Path) -> None:
    rest = output_of(name, tmp_path)
    for line in KEY_LINES[name]:
        before, found, rest = rest.partition(line)
        assert found, f"{line!r} is not in what follows:\n{before}"


def test_the_second_turn_calls_no_tool(tmp_path: Path) -> None:
    turns = output_of("07_three_layer_memory.py", tmp_path).split("Turn 2, ")[1:]
    assert len(turns) == 2
    for turn in turns:
        assert [line.split(":")[0].strip() for line in turn.partition("\n\n")[0].splitlines()[1:]] == [
            "HumanMessage",
            "AIMessage",
        ]


def test_slow_tools_run_side_by_side(tmp_path: Path) -> None:
    output = output_of("01_multi_tool.py", tmp_path)
    calls = [output.index(f"→ {tool}(") for tool in ("sunrise", "running_pace")]
    results = [output.index(f"← {tool}:") for tool in ("sunrise", "running_pace")]
    assert max(calls) < min(results)


@pytest.mark.parametrize("name", sorted(KEY_LINES))
def test_an_example_uses_a_real_model_when_there_is_a_key_and_says_so(name: str) -> None:
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    assert '(Vendor.DEEPSEEK, "deepseek-flash", fallback="offline")' in text
    assert "uses DeepSeek when `DEEPSEEK_API_KEY` is set" in text


def answer(request: DeepSeekRequest) -> Reply:
    """Answer as a model would that looks the weather up, remembers it, and sums up when asked to."""
    newest = request.messages[-1]
    text = str(newest["content"])
    if newest["role"] == "tool":
        return Reply(f"It is fine: {text}", reasoning="The tool has answered.")
    if "<messages>" in text:
        return Reply("They asked for the weather in several cities.", reasoning="To be short.")
    if city := re.search(r"Check today's weather in (\w+)", text):
        return Reply(reasoning="I need the weather.", tool_calls=[wire_call("get_weather", city=city[1])])
    seen = [m for m in request.messages if m["role"] == "tool"]
    return Reply(f"You know {len(seen)} forecast(s).", reasoning="It was looked up before.")


def test_the_memory_example_runs_on_deepseeks_wire_with_nothing_changed_but_the_address(tmp_path: Path) -> None:
    with DeepSeekServer(answer) as server:
        output = output_of(
            "07_three_layer_memory.py", tmp_path, DEEPSEEK_API_KEY="sk-test", DEEPSEEK_BASE_URL=server.base_url
        )
    assert server.errors == []
    at = -1
    for line in (
        "Turn 1, thread readme:reader:07-memory-a:",
        "AIMessage: get_weather({'city': 'Beijing'})",
        "AIMessage: It is fine: Beijing: sunny, 22 C, excellent air quality.",
        "Turn 2, thread readme:reader:07-memory-a:",
        "AIMessage: You know 1 forecast(s).",
        "Another session, thread readme:reader:07-memory-b:",
        "AIMessage: You know 0 forecast(s).",
        "== AsyncSqliteSaver",
        "AIMessage: You know 1 forecast(s).",
        "London: 16 messages in the log, 7 sent to the model",
    ):
        at = output.index(line, at + 1)
    assert "sk-test" not in output


def test_two_workers_of_a_web_service_serve_one_conversation() -> None:
    env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "DEEPSEEK_API_KEY")}
    script = EXAMPLES.parent / "fastapi_service" / "two_workers.py"
    ran = subprocess.run(
        [sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    workers = re.findall(r"^worker (\d+): '.*' -> completed$", ran.stdout, re.MULTILINE)
    assert len(workers) == 4
    assert len(set(workers)) == 2
    assert "both workers have the same 8 messages: True" in ran.stdout
    assert "sessions of ada: ['trip']\nsessions of bob: []\n" in ran.stdout


def test_the_web_service_answers_mistakes_with_their_status(tmp_path: Path) -> None:
    program = """
        from fastapi.testclient import TestClient
        from service import app

        with TestClient(app) as client:
            path = "/users/ada/sessions/s"
            print(client.post(path, json={"text": "hello"}).status_code)
            print(client.post(path, json={"text": ""}).status_code)
            print(client.post("/users/ada/sessions/" + "x" * 300, json={"text": "hello"}).status_code)
            print(client.get("/users/ada/sessions?cursor=zz").status_code, client.get(path + "2").status_code)
    """
    env = {name: value for name, value in os.environ.items() if name != "DEEPSEEK_API_KEY"}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        env=env | {"DATABASE_URL": f"sqlite:///{tmp_path}/s.db"},
        cwd=EXAMPLES.parent / "fastapi_service",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["200", "422", "422", "422", "404"]
