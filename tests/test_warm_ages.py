"""What is seldom written is stored again now and then, so that loading it does not go back through a whole session."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from deepagents._messages_reducer import _messages_delta_reducer
from deepagents.middleware.filesystem import _file_data_delta_reducer
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from regnexe.persistence.channels import (
    AgedSnapshot,
    AgingChannel,
    LatestChannel,
    LogChannel,
    SnapshotAge,
    latest,
)
from regnexe.persistence.copies import Log
from regnexe.persistence.folds import FoldCache
from regnexe.persistence.warm import WarmCheckpointer

ADD_MESSAGES: Any = _messages_delta_reducer
ADD_FILES: Any = _file_data_delta_reducer

CONFIG: Any = {"configurable": {"thread_id": "t"}}
AGED = 200


class State(TypedDict, total=False):
    messages: Annotated[list[Any], LogChannel(ADD_MESSAGES)]
    files: Annotated[dict[str, Any], AgingChannel(ADD_FILES)]
    event: Annotated[Any, LatestChannel(latest)]
    steps: int


async def answer(state: State) -> Any:
    number = len(state["messages"])
    assert state.get("files", {}) == ({"/a": {"content": "x" * 200}} if number > 1 else {})
    update: dict[str, Any] = {"messages": [AIMessage(f"answer {number}", id=f"a{number}")], "steps": 3}
    if number == 1:
        assert state["event"] is None
        update |= {"files": {"/a": {"content": "x" * 200}}, "event": {"cutoff": 7}}
    else:
        assert state["event"] == {"cutoff": 7}
    return update


async def step(state: State) -> Any:
    return {"steps": state["steps"] - 1}


def graph_on(saver: Any) -> Any:
    """A graph whose turn has five steps."""
    builder = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_node("step", step)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", "step")
    builder.add_conditional_edges("step", lambda state: "step" if state["steps"] else END)
    return builder.compile(checkpointer=saver)


def warmed(graph: Any, saver: Any, cache: FoldCache | None = None) -> Any:
    channels = {name: channel for name, channel in graph.channels.items() if isinstance(channel, DeltaChannel)}
    return graph.copy({"checkpointer": WarmCheckpointer(saver, channels, cache=cache)})


async def stored_where(saver: Any, name: str) -> list[int]:
    """The steps whose checkpoints hold a channel's whole value, oldest first."""
    steps = [
        found.metadata["step"] async for found in saver.alist(CONFIG) if name in found.checkpoint["channel_values"]
    ]
    return sorted(steps)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("cache_bytes", [1, 64_000_000])
async def test_a_file_written_once_is_stored_once_in_every_so_many_checkpoints(
    durability: Any, cache_bytes: int, tmp_path: Path
) -> None:
    turns = 250 if durability != "exit" else 130
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "t.db")) as saver:
        graph = warmed(graph_on(saver), saver, FoldCache(cache_bytes))
        for turn in range(turns):
            await graph.ainvoke({"messages": [HumanMessage(f"q{turn}", id=f"q{turn}")]}, CONFIG, durability=durability)
        last = (await saver.aget_tuple(CONFIG)).metadata["step"]  # type: ignore[union-attr]
        for name in ("files", "event"):
            steps = await stored_where(saver, name)
            # The run in which it gets so old has one snapshot, and is at most six steps long.
            gaps = [later - earlier for earlier, later in zip(steps, [*steps[1:], last], strict=True)]
            assert all(AGED <= gap <= AGED + 12 for gap in gaps[:-1]), (name, steps)
            assert gaps[-1] <= AGED + 12
            assert len(steps) >= last // (AGED + 12) - 1 >= 2


async def test_a_run_of_many_steps_takes_one_snapshot_of_what_had_become_old(tmp_path: Path) -> None:
    class Long(State, total=False):
        left: int

    async def begin(state: Any) -> Any:
        return {"files": {"/a": {"content": "x"}}} if not state.get("files") else {}

    async def count(state: Any) -> Any:
        return {"left": state["left"] - 1}

    builder = StateGraph(Long)
    builder.add_node("begin", begin)
    builder.add_node("count", count)
    builder.add_edge(START, "begin")
    builder.add_edge("begin", "count")
    builder.add_conditional_edges("count", lambda state: "count" if state["left"] else END)
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "t.db")) as saver:
        graph = warmed(builder.compile(checkpointer=saver), saver)
        config = {**CONFIG, "recursion_limit": 1_000}
        await graph.ainvoke({"left": AGED + 20}, config)
        first = await stored_where(saver, "files")
        await graph.ainvoke({"left": 60}, config)
        assert len(await stored_where(saver, "files")) == len(first) + 1
        await graph.ainvoke({"left": 60}, config)
        assert len(await stored_where(saver, "files")) == len(first) + 1


async def test_a_value_is_stored_as_a_plain_field_stores_it_and_comes_back(tmp_path: Path) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "t.db")) as saver:
        graph = warmed(graph_on(saver), saver)
        for turn in range(60):
            await graph.ainvoke({"messages": [HumanMessage(f"q{turn}", id=f"q{turn}")]}, CONFIG)
        stored = [
            found.checkpoint["channel_values"]["event"]
            async for found in saver.alist(CONFIG)
            if "event" in found.checkpoint["channel_values"]
        ]
        assert stored and all(value == {"cutoff": 7} and not isinstance(value, _DeltaSnapshot) for value in stored)
        for one in (graph_on(saver), graph, warmed(graph_on(saver), saver)):
            assert (await one.aget_state(CONFIG)).values["event"] == {"cutoff": 7}


async def test_a_value_that_was_never_written_is_none(tmp_path: Path) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "t.db")) as saver:
        graph = warmed(graph_on(saver), saver)
        await graph.aupdate_state(CONFIG, {"messages": [HumanMessage("q", id="q")]})
        assert (await graph.aget_state(CONFIG)).values["event"] is None
        assert await stored_where(saver, "event") == []


def aged(kind: Any, reducer: Any, value: Any, checkpoints: int) -> Any:
    return kind(reducer, type(value)).from_checkpoint(AgedSnapshot.of(value, SnapshotAge(0, checkpoints)))


def test_a_small_value_is_due_after_200_checkpoints_and_a_large_one_when_they_outweigh_it() -> None:
    small, large = {"/a": {"content": "x"}}, {"/a": {"content": "x" * 1_300_000}}
    for checkpoints, value, due in ((199, small, False), (200, small, True), (900, large, False), (1_002, large, True)):
        channel = aged(AgingChannel, ADD_FILES, value, checkpoints)
        assert (channel.snapshot_frequency == 0) == due, (checkpoints, due)


def test_an_old_value_stays_due_until_the_next_step_however_often_it_is_copied_or_asked() -> None:
    channel = aged(LatestChannel, latest, {"a": 1}, 500)
    channel.copy()
    channel.update([{"a": 2}])
    assert [channel.snapshot_frequency, channel.snapshot_frequency] == [0, 0]
    channel.update([])
    assert channel.snapshot_frequency > 0
    assert channel.get() == {"a": 2}


FILES: Any = st.dictionaries(st.sampled_from(["/a", "/b"]), st.none() | st.builds(dict, content=st.text(max_size=2)))


@given(st.lists(st.lists(FILES, max_size=3), max_size=8))
def test_files_are_what_deepagents_channel_makes_of_them_and_copies_are_apart(steps: list[list[Any]]) -> None:
    ours: Any = AgingChannel(ADD_FILES, dict).from_checkpoint(None)
    theirs: Any = DeltaChannel(ADD_FILES, dict).from_checkpoint(None)
    for values in steps:
        before = ours.get()
        other = ours.copy()
        other.update(values)
        assert ours.get() == before
        assert ours.update(values) == theirs.update(values)
        assert ours.get() == theirs.get()
        for entry in ours.get().values():
            entry["content"] = "changed"
        assert ours.get() == theirs.get()
        ours.replay_writes([("t", "files", value) for value in values])
        theirs.replay_writes([("t", "files", value) for value in values])
        assert ours.get() == theirs.get()


def test_who_changes_a_file_after_he_wrote_it_changes_his_own() -> None:
    channel: Any = AgingChannel(ADD_FILES, dict).from_checkpoint(None)
    written = {"/a": {"content": "a"}}
    channel.update([written])
    written["/a"]["content"] = "changed"
    assert channel.get() == {"/a": {"content": "a"}}


def test_an_aged_snapshot_that_is_stored_is_a_plain_one() -> None:
    serializer = JsonPlusSerializer()
    value = [HumanMessage("x", id="1")]
    kind, data = serializer.dumps_typed(AgedSnapshot.of(value, SnapshotAge(1, 2), Log(value)))
    assert (kind, data) == serializer.dumps_typed(_DeltaSnapshot(value))
    assert type(serializer.loads_typed((kind, data))) is _DeltaSnapshot
