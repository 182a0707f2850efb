"""What a `FoldCache` keeps, for how long, and what its logs do about messages that are changed."""

from __future__ import annotations

import array
import gc
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from regnexe.persistence.copies import Log, copied, rough_size
from regnexe.persistence.folds import FoldCache, ThreadFolds, fold_of


def folds(checkpoint: str, *values: Any) -> ThreadFolds:
    return ThreadFolds(checkpoint_id=checkpoint, folds={str(n): fold_of(value) for n, value in enumerate(values)})


def sized(checkpoint: str, size: int) -> ThreadFolds:
    made = folds(checkpoint, {"": "x" * size})
    extra = made.size - size
    return folds(checkpoint, {"": "x" * (size - extra)})


def kept(cache: FoldCache, *threads: str) -> list[str]:
    return [thread for thread in threads if cache.get(thread) is not None]


def test_the_thread_that_was_used_longest_ago_goes_first() -> None:
    cache = FoldCache(3_000)
    for thread in "abc":
        cache.put(thread, sized("1", 1_000))
    cache.get("a")
    cache.put("d", sized("1", 1_000))
    assert kept(cache, "a", "b", "c", "d") == ["a", "c", "d"]
    cache.put("c", sized("2", 1_000))
    cache.put("e", sized("1", 2_000))
    assert kept(cache, "a", "c", "d", "e") == ["c", "e"]


def test_what_is_larger_than_the_bound_is_not_kept_and_an_older_state_of_it_neither() -> None:
    cache = FoldCache(3_000)
    cache.put("other", sized("1", 1_000))
    cache.put("a", sized("1", 1_000))
    cache.put("a", sized("2", 3_001))
    assert kept(cache, "a", "other") == ["other"]


def test_an_older_checkpoint_does_not_take_the_place_of_a_newer() -> None:
    cache = FoldCache()
    cache.put("a", folds("2", {"new": 1}))
    cache.put("a", folds("1", {"old": 1}))
    known = cache.get("a")
    assert known is not None and known.checkpoint_id == "2"


def test_a_forgotten_thread_frees_its_bytes() -> None:
    cache = FoldCache(2_000)
    cache.put("a", sized("1", 2_000))
    cache.forget("a")
    cache.forget("a")
    cache.put("b", sized("1", 1_000))
    cache.put("c", sized("1", 1_000))
    assert kept(cache, "a", "b", "c") == ["b", "c"]
    cache.forget()
    assert kept(cache, "b", "c") == []
    assert cache._bytes == 0


def test_eight_threads_at_once_never_exceed_the_bound_nor_lose_count() -> None:
    cache = FoldCache(10_000)
    ready = threading.Barrier(8)
    over: list[int] = []
    failures: list[BaseException] = []

    def use(number: int) -> None:
        try:
            ready.wait()
            for turn in range(400):
                cache.put(f"{(number * 7 + turn) % 13}", sized(f"{turn:05}", 500 + 300 * (turn % 9)))
                cache.get(f"{turn % 13}")
                if turn % 17 == 0:
                    cache.forget(f"{turn % 5}")
                with cache._lock:
                    if cache._bytes > 10_000 or cache._bytes != sum(size for _, size in cache._threads.values()):
                        over.append(cache._bytes)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert not over


def test_eight_threads_that_read_and_change_one_log_each_get_it_as_it_was() -> None:
    log = Log([HumanMessage(f"{number}", id=str(number)) for number in range(200)])
    ready = threading.Barrier(8)
    seen: list[list[str]] = []

    def use(number: int) -> None:
        ready.wait()
        for turn in range(50):
            lent = log.lend()
            seen.append([message.id or "" for message in lent.messages])
            lent.messages[(number * 31 + turn) % 200].content = "changed"

    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(ids == [str(number) for number in range(200)] for ids in seen)
    assert [message.content for message in log.value()] == [str(number) for number in range(200)]


def chat(number: int) -> list[BaseMessage]:
    text = f"message {number} of a conversation like any other. " * 6
    return [HumanMessage(text, id=f"h{number}"), AIMessage(text * 2, id=f"a{number}")]


def calls(number: int) -> list[BaseMessage]:
    call = {"name": "search", "args": {"query": f"number {number}", "limit": 10 + number}, "id": f"c{number}"}
    answer = AIMessage(
        "",
        id=f"a{number}",
        tool_calls=[call],
        additional_kwargs={"reasoning_content": f"think {number} " * 20},
        response_metadata={"model_name": f"m{number}", "finish_reason": f"tool_calls{number}"},
        usage_metadata={"input_tokens": 1_000 + number, "output_tokens": 400 + number, "total_tokens": 9_000 + number},
    )
    return [answer, ToolMessage(f"result {number} " * 40, id=f"t{number}", tool_call_id=f"c{number}")]


def artifacts(number: int) -> list[BaseMessage]:
    rows = [{"row": f"{number}.{row}", "text": f"{number} {row} " * 10} for row in range(20)]
    return [ToolMessage("rows", id=f"t{number}", tool_call_id=f"c{number}", artifact={"rows": rows})]


def blocks(number: int) -> list[BaseMessage]:
    return [HumanMessage([{"type": "text", "text": f"{number} {part} " * 10} for part in range(8)], id=f"h{number}")]


def long(number: int) -> list[BaseMessage]:
    return [HumanMessage(f"{number}" * 20_000, id=f"h{number}")]


@pytest.mark.parametrize("make", [chat, calls, artifacts, blocks, long])
def test_the_count_of_bytes_is_within_a_factor_of_two_of_what_a_log_takes(
    make: Callable[[int], list[BaseMessage]],
) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        log = Log([message for number in range(300) for message in make(number)])
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken / 2 <= log.size <= taken * 2, f"{log.size} counted, {taken} taken"


def test_an_array_and_the_data_of_unknown_objects_count() -> None:
    assert rough_size({"array": array.array("d", [0.0]) * 1_000}) > 8_000
    assert rough_size(ToolMessage("x", tool_call_id="c", artifact=[b"x" * 50_000])) > 50_000


def test_a_log_that_goes_on_from_another_counts_what_a_new_one_would() -> None:
    messages = [message for number in range(40) for message in calls(number)]
    first = Log(messages[:50])
    assert Log(messages, after=first).size == Log(messages).size
    assert Log(messages, after=first).ids == Log(messages).ids


def whole() -> AIMessage:
    return AIMessage(
        [{"type": "text", "text": "hello", "nested": {"deep": [1, 2]}}],
        id="a",
        tool_calls=[{"name": "t", "args": {"x": [1]}, "id": "c"}],
        additional_kwargs={"k": {"v": [1]}},
        response_metadata={"r": [1]},
        a_field_of_its_own={"more": [1]},
    )


def replaced_dict(message: Any) -> None:
    object.__setattr__(message, "__dict__", {**message.__dict__, "content": "changed"})


def deleted_content(message: Any) -> None:
    del message.__dict__["content"]


CHANGES: dict[str, Callable[[Any], Any]] = {
    "content": lambda m: setattr(m, "content", "changed"),
    "id": lambda m: setattr(m, "id", "changed"),
    "a nested block": lambda m: m.content[0]["nested"]["deep"].append(3),
    "arguments": lambda m: m.tool_calls[0]["args"]["x"].append(2),
    "additional_kwargs": lambda m: m.additional_kwargs["k"]["v"].append(2),
    "response_metadata": lambda m: m.response_metadata["r"].clear(),
    "an extra field": lambda m: m.a_field_of_its_own["more"].append(2),
    "a new extra field": lambda m: setattr(m, "another", 1),
    "no extra fields": lambda m: object.__setattr__(m, "__pydantic_extra__", None),
    "the fields at once": replaced_dict,
    "a deleted field": deleted_content,
    "a deleted slot": lambda m: object.__delattr__(m, "__pydantic_extra__"),
    "the class": lambda m: object.__setattr__(m, "__class__", HumanMessage),
    "itself in itself": lambda m: m.tool_calls[0]["args"].update(self=m.tool_calls[0]["args"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_message_that_was_changed_in_place_is_handed_out_as_it_was(change: str) -> None:
    log = Log([HumanMessage("first", id="h"), whole()])
    for _ in range(3):
        message = log.value()[1]
        CHANGES[change](message)
        again = log.value()
        assert again[1] == whole() and type(again[1]) is AIMessage
        assert again[1].model_dump() == whole().model_dump()


def test_a_new_extra_field_of_a_message_without_any_is_noticed() -> None:
    log = Log([HumanMessage("first", id="h")])
    message: Any = log.value()[0]
    message.another = 1
    assert log.value() == [HumanMessage("first", id="h")]


class Grid:
    """Compares element by element, as arrays do."""

    def __init__(self, *cells: int) -> None:
        self.cells = list(cells)

    def __eq__(self, other: object) -> Any:
        return Grid(*(cell == there for cell, there in zip(self.cells, getattr(other, "cells", ()), strict=False)))

    def __bool__(self) -> bool:
        raise ValueError("The truth value of an array with more than one element is ambiguous.")

    __hash__ = None  # type: ignore[assignment]


def test_messages_with_arrays_in_them_can_be_kept_and_changed() -> None:
    grid = ToolMessage("x", id="t", tool_call_id="c", artifact={"grid": Grid(0, 1, 2)})
    log = Log([HumanMessage("first", id="h"), grid])
    for _ in range(2):
        message: Any = log.value()[1]
        assert message.artifact["grid"].cells == [0, 1, 2]
        message.artifact["grid"].cells[0] = 9
        log.value()[0].content = "changed"
    assert log.value()[0].content == "first"


def test_an_unchanged_message_is_handed_out_itself() -> None:
    log = Log([whole(), HumanMessage("x", id="h")])
    assert log.value()[0] is log.value()[0]
    assert log.value() is not log.value()


def test_an_equal_message_in_the_place_of_another_is_watched_too() -> None:
    first = Log([HumanMessage("a", id="1")])
    second = Log([HumanMessage("a", id="1"), HumanMessage("b", id="2")], after=first.lend())
    second.value()[0].content = "changed"
    assert [message.content for message in second.value()] == ["a", "b"]


def test_a_copy_shares_nothing_that_can_be_changed() -> None:
    original = {"list": [{"a": (1, [2])}], "set": {1}, "message": whole()}
    copy = copied(original)
    assert copy == original
    copy["list"][0]["a"][1].append(3)
    copy["set"].add(2)
    copy["message"].content[0]["nested"]["deep"].append(3)
    assert original == {"list": [{"a": (1, [2])}], "set": {1}, "message": whole()}
