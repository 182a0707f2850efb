"""A process with a warm saver on a thread that others write to; does what it is told on its standard input.

`turn TEXT` runs a turn and answers `ran`; `read` answers with what is read warm and bare, each time in JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from regnexe import RegnexeAgentBuilder
from regnexe.persistence.warm import WarmCheckpointer
from regnexe.testing import ScriptedChatModel, tool_call

CONFIG: Any = {"configurable": {"thread_id": "shared"}}


def script(requests: list[BaseMessage]) -> Any:
    if requests[-1].type == "human":
        text = str(requests[-1].content)
        return AIMessage("", tool_calls=[tool_call("write_file", file_path=f"/{text}.txt", content=text)])
    return f"answer after {len(requests)}"


async def opened(address: str, stack: AsyncExitStack) -> Any:
    if address.startswith("postgres"):
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

        return await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(address))
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    return await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(address))


async def values(graph: Any) -> Any:
    found = (await graph.aget_state(CONFIG)).values
    return [[m.type, str(m.content), m.id] for m in found.get("messages", [])], found.get("files", {})


async def main(address: str) -> None:
    async with AsyncExitStack() as stack:
        saver = await opened(address, stack)
        model = ScriptedChatModel(script, strict=False)  # racing turns leave open calls
        bare = RegnexeAgentBuilder().with_model(model).with_checkpointer(saver).build().graph
        channels: Any = {name: bare.channels[name] for name in ("messages", "files", "_summarization_event")}
        warm = bare.copy({"checkpointer": WarmCheckpointer(saver, channels)})
        print(json.dumps("ready"), flush=True)
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            what, _, text = line.partition(" ")
            if what == "turn":
                await warm.ainvoke({"messages": [HumanMessage(text)]}, CONFIG, durability="sync")
                print(json.dumps("ran"), flush=True)
            else:
                print(json.dumps([await values(warm), await values(bare)]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
