"""SQLite files: locks, full disks, files that are none, and what a close gives back."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiosqlite
import pytest
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.sqlite.aio import AsyncSqliteStore

from regnexe import (
    DatabaseBusy,
    PersistenceError,
    RegnexeAgent,
    RegnexeAgentBuilder,
    RunStatus,
    open_persistence,
)
from regnexe.persistence.whole_writes import with_whole_writes
from regnexe.testing import ScriptedChatModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.messages import BaseMessage


CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
CHECKPOINT: Any = {"id": "1", "v": 4, "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}}


def count(messages: list[BaseMessage]) -> str:
    """Answer with how many human messages the model sees."""
    return str(sum(message.type == "human" for message in messages))


def build(path: Path | str, model: Any = count, *, options: str = "") -> RegnexeAgent:
    builder = RegnexeAgentBuilder().with_model(ScriptedChatModel(model)).with_persistence(f"sqlite:///{path}{options}")
    return builder.build()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


class Locker:
    """Another connection that can lock the file."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def lock(self) -> None:
        self.connection.execute("BEGIN IMMEDIATE")

    def release(self) -> None:
        self.connection.execute("COMMIT")


@pytest.fixture
def locker(path: Path) -> Iterator[Locker]:
    made = Locker(path)
    yield made
    made.connection.close()


def values(path: Path, *pragmas: str) -> list[Any]:
    with sqlite3.connect(path) as connection:
        found = [connection.execute(f"PRAGMA {pragma}").fetchone()[0] for pragma in pragmas]
    connection.close()
    return found


async def test_a_new_file_is_in_wal_mode_and_can_shrink(path: Path) -> None:
    async with open_persistence(f"sqlite:///{path}") as opened:
        saver: Any = opened.checkpointer
        assert list(await saver.conn.execute_fetchall("PRAGMA synchronous")) == [(1,)]
        assert list(await saver.conn.execute_fetchall("PRAGMA busy_timeout")) == [(10_000,)]
    assert values(path, "journal_mode", "auto_vacuum") == ["wal", 2]
    async with open_persistence(f"sqlite:///{path}?synchronous=full&busy_timeout=0.25") as opened:
        saver = opened.checkpointer
        assert list(await saver.conn.execute_fetchall("PRAGMA synchronous")) == [(2,)]
        assert list(await saver.conn.execute_fetchall("PRAGMA busy_timeout")) == [(250,)]


async def test_the_room_of_a_deleted_thread_is_given_back_when_the_agent_closes(path: Path) -> None:
    async with build(path) as agent:
        result = await agent.ainvoke("x" * 2_000_000, session_id="s")
        saver: Any = agent.graph.checkpointer
        await saver.adelete_thread(result.thread_id)
    assert os.path.getsize(path) < 300_000  # noqa: ASYNC240  # nothing else runs
    assert values(path, "freelist_count") == [0]


async def test_a_file_that_is_locked_for_longer_than_the_timeout_fails_the_turn_with_nothing_half_stored(
    path: Path, locker: Locker
) -> None:
    async with build(path, options="?busy_timeout=0.05") as agent:
        before = await agent.ainvoke("first", session_id="s")
        locker.lock()
        lost = await agent.ainvoke("lost", session_id="s")
        assert lost.status is RunStatus.ERROR
        assert isinstance(lost.error, DatabaseBusy)
        assert lost.error.place == str(path)
        assert "locked by another connection or process for longer than writes wait" in str(lost.error)
        locker.release()
        after = await agent.ainvoke("second", session_id="s")
    assert after.status is RunStatus.COMPLETED
    assert [m.id for m in after.session.messages[:2]] == [m.id for m in before.messages]
    assert "lost" not in [m.text for m in after.session.messages]


async def test_a_write_that_is_refused_for_a_moment_is_tried_again_and_the_turn_is_not_lost(
    path: Path, locker: Locker
) -> None:
    refused: list[str] = []

    def answer(messages: list[BaseMessage]) -> str:
        locker.lock()
        return "ok"

    async with build(path, answer, options="?busy_timeout=0.01") as agent:
        saver: Any = agent.graph.checkpointer
        while hasattr(saver, "saver"):
            saver = saver.saver
        execute = saver.conn.rollback

        async def rollback() -> None:
            refused.append("refused")
            locker.release()
            await execute()

        saver.conn.rollback = rollback
        result = await agent.ainvoke("hi", session_id="s")
        assert (result.status, result.final_text, result.error) == (RunStatus.COMPLETED, "ok", None)
    assert len(refused) == 1


async def test_a_saver_of_the_users_own_tries_again_too_and_says_which_file_is_locked(
    path: Path, locker: Locker
) -> None:
    async with aiosqlite.connect(path, timeout=0.01) as connection:
        saver = with_whole_writes(AsyncSqliteSaver(connection))
        await saver.aput(CONFIG, CHECKPOINT, {}, {})
        locker.lock()
        with pytest.raises(DatabaseBusy, match="locked") as caught:
            await saver.aput(CONFIG, CHECKPOINT, {}, {})
        assert caught.value.place == str(path)
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        assert not connection.in_transaction
        locker.release()
        await saver.aput(CONFIG, CHECKPOINT, {}, {})


async def test_a_write_that_sqlite_refuses_is_rolled_back_at_once(path: Path, locker: Locker) -> None:
    async with open_persistence(f"sqlite:///{path}") as opened:
        locker.connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON checkpoints BEGIN SELECT raise(ABORT, 'not today'); END"
        )
        with pytest.raises(sqlite3.IntegrityError, match="not today"):
            await opened.checkpointer.aput(CONFIG, CHECKPOINT, {}, {})
        locker.connection.execute("PRAGMA busy_timeout = 0")
        locker.lock()
        locker.release()
        locker.connection.execute("DROP TRIGGER refuse")


async def test_a_turn_that_sqlite_refuses_fails_and_the_next_works(path: Path, locker: Locker) -> None:
    async with build(path) as agent:
        await agent.ainvoke("hi", session_id="s")
        locker.connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON checkpoints BEGIN SELECT raise(ABORT, 'not today'); END"
        )
        result = await agent.ainvoke("refused", session_id="s")
        assert (result.status, str(result.error)) == (RunStatus.ERROR, "not today")
        locker.connection.execute("DROP TRIGGER refuse")
        assert (await agent.ainvoke("hi", session_id="s")).status is RunStatus.COMPLETED


async def test_a_batch_of_the_store_is_stored_whole_or_not_at_all(path: Path, locker: Locker) -> None:
    from langgraph.store.base import GetOp, PutOp

    async with open_persistence(f"sqlite:///{path}?busy_timeout=0.01") as opened:
        store = opened.store
        locker.connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON store WHEN NEW.key = 'bad' "
            "BEGIN SELECT raise(ABORT, 'not today'); END"
        )
        await store.aput(("a",), "good", {"v": 1})
        with pytest.raises(sqlite3.IntegrityError, match="not today"):
            await store.abatch([PutOp(("a",), "good", None), PutOp(("b",), "bad", {"v": 1})])
        assert await store.aget(("a",), "good") is not None
        locker.lock()
        with pytest.raises(DatabaseBusy):
            await store.aput(("a",), "k", {"v": 1})
        locker.release()
        # A batch that reads and then writes while others write cannot follow its own snapshot; it is done again.
        ops: list[Any] = [GetOp(("a",), "k"), PutOp(("a",), "k", {"v": 1})]
        await asyncio.gather(*(store.abatch(ops) for _ in range(5)))
        found = await store.aget(("a",), "k")
        assert found is not None
        assert found.value == {"v": 1}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, None),
        (lambda path: path.write_bytes(b""), None),
        (lambda path: path.mkdir(), "is a directory; name a file in it"),
        (lambda path: path.write_text("no database " * 500), "is no SQLite database; name another file"),
        (lambda path: path.symlink_to(path.parent / "no" / "x.db"), "cannot be opened|may not be read and written"),
    ],
    ids=["nothing", "empty", "directory", "text", "dangling link"],
)
async def test_what_is_at_the_path_is_told_in_a_sentence_or_used(make: Any, said: str | None, path: Path) -> None:
    make(path)
    if said is None:
        async with build(path) as agent:
            assert (await agent.ainvoke("x")).status is RunStatus.COMPLETED
        return
    with pytest.raises(PersistenceError, match=said) as caught:
        async with build(path):
            pass
    assert caught.value.place == str(path)
    with pytest.raises(PersistenceError, match=said):
        await build(path).ainvoke("x")
    with pytest.raises(PersistenceError, match=said), build(path):
        pass


async def test_a_directory_that_is_missing_or_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PersistenceError, match=f"the directory '{tmp_path}/no/where' does not exist; create it first"):
        await build(tmp_path / "no" / "where" / "x.db").ainvoke("x")
    assert os.listdir(tmp_path) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(PersistenceError, match=f"'{tmp_path}/file' is not a directory"):
        await build(tmp_path / "file" / "x.db").ainvoke("x")


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A directory, and the rights of a user who is not root while the test runs."""
    with tempfile.TemporaryDirectory() as directory:
        root = os.geteuid() == 0
        os.chmod(directory, 0o755)
        inside = Path(directory) / "mine"
        inside.mkdir()
        if root:
            os.chown(inside, 65534, 65534)
            os.seteuid(65534)
        try:
            yield inside
        finally:
            inside.chmod(0o755)
            if root:
                os.seteuid(0)


@pytest.mark.parametrize(
    ("mode", "directory_mode", "said"),
    [
        (0o444, 0o755, "may not be read and written by this user"),
        (0o000, 0o755, "may not be read and written by this user"),
        (0o644, 0o555, "this user may not write in .*, where SQLite keeps x.db-wal beside the file"),
        (0o644, 0o000, "this user may not enter the directory"),
    ],
)
async def test_missing_permissions_are_told_in_a_sentence(
    as_nobody: Path, mode: int, directory_mode: int, said: str
) -> None:
    path = as_nobody / "x.db"
    async with build(path) as agent:
        await agent.ainvoke("x")
    os.chmod(path, mode)
    os.chmod(as_nobody, directory_mode)
    with pytest.raises(PersistenceError, match=said):
        await build(path).ainvoke("x")


async def test_a_file_that_becomes_read_only_fails_the_turn_with_a_sentence(path: Path) -> None:
    async with build(path) as agent:
        await agent.ainvoke("x", session_id="s")
        for saver in savers_of(agent):
            await saver.conn.execute("PRAGMA query_only = 1")
        result = await agent.ainvoke("y", session_id="s")
        assert isinstance(result.error, PersistenceError)
        assert "may not be written" in str(result.error)


async def test_a_full_disk_fails_the_turn_with_a_sentence_and_the_next_works_when_there_is_room(path: Path) -> None:
    async with build(path) as agent:
        await agent.ainvoke("x", session_id="s")
        (saver,) = savers_of(agent)
        ((pages,),) = await saver.conn.execute_fetchall("PRAGMA page_count")
        await saver.conn.execute_fetchall(f"PRAGMA max_page_count = {pages + 2}")
        result = await agent.ainvoke("y" * 100_000, session_id="s")
        assert isinstance(result.error, PersistenceError)
        assert "has no room left: the disk is full" in str(result.error)
        await saver.conn.execute_fetchall("PRAGMA max_page_count = 1000000")
        again = await agent.ainvoke("z", session_id="s")
        assert again.status is RunStatus.COMPLETED
        assert [m.text[:1] for m in again.session.messages if m.type == "human"] == ["x", "z"]


def savers_of(agent: RegnexeAgent) -> list[Any]:
    saver: Any = agent.graph.checkpointer
    while hasattr(saver, "saver"):
        saver = saver.saver
    return [saver]


def test_a_limit_on_file_sizes_is_told_in_a_sentence(path: Path) -> None:
    script = f"""
    import asyncio, resource
    from regnexe import RegnexeAgentBuilder
    agent = RegnexeAgentBuilder().with_model_spec("offline:demo").with_persistence("sqlite:///{path}").build()
    async def main():
        async with agent:
            await agent.ainvoke("hi", session_id="s")
            resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
            result = await agent.ainvoke("x" * 1_000_000, session_id="s")
            print(type(result.error).__name__, result.error)
            print((await agent.ainvoke("hi", session_id="s")).status)
    asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "PersistenceError the SQLite database" in done.stdout, done.stderr
    assert "a limit on file sizes was reached" in done.stdout or "has no room left" in done.stdout
    assert done.stdout.endswith("completed\n")


@pytest.mark.parametrize(
    "table",
    [
        "checkpoints (id INTEGER PRIMARY KEY, name TEXT)",
        "writes (thread_id TEXT, body TEXT)",
        "store (id INTEGER PRIMARY KEY, item TEXT)",
        "regnexe_sessions (x)",
    ],
)
def test_a_database_of_another_program_is_left_as_it_is(table: str, path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE {table}")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    name = table.split()[0]
    with pytest.raises(PersistenceError, match=f"has a table '{name}' of another program: it lacks the column"):
        build(path).invoke("x")
    assert path.read_bytes() == before


async def test_a_relative_path_keeps_meaning_what_it_meant_when_it_was_first_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    async with build("x.db") as agent:
        assert (await agent.ainvoke("a", session_id="s")).final_text == "1"
        os.chdir(tmp_path / "two")
        assert (await agent.ainvoke("b", session_id="s")).final_text == "2"
        assert (await asyncio.to_thread(agent.invoke, "c", session_id="s")).final_text == "3"
    assert list((tmp_path / "two").iterdir()) == []


async def test_links_to_one_file_have_one_lease_scope(path: Path) -> None:
    link = path.with_name("link.db")
    async with open_persistence(f"sqlite:///{path}") as one:
        link.symlink_to(path)
        async with open_persistence(f"sqlite:///{link}") as other:
            assert one.lease_scope == other.lease_scope


async def test_a_file_that_langgraphs_own_classes_have_made_is_used_as_it_is(path: Path) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        own = RegnexeAgentBuilder().with_model(ScriptedChatModel(count)).with_checkpointer(saver).build()
        await own.ainvoke("a", session_id="s")
    async with AsyncSqliteStore.from_conn_string(str(path)) as store:
        await store.setup()
        await store.aput(("n",), "k", {"v": 1})
    async with open_persistence(f"sqlite:///{path}") as opened:
        item = await opened.store.aget(("n",), "k")
        assert item is not None
    async with build(path) as agent:
        assert (await agent.ainvoke("b", session_id="s")).final_text == "2"


def test_a_killed_process_loses_nothing_that_was_acknowledged(path: Path) -> None:
    script = f"""
    import asyncio, os, signal
    from regnexe import RegnexeAgentBuilder
    agent = RegnexeAgentBuilder().with_model_spec("offline:demo").with_persistence("sqlite:///{path}").build()
    async def main():
        async with agent:
            result = await agent.ainvoke("remember me", session_id="s")
            print(*[message.id for message in result.session.messages], flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL
    with build(path) as agent:
        result = agent.invoke("again", session_id="s")
    assert [message.id for message in result.session.messages[:2]] == done.stdout.split()


async def test_what_the_stores_lean_on_in_langgraph_is_still_there(path: Path) -> None:
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        store = AsyncSqliteStore(connection)
        assert callable(store._cursor), "AsyncSqliteStore no longer makes its transactions in _cursor"
        assert isinstance(store._task, asyncio.Task), "AsyncBatchedBaseStore no longer has its task in _task"
        assert len(AsyncSqliteStore.MIGRATIONS) >= 5, "AsyncSqliteStore no longer lists its tables in MIGRATIONS"
        assert all(sqlite3.complete_statement(sql) for sql in AsyncSqliteStore.MIGRATIONS)
