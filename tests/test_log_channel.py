"""`LogChannel` does what deepagents' channel for the messages does, and stores less."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from deepagents._messages_reducer import _messages_delta_reducer
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.errors import InvalidUpdateError
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Overwrite

from regnexe.persistence.channels import AgedSnapshot, LogChannel, SnapshotAge
from regnexe.persistence.copies import Log

ADD_MESSAGES: Any = _messages_delta_reducer
IDS = st.integers(0, 12).map(str)
TEXTS = st.text(alphabet="abc", max_size=3)
MESSAGES = st.one_of(
    st.builds(lambda i, t: HumanMessage(t, id=i), IDS, TEXTS),
    st.builds(lambda i, t: AIMessage(t, id=i), st.integers(100, 10_000).map(str), TEXTS),
)
# What the reducer converts gets no id, so that both channels hold the same.
ODD = st.one_of(
    st.builds(lambda t: HumanMessage(t), TEXTS),
    st.builds(lambda i, t: {"role": "user", "content": t, "id": i}, IDS, TEXTS),
    st.builds(lambda t: t, TEXTS),
    st.builds(lambda t: ("ai", t), TEXTS),
    st.builds(lambda i: RemoveMessage(id=i), IDS),
    st.just(RemoveMessage(id=REMOVE_ALL_MESSAGES)),
)
LISTS = st.one_of(
    st.lists(MESSAGES, max_size=4),
    st.lists(st.one_of(MESSAGES, ODD), max_size=4),
    st.lists(MESSAGES, min_size=1, max_size=2).map(lambda given: [*given, *given]),
)
WRITES = st.one_of(
    LISTS,
    LISTS,
    MESSAGES,
    ODD,
    st.builds(Overwrite, st.one_of(st.none(), st.lists(MESSAGES, max_size=3))),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["update", "update", "replay", "copy", "peek", "store", "lend", "snapshot"]),
        st.lists(WRITES, max_size=3),
    ),
    max_size=12,
)


def same(log: Any, delta: Any) -> bool:
    """Whether both channels hold equal messages; what was made of a dict has the same id or none in both."""
    if log.is_available() != delta.is_available():
        return False
    return not log.is_available() or (
        log.get() == delta.get() and list(map(type, log.get())) == list(map(type, delta.get()))
    )


def updated(channel: Any, values: list[Any]) -> Any:
    try:
        return channel.update(copy.deepcopy(values))
    except InvalidUpdateError as refused:
        return str(refused)


def stored(channel: Any) -> Any:
    """The channel after its snapshot was written to a database and read."""
    serializer = JsonPlusSerializer()
    return channel.from_checkpoint(serializer.loads_typed(serializer.dumps_typed(_DeltaSnapshot(channel.get()))))


def lent(channel: Any) -> Any:
    """The channel as a `WarmCheckpointer` loads it."""
    value = channel.get()
    if not all(isinstance(message, BaseMessage) for message in value):
        return channel.from_checkpoint(AgedSnapshot.of(value, SnapshotAge(3, 9)))
    return channel.from_checkpoint(AgedSnapshot.of(value, SnapshotAge(60, 90), Log(value)))


@settings(max_examples=600, deadline=None)
@given(STEPS)
def test_it_holds_what_deepagents_channel_holds_whatever_is_done_to_both(steps: list[tuple[str, list[Any]]]) -> None:
    delta: Any = DeltaChannel(ADD_MESSAGES, list).from_checkpoint(None)
    log: Any = LogChannel(ADD_MESSAGES, list).from_checkpoint(None)
    for what, values in steps:
        if what == "update":
            assert updated(log, values) == updated(delta, values)
        elif what == "replay":
            for channel in (log, delta):
                channel.replay_writes([("task", "messages", value) for value in copy.deepcopy(values)])
        elif what == "copy":
            log, delta = log.copy(), delta.copy()
            assert updated(log, values) == updated(delta, values)
        elif what == "peek":
            before = copy.deepcopy(delta.get())
            peeks = log.copy(), delta.copy()
            for peek in peeks:
                updated(peek, values)
                updated(peek, values)
            assert same(*peeks)
            assert log.get() == before
        elif what == "store":
            log, delta = stored(log), stored(delta)
        elif what == "lend":
            log, delta = lent(log), delta.from_checkpoint(_DeltaSnapshot(delta.get()))
        else:
            log, delta = (channel.from_checkpoint(_DeltaSnapshot(channel.get())) for channel in (log, delta))
        assert same(log, delta)


@settings(max_examples=200, deadline=None)
@given(st.lists(LISTS, max_size=6), st.lists(LISTS, min_size=1, max_size=4))
def test_a_copy_and_its_original_go_their_own_ways(first: list[Any], then: list[Any]) -> None:
    original: Any = LogChannel(ADD_MESSAGES, list).from_checkpoint(None)
    expected: Any = DeltaChannel(ADD_MESSAGES, list).from_checkpoint(None)
    for channel in (original, expected):
        updated(channel, first)
    other, other_expected = original.copy(), expected.copy()
    for values in then:
        updated(other, [values])
        updated(other_expected, [values])
        assert same(original, expected)
    updated(original, list(reversed(then)))
    updated(expected, list(reversed(then)))
    assert same(other, other_expected)
    assert same(original, expected)


def test_a_channel_that_was_never_loaded_or_written_is_empty_like_deepagents() -> None:
    log: Any = LogChannel(ADD_MESSAGES, list)
    delta: Any = DeltaChannel(ADD_MESSAGES, list)
    assert not log.is_available() and not delta.is_available()
    assert log.update([HumanMessage("a", id="1")]) and delta.update([HumanMessage("a", id="1")])
    assert same(log, delta)


@dataclass
class Session:
    """What LangGraph counts for a channel, and the snapshots it takes."""

    channel: Any
    updates: int = 0
    lengths: list[int] | None = None

    def add(self, messages: list[Any]) -> None:
        self.channel.update([messages])
        self.updates += 1
        if self.updates >= self.channel.snapshot_frequency:
            self.lengths = [*(self.lengths or []), len(self.channel.get())]
            self.updates = 0


def snapshots(kind: Any, updates: int, each: int = 1) -> list[int]:
    session = Session(kind(ADD_MESSAGES, list).from_checkpoint(None))
    for number in range(updates):
        session.add([HumanMessage("x", id=f"{number}.{part}") for part in range(each)])
    return session.lengths or []


def test_a_snapshot_is_due_after_50_updates_and_when_a_quarter_of_the_log_is_newer_than_the_last() -> None:
    assert snapshots(LogChannel, 1_700) == [50, 100, 150, 200, 266, 354, 471, 627, 835, 1113, 1483]


def test_all_snapshots_of_a_session_take_four_times_the_bytes_of_the_last() -> None:
    lengths = snapshots(LogChannel, 5_000)
    assert sum(lengths) <= 4 * lengths[-1]
    assert sum(lengths) <= 4 * 5_000


def test_the_bytes_of_the_snapshots_grow_with_the_session_and_not_with_its_square() -> None:
    serializer = JsonPlusSerializer()

    def stored_bytes(updates: int) -> int:
        channel: Any = LogChannel(ADD_MESSAGES, list).from_checkpoint(None)
        since, total = 0, 0
        for number in range(updates):
            channel.update([[HumanMessage(f"message {number}", id=str(number))]])
            since += 1
            if since >= channel.snapshot_frequency:
                total += len(serializer.dumps_typed(_DeltaSnapshot(channel.get()))[1])
                since = 0
        return total

    one = len(serializer.dumps_typed(HumanMessage("message 1000", id="1000"))[1])
    small, large = stored_bytes(1_250), stored_bytes(5_000)
    assert large <= 5 * small
    assert large <= 4 * 5_000 * one * 1.1


def test_loading_a_copy_or_a_snapshot_does_not_change_when_the_next_is_due() -> None:
    channel: Any = LogChannel(ADD_MESSAGES, list).from_checkpoint(None)
    channel.update([[HumanMessage("x", id=str(number)) for number in range(1_000)]])
    assert channel.snapshot_frequency == 250
    assert channel.copy().snapshot_frequency == 250
    assert stored(channel).snapshot_frequency == 250


def test_a_list_that_a_reader_adds_to_or_clears_is_his_own() -> None:
    channel: Any = LogChannel(ADD_MESSAGES, list).from_checkpoint(None)
    channel.update([[HumanMessage("a", id="1")]])
    channel.get().append(HumanMessage("b", id="2"))
    channel.get().clear()
    channel.update([[HumanMessage("b", id="2")]])
    assert [message.id for message in channel.get()] == ["1", "2"]


def test_an_update_with_nothing_in_it_costs_no_new_index_of_the_log() -> None:
    channel: Any = stored_channel(100)
    channel.update([[HumanMessage("x", id="new")]])
    index = channel._ids
    assert channel.update([]) is False
    assert channel._ids is index


def stored_channel(length: int) -> Any:
    channel: Any = LogChannel(ADD_MESSAGES, list)
    return channel.from_checkpoint(_DeltaSnapshot([HumanMessage("x", id=str(number)) for number in range(length)]))


def due_channel() -> Any:
    """A channel as loaded warm, whose snapshot is due with the next update."""
    value = [HumanMessage("x", id=str(number)) for number in range(10)]
    channel: Any = LogChannel(ADD_MESSAGES, list)
    return channel.from_checkpoint(AgedSnapshot.of(value, SnapshotAge(60, 60), Log(value)))


def test_a_snapshot_that_is_due_holds_old_and_new_messages_as_they_were_written() -> None:
    channel = due_channel()
    channel.get()[3].content = "changed"
    new = HumanMessage("y", id="new")
    channel.update([[new]])
    new.content = "changed"
    channel.update([[HumanMessage("z", id="newer")]])
    assert [message.content for message in channel.get()] == ["x"] * 10 + ["y", "z"]


def test_a_message_that_was_changed_and_then_written_again_is_kept_as_written() -> None:
    channel = due_channel()
    again = channel.get()[3]
    again.content = "rewritten"
    channel.update([[again]])
    assert channel.get()[3].content == "rewritten"
    overwritten = channel.get()
    overwritten[4].content = "overwritten"
    channel.update([Overwrite(overwritten[3:5])])
    assert [message.content for message in channel.get()] == ["rewritten", "overwritten"]


def test_the_snapshot_of_a_new_thread_holds_what_was_written_in_its_first_run() -> None:
    channel: Any = LogChannel(ADD_MESSAGES, list).from_checkpoint(None)
    first = HumanMessage("first", id="first")
    channel.update([[first]])
    for number in range(60):
        channel.update([[HumanMessage("x", id=str(number))]])
    first.content = "changed"
    assert channel.get()[0].content == "first"
