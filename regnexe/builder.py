"""The builder: says what an agent is made of, and checks it before anything is opened."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel

from regnexe.agent import RegnexeAgent
from regnexe.capabilities.decorators import plugin_from, tool_from
from regnexe.capabilities.model import WITH_TOOL, check_unique
from regnexe.errors import ConfigurationError
from regnexe.messages import clean_text
from regnexe.models.vendors import Vendor, chat_model, given_model, model_from_spec
from regnexe.persistence.given import check_saver, check_store
from regnexe.persistence.source import persistence_source

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Self

    from langchain.agents.middleware.types import AgentMiddleware
    from langchain_core.tools import BaseTool
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.store.base import BaseStore

    from regnexe.listeners import AgentEventListener

__all__ = ["RegnexeAgentBuilder"]


class RegnexeAgentBuilder:
    """Builds an agent step by step; each `with_…` returns the builder itself.

    `build()` can be called more than once; the agents share nothing that changes but what they were
    all given (a checkpointer, a listener, a middleware).
    """

    def __init__(self) -> None:
        self._model: BaseChatModel | None = None
        self._tools: list[tuple[str, BaseTool]] = []
        self._plugins: list[str] = []
        self._middleware: list[AgentMiddleware[Any, Any, Any]] = []
        self._listeners: list[AgentEventListener] = []
        self._checkpointer: BaseCheckpointSaver[Any] | None = None
        self._store: BaseStore | None = None
        self._url: str | None = None
        self._system_prompt: str | None = None
        self._response_format: Any = None
        self._response_names: list[str] = []

    def with_default_model(self, vendor: Vendor | str, name: str, *, fallback: str | None = None) -> Self:
        """Use a vendor's model; the key comes from the vendor's environment variable.

        `<VENDOR>_BASE_URL`, for example `DEEPSEEK_BASE_URL`, sends the requests to another address.

        Args:
            vendor: who serves the model.
            name: the vendor's name of the model.
            fallback: `"offline"` uses the offline model when the vendor's key is missing, with one line on
                stderr.

        Raises:
            UnknownVendor: no such vendor; the message names the nearest.
            ConfigurationError: the key or a package is missing; the message says which.
        """
        self._model = chat_model(vendor, name, fallback=fallback)
        return self

    def with_model_spec(self, spec: str) -> Self:
        """Use the model that `"vendor:name"` names, for example `"offline:demo"`; see `with_default_model`."""
        self._model = model_from_spec(spec)
        return self

    def with_model(self, model: BaseChatModel) -> Self:
        """Use a LangChain chat model as it is, with one exception.

        A `ChatDeepSeek` is used as a `regnexe.models.deepseek.DeepSeekChatModel` with the same settings and
        clients, since DeepSeek refuses the tool loops that it sends; the log says so. A subclass of it is
        left alone, with a warning.

        Raises:
            ConfigurationError: it is not a chat model.
        """
        if not isinstance(model, BaseChatModel):
            hint = ' (for "vendor:name" use with_model_spec)' if isinstance(model, str) else ""
            raise ConfigurationError(f"with_model takes a LangChain chat model, got {_kind(model)}{hint}")
        if type(model).bind_tools is BaseChatModel.bind_tools:
            raise ConfigurationError(
                f"{_kind(model)} cannot call tools: it has no bind_tools, which agents need (for tests there is "
                "regnexe.testing.ScriptedChatModel)"
            )
        self._model = given_model(model)
        return self

    def with_tool(self, *tools: object) -> Self:
        """Add tools: LangChain tools, `@agent_tool` functions, or plain functions with a docstring.

        Raises:
            ConfigurationError: one of them cannot be a tool, for example because it has no description.
        """
        self._tools += [(WITH_TOOL, tool_from(tool)) for tool in tools]
        return self

    def with_plugin(self, *plugins: object) -> Self:
        """Add the tools of plugins: instances of `@plugin` classes.

        Raises:
            ConfigurationError: one of them is not a plugin, or was added before.
        """
        new = [plugin_from(given) for given in plugins]
        ids = [*self._plugins, *(added.id for added in new)]
        for added in new:
            if ids.count(added.id) > 1:
                raise ConfigurationError(f"plugin {added.id!r} was added twice; give one of them another id")
        self._plugins = ids
        self._tools += [(added.id, tool) for added in new for tool in added.tools]
        return self

    def with_middleware(self, *middleware: AgentMiddleware[Any, Any, Any]) -> Self:
        """Add LangChain middleware, outermost first.

        One with the name of a middleware that deepagents or Regnexe brings takes its place; so does
        deepagents' `SummarizationMiddleware`, to choose when histories are summarised.

        Raises:
            ConfigurationError: one of them is not a middleware.
        """
        from langchain.agents.middleware.types import AgentMiddleware

        for added in middleware:
            if not isinstance(added, AgentMiddleware):
                raise ConfigurationError(
                    f"with_middleware takes instances of LangChain's AgentMiddleware, got {_kind(added)}"
                )
        self._middleware += middleware
        return self

    def with_event_listener(self, *listeners: AgentEventListener) -> Self:
        """Add observers of runs: objects with `async on_event(event_type, name, data)`.

        Raises:
            ConfigurationError: one of them has no such method.
        """
        for added in listeners:
            if isinstance(added, type) or not inspect.iscoroutinefunction(getattr(added, "on_event", None)):
                raise ConfigurationError(
                    "with_event_listener takes objects with `async on_event(event_type, name, data)`, "
                    f"got {_kind(added)}"
                )
        self._listeners += listeners
        return self

    def with_checkpointer(self, checkpointer: BaseCheckpointSaver[Any]) -> Self:
        """Keep sessions with this async LangGraph saver; in memory without one. It stays yours to close.

        Raises:
            ConfigurationError: it is not an open async saver; the message names the class to use.
        """
        self._refuse_two_places("with_checkpointer")
        check_saver("with_checkpointer", checkpointer)
        self._checkpointer = checkpointer
        return self

    def with_store(self, store: BaseStore) -> Self:
        """Give tools and middleware this async LangGraph store, shared by all sessions. It stays yours to close.

        Raises:
            ConfigurationError: it is not an open async store; the message names the class to use.
        """
        self._refuse_two_places("with_store")
        check_store("with_store", store)
        self._store = store
        return self

    def with_persistence(self, url: str) -> Self:
        """Keep everything of the sessions in one place: checkpointer, store, list of sessions, and their lock.

        `build()` opens nothing; the agent opens it with the first call or `async with`, makes what is missing, and
        closes it.

        - `memory://`: in this process, each agent for itself.
        - `sqlite:///relative.db`, `sqlite:////absolute.db`: a file. `?busy_timeout=30` says for how many seconds a
          write waits for those that have it locked (10), `?synchronous=full` saves the last writes from power cuts.
        - `postgresql://user:password@host:port/database`: PostgreSQL 14 or newer; needs
          `pip install "regnexe[postgres]"`. `?pool_size=20` allows so many connections for each event loop (5),
          `?pool_timeout=60` is how many seconds to wait for one (30); and what libpq takes, such as `sslmode`.

        Special characters in names and passwords are percent-encoded, as in `%40` for `@`.

        Raises:
            ConfigurationError: it is no such URL, a package is missing (the message says how to install it), or
                there is a checkpointer or a store already.
        """
        self._refuse_two_places("with_persistence")
        persistence_source(url)
        self._url = url
        return self

    def _refuse_two_places(self, added: str) -> None:
        given = {"with_persistence": self._url, "with_checkpointer": self._checkpointer, "with_store": self._store}
        for call, place in given.items():
            if place is not None and (call == "with_persistence") is not (added == "with_persistence"):
                raise ConfigurationError(
                    f"with_persistence brings a checkpointer and a store; {call} was called, so leave {added} out"
                )

    def with_system_prompt(self, text: str) -> Self:
        """Put this text in front of every conversation; deepagents' own guidance follows it.

        Raises:
            ConfigurationError: it is not text, or empty.
        """
        if not isinstance(text, str) or not text.strip():
            raise ConfigurationError(f"with_system_prompt takes a non-empty str, got {text!r}")
        if clean_text(text) != text:
            raise ConfigurationError("the system prompt holds a lone surrogate, which no model can be sent")
        self._system_prompt = text
        return self

    def with_response_format(self, schema: Any) -> Self:
        """Ask for answers in this form, found in `AgentResult.structured`.

        Args:
            schema: what LangChain's `create_agent` takes: a pydantic model, a dataclass, a `TypedDict`, a
                JSON schema, or a `ToolStrategy` or `ProviderStrategy` around one.

        Raises:
            ConfigurationError: it is none of these.
        """
        from regnexe.runtime.schema_names import schema_names

        self._response_names = schema_names(schema)
        self._response_format = schema
        return self

    def _check_other_names(self, reserved: Collection[str]) -> None:
        """Refuse tools of middleware, and answers in a form, that go by the name of a tool."""
        names = {tool.name for _, tool in self._tools}
        for middleware in self._middleware:
            own = type(middleware).__module__.startswith("deepagents.")
            for tool in getattr(middleware, "tools", None) or ():
                name = getattr(tool, "name", None)
                if name in names or (name in reserved and not own):
                    raise ConfigurationError(
                        f"middleware {middleware.name!r} brings a tool named {name!r}, and there is one already"
                    )
        for name in self._response_names:
            if name in names or name in reserved:
                raise ConfigurationError(
                    f"the schema of with_response_format is named {name!r}, like a tool; rename one of them"
                )

    def build(self) -> RegnexeAgent:
        """Check everything and return the agent. Opens nothing, and needs no event loop.

        Raises:
            ConfigurationError: something is missing or does not fit; the message says what.
        """
        if self._model is None:
            raise ConfigurationError(
                'no model: call with_default_model(Vendor.OFFLINE, "demo"), with_model(...) or with_model_spec(...)'
            )
        from langgraph.checkpoint.memory import InMemorySaver

        from regnexe.persistence.unopened import UnopenedSaver, UnopenedStore
        from regnexe.runtime.graph import RESERVED_TOOL_NAMES, GraphParts, build_graph

        check_unique(self._tools, RESERVED_TOOL_NAMES)
        self._check_other_names(RESERVED_TOOL_NAMES)
        source = None if self._url is None else persistence_source(self._url)
        saver: BaseCheckpointSaver[Any] = InMemorySaver() if self._checkpointer is None else self._checkpointer
        store = self._store
        if source is not None:
            saver, store = UnopenedSaver(source.place), UnopenedStore(source.place)
        graph = build_graph(
            GraphParts(
                model=self._model,
                tools=tuple(tool for _, tool in self._tools),
                middleware=tuple(self._middleware),
                checkpointer=saver,
                store=store,
                system_prompt=self._system_prompt,
                response_format=self._response_format,
            )
        )
        return RegnexeAgent(graph, saver=saver, name="agent", listeners=tuple(self._listeners), source=source)


def _kind(given: object) -> str:
    return f"the class {given.__name__}; pass an instance" if isinstance(given, type) else type(given).__name__
