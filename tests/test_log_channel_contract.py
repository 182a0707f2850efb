"""What the channels and the warm saver lean on in LangGraph and deepagents, beta and private names among it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Annotated, Any, get_type_hints

from deepagents.graph import DeepAgentState
from deepagents.middleware.filesystem import FilesystemState
from deepagents.middleware.summarization import SummarizationState
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import AIMessage, HumanMessage
from langgraph._internal._typing import MISSING
from langgraph.channels.binop import _get_overwrite
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, DeltaChannelHistory
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import END, START, StateGraph
from langgraph.pregel._checkpoint import create_checkpoint, delta_channels_to_snapshot
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from regnexe.persistence.channels import AgingChannel, LatestChannel, LogChannel
from regnexe.runtime.state import RegnexeState

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def joined(state: Any, writes: Sequence[Any]) -> list[Any]:
    return [*(state or []), *(message for write in writes for message in write)]


def test_a_channel_that_was_never_written_holds_missing() -> None:
    assert DeltaChannel(joined, list).value is MISSING
    assert DeltaChannel(joined, list).from_checkpoint(MISSING).value == []
    assert DeltaChannel(joined, list).from_checkpoint(None).value == []


def test_a_delta_channel_is_made_from_a_reducer_a_type_and_a_frequency() -> None:
    names = list(inspect.signature(DeltaChannel.__init__).parameters)
    assert names == ["self", "reducer", "typ", "snapshot_frequency"]
    assert DeltaChannel.__slots__ == ("value", "reducer", "snapshot_frequency")


def test_a_channel_starts_from_what_a_snapshot_holds_or_from_a_plain_value() -> None:
    channel = DeltaChannel(joined, list)
    assert channel.from_checkpoint(_DeltaSnapshot(["a"])).get() == ["a"]
    assert channel.from_checkpoint(["a"]).get() == ["a"]
    assert _DeltaSnapshot._fields == ("value",)


def test_an_overwrite_is_told_from_other_writes_with_its_value() -> None:
    assert _get_overwrite(Overwrite([1])) == (True, [1])
    assert _get_overwrite({"__overwrite__": [1]}) == (True, [1])
    assert _get_overwrite([1])[0] is False


def test_a_snapshot_is_due_when_the_updates_reach_the_frequency_that_the_channel_gives_at_that_time() -> None:
    channel = DeltaChannel(joined, list, snapshot_frequency=3).from_checkpoint(["a"])
    for updates, due in ((2, set()), (3, {"x"})):
        assert delta_channels_to_snapshot({"x": channel}, {"x": (updates, 9)}, {"x": 1}) == due
    assert delta_channels_to_snapshot({"x": channel}, {"x": (3, 9)}, {}) == set()
    channel.snapshot_frequency = 0
    assert delta_channels_to_snapshot({"x": channel}, {"x": (0, 1)}, {"x": 1}) == {"x"}


def test_a_snapshot_is_what_get_returns_after_the_frequency_was_asked_for() -> None:
    asked: list[str] = []

    class Watched(DeltaChannel[Any]):
        def get(self) -> Any:
            asked.append("get")
            return super().get()

        @property
        def snapshot_frequency(self) -> int:
            asked.append("frequency")
            return 1

        @snapshot_frequency.setter
        def snapshot_frequency(self, given: int) -> None: ...

    channel = Watched(joined, list)
    channel.update([["a"]])
    asked.clear()
    due = delta_channels_to_snapshot({"x": channel}, {"x": (1, 1)}, {"x": 1})
    checkpoint: Any = {"channel_values": {}, "channel_versions": {"x": 1}, "versions_seen": {}}
    made = create_checkpoint(checkpoint, {"x": channel}, 1, channels_to_snapshot=due)
    assert asked == ["frequency", "get"]
    assert made["channel_values"] == {"x": _DeltaSnapshot(["a"])}


class Steps(AgingChannel):
    """Notes what LangGraph calls."""

    calls: list[str] = []  # noqa: RUF012  # shared between the copies

    @property
    def snapshot_frequency(self) -> int:
        self.calls.append("frequency")
        return 1_000

    @snapshot_frequency.setter
    def snapshot_frequency(self, given: int) -> None: ...

    def update(self, values: Any) -> bool:
        self.calls.append("update")
        return super().update(values)


class Counted(TypedDict, total=False):
    messages: Annotated[list[Any], DeltaChannel(joined)]
    files: Annotated[dict[str, Any], Steps(lambda state, writes: {**(state or {}), **writes[-1]})]


def counted(saver: Any) -> Any:
    async def answer(state: Any) -> Any:
        return {"messages": [AIMessage("a")], "files": {"a": 1}}

    async def nothing(state: Any) -> Any:
        return {}

    builder = StateGraph(Counted)
    builder.add_node("answer", answer)
    builder.add_node("nothing", nothing)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", "nothing")
    builder.add_edge("nothing", END)
    return builder.compile(checkpointer=saver)


async def test_each_step_updates_each_available_channel_and_then_asks_it_how_often() -> None:
    """The first call is of loading; a run that stores at its end asks twice there, with no update in between."""
    stepwise = ["frequency", "frequency", *["update", "frequency"] * 3]
    at_exit = ["frequency", *["update"] * 3, "frequency", "frequency"]
    for durability, expected in (("sync", stepwise), ("async", stepwise), ("exit", at_exit)):
        graph = counted(InMemorySaver())
        await graph.ainvoke({"messages": [HumanMessage("q")]}, CONFIG)
        Steps.calls.clear()
        await graph.ainvoke({"messages": [HumanMessage("q")]}, CONFIG, durability=durability)
        assert Steps.calls == expected, durability


async def test_the_metadata_of_a_checkpoint_counts_updates_and_checkpoints_since_the_last_snapshot() -> None:
    saver = InMemorySaver()
    graph = counted(saver)
    for _ in range(2):
        await graph.ainvoke({"messages": [HumanMessage("q")]}, CONFIG)
    found = await saver.aget_tuple(CONFIG)
    assert found is not None
    counters: Any = found.metadata["counters_since_delta_snapshot"]
    assert tuple(counters["files"]) == (2, 8)
    assert tuple(counters["messages"]) == (4, 8)


async def test_what_a_step_writes_is_stored_with_the_checkpoint_it_starts_from_before_the_next_is() -> None:
    order: list[str] = []

    class Watched(InMemorySaver):
        async def aput(self, config: Any, checkpoint: Any, *args: Any) -> Any:
            order.append("checkpoint")
            return await super().aput(config, checkpoint, *args)

        async def aput_writes(self, config: Any, writes: Any, *args: Any) -> None:
            if any(channel == "files" for channel, _ in writes):
                order.append("writes")
            await super().aput_writes(config, writes, *args)

    saver = Watched()
    for durability in ("sync", "async"):
        order.clear()
        await counted(saver).ainvoke({"messages": [HumanMessage("q")]}, CONFIG, durability=durability)
        assert order == ["checkpoint", "checkpoint", "writes", "checkpoint", "checkpoint"]
    found = [each async for each in saver.alist(CONFIG)]
    assert all(isinstance(each, CheckpointTuple) for each in found)
    ids = [each.checkpoint["id"] for each in found]
    assert ids == sorted(ids, reverse=True)
    parents = [each.parent_config["configurable"]["checkpoint_id"] for each in found if each.parent_config]
    assert parents == ids[1:]


def test_ids_of_checkpoints_grow_with_time() -> None:
    ids = [str(uuid6(clock_seq=step)) for step in (-2, 5, 1, 3)]
    assert ids == sorted(ids)


def test_a_history_of_a_delta_channel_is_writes_and_a_seed() -> None:
    assert set(DeltaChannelHistory.__annotations__) == {"writes", "seed"}
    for name in ("aget_delta_channel_history", "get_delta_channel_history"):
        parameters = inspect.signature(getattr(BaseCheckpointSaver, name)).parameters
        assert list(parameters) == ["self", "config", "channels"]


def test_every_public_method_of_a_saver_is_passed_on_by_the_wrapper() -> None:
    from regnexe.persistence.wrapped import _OPTIONAL, WrappedCheckpointer

    own = {name for name in vars(BaseCheckpointSaver) if not name.startswith("_")}
    # Made of the others: `get` reads a tuple.
    assert own - {*vars(WrappedCheckpointer), *_OPTIONAL} == {"get", "aget"}


def test_deepagents_keeps_messages_and_files_in_delta_channels_and_a_summary_in_a_plain_field() -> None:
    for schema, field in ((DeepAgentState, "messages"), (FilesystemState, "files")):
        hint = get_type_hints(schema, include_extras=True)[field]
        assert "DeltaChannel" in repr(hint), field
    event = get_type_hints(SummarizationState, include_extras=True)["_summarization_event"]
    assert "DeltaChannel" not in repr(event)
    assert PrivateStateAttr in getattr(event, "__metadata__", ()) or "PrivateStateAttr" in repr(event)


def test_the_fields_of_regnexes_state_are_in_its_own_channels_in_the_compiled_graph() -> None:
    from regnexe import RegnexeAgentBuilder
    from regnexe.testing import ScriptedChatModel

    graph: Any = RegnexeAgentBuilder().with_model(ScriptedChatModel(["x"])).build().graph
    kinds = {"messages": LogChannel, "files": AgingChannel, "_summarization_event": LatestChannel}
    assert {name: type(graph.channels[name]) for name in kinds} == kinds
    assert {name for name, channel in graph.channels.items() if isinstance(channel, DeltaChannel)} == set(kinds)
    assert {"messages", "files", "_summarization_event"} <= set(get_type_hints(RegnexeState))
