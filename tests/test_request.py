"""What is refused at the door: nothing of it is stored, and the session stays usable."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackHandler, AsyncCallbackManager
from langchain_core.messages import HumanMessage, HumanMessageChunk

from regnexe import InvalidInput, RegnexeAgentBuilder, RunStatus
from regnexe.testing import ScriptedChatModel

cyclic: dict[str, Any] = {"type": "text", "text": "x"}
cyclic["self"] = cyclic
deep: dict[str, Any] = {"type": "text", "text": "x"}
for _ in range(100_000):
    deep = {"type": "text", "text": "x", "inner": deep}


@pytest.mark.parametrize(
    ("goal", "says"),
    [
        ([{"type": "image_url", "image_url": {"url": b"\xff"}}], r"goal\[0\] cannot be sent to a model as JSON"),
        (["x", {"type": "text", "text": "x", "n": float("nan")}], r"goal\[1\] cannot be sent to a model as JSON"),
        ([{"type": "text", "text": "x", "n": 2**70}], r"goal\[0\] holds an integer of more than 64 bits"),
        ([cyclic], r"goal\[0\] cannot be sent to a model as JSON"),
        ([deep], r"goal\[0\] cannot be sent to a model as JSON"),
        (HumanMessage("x", additional_kwargs={"o": object()}), r"goal\.additional_kwargs cannot be sent"),
        (HumanMessage("x", response_metadata={"n": [2**70]}), r"goal\.response_metadata holds an integer"),
    ],
    ids=["bytes", "nan", "huge", "cyclic", "deep", "object", "huge metadata"],
)
async def test_content_that_no_model_could_be_sent_is_refused(saver: Any, goal: Any, says: str) -> None:
    model = ScriptedChatModel(["fine"])
    agent = RegnexeAgentBuilder().with_model(model).with_checkpointer(saver).build()
    with pytest.raises(InvalidInput, match=says):
        await agent.ainvoke(goal, session_id="s")
    result = await agent.ainvoke("hello", session_id="s")
    assert (result.status, len(result.session.messages)) == (RunStatus.COMPLETED, 2)


async def test_a_piece_of_a_streamed_message_is_taken_as_a_message() -> None:
    result = (
        await RegnexeAgentBuilder()
        .with_model(ScriptedChatModel(["ok"]))
        .build()
        .ainvoke(HumanMessageChunk(content="hi"))
    )
    assert (type(result.messages[0]), result.messages[0].text) == (HumanMessage, "hi")


@pytest.mark.parametrize(
    "config",
    [
        {"callbacks": 5},
        {"callbacks": [5]},
        {"callbacks": AsyncCallbackHandler()},
        {"tags": 5},
        {"tags": "ab"},
        {"tags": [1]},
        {"recursion_limit": 0},
        {"recursion_limit": "x"},
        {"max_concurrency": "x"},
        {"metadata": {1: 2}},
        {"metadata": 5},
        {"configurable": 5},
    ],
    ids=repr,
)
async def test_a_part_of_the_config_that_langchain_could_not_read_is_refused_by_name(config: Any) -> None:
    agent = RegnexeAgentBuilder().with_model(ScriptedChatModel([])).build()
    with pytest.raises(InvalidInput, match=rf"config\['{next(iter(config))}'\] must be"):
        await agent.ainvoke("hi", config=config)


async def test_a_config_is_left_as_it_was_given() -> None:
    handler = AsyncCallbackHandler()
    config: Any = {
        "callbacks": AsyncCallbackManager([handler]),
        "tags": ["t"],
        "metadata": {"run_id": "mine"},
        "configurable": {"k": 1},
        "recursion_limit": 50,
    }
    agent = RegnexeAgentBuilder().with_model(ScriptedChatModel(["a", "b"])).build()
    for goal in ("one", "two"):
        assert (await agent.ainvoke(goal, session_id="s", config=config)).status is RunStatus.COMPLETED
    assert config["callbacks"].handlers == [handler]
    assert (config["tags"], config["metadata"], config["configurable"]) == (["t"], {"run_id": "mine"}, {"k": 1})


async def test_a_run_that_reaches_langgraphs_recursion_limit_is_limited() -> None:
    from langchain_core.messages import AIMessage

    from regnexe.testing import tool_call

    async def again(x: int) -> str:
        """Go on."""
        return "on"

    model = ScriptedChatModel(lambda messages: AIMessage("", tool_calls=[tool_call("again", x=1)]))
    agent = RegnexeAgentBuilder().with_model(model).with_tool(again).build()
    result = await agent.ainvoke("go", config={"recursion_limit": 5})
    assert result.status is RunStatus.LIMITED
    assert type(result.error).__name__ == "GraphRecursionError"


@pytest.mark.parametrize("timeout", [10**400, 1e300, -(10**400)])
async def test_a_timeout_beyond_all_clocks_is_refused(timeout: Any) -> None:
    with pytest.raises(InvalidInput, match="at most 10 years"):
        await RegnexeAgentBuilder().with_model(ScriptedChatModel([])).build().ainvoke("hi", timeout=timeout)
