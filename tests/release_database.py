"""Writes the database that a release leaves for its successors to read; run it once for each release.

    python tests/release_database.py tests/fixtures/releases/0.1.0.db

It is kept for ever, with the JSON file beside it that says what is in it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.types import interrupt

from regnexe import RegnexeAgent, RegnexeAgentBuilder, SessionKey
from regnexe.testing import ScriptedChatModel, tool_call

LONG = SessionKey("shop", "alice@example.com", "long")
FILES = SessionKey("shop", "bob", "files: 1")
WAITING = SessionKey("shop", "bob", "waiting")


async def ask(question: str) -> str:
    """Ask the user."""
    return f"the user said {interrupt(question)}"


def script(requests: list[BaseMessage]) -> Any:
    last = requests[-1]
    text = str(last.content)
    if last.type == "human" and text.startswith("write"):
        return AIMessage("", tool_calls=[tool_call("write_file", file_path="/note.txt", content="remember me")])
    if last.type == "human" and text.startswith("ask"):
        return AIMessage("", tool_calls=[tool_call("ask", question="May I?")])
    return f"answer to {text}"


def agent_on(path: Path) -> RegnexeAgent:
    """Return an agent that writes and reads such databases."""
    builder = RegnexeAgentBuilder().with_model(ScriptedChatModel(script)).with_tool(ask)
    return builder.with_persistence(f"sqlite:///{path}").build()


async def log(agent: RegnexeAgent, key: SessionKey) -> list[list[Any]]:
    """Return what a session's log holds, as JSON can hold it."""
    return [[message.type, message.text, message.id] for message in await agent.sessions.log(key)]


async def write(path: Path) -> None:
    """Write the database, and what is in it."""
    async with agent_on(path) as agent:
        for turn in range(30):  # enough for a snapshot
            await agent.ainvoke(f"question {turn} 你好", **_ids(LONG))
        await agent.ainvoke("write a note", **_ids(FILES))
        await agent.ainvoke("thanks", **_ids(FILES))
        await agent.ainvoke("ask me", **_ids(WAITING))
        held = {key.thread_id: await log(agent, key) for key in (LONG, FILES, WAITING)}
    path.with_suffix(".json").write_text(json.dumps(held, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _ids(key: SessionKey) -> Any:
    return {"app_id": key.app_id, "user_id": key.user_id, "session_id": key.session_id}


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1])))
