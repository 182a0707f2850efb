"""Builds the LangGraph graph of an agent: the only place that calls deepagents' `create_deep_agent`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepagents import create_deep_agent
from deepagents.backends import StateBackend
from deepagents.middleware.filesystem import FilesystemMiddleware
from deepagents.middleware.subagents import GENERAL_PURPOSE_SUBAGENT
from deepagents.middleware.summarization import SummarizationMiddleware, create_summarization_middleware
from langchain.agents.middleware import SummarizationMiddleware as LangChainSummarization
from langchain.agents.middleware import ToolErrorMiddleware
from langchain.agents.middleware.types import AgentMiddleware
from langgraph.config import get_config

from regnexe.errors import ConfigurationError
from regnexe.messages import clean_text
from regnexe.runtime.filesystem import LogKeepingFilesystem
from regnexe.runtime.media_guard import MediaGuard
from regnexe.runtime.state import RegnexeState
from regnexe.runtime.storable import Storable
from regnexe.runtime.tool_guard import ToolGuard
from regnexe.runtime.view_guard import ViewGuard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain.agents.middleware.types import ToolCallRequest
    from langchain_core.language_models import BaseChatModel
    from langchain_core.tools import BaseTool
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.store.base import BaseStore

__all__ = ["RESERVED_TOOL_NAMES", "SUBAGENTS", "GraphParts", "build_graph"]

logger = logging.getLogger("regnexe")

RESERVED_TOOL_NAMES = frozenset(
    {"delete", "edit_file", "execute", "glob", "grep", "ls", "read_file", "task", "write_file"}
)
"""The tools that deepagents brings; a user's tool of such a name would silently take its place."""

SUBAGENTS = frozenset({GENERAL_PURPOSE_SUBAGENT["name"]})
"""The sub-agents that the tool `task` can call."""

# Hook nodes of deepagents whose work the runner does; each would cost a checkpoint a turn.
_REPLACED_HOOKS = ("PatchToolCallsMiddleware", "_ParentNotifierMiddleware")


@dataclass(frozen=True, kw_only=True)
class GraphParts:
    """What a graph is built from; all of it checked by the builder."""

    model: BaseChatModel
    checkpointer: BaseCheckpointSaver[Any]
    tools: Sequence[BaseTool] = ()
    middleware: Sequence[AgentMiddleware[Any, Any, Any]] = ()
    store: BaseStore | None = None
    system_prompt: str | None = None
    response_format: Any = None
    name: str | None = None


def build_graph(parts: GraphParts) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return the compiled graph.

    Raises:
        ConfigurationError: a middleware cannot work in it.
    """
    _check_middleware(parts.middleware)
    # deepagents gives sub-agents none of the middleware; the general-purpose one is handed over
    # with the whole list, so that what happens inside it is guarded in the same way.
    general_purpose: dict[str, Any] = {**GENERAL_PURPOSE_SUBAGENT, "middleware": _middleware(parts, ())}
    return create_deep_agent(
        parts.model,
        list(parts.tools),
        system_prompt=parts.system_prompt,
        middleware=_middleware(parts, parts.middleware),
        subagents=[general_purpose],  # type: ignore[list-item]  # a SubAgent, as deepagents spells it
        backend=StateBackend(),
        response_format=parts.response_format,
        state_schema=RegnexeState,
        checkpointer=parts.checkpointer,
        store=parts.store,
        name=parts.name,
    )


def _middleware(
    parts: GraphParts, added: Sequence[AgentMiddleware[Any, Any, Any]]
) -> list[AgentMiddleware[Any, Any, Any]]:
    """Return the whole list, outermost first: ours around the user's around our guards.

    A middleware of the user's that has the name of one of ours takes its place.
    """
    backend = StateBackend()
    outer: list[AgentMiddleware[Any, Any, Any]] = [
        LogKeepingFilesystem(backend=backend),
        *(_NoHook(name) for name in _REPLACED_HOOKS),
        create_summarization_middleware(parts.model, backend),
        ToolErrorMiddleware(_tool_error),
    ]
    storable = Storable(parts.checkpointer.serde)
    inner: list[AgentMiddleware[Any, Any, Any]] = [ToolGuard(storable), ViewGuard(storable), MediaGuard()]
    taken = {middleware.name for middleware in added}
    stack = [*(middleware for middleware in outer if middleware.name not in taken), *added, *inner]
    for middleware in stack:
        if isinstance(middleware, SummarizationMiddleware):
            _name_history_by_thread(middleware)
    return stack


class _NoHook(AgentMiddleware[Any, Any, Any]):
    """Stands in the place of a deepagents middleware of this name, and does nothing."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    @property
    def name(self) -> str:
        return self._name


def _tool_error(error: Exception, request: ToolCallRequest) -> str:
    try:
        told = clean_text(f"{type(error).__name__}: {error}")
    except Exception:  # an exception that cannot say what it is
        told = type(error).__name__
    logger.warning("tool %r failed, and the model is told: %s", request.tool_call["name"], told)
    logger.debug("where tool %r failed", request.tool_call["name"], exc_info=error)
    return told


def _name_history_by_thread(middleware: Any) -> None:
    # deepagents draws a random name for each conversation; named by the thread, a user of the agent
    # can find the file of a session. A sub-agent's history stays apart from its parent's.
    def session_id(state: Mapping[str, Any]) -> str:
        configurable = get_config()["configurable"]
        thread = str(configurable["thread_id"])
        outer, inner, _ = str(configurable.get("checkpoint_ns", "")).rpartition("|")
        return f"{thread}.{outer.rpartition(':')[2][:8]}" if inner else thread

    middleware._get_session_id = session_id


def _check_middleware(added: Sequence[AgentMiddleware[Any, Any, Any]]) -> None:
    seen: set[str] = set()
    for middleware in added:
        if isinstance(middleware, LangChainSummarization):
            raise ConfigurationError(
                "langchain.agents.middleware.SummarizationMiddleware deletes the messages it summarises from the "
                "log. Use deepagents.middleware.summarization.SummarizationMiddleware, which takes the same "
                "arguments and a backend and leaves the log whole."
            )
        if isinstance(middleware, FilesystemMiddleware) and _edits_log(middleware):
            raise ConfigurationError(
                "this FilesystemMiddleware replaces large messages in the log by a preview. Give it "
                "tool_token_limit_before_evict=None and human_message_token_limit_before_evict=None; "
                "what is too large is cut in the model's view only."
            )
        if middleware.name in (ToolGuard.__name__, ViewGuard.__name__):
            raise ConfigurationError(f"{middleware.name!r} is the name of a middleware of Regnexe's; choose another")
        if middleware.name in seen:
            raise ConfigurationError(f"two middlewares are named {middleware.name!r}; give each name once")
        for hook in _sync_only_hooks(middleware):
            raise ConfigurationError(
                f"middleware {middleware.name!r} has {hook} but not a{hook}; agents run asynchronously and need a{hook}"
            )
        seen.add(middleware.name)


def _edits_log(middleware: Any) -> bool:
    limits = (middleware._tool_token_limit_before_evict, middleware._human_message_token_limit_before_evict)
    return any(limit is not None for limit in limits)


def _sync_only_hooks(middleware: AgentMiddleware[Any, Any, Any]) -> list[str]:
    kind = type(middleware)
    return [
        hook
        for hook in ("wrap_model_call", "wrap_tool_call")
        if getattr(kind, hook) is not getattr(AgentMiddleware, hook)
        and getattr(kind, f"a{hook}") is getattr(AgentMiddleware, f"a{hook}")
    ]
