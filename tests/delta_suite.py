"""Threads of checkpoints made at random, and what a saver gives of their delta channels.

LangGraph's conformance suite for savers does not call `get_delta_channel_history`; this does. The threads are written
through the savers' own methods in the way that LangGraph writes them: what a step writes is stored with the checkpoint
it started from, before the checkpoint that it made, and a branch begins with snapshots.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deepagents._messages_reducer import _messages_delta_reducer
from deepagents.middleware.filesystem import _file_data_delta_reducer
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Overwrite

from regnexe.persistence.channels import AgingChannel, LatestChannel, LogChannel, latest

ADD_MESSAGES: Any = _messages_delta_reducer
ADD_FILES: Any = _file_data_delta_reducer

CHANNELS: dict[str, DeltaChannel[Any]] = {
    "messages": LogChannel(ADD_MESSAGES, list),
    "files": AgingChannel(ADD_FILES, dict),
    "event": LatestChannel(latest),
    "never": AgingChannel(ADD_FILES, dict),
}
# The same, in LangGraph's own channels.
PLAIN: dict[str, DeltaChannel[Any]] = {
    "messages": DeltaChannel(ADD_MESSAGES, list),
    "files": DeltaChannel(ADD_FILES, dict),
    "event": DeltaChannel(latest, type(None)),
    "never": DeltaChannel(ADD_FILES, dict),
}
KINDS = ["memory", "sqlite", "postgres"]


@asynccontextmanager
async def opened(kind: str, folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """A saver of this kind, on data of its own."""
    if kind == "memory":
        yield InMemorySaver()
    elif kind == "sqlite":
        async with AsyncSqliteSaver.from_conn_string(str(folder / f"{uuid.uuid4()}.db")) as sqlite:
            await sqlite.setup()
            yield sqlite
    else:
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

        async with AsyncPostgresSaver.from_conn_string(request.getfixturevalue("postgres_url")) as postgres:
            await postgres.setup()
            yield postgres


async def folded(saver: Any, config: Any, channels: Sequence[str]) -> dict[str, Any]:
    """The values of these channels at a checkpoint, as LangGraph reads them."""
    found = await saver.aget_tuple(config)
    if found is None:
        return {}
    values, versions = found.checkpoint["channel_values"], found.checkpoint["channel_versions"]
    result: dict[str, Any] = {}
    walked = [name for name in channels if name in versions and name not in values]
    histories = await saver.aget_delta_channel_history(config=found.config, channels=walked) if walked else {}
    for name in channels:
        history = histories.get(name, {"seed": values.get(name), "writes": []})
        channel = PLAIN[name].from_checkpoint(history.get("seed"))
        channel.replay_writes(history["writes"])
        result[name] = channel.get()
    return result


@dataclass
class Node:
    """A checkpoint as it was written."""

    config: Any
    checkpoint: Any
    written: set[str] = field(default_factory=set)


class Threads:
    """Writes threads at random, through any of several savers on the same data."""

    def __init__(self, chance: random.Random, savers: Sequence[BaseCheckpointSaver[Any]]) -> None:
        self.chance = chance
        self.savers = savers
        self.made = 0
        self.threads: dict[str, list[Node]] = {}
        self.namespaces: dict[tuple[str, str], Node] = {}

    def saver(self) -> Any:
        return self.chance.choice(list(self.savers))

    def message(self) -> BaseMessage:
        kind: Any = self.chance.choice([HumanMessage, AIMessage])
        self.made += 1
        made: BaseMessage = kind(
            f"{self.made}", id=str(self.made if self.chance.random() < 0.85 else self.chance.randint(1, 20))
        )
        return made

    def write(self, name: str) -> Any:
        dice = self.chance.random()
        if name == "messages":
            if dice < 0.05:
                return Overwrite([self.message() for _ in range(3)])
            if dice < 0.08:
                return [RemoveMessage(id=REMOVE_ALL_MESSAGES), self.message()]
            if dice < 0.2:
                return [RemoveMessage(id=str(self.chance.randint(1, max(1, self.made)))), self.message()]
            if dice < 0.25:
                return ToolMessage("r", tool_call_id="c", id=f"t{self.made}", artifact={"n": [self.made]})
            return [self.message() for _ in range(self.chance.randint(0, 4))]
        if name == "files":
            if dice < 0.05:
                return Overwrite({"/over": {"content": str(self.made)}})
            path = f"/{self.chance.randint(1, 8)}"
            return {path: None if dice < 0.2 else {"content": f"{self.made}", "lines": [1, 2]}}
        return {"cutoff": self.made, "summary": self.message()}

    async def grow(self, thread: str, parent: Node, *, branch: bool = False) -> Node:
        """Take one step from a checkpoint. A branch stores nothing with it, and begins with snapshots."""
        names = [name for name in ("messages", "files", "event") if self.chance.random() < 0.6 ** (name != "messages")]
        tasks = [(str(uuid.uuid4()), f"~__pregel_pull, {self.chance.randint(0, 9)}") for _ in range(3)]
        writes: dict[tuple[str, str], list[tuple[str, Any]]] = {}
        for name in names:
            overwritten = False
            for task in self.chance.sample(tasks, self.chance.randint(1, 3)):
                written = self.write(name)
                if overwritten and isinstance(written, Overwrite):
                    continue
                overwritten |= isinstance(written, Overwrite)
                writes.setdefault(task, []).append((name, written))
        saver = self.saver()
        values: dict[str, Any] = {}
        if branch:
            before = await folded(self.savers[0], parent.config, list(PLAIN))
            for name in {*parent.written, *names}:
                channel = PLAIN[name].from_checkpoint(_DeltaSnapshot(before[name]))
                ordered = [w for _, ws in sorted(writes.items(), key=lambda i: i[0][1]) for n, w in ws if n == name]
                channel.replay_writes([("task", name, value) for value in ordered])
                values[name] = _DeltaSnapshot(channel.get())
        else:
            for (task_id, path), stored in writes.items():
                await self.saver().aput_writes(parent.config, stored, task_id, path)
                parent.written |= set(names)
        return await self._child(thread, parent, saver, set(names), values)

    async def _child(self, thread: str, parent: Node, saver: Any, names: set[str], values: dict[str, Any]) -> Node:
        versions = dict(parent.checkpoint["channel_versions"])
        new = {name: saver.get_next_version(versions.get(name), None) for name in sorted({*names, *values})}
        checkpoint: Any = empty_checkpoint()
        checkpoint["channel_versions"] = {**versions, **new}
        checkpoint["channel_values"] = dict(values)
        if not values and parent.checkpoint["channel_versions"] and self.chance.random() < 0.15:
            # A snapshot: the value at this checkpoint, which is what its own children will read.
            probe = await self._put(saver, parent, checkpoint, {})
            at = await folded(self.savers[0], probe.config, list(PLAIN))
            some = [n for n in new if n in checkpoint["channel_versions"] and self.chance.random() < 0.7]
            checkpoint["channel_values"] = {n: at[n] if n == "event" else _DeltaSnapshot(at[n]) for n in some}
            if not some:
                self.threads[thread].append(probe)
                return probe
        node = await self._put(saver, parent, checkpoint, new)
        self.threads[thread].append(node)
        return node

    async def _put(self, saver: Any, parent: Node, checkpoint: Any, new: dict[str, Any]) -> Node:
        counters = {name: [self.chance.randint(0, 60), self.chance.randint(0, 300)] for name in PLAIN}
        metadata: Any = {"source": "loop", "step": 1, "parents": {}, "counters_since_delta_snapshot": counters}
        return Node(await saver.aput(parent.config, checkpoint, metadata, new), checkpoint)

    def root(self, thread: str, namespace: str = "") -> Node:
        config = {"configurable": {"thread_id": thread, "checkpoint_ns": namespace}}
        return Node(config, {"channel_versions": {}, "channel_values": {}})

    async def begin(self, thread: str) -> None:
        self.threads[thread] = []
        await self._child(thread, self.root(thread), self.saver(), set(), {})

    async def act(self) -> None:
        """Do one thing."""
        thread = self.chance.choice(sorted(self.threads))
        nodes = self.threads[thread]
        dice = self.chance.random()
        if dice < 0.03:
            await self.saver().adelete_thread(thread)
            await self.begin(thread)
        elif dice < 0.15:
            await self.grow(thread, self.chance.choice(nodes), branch=True)
        elif dice < 0.25:
            await self._act_inside(thread)
        else:
            for _ in range(self.chance.choice([1, 1, 2, 5, 20])):
                await self.grow(thread, self.threads[thread][-1])

    async def _act_inside(self, thread: str) -> None:
        """Let a sub-agent take a step, in a namespace of the thread."""
        namespace = f"tools:{self.chance.randint(1, 2)}"
        main = self.threads[thread]
        parent = self.namespaces.get((thread, namespace))
        if parent is None or await self.savers[0].aget_tuple(parent.config) is None:
            parent = self.root(thread, namespace)
            made = await self._put(self.saver(), parent, empty_checkpoint(), {})
        else:
            made = await self.grow(thread, parent)
            main.remove(made)
        self.namespaces[thread, namespace] = made


async def differences(bare: Any, warm: Any, threads: Threads) -> list[str]:
    """Where the warm saver reads something else than the bare one, at places and of channels drawn at random."""
    chance = threads.chance
    found: list[str] = []
    thread = chance.choice(sorted(threads.threads))
    nodes = threads.threads[thread]
    inside = [node for (of, _), node in threads.namespaces.items() if of == thread]
    heads = [{"configurable": {"thread_id": thread, "checkpoint_ns": ""}}] * 3
    for config in chance.sample(
        [*heads, *[node.config for node in [*nodes[-3:], *inside]], *[n.config for n in nodes]], 4
    ):
        names = chance.sample(list(PLAIN), chance.randint(1, len(PLAIN)))
        expected, got = await folded(bare, config, names), await folded(warm, config, names)
        if got != expected or repr(got) != repr(expected):
            found.append(f"{config['configurable']} {names}: {got} instead of {expected}")
    return found
