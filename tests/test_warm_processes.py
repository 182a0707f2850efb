"""Two processes, each with a warm saver, on one thread of one database and without a lease."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from delta_suite import opened

PROGRAM = Path(__file__).with_name("warm_process.py")


class Other:
    """A running `warm_process.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process ended with {self.process.wait(10)}"
        return json.loads(line)


@contextmanager
def processes(address: str) -> Iterator[list[Other]]:
    running = [
        subprocess.Popen([sys.executable, PROGRAM, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        others = [Other(process) for process in running]
        assert [other.answer() for other in others] == ["ready", "ready"]
        yield others
    finally:
        for process in running:
            process.kill()
            process.communicate()


def read(others: list[Other]) -> list[Any]:
    """What both read, which must be the same warm as bare."""
    values = []
    for other in others:
        other.tell("read")
        warm, bare = other.answer()
        assert warm == bare
        values.append(bare)
    assert values[0] == values[1]
    return list(values[0])


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_two_processes_read_the_same_warm_as_bare_after_turns_in_turn_and_at_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = str(tmp_path / "shared.db")
    async with opened(kind, tmp_path, request) as saver:
        if kind == "postgres":
            address = request.getfixturevalue("postgres_url")
            await saver.adelete_thread("shared")
    with processes(address) as others:
        for turn in range(12):
            others[turn % 2].tell(f"turn alternating{turn}")
            assert others[turn % 2].answer() == "ran"
            messages, files = read(others)
        assert [text for kind, text, _ in messages if kind == "human"] == [f"alternating{turn}" for turn in range(12)]
        assert len(files) == 12
        for turn in range(12):
            for number, other in enumerate(others):
                other.tell(f"turn racing{turn}.{number}")
            assert [other.answer() for other in others] == ["ran", "ran"]
            read(others)
            others[turn % 2].tell(f"turn after{turn}")
            assert others[turn % 2].answer() == "ran"
            messages, files = read(others)
            assert f"after{turn}" in [text for kind, text, _ in messages]
