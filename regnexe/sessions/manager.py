"""`agent.sessions`: the list of sessions, and what one of them holds."""

from __future__ import annotations

import copy
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

from regnexe.errors import AgentClosed, CheckpointerError, RegnexeError, SessionNotFound, SizeUnknown
from regnexe.sessions.keys import SessionIds, key_of
from regnexe.sessions.reading import read_thread
from regnexe.sessions.stored import stored_thread, unwrapped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from langchain_core.messages import BaseMessage
    from langgraph.graph.state import CompiledStateGraph

    from regnexe.identity import SessionKey
    from regnexe.persistence.index.base import SessionIndex, SessionInfo, SessionPage

__all__ = ["SessionManager", "SessionSize", "Source", "opened"]


class Source(Protocol):
    """Where sessions are read from, on one event loop."""

    @property
    def graph(self) -> CompiledStateGraph[Any, Any, Any, Any]:
        """The graph whose checkpointer holds the threads."""
        ...

    @property
    def index(self) -> SessionIndex:
        """The list of sessions."""
        ...


S = TypeVar("S", bound=Source)


@dataclass(frozen=True, kw_only=True)
class SessionSize:
    """What a session takes in the checkpointer.

    Attributes:
        bytes: what is stored of it, sub-agents' state included, without what a database adds for rows and
            indexes. PostgreSQL tells what is left after compression; an in-memory saver what it would write.
        messages: how many messages its log holds.
        checkpoints: how many checkpoints there are, those of sub-agents included.
    """

    bytes: int
    messages: int
    checkpoints: int


class SessionManager:
    """The sessions of an agent's checkpointer, to look at. Got from `agent.sessions`.

    A session is named by a `SessionKey`, such as `SessionInfo.key`, or as in `ainvoke` by `session_id=`, with
    `app_id=` and `user_id=` (`"default"` when left out). Nothing here changes a session or waits for its runs.

    Raises:
        InvalidInput: an argument cannot work; `InvalidSessionId` for an id.
        CheckpointerError: the checkpointer, or the list of sessions, could not be read.
        AgentClosed: the agent was closed before or during the call.
        LoopError: the checkpointer cannot serve this event loop.
    """

    def __init__(self, source: Callable[[], Awaitable[Source]], is_closed: Callable[[], bool] = lambda: False) -> None:
        self._source = source
        self._is_closed = is_closed

    async def list(
        self, app_id: str, user_id: str | None = None, *, limit: int = 20, cursor: str | None = None
    ) -> SessionPage:
        """Return a page of an app's sessions, or of one user's in that app, the latest updated first.

        With `with_persistence` on SQLite or PostgreSQL a page costs the same however many sessions there are. With
        `with_store` the list is kept in the store, and a page costs a read of all sessions of the app or user. With
        `with_checkpointer` alone it is kept in memory, for all agents on that saver object: it then holds what was
        used in this process since it started, and `get` still finds the others.

        A session is in the list from before its first message is stored. One that is updated while somebody
        walks through the pages moves to the front of the list, behind the walk.

        Args:
            app_id: the app.
            user_id: the user; None stands for all users of the app.
            limit: how many sessions the page holds at most, 1 to 1000.
            cursor: the `cursor` of the page before; None asks for the first page.

        Raises:
            InvalidCursor: the cursor is damaged, or comes from another list.
        """
        async with opened(self._source, self._is_closed) as source:
            return await source.index.list(app_id, user_id, limit=limit, cursor=cursor)

    async def get(self, key: SessionKey | None = None, /, **ids: Unpack[SessionIds]) -> SessionInfo:
        """Return what the list tells of a session.

        One that is not in the list, since it was written before there was one, is read from the checkpointer, which
        costs a read of its log: `tokens` is then what its messages report, without sub-agents', and `created_at`
        the time of its oldest checkpoint, where the checkpointer can tell (SQLite, PostgreSQL and in memory).

        Raises:
            SessionNotFound: nothing is stored of it.
        """
        named = key_of(key, ids)
        async with opened(self._source, self._is_closed) as source:
            if (info := await source.index.get(named)) is not None:
                return info
            thread = await read_thread(source.graph, named.thread_id)
            if thread is None:
                raise _not_found(named)
            stored = await stored_thread(source.graph.checkpointer, named.thread_id)
            return thread.info(named, stored.first_id if stored else None)

    async def log(self, key: SessionKey | None = None, /, **ids: Unpack[SessionIds]) -> Sequence[BaseMessage]:
        """Return every message of a session, oldest first.

        The messages are copies: changing them changes neither what is stored nor what a later run sees. A session
        whose first message is about to be stored has none yet.

        Raises:
            SessionNotFound: nothing is stored of it.
        """
        named = key_of(key, ids)
        async with opened(self._source, self._is_closed) as source:
            return copy.deepcopy(await _messages(source, named))

    async def size(self, key: SessionKey | None = None, /, **ids: Unpack[SessionIds]) -> SessionSize:
        """Return what a session takes in the checkpointer; costs a read of its log.

        Raises:
            SessionNotFound: nothing is stored of it.
            SizeUnknown: the checkpointer is of a class that cannot tell. SQLite, PostgreSQL and in-memory ones can.
        """
        named = key_of(key, ids)
        async with opened(self._source, self._is_closed) as source:
            messages = await _messages(source, named)
            stored = await stored_thread(source.graph.checkpointer, named.thread_id)
            if stored is None:
                kind = type(unwrapped(source.graph.checkpointer)).__name__
                raise SizeUnknown(
                    f"the checkpointer {kind} cannot tell how many bytes session {named.thread_id!r} takes; "
                    "AsyncSqliteSaver, AsyncPostgresSaver and InMemorySaver can",
                    checkpointer=kind,
                )
            return SessionSize(bytes=stored.bytes, messages=len(messages), checkpoints=stored.checkpoints)


@asynccontextmanager
async def opened(source: Callable[[], Awaitable[S]], is_closed: Callable[[], bool]) -> AsyncIterator[S]:
    """Open what sessions are read from, and say in an exception of ours what goes wrong with it in the block.

    Raises:
        CheckpointerError: something of it failed.
        AgentClosed: it was closed meanwhile.
    """
    try:
        yield await source()
    except RegnexeError:
        raise
    except Exception as error:
        if is_closed():
            raise AgentClosed("the agent was closed during the call; build a new one to go on") from error
        raise CheckpointerError(
            f"the checkpointer or the list of sessions could not be read: {type(error).__name__}: {error}. If it was "
            "closed: keep its `async with` open for as long as the agent is used"
        ) from error


async def _messages(source: Source, key: SessionKey) -> Sequence[BaseMessage]:
    thread = await read_thread(source.graph, key.thread_id)
    if thread is None and await source.index.get(key) is None:
        raise _not_found(key)
    return thread.messages if thread else []


def _not_found(key: SessionKey) -> SessionNotFound:
    return SessionNotFound(
        f"there is no session {key.session_id!r} of user {key.user_id!r} in app {key.app_id!r}; "
        "`sessions.list` tells which there are",
        thread_id=key.thread_id,
    )
