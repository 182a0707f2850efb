"""The README is what it says: every Python block runs, and every `text` block is what the block before it printed."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import regnexe

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


def blocks() -> list[Block]:
    return [Block(found[1], found[2], TEXT.count("\n", 0, found.start()) + 1) for found in _FENCE.finditer(TEXT)]


def printed_by(block: Block, namespace: dict[str, Any]) -> str:
    # Blank lines in front, so that a traceback names the line of the README.
    code = compile("\n" * block.line + block.text, str(README), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    return printed.getvalue()


def test_every_python_block_runs_and_prints_what_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("FORCE_COLOR", "DEEPSEEK_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    namespace: dict[str, Any] = {"__name__": "readme"}
    printed = shown = None
    ran = 0
    for number, block in enumerate(blocks()):
        if block.language == "python":
            directory = tmp_path / str(number)
            directory.mkdir()
            monkeypatch.chdir(directory)
            printed = printed_by(block, namespace)
            ran += 1
        elif block.language == "text":
            shown = "\n".join(line.rstrip() for line in (printed or "").splitlines())
            assert shown == block.text.rstrip("\n"), f"README.md:{block.line} shows something else than was printed"
            printed = None
    assert ran >= 8
    assert shown is not None


def test_every_block_says_what_it_is() -> None:
    assert {block.language for block in blocks()} == {"console", "python", "text"}
    assert TEXT.count("```") == 2 * len(blocks())


def test_the_commands_are_there_and_nothing_else_is() -> None:
    assert [block.text for block in blocks() if block.language == "console"] == [
        "pip install -e . && regnexe demo\n",
        'pip install -e ".[dev]" && pytest\n',
        "regnexe chat --plugin plugins/weather --db sessions.db --session s1\n",
        "regnexe sessions list --db sessions.db --app readme\n",
    ]


def test_every_public_exception_and_event_is_named() -> None:
    public = [getattr(regnexe, name) for name in regnexe.__all__]
    events = regnexe.Event.__args__
    named = [kind for kind in public if isinstance(kind, type) and (issubclass(kind, Exception) or kind in events)]
    assert len(named) > len(events) > 5
    assert [kind.__name__ for kind in named if f"`{kind.__name__}`" not in TEXT] == []


def test_every_builder_call_is_named() -> None:
    calls = [name for name in vars(regnexe.RegnexeAgentBuilder) if name.startswith("with_")]
    assert len(calls) > 8
    assert [name for name in calls if f"`{name}(" not in TEXT] == []


def test_every_file_it_names_is_there() -> None:
    named = set(re.findall(r"`((?:examples|benchmarks|plugins)/[\w./-]+|[A-Z]+\.md)`", TEXT))
    assert named
    assert [name for name in named if not (README.parent / name).exists()] == []
