"""A `WarmCheckpointer` reads of delta channels what the saver in it reads, in whatever order and whoever writes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from delta_suite import CHANNELS, KINDS, Threads, differences, folded, opened

from regnexe.persistence.folds import FoldCache
from regnexe.persistence.warm import WarmCheckpointer

SEEDS = {"memory": range(3), "sqlite": range(1), "postgres": range(1)}


def warm_savers(how: str, saver: Any) -> list[Any]:
    """Two warm savers on the same data, with the cache that the test is about."""
    size = {"tiny": 1, "small": 60_000}.get(how, 64_000_000)
    first = FoldCache(size)
    second = first if how == "shared" else FoldCache(size)
    return [WarmCheckpointer(saver, CHANNELS, cache=cache) for cache in (first, second)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["tiny", "small", "large", "shared"])
async def test_what_is_read_warm_is_what_is_read_bare(
    kind: str, how: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with opened(kind, tmp_path, request) as saver:
        for seed in SEEDS[kind]:
            warm = warm_savers(how, saver)
            threads = Threads(random.Random(f"{seed} {how}"), [saver, *warm])
            for number in range(2):
                await threads.begin(f"{how} {seed} {number}")
            for _ in range(25):
                await threads.act()
                for one in warm:
                    assert not await differences(saver, one, threads), f"seed {seed}"


@pytest.mark.parametrize("kind", KINDS)
async def test_each_checkpoint_of_a_thread_reads_the_same_warm_as_bare_from_new_to_old_and_back(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with opened(kind, tmp_path, request) as saver:
        warm = WarmCheckpointer(saver, CHANNELS)
        threads = Threads(random.Random(7), [saver])
        await threads.begin("walk")
        for _ in range(15):
            await threads.act()
        nodes = threads.threads["walk"]
        for node in [*nodes, *reversed(nodes), *nodes[::3]]:
            assert await folded(warm, node.config, list(CHANNELS)) == await folded(saver, node.config, list(CHANNELS))


async def test_a_write_to_a_checkpoint_behind_the_known_one_is_seen_by_the_next_read() -> None:
    from langchain_core.messages import HumanMessage
    from langgraph.checkpoint.memory import InMemorySaver

    saver = InMemorySaver()
    warm = WarmCheckpointer(saver, CHANNELS)
    threads = Threads(random.Random(1), [saver])
    await threads.begin("late")
    for _ in range(6):
        head = await threads.grow("late", threads.threads["late"][-1])
    await folded(warm, head.config, list(CHANNELS))
    late = threads.threads["late"][3]
    task = "00000000-0000-0000-0000-000000000001"
    await warm.aput_writes(late.config, [("messages", [HumanMessage("late", id="late")])], task)
    expected = await folded(saver, head.config, list(CHANNELS))
    assert await folded(warm, head.config, list(CHANNELS)) == expected
