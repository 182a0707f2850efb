"""What every session index promises, on all four."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import textwrap
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import aiosqlite
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite.aio import AsyncSqliteStore

from regnexe import InvalidCursor, InvalidInput, InvalidSessionId, SessionKey
from regnexe.persistence.index.base import SessionIndex, SessionInfo, SessionPage, SessionUpdate, title_of
from regnexe.persistence.index.choice import default_index
from regnexe.persistence.index.memory import MemorySessionIndex
from regnexe.persistence.index.postgres import PostgresSessionIndex
from regnexe.persistence.index.sqlite import SqliteSessionIndex
from regnexe.persistence.index.store import StoreSessionIndex, label

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

START = datetime(2026, 1, 31, 23, 59, 59, 999_999, tzinfo=UTC)
HARD_IDS = [
    "alice@example.com",
    "Alice@Example.com",
    "a.b",
    "a_b",
    "a%b",
    "axb",
    "ab",
    "a",
    "A",
    "a:b",
    "a%3Ab",
    "a~",
    "a=",
    "=41",
    "==",
    "..",
    " ",
    "'; DROP TABLE regnexe_sessions; --",
    "北京",
    "ß",
    "ss",
    "é",
    "e\u0301",
    "x" * 255,
    "X" * 255,
    "北" * 100 + "a",
    "北" * 100 + "b",
]


async def open_index(kind: str, folder: Path, request: pytest.FixtureRequest, stack: AsyncExitStack) -> SessionIndex:
    if kind == "memory":
        return MemorySessionIndex()
    if kind == "store":
        store = await stack.enter_async_context(AsyncSqliteStore.from_conn_string(str(folder / "store.db")))
        await store.setup()
        return StoreSessionIndex(store)
    if kind == "sqlite":
        connection = await stack.enter_async_context(aiosqlite.connect(folder / "sessions.db"))
        return SqliteSessionIndex(connection)
    from psycopg_pool import AsyncConnectionPool

    url = request.getfixturevalue("postgres_url")
    pool = AsyncConnectionPool(url, min_size=1, max_size=4, open=False)
    await stack.enter_async_context(pool)
    return PostgresSessionIndex(pool)


@pytest.fixture(params=["memory", "store", "sqlite", "postgres"])
async def index(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionIndex]:
    """Each kind of index in turn."""
    async with AsyncExitStack() as stack:
        made = await open_index(request.param, tmp_path, request, stack)
        await made.setup()
        yield made


def update(
    session: str = "s", *, app: str = "app", user: str = "user", after: float = 0, **about: Any
) -> SessionUpdate:
    at = START + timedelta(seconds=after)
    return SessionUpdate(**{"key": SessionKey(app, user, session), "at": at, "status": "completed", **about})


async def walk(index: SessionIndex, app: str, user: str | None = None, limit: int = 3) -> list[SessionPage]:
    pages = [await index.list(app, user, limit=limit)]
    while pages[-1].cursor is not None:
        pages.append(await index.list(app, user, limit=limit, cursor=pages[-1].cursor))
    return pages


def ids(*pages: SessionPage) -> list[str]:
    return [info.session_id for page in pages for info in page.sessions]


async def test_what_was_recorded_is_read_back_exactly(index: SessionIndex) -> None:
    key = SessionKey("app", "user", "s")
    told: dict[str, Any] = {"title": 'A "title" — 北京 🙂', "turns": 3, "messages": 12, "tags": ("a", "b, c")}
    await index.record(SessionUpdate(key=key, at=START, status="error", tokens=10**12, **told))
    expected = SessionInfo(key=key, created_at=START, updated_at=START, status="error", tokens=10**12, **told)
    assert await index.get(key) == expected
    assert (await index.list("app")).sessions == (expected,)
    found = await index.get(key)
    assert found is not None
    assert (found.created_at.utcoffset(), found.updated_at.utcoffset()) == (timedelta(0), timedelta(0))
    assert (found.app_id, found.user_id, found.session_id, found.thread_id) == ("app", "user", "s", "app:user:s")


async def test_an_update_changes_what_it_names_adds_tokens_and_keeps_the_rest(index: SessionIndex) -> None:
    await index.record(update(title="first", turns=1, messages=1, tokens=5, status="running", tags=("x",)))
    await index.record(update(after=5, title="second", tokens=7))
    found = await index.get(SessionKey("app", "user", "s"))
    assert found == SessionInfo(
        key=SessionKey("app", "user", "s"),
        title="first",
        created_at=START,
        updated_at=START + timedelta(seconds=5),
        turns=1,
        messages=1,
        tokens=12,
        status="completed",
        tags=("x",),
    )
    await index.record(update(after=6, turns=2, messages=4, tags=()))
    found = await index.get(SessionKey("app", "user", "s"))
    assert found is not None
    assert (found.turns, found.messages, found.tokens, found.tags) == (2, 4, 12, ())


async def test_a_session_without_a_title_takes_the_first_one_that_comes(index: SessionIndex) -> None:
    await index.record(update(title=""))
    await index.record(update(title="now it has one"))
    found = await index.get(SessionKey("app", "user", "s"))
    assert found is not None
    assert found.title == "now it has one"


async def test_a_clock_that_runs_behind_does_not_move_a_session_back_in_the_list(index: SessionIndex) -> None:
    await index.record(update("a", after=10))
    await index.record(update("b", after=20))
    await index.record(update("b", after=-3600))
    assert ids(await index.list("app")) == ["b", "a"]


async def test_a_time_of_another_zone_is_kept_as_utc(index: SessionIndex) -> None:
    await index.record(update(at=START.astimezone(timezone(timedelta(hours=8)))))
    found = await index.get(SessionKey("app", "user", "s"))
    assert found is not None
    assert (found.created_at, found.created_at.tzinfo) == (START, UTC)


async def test_pages_hold_every_session_once_newest_first_and_the_last_has_no_cursor(index: SessionIndex) -> None:
    for number in range(10):
        # Three share each moment.
        await index.record(update(f"s{number}", user=f"u{number % 2}", after=number // 3))
    pages = await walk(index, "app")
    assert [len(page.sessions) for page in pages] == [3, 3, 3, 1]
    found = [info for page in pages for info in page.sessions]
    assert found == sorted(found, key=lambda info: (info.updated_at, info.thread_id), reverse=True)
    assert sorted(ids(*pages)) == [f"s{number}" for number in range(10)]
    assert ids(*await walk(index, "app", "u1", limit=2)) == ["s9", "s7", "s5", "s3", "s1"]
    assert (await index.list("app", limit=10)).cursor is None
    assert (await index.list("app", limit=9)).cursor is not None


async def test_an_empty_list_is_an_empty_page(index: SessionIndex) -> None:
    assert await index.list("nobody") == SessionPage(sessions=(), cursor=None)
    assert await index.list("nobody", "u") == SessionPage(sessions=(), cursor=None)
    assert await index.get(SessionKey("no", "such", "session")) is None


async def test_deleted_sessions_are_gone_and_deleting_twice_is_fine(index: SessionIndex) -> None:
    await index.record(update("a"))
    await index.record(update("b", after=1))
    for _ in range(2):
        await index.delete(SessionKey("app", "user", "a"))
    assert await index.get(SessionKey("app", "user", "a")) is None
    assert ids(*await walk(index, "app")) == ["b"]


async def test_ids_of_every_kind_are_kept_apart(index: SessionIndex) -> None:
    keys = [SessionKey(hard, "u", "s") for hard in HARD_IDS]
    keys += [SessionKey("app", hard, "s") for hard in HARD_IDS]
    keys += [SessionKey("app", "u", hard) for hard in HARD_IDS]
    for number, key in enumerate(keys):
        await index.record(SessionUpdate(key=key, at=START, status="completed", turns=number))
    for number, key in enumerate(keys):
        found = await index.get(key)
        assert found is not None
        assert (found.key, found.turns) == (key, number)
    for hard in HARD_IDS:
        assert [info.key for info in (await index.list(hard)).sessions] == [SessionKey(hard, "u", "s")]
        assert [info.key for info in (await index.list("app", hard)).sessions] == [SessionKey("app", hard, "s")]
    assert len([info for page in await walk(index, "app") for info in page.sessions]) == 2 * len(HARD_IDS)


async def test_a_walk_under_constant_updates_ends_and_meets_what_stands_still(index: SessionIndex) -> None:
    for number in range(30):
        await index.record(update(f"still{number:02}", after=number))
        await index.record(update(f"busy{number:02}", after=number + 0.5))
    moments = iter(range(1000, 10**9))
    walking = True

    async def keep_updating(part: int) -> int:
        done = 0
        while walking:
            await index.record(update(f"busy{(7 * done + part) % 30:02}", after=next(moments)))
            await index.record(update(f"new{part}-{done}", after=next(moments)))
            done += 1
            await asyncio.sleep(0)
        return done

    updating = [asyncio.create_task(keep_updating(part)) for part in range(3)]
    async with asyncio.timeout(60):
        pages = [await index.list("app", limit=4)]
        while (cursor := pages[-1].cursor) is not None:
            await asyncio.sleep(0)
            pages.append(await index.list("app", limit=4, cursor=cursor))
    walking = False
    assert min(await asyncio.gather(*updating)) > 0
    found = ids(*pages)
    assert len(found) == len(set(found))
    assert {f"still{number:02}" for number in range(30)} <= set(found)


async def test_updates_of_many_sessions_at_once_are_all_kept(index: SessionIndex) -> None:
    await asyncio.gather(*(index.record(update(f"s{n}", after=n, tokens=n)) for n in range(40)))
    assert sorted(info.tokens for info in (await index.list("app", limit=100)).sessions) == list(range(40))


async def test_setting_up_again_loses_nothing(index: SessionIndex) -> None:
    await index.record(update())
    await asyncio.gather(*(index.setup() for _ in range(5)))
    assert ids(await index.list("app")) == ["s"]


async def test_a_damaged_cursor_is_refused_with_what_to_do(index: SessionIndex) -> None:
    for number in range(3):
        await index.record(update(f"s{number}", after=number))
    cursor = (await index.list("app", limit=1)).cursor
    assert cursor is not None
    for broken in ["", "x", "£", cursor[:-3], cursor + "AAAA", cursor[::-1], "W10", "\ud800", "e30", "9" * 5000]:
        with pytest.raises(InvalidCursor, match="is no cursor: it was changed or cut off") as caught:
            await index.list("app", limit=1, cursor=broken)
        assert caught.value.cursor == broken
    with pytest.raises(InvalidCursor, match="must be a str or None, got int"):
        await index.list("app", cursor=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "parts",
    [
        [1, "app", None, 10**30, "app:user:s"],
        [1, "app", None, "soon", "app:user:s"],
        [1, "app", None, True, "app:user:s"],
        [1, "app", None, 0, "no thread"],
        [2, "app", None, 0, "app:user:s"],
        [1, "app", None, 0],
        {"a": 1},
        5,
    ],
)
async def test_a_cursor_that_somebody_made_up_is_refused(parts: Any) -> None:
    made_up = base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")
    with pytest.raises(InvalidCursor, match="is no cursor"):
        await MemorySessionIndex().list("app", cursor=made_up)


async def test_a_cursor_of_another_list_is_refused_with_the_name_of_its_own(index: SessionIndex) -> None:
    for number in range(3):
        await index.record(update(f"s{number}", after=number))
    of_app = (await index.list("app", limit=1)).cursor
    of_user = (await index.list("app", "user", limit=1)).cursor
    for app, user, cursor, own in [
        ("app", "user", of_app, "app 'app'"),
        ("app", None, of_user, "app 'app', user 'user'"),
        ("other", None, of_app, "app 'app'"),
        ("app", "other", of_user, "user 'user'"),
    ]:
        with pytest.raises(InvalidCursor, match=f"comes from another list, that of .*{own}"):
            await index.list(app, user, cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, 1001, True, 2.0, "5", None])
async def test_a_limit_out_of_range_is_refused(index: SessionIndex, limit: Any) -> None:
    with pytest.raises(InvalidInput, match="limit must be an int from 1 to 1000"):
        await index.list("app", limit=limit)


async def test_an_id_that_is_none_is_refused(index: SessionIndex) -> None:
    with pytest.raises(InvalidSessionId, match="app_id must not be empty"):
        await index.list("")
    with pytest.raises(InvalidSessionId, match="user_id must not hold control characters"):
        await index.list("app", "a\x00")


async def test_a_cancelled_update_leaves_nothing_locked(index: SessionIndex) -> None:
    for number in range(20):
        task = asyncio.create_task(index.record(update("cancelled")))
        for _ in range(number):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
    await index.record(update("after"))
    assert "after" in ids(await index.list("app"))


async def test_a_sqlite_index_leaves_the_file_free_after_a_cancel(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    async with aiosqlite.connect(path) as first, aiosqlite.connect(path, timeout=0.2) as second:
        index, other = SqliteSessionIndex(first), SqliteSessionIndex(second)
        await index.setup()
        for number in range(12):
            task = asyncio.create_task(index.record(update("cancelled")))
            for _ in range(number):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            await index.get(SessionKey("app", "user", "s"))
            await other.record(update(f"other{number}"))
        assert len((await index.list("app")).sessions) >= 12


async def test_a_sqlite_index_takes_the_next_update_after_one_that_the_file_refused(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    async with aiosqlite.connect(path, timeout=0) as first, aiosqlite.connect(path, isolation_level=None) as second:
        index = SqliteSessionIndex(first)
        await index.setup()
        await second.execute("BEGIN IMMEDIATE")
        with pytest.raises(aiosqlite.OperationalError, match="locked"):
            await index.record(update("a"))
        await second.execute("COMMIT")
        await index.record(update("b"))
        assert ids(await index.list("app")) == ["b"]


SET_UP = """
import asyncio, sys
from datetime import datetime, UTC
from regnexe.identity import SessionKey
from regnexe.persistence.index.base import SessionUpdate

async def main(kind, where, name):
    from contextlib import AsyncExitStack
    async with AsyncExitStack() as stack:
        if kind == "sqlite":
            import aiosqlite
            from regnexe.persistence.index.sqlite import SqliteSessionIndex
            index = SqliteSessionIndex(await stack.enter_async_context(aiosqlite.connect(where, timeout=60)))
        else:
            from psycopg_pool import AsyncConnectionPool
            from regnexe.persistence.index.postgres import PostgresSessionIndex
            index = PostgresSessionIndex(await stack.enter_async_context(AsyncConnectionPool(where, open=False)))
        print("ready", flush=True)
        sys.stdin.readline()
        await index.setup()
        key = SessionKey("app", "user", name)
        await index.record(SessionUpdate(key=key, at=datetime.now(UTC), status="completed"))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_several_processes_may_set_up_the_same_empty_database_at_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with AsyncExitStack() as stack:
        index = await open_index(kind, tmp_path, request, stack)
        where = str(tmp_path / "sessions.db") if kind == "sqlite" else request.getfixturevalue("postgres_url")
        processes = [
            subprocess.Popen(  # noqa: ASYNC220  # nothing else runs on this loop
                [sys.executable, "-c", textwrap.dedent(SET_UP), kind, where, f"p{number}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(4)
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            _, told = process.communicate(timeout=120)
            assert (process.returncode, told) == (0, "")
        assert sorted(ids(await index.list("app"))) == ["p0", "p1", "p2", "p3"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_page_is_read_from_an_index_without_sorting(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with AsyncExitStack() as stack:
        index: Any = await open_index(kind, tmp_path, request, stack)
        await index.setup()
        where = "app_id = 'app' AND (updated_at, thread_id) < ({moment}, 'x')"
        page = "SELECT title FROM regnexe_sessions WHERE {where} ORDER BY updated_at DESC, thread_id DESC LIMIT 21"
        for scope, name in [("", "by_app"), ("user_id = 'u' AND ", "by_user")]:
            if kind == "sqlite":
                sql = page.format(where=scope + where.format(moment=5))
                plan = str(
                    [tuple(row) for row in await index._connection.execute_fetchall(f"EXPLAIN QUERY PLAN {sql}")]
                )
                assert f"regnexe_sessions_{name}" in plan
                assert "TEMP B-TREE" not in plan
            else:
                sql = page.format(where=scope + where.format(moment="now()"))
                async with index._pool.connection() as connection:
                    await connection.execute("SET LOCAL enable_seqscan = off")
                    await connection.execute("SET LOCAL enable_bitmapscan = off")
                    rows = await (await connection.execute(f"EXPLAIN {sql}")).fetchall()
                plan = str(rows)
                assert f"regnexe_sessions_{name}" in plan
                assert "Sort" not in plan


async def test_a_store_index_serves_a_store_in_memory_and_writes_nothing_for_search_by_meaning() -> None:
    store = InMemoryStore()
    index = StoreSessionIndex(store)
    await index.record(update(user="alice@example.com"))
    assert ids(await index.list("app", "alice@example.com")) == ["s"]
    item = await store.aget(("regnexe", "sessions", "app~", "alice=40example=2ecom~"), "s~")
    assert item is not None
    assert item.value["user_id"] == "alice@example.com"


ID = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=255)


@given(ID, ID)
@example("a", "ab")
@example("a", "A")
@example("a_b", "a%b")
def test_labels_differ_for_different_ids_also_without_case_and_none_begins_another(one: str, other: str) -> None:
    first, second = label(one), label(other)
    assert first == first.lower()
    assert not set(first) & set("._%. ")
    assert len(first) <= 210
    if one != other:
        assert not second.startswith(first)
        assert not first.startswith(second)


def test_the_list_is_in_the_store_where_there_is_one_and_else_shared_by_who_shares_the_saver() -> None:
    class Saver:
        """Stands for one, to be told apart from others by what it is, not by what it equals."""

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    one, other = Saver(), Saver()
    assert default_index(one, None) is default_index(one, None)
    assert default_index(one, None) is not default_index(other, None)
    assert isinstance(default_index(one, None), MemorySessionIndex)
    assert isinstance(default_index(one, InMemoryStore()), StoreSessionIndex)


@pytest.mark.parametrize(
    ("messages", "title"),
    [
        ([], ""),
        ([AIMessage("hello")], ""),
        ([AIMessage("hello"), HumanMessage("  What\n is\t\tthis? "), HumanMessage("no")], "What is this?"),
        ([HumanMessage([{"type": "image", "url": "x"}]), HumanMessage("this")], "this"),
        ([HumanMessage("x" * 80)], "x" * 80),
        ([HumanMessage("x" * 81)], "x" * 79 + "…"),
        ([HumanMessage("\x1b[31mred\x00\x07 \u2028 \ud800")], "[31mred \ufffd"),
        ([HumanMessage(" " * 100_000 + "late")], ""),
    ],
)
def test_a_title_is_the_first_human_text_on_one_line(messages: list[Any], title: str) -> None:
    assert title_of(messages) == title
