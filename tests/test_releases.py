"""The database of every release opens, and its sessions go on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from deepagents import create_deep_agent
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from release_database import FILES, LONG, WAITING, agent_on, ask, log, script

import regnexe
from regnexe import PendingApprovalError
from regnexe.testing import ScriptedChatModel

RELEASES = sorted((Path(__file__).parent / "fixtures" / "releases").glob("*.db"))


@pytest.fixture(params=RELEASES, ids=lambda path: path.stem)
def release(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A copy of a release's database, and what is in it."""
    copy = tmp_path / "sessions.db"
    shutil.copy(request.param, copy)
    return copy, json.loads(request.param.with_suffix(".json").read_text(encoding="utf-8"))


def test_this_release_has_left_its_database() -> None:
    assert regnexe.__version__ in [path.stem for path in RELEASES]


async def test_every_log_reads_as_it_was_written_and_goes_on(release: tuple[Path, dict[str, Any]]) -> None:
    path, held = release
    async with agent_on(path) as agent:
        assert {key.thread_id: await log(agent, key) for key in (LONG, FILES, WAITING)} == held
        page = await agent.sessions.list("shop")
        assert {(info.key, info.status, info.turns) for info in page.sessions} == {
            (LONG, "completed", 30),
            (FILES, "completed", 2),
            (WAITING, "interrupted", 1),
        }
        result = await agent.ainvoke("and now?", app_id="shop", user_id="alice@example.com", session_id="long")
        assert result.final_text == "answer to and now?"
        assert (await log(agent, LONG))[:-2] == held[LONG.thread_id]
        assert (await agent.sessions.get(LONG)).turns == 31


async def test_files_and_what_waits_for_a_decision_are_there(release: tuple[Path, dict[str, Any]]) -> None:
    path, _ = release
    async with agent_on(path) as agent:
        state = await agent.graph.aget_state({"configurable": {"thread_id": FILES.thread_id}})
        assert "remember me" in str(state.values["files"]["/note.txt"])
        with pytest.raises(PendingApprovalError):
            await agent.ainvoke("hello?", app_id="shop", user_id="bob", session_id="waiting")


async def test_plain_deepagents_reads_the_same_logs(release: tuple[Path, dict[str, Any]]) -> None:
    path, held = release
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        graph = create_deep_agent(ScriptedChatModel(script), [ask], checkpointer=saver)
        for thread_id, expected in held.items():
            state = await graph.aget_state({"configurable": {"thread_id": thread_id}})
            assert [[m.type, m.text, m.id] for m in state.values["messages"]] == expected
