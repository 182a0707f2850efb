"""The agent: what a service calls."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from regnexe.errors import AgentClosed
from regnexe.runtime.live import running_loop
from regnexe.runtime.loops import LoopRunners
from regnexe.runtime.portal import Portal, SyncRunStream
from regnexe.runtime.request import RunRequest, make_request
from regnexe.runtime.stream import RunStream
from regnexe.sessions.adopt import adopt_thread
from regnexe.sessions.manager import SessionManager
from regnexe.sessions.sync import SyncSessionManager

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from langchain_core.messages import HumanMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph

    from regnexe.events import Event
    from regnexe.identity import SessionKey
    from regnexe.listeners import AgentEventListener
    from regnexe.persistence.index.base import SessionInfo
    from regnexe.persistence.opened import PersistenceSource
    from regnexe.results import AgentResult
    from regnexe.runtime.runner import RunControl

    Goal = str | Sequence[str | Mapping[str, Any]] | HumanMessage

__all__ = ["RegnexeAgent"]


class RegnexeAgent:
    """An agent that remembers each of its sessions. Made by `RegnexeAgentBuilder.build()`.

    One agent serves any number of sessions at once, from any number of event loops and threads. It
    opens what it needs with the first call; `async with` (or `with`, or `aclose()`) ends it.
    """

    def __init__(
        self,
        graph: CompiledStateGraph[Any, Any, Any, Any],
        *,
        saver: BaseCheckpointSaver[Any],
        name: str,
        listeners: Sequence[AgentEventListener] = (),
        source: PersistenceSource | None = None,
    ) -> None:
        self._opens_early = source is not None
        self._runners = LoopRunners(graph, saver=saver, name=name, listeners=listeners, source=source)
        self._portal = Portal()
        self._sessions = SessionManager(self._runners.runner, lambda: self._runners.closed)
        self._sessions_sync = SyncSessionManager(self._sessions, self._portal)

    @property
    def graph(self) -> CompiledStateGraph[Any, Any, Any, Any]:
        """The compiled LangGraph graph, for what Regnexe does not offer.

        Runs made with it directly are not listened to and do not wait for their session's turn. Of an agent that was
        built with a persistence URL, take it inside `async with agent`, or after a first call on the same event loop.
        """
        return self._runners.graph

    @property
    def sessions(self) -> SessionManager:
        """The list of sessions, and what one of them holds: `await agent.sessions.list(app_id, user_id)`."""
        return self._sessions

    @property
    def sessions_sync(self) -> SyncSessionManager:
        """What `sessions` does, without `await`; works inside a running loop and in threads too."""
        return self._sessions_sync

    async def ainvoke(
        self,
        goal: Goal,
        *,
        app_id: str = "default",
        user_id: str = "default",
        session_id: str | None = None,
        timeout: float | None = None,
        config: RunnableConfig | None = None,
        context: Any = None,
    ) -> AgentResult:
        """Send one message to a session and return what the run gave.

        Calls for the same session run one after the other, in the order they came.

        Args:
            goal: the message: text, content blocks, or a `HumanMessage` (whose id is not kept).
            app_id: the application the session belongs to.
            user_id: the user the session belongs to.
            session_id: the session; None starts a new one, whose id is in the result.
            timeout: how long the run may take, in seconds, the wait for its turn not counted; one that
                takes longer ends with status `limited`.
            config: callbacks, tags, metadata and the rest, as everywhere in LangChain. It must not name
                a thread. A `run_id` in its metadata is kept as `client_run_id`.
            context: LangGraph's run-scoped context, handed to tools and middleware.

        Returns:
            The result. What happens to the run itself (a model that is down, a limit, a timeout) is in
            its `status` and `error`.

        Raises:
            InvalidInput: an argument cannot work; `InvalidSessionId` for an id. Nothing was stored.
            CheckpointerError: the checkpointer failed before the run began. Nothing was stored.
            PendingApprovalError: the session waits for a decision. Nothing was stored.
            AgentClosed: the agent was closed before or during the call.
            LoopError: the checkpointer cannot serve this event loop.
            asyncio.CancelledError: the caller was cancelled; the session stays usable.
        """
        request = self._request(goal, app_id, user_id, session_id, config=config, context=context, timeout=timeout)
        return await self._run(request)

    def astream(
        self,
        goal: Goal,
        *,
        app_id: str = "default",
        user_id: str = "default",
        session_id: str | None = None,
        timeout: float | None = None,
        config: RunnableConfig | None = None,
        context: Any = None,
    ) -> RunStream:
        """Send one message to a session and follow the run while it goes on.

        ```python
        async with agent.astream("...", session_id="s1") as stream:
            async for event in stream:
                ...
        print(stream.result.final_text)
        ```

        Takes what `ainvoke` takes. Bad arguments raise here; what depends on the session raises when
        the stream is read. Leaving early cancels the run within one step.
        """
        request = self._request(goal, app_id, user_id, session_id, config=config, context=context, timeout=timeout)

        async def start(control: RunControl, stream: Callable[[Event], Awaitable[None]]) -> AgentResult:
            return await self._run(request, control=control, stream=stream)

        return RunStream(start)

    def invoke(
        self,
        goal: Goal,
        *,
        app_id: str = "default",
        user_id: str = "default",
        session_id: str | None = None,
        timeout: float | None = None,
        config: RunnableConfig | None = None,
        context: Any = None,
    ) -> AgentResult:
        """Do what `ainvoke` does, without `await`; works inside a running loop and in threads too."""
        request = self._request(goal, app_id, user_id, session_id, config=config, context=context, timeout=timeout)
        return self._portal.call(self._run, request)

    def stream(
        self,
        goal: Goal,
        *,
        app_id: str = "default",
        user_id: str = "default",
        session_id: str | None = None,
        timeout: float | None = None,
        config: RunnableConfig | None = None,
        context: Any = None,
    ) -> SyncRunStream:
        """Do what `astream` does, without `async`; works inside a running loop and in threads too."""
        asynchronous = self.astream(
            goal,
            app_id=app_id,
            user_id=user_id,
            session_id=session_id,
            config=config,
            context=context,
            timeout=timeout,
        )
        return SyncRunStream(asynchronous, self._portal)

    async def adopt(self, key: SessionKey, thread_id: str) -> SessionInfo:
        """Take over a thread that was written without Regnexe, on the same checkpointer, as this session.

        The next `ainvoke` on the key continues its conversation, with its files, todos and whatever waits for a
        decision. The thread's latest state is copied: the thread stays as it was, its earlier checkpoints are not
        copied, and what either gets from now on, the other does not.

        Args:
            key: the session to make.
            thread_id: the thread id that was used with `create_deep_agent` or `create_agent`.

        Returns:
            What the list of sessions now tells of it. Its `tokens` are those that its messages report.

        Raises:
            SessionExists: there is a session of this key already.
            SessionNotFound: nothing is stored of the thread.
            AdoptionRefused: the thread belongs to another session, or waits for a decision that this agent could
                not take, since it lacks the middleware or the tool that asked. Nothing was stored.
            InvalidInput: an argument is of the wrong type.
            CheckpointerError: the checkpointer failed. Nothing that a later call would meet was stored.
            AgentClosed: the agent was closed before or during the call.
            LoopError: the checkpointer cannot serve this event loop.
        """
        return await adopt_thread(self._runners.runner, lambda: self._runners.closed, key, thread_id)

    def adopt_sync(self, key: SessionKey, thread_id: str) -> SessionInfo:
        """Do what `adopt` does, without `await`; works inside a running loop and in threads too."""
        return self._portal.call(self.adopt, key, thread_id)

    async def aclose(self) -> None:
        """Stop the runs that go on and close what the agent opened; closing twice is fine.

        The logs of the stopped runs are put in order, and their callers get `AgentClosed`, as do later
        calls. A run that closes its own agent (from a tool or a listener) is stopped too, at its next await.
        A checkpointer or store that was given to the builder stays open: it is its owner's to close.
        """
        await self._runners.aclose()
        await self._portal.aclose()
        self._runners.stop_callers_runs()

    def close(self) -> None:
        """Do what `aclose` does, without `await`.

        Called on a running event loop, it cannot wait for the runs on that loop; they end after it.
        """
        with suppress(AgentClosed):  # another thread closes it already
            self._portal.call(self._runners.aclose, running_loop())
        self._runners.stop_callers_runs()
        self._portal.close()

    async def __aenter__(self) -> Self:
        if self._opens_early:
            await self._runners.runner()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        if self._opens_early:
            try:
                self._portal.call(self._runners.runner)
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _request(
        self,
        goal: object,
        app_id: str,
        user_id: str,
        session_id: str | None,
        *,
        config: object,
        context: Any,
        timeout: object,
    ) -> RunRequest:
        if self._runners.closed:
            raise AgentClosed("the agent is closed; build a new one to go on with its sessions")
        return make_request(
            goal,
            app_id=app_id,
            user_id=user_id,
            session_id=session_id,
            config=config,
            context=context,
            timeout=timeout,
        )

    async def _run(
        self,
        request: RunRequest,
        control: RunControl | None = None,
        stream: Callable[[Event], Awaitable[None]] | None = None,
    ) -> AgentResult:
        return await self._runners.run(request, control=control, stream=stream)
