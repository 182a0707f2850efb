"""Through real graphs: each state of a thread is the same, read warm and read bare, whatever was done to the thread."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from delta_suite import KINDS, opened
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage
from langgraph.types import Command, Overwrite, interrupt

from regnexe import RegnexeAgentBuilder
from regnexe.persistence.folds import FoldCache
from regnexe.persistence.warm import WarmCheckpointer
from regnexe.testing import ScriptedChatModel, tool_call


async def ask(question: str) -> str:
    """Ask the user."""
    return f"said {interrupt(question)}"


def script(requests: list[BaseMessage]) -> Any:
    last = requests[-1]
    text = str(last.content)
    if last.type == "human" and text.startswith("write"):
        calls = [tool_call("write_file", file_path=f"/{text[6:]}.{n}.txt", content=text) for n in range(2)]
        return AIMessage("", tool_calls=calls)
    if last.type == "human" and text.startswith("ask"):
        return AIMessage("", tool_calls=[tool_call("ask", question="?")])
    if last.type == "human" and text.startswith("delegate"):
        return AIMessage(
            "", tool_calls=[tool_call("task", description="write inside", subagent_type="general-purpose")]
        )
    return f"done {len(requests)}"


class Session:
    """A thread that things are done to at random, each through a graph that is warm or not."""

    def __init__(self, saver: Any, chance: random.Random, cache_bytes: int) -> None:
        model = ScriptedChatModel(script, strict=False)
        self.bare = RegnexeAgentBuilder().with_model(model).with_tool(ask).with_checkpointer(saver).build().graph
        channels: Any = {name: self.bare.channels[name] for name in ("messages", "files", "_summarization_event")}
        self.warm = [
            self.bare.copy({"checkpointer": WarmCheckpointer(saver, channels, cache=FoldCache(cache_bytes))})
            for _ in range(2)
        ]
        self.chance = chance
        self.config: Any = {"configurable": {"thread_id": f"graph {chance.random()}"}}
        self.made = 0

    async def act(self, durability: Any) -> None:
        graph = self.chance.choice([self.bare, *self.warm])
        self.made += 1
        config = self.config
        states = [state async for state in self.bare.aget_state_history(self.config, limit=30)]
        if states and self.chance.random() < 0.3:
            config = self.chance.choice(states).config
        state = await graph.aget_state(config)
        what = self.chance.choice(["talk", "write", "ask", "delegate", "update", "edit", "remove", "again"])
        if any(task.interrupts for task in state.tasks) and self.chance.random() < 0.7:
            await graph.ainvoke(Command(resume="yes"), config, durability=durability)
        elif what in ("update", "edit", "remove"):
            await graph.aupdate_state(config, self.update(what, state.values.get("messages", [])), as_node="model")
        elif what == "again" and states:
            await graph.ainvoke(None, config, durability=durability)
        else:
            message = HumanMessage(f"{what} {self.made}", id=f"h{self.made}")
            await graph.ainvoke({"messages": [message]}, config, durability=durability)

    def update(self, what: str, messages: list[Any]) -> Any:
        if what == "remove" and messages:
            return {"messages": [RemoveMessage(id=self.chance.choice(messages).id)]}
        if what == "edit" and messages:
            edited = self.chance.choice(messages).model_copy(update={"content": f"edited {self.made}"})
            if self.chance.random() < 0.3:
                return {"messages": Overwrite([*messages[:3], edited])}
            return {"messages": [edited]}
        event = {"cutoff_index": 1, "summary_message": HumanMessage(f"{self.made}"), "file_path": None}
        return {"files": {f"/{self.made}": {"content": "x", "encoding": "utf-8"}}, "_summarization_event": event}

    async def assert_same(self) -> None:
        expected = {state.config["configurable"]["checkpoint_id"]: state async for state in self.history(self.bare)}
        for warm in self.warm:
            assert (await warm.aget_state(self.config)).values == (await self.bare.aget_state(self.config)).values
            async for state in self.history(warm):
                bare = expected[state.config["configurable"]["checkpoint_id"]]
                assert state.values == bare.values
                assert [task.interrupts for task in state.tasks] == [task.interrupts for task in bare.tasks]
            one = self.chance.choice(list(expected.values()))
            assert (await warm.aget_state(one.config)).values == one.values

    def history(self, graph: Any) -> Any:
        return graph.aget_state_history(self.config, limit=25)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("kind", KINDS)
async def test_each_state_of_a_thread_reads_the_same_warm_as_bare(
    kind: str, durability: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with opened(kind, tmp_path, request) as saver:
        for seed in range(2 if kind == "memory" else 1):
            session = Session(saver, random.Random(f"{seed} {kind} {durability}"), 64_000_000 if seed == 0 else 20_000)
            for number in range(22):
                await session.act(durability)
                if number % 2:
                    await session.assert_same()
