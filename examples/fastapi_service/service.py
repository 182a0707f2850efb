"""A chat service in which any worker serves any session, since the sessions live in one database.

It needs `pip install "regnexe[postgres]" fastapi uvicorn`, and a PostgreSQL server:

    DATABASE_URL=postgresql://user:password@host/chat uvicorn service:app --workers 2

`two_workers.py` beside it runs all of that, server included.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from regnexe import (
    InvalidInput,
    PendingApprovalError,
    PersistenceError,
    RegnexeAgent,
    RegnexeAgentBuilder,
    SessionNotFound,
    Vendor,
)
from regnexe.messages import text_of

APP = "shop"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One agent a worker: it opens its connections here and closes them with the worker."""
    async with (
        RegnexeAgentBuilder()
        .with_default_model(Vendor.DEEPSEEK, "deepseek-flash", fallback="offline")
        .with_persistence(os.environ["DATABASE_URL"])
        .build()
    ) as agent:
        app.state.agent = agent
        yield


app = FastAPI(lifespan=lifespan)

# What the caller did wrong (bad ids and cursors are InvalidInput too), or a database that is away.
STATUS_OF = {InvalidInput: 422, SessionNotFound: 404, PendingApprovalError: 409, PersistenceError: 503}


def refused(request: Request, error: Exception) -> JSONResponse:
    """Answer with the status that belongs to an exception."""
    status = next(code for kind, code in STATUS_OF.items() if isinstance(error, kind))
    # What happens inside the database is for the log, not for the caller.
    detail = "try again later" if status == 503 else str(error)
    return JSONResponse({"detail": detail}, status_code=status)


for kind in STATUS_OF:
    app.add_exception_handler(kind, refused)


def the_agent(request: Request) -> RegnexeAgent:
    """Return the agent of this worker."""
    agent: RegnexeAgent = request.app.state.agent
    return agent


Agent = Annotated[RegnexeAgent, Depends(the_agent)]


class Message(BaseModel):
    """What a user says."""

    text: str


class Answer(BaseModel):
    """What came of it."""

    status: str
    text: str
    worker: int


# A real service takes the user from its authentication, never from the path.
@app.post("/users/{user_id}/sessions/{session_id}")
async def say(user_id: str, session_id: str, message: Message, agent: Agent) -> Answer:
    """Send a message to a session."""
    result = await agent.ainvoke(message.text, app_id=APP, user_id=user_id, session_id=session_id)
    return Answer(status=result.status, text=result.final_text, worker=os.getpid())


@app.get("/users/{user_id}/sessions")
async def sessions(user_id: str, agent: Agent, cursor: str | None = None) -> dict[str, object]:
    """List a user's sessions, the newest first, a page at a time."""
    page = await agent.sessions.list(APP, user_id, cursor=cursor)
    return {
        "sessions": [{"id": found.key.session_id, "title": found.title} for found in page.sessions],
        "cursor": page.cursor,
    }


@app.get("/users/{user_id}/sessions/{session_id}")
async def log(user_id: str, session_id: str, agent: Agent) -> list[dict[str, str]]:
    """Return what was said in a session, all of it."""
    messages = await agent.sessions.log(app_id=APP, user_id=user_id, session_id=session_id)
    return [{"by": message.type, "text": text_of(message)} for message in messages]
