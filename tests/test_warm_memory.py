"""What a `WarmCheckpointer` remembers, and when it does not trust it."""

from __future__ import annotations

import random
from typing import Any

from delta_suite import ADD_FILES, CHANNELS, Threads, folded
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from regnexe.persistence.folds import FoldCache
from regnexe.persistence.warm import WarmCheckpointer

TASKS = [f"00000000-0000-0000-0000-00000000000{n}" for n in range(4)]


class Counting(InMemorySaver):
    """Counts how often the history of a channel is read in full."""

    reads = 0

    async def aget_delta_channel_history(self, **kwargs: Any) -> Any:
        self.reads += 1
        return await super().aget_delta_channel_history(**kwargs)


class Calm(random.Random):
    """Lets a thread grow with no snapshots, nor anything removed or overwritten."""

    def random(self) -> float:
        return 0.5


async def grown(saver: Any, steps: int = 6) -> Threads:
    threads = Threads(Calm(5), [saver])
    await threads.begin("t")
    for _ in range(steps):
        await threads.grow("t", threads.threads["t"][-1])
    return threads


async def test_a_thread_that_only_grew_is_not_read_in_full_again() -> None:
    saver = Counting()
    warm = WarmCheckpointer(saver, CHANNELS)
    threads = await grown(saver)
    await folded(warm, threads.threads["t"][-1].config, ["messages"])
    saver.reads = 0
    for _ in range(20):
        head = await threads.grow("t", threads.threads["t"][-1])
        saver.reads = 0
        values = await folded(warm, head.config, ["messages"])
        assert saver.reads == 0
        assert values == await folded(saver, head.config, ["messages"])


async def test_a_sub_agents_reads_leave_what_is_known_of_its_thread() -> None:
    saver = Counting()
    warm = WarmCheckpointer(saver, CHANNELS)
    threads = await grown(saver)
    head = threads.threads["t"][-1]
    await folded(warm, head.config, ["messages"])
    inside = await threads._put(saver, threads.root("t", "tools:1"), head.checkpoint, {"messages": 1})
    inside = await threads.grow("t", inside)
    await folded(warm, inside.config, ["messages"])
    saver.reads = 0
    await warm.aget_delta_channel_history(config=head.config, channels=["messages"])
    assert saver.reads == 0


async def test_a_second_writers_checkpoint_beside_the_line_makes_the_thread_be_read_in_full() -> None:
    saver = Counting()
    warm = WarmCheckpointer(saver, CHANNELS)
    threads = await grown(saver, 3)
    nodes = threads.threads["t"]
    line = nodes[-1]
    await folded(warm, line.config, ["messages"])
    # The other began where this line began, and stores what it wrote there only now.
    await saver.aput_writes(nodes[-2].config, [("messages", [HumanMessage("late", id="late")])], TASKS[0])
    await threads._child("t", nodes[-2], saver, {"messages"}, {})
    head = await threads.grow("t", line)
    expected = await folded(saver, head.config, ["messages"])
    assert "late" in [message.id for message in expected["messages"]]
    assert await folded(warm, head.config, ["messages"]) == expected


async def test_a_deleted_thread_is_forgotten() -> None:
    for delete in ("adelete_thread", "delete_thread"):
        saver, cache = InMemorySaver(), FoldCache()
        warm = WarmCheckpointer(saver, CHANNELS, cache=cache)
        threads = await grown(saver)
        await folded(warm, threads.threads["t"][-1].config, ["messages"])
        assert cache.get("t") is not None
        deleted = getattr(warm, delete)("t")
        if delete.startswith("a"):
            await deleted
        assert cache.get("t") is None


async def test_a_snapshot_that_is_read_is_the_readers_own() -> None:
    saver = InMemorySaver()
    threads = await grown(saver)
    branch = await threads.grow("t", threads.threads["t"][-1], branch=True)
    while {"files", "messages"} - branch.checkpoint["channel_values"].keys():
        branch = await threads.grow("t", threads.threads["t"][-1], branch=True)
    warm = WarmCheckpointer(saver, CHANNELS)
    expected = await folded(saver, branch.config, ["messages", "files"])
    found = await warm.aget_tuple(branch.config)
    assert found is not None
    values = found.checkpoint["channel_values"]
    # A run that begins here can tell what was changed when its own snapshot is due.
    assert values["messages"].log is not None
    assert ADD_FILES(None, [values["files"].value]) == expected["files"]
    assert values["messages"].value == expected["messages"]
    for entry in values["files"].value.values():
        entry["content"] = "changed"
    values["messages"].value[0].content = "changed"
    values["messages"].value.clear()
    head = await threads.grow("t", branch)
    assert await folded(warm, head.config, ["files"]) == await folded(saver, head.config, ["files"])
    assert await folded(warm, head.config, ["messages"]) == await folded(saver, head.config, ["messages"])
