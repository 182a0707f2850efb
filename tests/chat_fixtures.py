"""The fixtures of the tests of `regnexe chat`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chat_helpers import TRIALS, Process


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


@pytest.fixture
def modules_and_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Forget the modules of plugins, and where they were."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


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
