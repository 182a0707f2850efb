from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from deepagents.middleware.filesystem import FilesystemMiddleware
from langchain.agents.middleware import SummarizationMiddleware as LangChainSummarization
from langchain.agents.middleware.types import AgentMiddleware, wrap_model_call
from langchain_core.language_models import FakeListChatModel
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore
from pydantic import BaseModel

from regnexe import ConfigurationError, RegnexeAgentBuilder, RegnexeError, UnknownVendor, Vendor, agent_tool, plugin
from regnexe.runtime.graph import RESERVED_TOOL_NAMES
from regnexe.testing import ScriptedChatModel

if TYPE_CHECKING:
    from pathlib import Path


def builder() -> RegnexeAgentBuilder:
    return RegnexeAgentBuilder().with_model(ScriptedChatModel(["hi"]))


def look(x: str) -> str:
    """Look."""
    return x


# --- the model ---


def test_without_a_model_the_build_says_how_to_give_one() -> None:
    with pytest.raises(ConfigurationError, match=r"no model: call with_default_model\(Vendor.OFFLINE"):
        RegnexeAgentBuilder().build()


def test_an_unknown_vendor_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(UnknownVendor, match="unknown vendor 'deepsek'; did you mean 'deepseek'") as caught:
        RegnexeAgentBuilder().with_default_model("deepsek", "x")
    assert (caught.value.vendor, "offline" in caught.value.known) == ("deepsek", True)
    with pytest.raises(UnknownVendor, match="unknown vendor 'zzz'; known vendors: aliyun, "):
        RegnexeAgentBuilder().with_model_spec("zzz:x")


@pytest.mark.parametrize("spec", ["", "deepseek", ":x", "offline:", None, 5])
def test_a_model_spec_of_another_form_is_refused_with_an_example(spec: Any) -> None:
    with pytest.raises(ConfigurationError, match='must be "vendor:name", for example "offline:demo"'):
        RegnexeAgentBuilder().with_model_spec(spec)


def test_a_missing_key_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DEEPSEEK_API_KEY", "DEEPSEEK_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match=r"set the environment variable DEEPSEEK_API_KEY \(or DEEPSEEK_KEY\)"):
        RegnexeAgentBuilder().with_default_model(Vendor.DEEPSEEK, "deepseek-v4-flash")


@pytest.mark.parametrize("given", ["offline:demo", None, ScriptedChatModel])
def test_what_is_no_chat_model_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="with_model takes a LangChain chat model"):
        RegnexeAgentBuilder().with_model(given)


# --- tools ---


def test_a_tool_without_a_description_is_refused_by_name() -> None:
    def nameless(x: str) -> str:
        return x

    with pytest.raises(ConfigurationError, match="nameless"):
        builder().with_tool(nameless)


def test_two_tools_of_one_name_are_refused_by_name() -> None:
    other = tool("look", description="Another look.")(look)
    with pytest.raises(ConfigurationError, match="look"):
        builder().with_tool(look, other).build()


@pytest.mark.parametrize("name", sorted(RESERVED_TOOL_NAMES))
def test_a_tool_with_the_name_of_a_built_in_one_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        builder().with_tool(tool(name, description="Mine.")(look)).build()


def test_the_reserved_names_are_the_tools_that_deepagents_brings() -> None:
    graph = builder().build().graph
    brought = set(graph.nodes["tools"].bound.tools_by_name)  # type: ignore[attr-defined]
    assert brought == RESERVED_TOOL_NAMES, "deepagents' own tools have changed; adapt RESERVED_TOOL_NAMES"


# --- checkpointers and stores ---


def test_a_sync_saver_is_refused_with_the_async_class(tmp_path: Path) -> None:
    class Mine(SqliteSaver):
        """A subclass is no better."""

    with SqliteSaver.from_conn_string(str(tmp_path / "x.db")) as saver:
        for sync in (saver, Mine(saver.conn)):
            with pytest.raises(ConfigurationError, match=r"use langgraph\.checkpoint\.sqlite\.aio\.AsyncSqliteSaver"):
                builder().with_checkpointer(sync)


def test_a_saver_without_async_methods_is_refused() -> None:
    class Home(BaseCheckpointSaver[str]):
        """Has only the synchronous half."""

    with pytest.raises(ConfigurationError, match="Home has no async methods"):
        builder().with_checkpointer(Home())


def test_a_sync_store_is_refused_with_the_async_class(tmp_path: Path) -> None:
    with SqliteStore.from_conn_string(str(tmp_path / "x.db")) as store:
        with pytest.raises(ConfigurationError, match=r"use langgraph\.store\.sqlite\.aio\.AsyncSqliteStore"):
            builder().with_store(store)


@pytest.mark.parametrize("given", ["sessions.db", None, InMemorySaver, InMemoryStore()])
def test_what_is_no_saver_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="with_checkpointer takes an async LangGraph saver"):
        builder().with_checkpointer(given)


def test_a_saver_that_was_not_entered_is_refused_with_the_way_to_do_it() -> None:
    with pytest.raises(ConfigurationError, match=r"`async with \.\.\. as saver`, then pass the saver"):
        builder().with_checkpointer(AsyncSqliteSaver.from_conn_string("x.db"))  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["x", None, InMemoryStore, InMemorySaver()])
def test_what_is_no_store_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="with_store takes an async LangGraph store"):
        builder().with_store(given)


# --- middleware ---


def test_the_summariser_that_deletes_the_log_is_refused_with_the_right_one() -> None:
    class Mine(LangChainSummarization):
        """A subclass is no better."""

    model = ScriptedChatModel([])
    for deleting in (LangChainSummarization(model=model), Mine(model=model)):
        with pytest.raises(ConfigurationError, match=r"deepagents\.middleware\.summarization\.SummarizationMiddleware"):
            builder().with_middleware(deleting).build()


def test_a_file_middleware_that_edits_the_log_is_refused_with_the_way_to_do_it() -> None:
    with pytest.raises(ConfigurationError, match="tool_token_limit_before_evict=None"):
        builder().with_middleware(FilesystemMiddleware()).build()
    quiet: Any = FilesystemMiddleware(tool_token_limit_before_evict=None, human_message_token_limit_before_evict=None)
    builder().with_middleware(quiet).build()


def test_two_middlewares_of_one_name_are_refused() -> None:
    class Mine(AgentMiddleware[Any, Any, Any]):
        """Does nothing."""

    with pytest.raises(ConfigurationError, match="two middlewares are named 'Mine'"):
        builder().with_middleware(Mine(), Mine()).build()


def test_a_middleware_with_only_a_synchronous_hook_is_refused_at_build() -> None:
    @wrap_model_call
    def sync_only(request: Any, handler: Any) -> Any:
        return handler(request)

    with pytest.raises(ConfigurationError, match="has wrap_model_call but not awrap_model_call"):
        builder().with_middleware(sync_only).build()


@pytest.mark.parametrize("given", [None, "x", AgentMiddleware, object()])
def test_what_is_no_middleware_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="with_middleware takes instances of LangChain's AgentMiddleware"):
        builder().with_middleware(given)


# --- the rest ---


class SyncListener:
    """Has the method, but not as a coroutine."""

    def on_event(self, event_type: Any, name: str, data: Any) -> None: ...


@pytest.mark.parametrize("given", [None, "x", object(), ScriptedChatModel, SyncListener()])
def test_what_is_no_listener_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="with_event_listener takes objects with"):
        builder().with_event_listener(given)


@pytest.mark.parametrize("given", [None, "", "  ", 5, "a\ud800"])
def test_an_empty_or_unsendable_system_prompt_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"with_system_prompt takes a non-empty str|lone surrogate"):
        builder().with_system_prompt(given)


def test_every_error_of_the_builder_is_one_of_ours_and_a_value_error() -> None:
    assert issubclass(ConfigurationError, RegnexeError)
    assert issubclass(ConfigurationError, ValueError)


async def test_two_agents_of_one_builder_share_no_sessions() -> None:
    made = RegnexeAgentBuilder().with_model(ScriptedChatModel(lambda messages: str(len(messages))))
    one, two = made.build(), made.build()
    made.with_tool(look)
    assert (await one.ainvoke("a", session_id="s")).final_text == (await two.ainvoke("a", session_id="s")).final_text
    assert "look" not in one.graph.nodes["tools"].bound.tools_by_name  # type: ignore[attr-defined]


def test_the_graph_has_no_node_but_the_model_and_the_tools() -> None:
    assert set(builder().build().graph.nodes) == {"__start__", "model", "tools"}, (
        "a middleware brought a hook node, which costs a checkpoint a turn"
    )


async def test_the_tools_that_a_model_is_given_are_made_once_and_not_anew_for_each_call() -> None:
    seen: list[list[Any]] = []

    class Look(AgentMiddleware[Any, Any, Any]):
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            seen.append(list(request.tools))
            return await handler(request)

    agent = RegnexeAgentBuilder().with_model(ScriptedChatModel(["a", "b"])).with_middleware(Look()).build()
    await agent.ainvoke("x")
    await agent.ainvoke("y")
    first, second = seen
    assert [tool.name for tool in first] == [tool.name for tool in second]
    assert all(one is other for one, other in zip(first, second, strict=True)), (
        "deepagents remakes a tool for each call; its schema is then built anew each time"
    )


@pytest.mark.parametrize("given", [5, "x", [dict], int, list[int], False, None])
def test_what_is_no_schema_is_refused_as_a_response_format(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="with_response_format takes a pydantic model"):
        builder().with_response_format(given)


class look_up(BaseModel):
    """A schema with the name of a tool."""

    x: int


class Bringing(AgentMiddleware[Any, Any, Any]):
    """A middleware with a tool of its own."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.tools = [tool(name, description="Mine.")(look)]


def test_a_schema_or_a_middlewares_tool_with_the_name_of_a_tool_is_refused() -> None:
    def look_up_too(x: str) -> str:
        """Look up."""
        return x

    mine = tool("look_up", description="Mine.")(look_up_too)
    with pytest.raises(ConfigurationError, match="schema of with_response_format is named 'look_up', like a tool"):
        builder().with_tool(mine).with_response_format(look_up).build()
    for name in ("look", "read_file"):
        with pytest.raises(ConfigurationError, match=f"brings a tool named '{name}', and there is one already"):
            builder().with_tool(look).with_middleware(Bringing(name)).build()
    builder().with_tool(look).with_response_format(look_up).with_middleware(Bringing("other")).build()


def test_a_middleware_with_the_name_of_a_guard_is_refused() -> None:
    class ToolGuard(AgentMiddleware[Any, Any, Any]):
        """Would take the place of ours."""

    with pytest.raises(ConfigurationError, match="is the name of a middleware of Regnexe's"):
        builder().with_middleware(ToolGuard()).build()


def test_a_model_that_cannot_call_tools_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="FakeListChatModel cannot call tools: it has no bind_tools"):
        RegnexeAgentBuilder().with_model(FakeListChatModel(responses=["x"]))


def test_a_refused_plugin_leaves_the_builder_as_it_was() -> None:
    @plugin(id="mine")
    class Mine:
        """Mine."""

        @agent_tool
        def look_around(self) -> str:
            """Look around."""
            return "x"

    made = builder()
    with pytest.raises(ConfigurationError):
        made.with_plugin(Mine(), 3)
    made.with_plugin(Mine()).build()
    with pytest.raises(ConfigurationError, match="plugin 'mine' was added twice"):
        made.with_plugin(Mine())
