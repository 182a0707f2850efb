"""PostgreSQL: connections that die, servers that refuse, and passwords that are never shown."""

from __future__ import annotations

import asyncio
import logging
import pickle
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg_pool import AsyncConnectionPool

from regnexe import (
    CheckpointerError,
    DatabaseUnavailable,
    OpenedPersistence,
    PersistenceError,
    RegnexeAgent,
    RegnexeAgentBuilder,
    RunStatus,
    open_persistence,
)
from regnexe.persistence import postgres
from regnexe.persistence.source import persistence_source
from regnexe.persistence.whole_writes import with_whole_writes
from regnexe.testing import ScriptedChatModel, tool_call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.messages import BaseMessage

SECRET = "hunter2/@:%s"


def count(messages: list[BaseMessage]) -> str:
    """Answer with how many human messages the model sees."""
    return str(sum(message.type == "human" for message in messages))


def build(url: str, model: Any = None, *tools: Any) -> RegnexeAgent:
    builder = RegnexeAgentBuilder().with_model(ScriptedChatModel(model or count)).with_tool(*tools)
    return builder.with_persistence(url).build()


def run(url: str, *statements: str) -> list[Any]:
    """Run statements on a connection of their own, and return the rows of the last one."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def end_all_connections(url: str) -> int:
    rows = run(
        url,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    return len(rows)


def with_user(url: str, user: str, password: str) -> str:
    return url.replace("postgres@", f"{user}:{quote(password, safe='')}@")


def assert_shown_nowhere(error: BaseException, secret: str = SECRET) -> None:
    parts = [*traceback.format_exception(error), repr(error), str(error), str(vars(error)), repr(pickle.dumps(error))]
    seen: list[BaseException | None] = [error]
    while (last := seen[-1]) is not None:
        parts += [str(last), repr(last)]
        seen.append(last.__cause__ or last.__context__)
    for form in (secret, quote(secret, safe="")):
        assert not [part for part in parts if form in part]


async def test_connections_that_are_ended_between_two_turns_are_replaced_unnoticed(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with build(postgres_url) as agent:
        await agent.ainvoke("a", session_id="s")
        assert await asyncio.to_thread(end_all_connections, postgres_url) >= 1
        result = await agent.ainvoke("b", session_id="s")
        assert (result.status, result.final_text) == (RunStatus.COMPLETED, "2")
        assert await asyncio.to_thread(end_all_connections, postgres_url) >= 1
        page = await agent.sessions.list("default")  # not tried twice: the connection was looked at before
        assert [(info.turns, info.messages) for info in page.sessions] == [(2, 4)]
    assert [record for record in caplog.records if record.name == "regnexe" and record.levelno > logging.INFO] == []


async def test_connections_that_are_ended_during_a_turn_do_not_end_it(postgres_url: str) -> None:
    async def outage(x: int) -> str:
        """End every connection to the database."""
        assert await asyncio.to_thread(end_all_connections, postgres_url) >= 1
        return "ended"

    script = [AIMessage("", tool_calls=[tool_call("outage", x=x) for x in (1,)]), "went on"]
    async with build(postgres_url, script, outage) as agent:
        result = await agent.ainvoke("a", session_id="s")
    assert (result.status, result.final_text, result.error) == (RunStatus.COMPLETED, "went on", None)
    assert [m.text for m in result.session.messages] == ["a", "", "ended", "went on"]


@pytest.mark.parametrize("table", ["checkpoints", "checkpoint_blobs", "checkpoint_writes"])
@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_a_write_whose_connection_ends_under_it_is_done_again_and_only_once(
    postgres_url: str, table: str, nth: int
) -> None:
    async def pay(amount: int) -> str:
        """Pay."""
        return f"PAID {amount}"

    script = [AIMessage("", tool_calls=[tool_call("pay", amount=n) for n in (1, 2)]), "paid", "later"]
    async with build(postgres_url, script, pay) as agent:
        # A sequence counts on when its transaction is lost.
        await asyncio.to_thread(
            run,
            postgres_url,
            "CREATE SEQUENCE writes_so_far",
            "CREATE FUNCTION cut() RETURNS trigger AS $$ BEGIN "
            f"IF nextval('writes_so_far') = {nth} THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; "
            "RETURN NEW; END $$ LANGUAGE plpgsql",
            f"CREATE TRIGGER cut BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION cut()",
        )
        result = await agent.ainvoke("pay", session_id="s")
        assert (result.status, result.error) == (RunStatus.COMPLETED, None)
        later = await agent.ainvoke("later", session_id="s")
    assert [m.text for m in later.session.messages] == ["pay", "", "PAID 1", "PAID 2", "paid", "later", "later"]
    ((written,),) = await asyncio.to_thread(run, postgres_url, "SELECT last_value FROM writes_so_far")
    assert written > nth


async def test_a_pool_of_the_users_own_heals_too_and_a_connection_of_his_own_is_told_apart(postgres_url: str) -> None:
    cut = (
        "CREATE SEQUENCE writes_so_far",
        "CREATE FUNCTION cut() RETURNS trigger AS $$ BEGIN "
        "IF nextval('writes_so_far') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; "
        "RETURN NEW; END $$ LANGUAGE plpgsql",
        "CREATE TRIGGER cut BEFORE INSERT ON checkpoints FOR EACH ROW EXECUTE FUNCTION cut()",
    )
    kwargs: Any = {"autocommit": True, "row_factory": psycopg.rows.dict_row}
    async with AsyncConnectionPool[Any](postgres_url, min_size=1, kwargs=kwargs, open=False) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        await asyncio.to_thread(run, postgres_url, *cut)
        agent = RegnexeAgentBuilder().with_model(ScriptedChatModel(count)).with_checkpointer(saver).build()
        assert (await agent.ainvoke("a", session_id="s")).status is RunStatus.COMPLETED
    async with AsyncPostgresSaver.from_conn_string(postgres_url) as alone:
        await asyncio.to_thread(end_all_connections, postgres_url)
        with pytest.raises(DatabaseUnavailable, match="lost again and again"):
            await with_whole_writes(alone).aget_tuple({"configurable": {"thread_id": "t"}})


async def test_operations_of_the_store_heal_too(postgres_url: str) -> None:
    async with open_persistence(postgres_url) as opened:
        await opened.store.aput(("n",), "a", {"v": 1})
        await asyncio.to_thread(end_all_connections, postgres_url)
        found = await opened.store.aget(("n",), "a")
        assert found is not None
        await asyncio.to_thread(
            run,
            postgres_url,
            "CREATE SEQUENCE writes_so_far",
            "CREATE FUNCTION cut() RETURNS trigger AS $$ BEGIN "
            "IF nextval('writes_so_far') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; "
            "RETURN NEW; END $$ LANGUAGE plpgsql",
            "CREATE TRIGGER cut BEFORE INSERT ON store FOR EACH ROW EXECUTE FUNCTION cut()",
        )
        await opened.store.aput(("n",), "b", {"v": 2})
        assert sorted(item.key for item in await opened.store.asearch(("n",))) == ["a", "b"]


# --- what cannot be opened ---


@pytest.fixture
def guarded(postgres_server: str, postgres_url: str) -> Iterator[str]:
    """The URL of a user that needs a password and may not create tables."""
    ((rules,),) = run(postgres_server, "SHOW hba_file")
    with open(rules) as file:
        before = file.read()
    with open(rules, "w") as file:
        file.write("local all regnexe_guarded scram-sha-256\n" + before)
    quoted = SECRET.replace("'", "''")
    run(postgres_server, f"CREATE ROLE regnexe_guarded LOGIN PASSWORD '{quoted}'", "SELECT pg_reload_conf()")
    yield with_user(postgres_url, "regnexe_guarded", SECRET)
    with open(rules, "w") as file:
        file.write(before)
    run(postgres_url, "DROP OWNED BY regnexe_guarded")
    run(postgres_server, "DROP ROLE regnexe_guarded", "SELECT pg_reload_conf()")


async def test_a_wrong_password_is_told_without_it(guarded: str) -> None:
    wrong = guarded.replace(quote(SECRET, safe=""), quote(SECRET + "x", safe=""))
    with pytest.raises(PersistenceError, match="does not let this user in; check the user name and the pass") as caught:
        await build(wrong).ainvoke("x")
    assert caught.value.place.startswith("postgresql://regnexe_guarded@")
    assert_shown_nowhere(caught.value)
    with pytest.raises(PersistenceError, match="does not let this user in") as caught:
        await build(guarded.replace(f":{quote(SECRET, safe='')}", "")).ainvoke("x")


async def test_a_user_who_may_not_create_tables_is_told_so_and_may_use_those_that_are_there(
    guarded: str, postgres_url: str
) -> None:
    with pytest.raises(PersistenceError, match="does not let this user do that; grant it") as caught:
        await build(guarded).ainvoke("x")
    assert_shown_nowhere(caught.value)
    async with build(postgres_url) as agent:
        await agent.ainvoke("a", session_id="s")
    rights = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO regnexe_guarded"
    await asyncio.to_thread(run, postgres_url, rights)
    async with build(guarded) as agent:
        assert (await agent.ainvoke("b", session_id="s")).final_text == "2"
        await asyncio.to_thread(run, postgres_url, "REVOKE INSERT ON checkpoints FROM regnexe_guarded")
        result = await agent.ainvoke("c", session_id="s")
        assert isinstance(result.error, PersistenceError)
        assert_shown_nowhere(result.error)
        assert SECRET not in repr(vars(agent))


async def test_an_unknown_database_a_closed_port_and_an_unknown_host_are_told_apart(postgres_server: str) -> None:
    for url, kind, said in (
        (
            with_user(postgres_server, "postgres", SECRET).replace("/postgres?", "/no_such?"),
            PersistenceError,
            "create it",
        ),
        (f"postgresql://u:{quote(SECRET, safe='')}@127.0.0.1:1/d", DatabaseUnavailable, "check the host and the port"),
        (
            f"postgresql://u:{quote(SECRET, safe='')}@no-such-host.invalid/d",
            DatabaseUnavailable,
            "no-such-host.invalid",
        ),
        (f"postgresql://127.0.0.1:1/d?user=u&password={quote(SECRET, safe='')}", DatabaseUnavailable, "127.0.0.1:1/d"),
    ):
        with pytest.raises(kind, match=said) as caught:
            await build(url).ainvoke("x")
        assert isinstance(caught.value, CheckpointerError)
        assert_shown_nowhere(caught.value)


async def test_a_password_that_the_client_library_would_show_is_taken_out_of_its_message() -> None:
    from regnexe.persistence.postgres_faults import opening_fault

    error = psycopg.OperationalError(f"connection failed: authentication failed with {SECRET}")
    assert SECRET not in str(opening_fault(error, "postgresql://u@h/d", [SECRET]))


async def test_a_server_that_is_too_old_is_refused_with_the_version_that_is_needed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_MINIMUM_VERSION", 99)
    with pytest.raises(PersistenceError, match=r"is served by PostgreSQL \d\d; Regnexe needs 99 or newer"):
        await build(postgres_url).ainvoke("x")
    assert await asyncio.to_thread(run, postgres_url, "SELECT * FROM pg_tables WHERE schemaname = 'public'") == []


@pytest.mark.parametrize("table", ["checkpoints (id int, name text)", "store (id int)", "regnexe_sessions (x int)"])
async def test_a_database_of_another_program_is_left_as_it_is_and_a_schema_of_ones_own_helps(
    postgres_url: str, table: str
) -> None:
    await asyncio.to_thread(run, postgres_url, f"CREATE TABLE {table}", "CREATE SCHEMA mine")
    with pytest.raises(PersistenceError, match="of another program: it lacks the column"):
        await build(postgres_url).ainvoke("x")
    names = await asyncio.to_thread(run, postgres_url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    assert names == [(table.split()[0],)]
    own = f"{postgres_url}&options=-csearch_path%3Dmine"
    async with build(own) as agent:
        assert (await agent.ainvoke("x")).status is RunStatus.COMPLETED


def connections_left(url: str) -> int:
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    for _ in range(200):  # a server takes a moment to notice
        ((left,),) = run(url, sql)
        if not left:
            break
    return int(left)


def test_what_was_opened_on_a_loop_can_be_closed_from_another_one(postgres_url: str) -> None:
    async def opened() -> OpenedPersistence:
        return await persistence_source(postgres_url).open()

    # The loop is gone.
    first = asyncio.run(opened())
    asyncio.run(first.aclose())
    assert connections_left(postgres_url) == 0

    # It runs in another thread, and goes on; or it waits for the one that closes.
    async def elsewhere(*, blocked: bool) -> OpenedPersistence:
        here = await opened()
        if blocked:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(asyncio.run, here.aclose()).result()
        else:
            await asyncio.to_thread(asyncio.run, here.aclose())
        assert await asyncio.to_thread(connections_left, postgres_url) == 0
        return here

    for blocked in (False, True):
        asyncio.run(elsewhere(blocked=blocked))


async def test_closing_an_agent_leaves_no_connection_whichever_loop_opened_it(postgres_url: str) -> None:
    for close in ("async", "sync"):
        agent = build(postgres_url)
        await agent.ainvoke("a")
        await asyncio.to_thread(agent.invoke, "b")
        await asyncio.to_thread(asyncio.run, agent.ainvoke("c"))
        if close == "async":
            await agent.aclose()
        else:
            agent.close()  # from the running loop, which it holds up
        assert await asyncio.to_thread(connections_left, postgres_url) == 0


async def test_a_database_that_cannot_hold_every_text_is_refused(postgres_server: str, postgres_url: str) -> None:
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute("CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
        try:
            with pytest.raises(PersistenceError, match="has the encoding LATIN1"):
                async with open_persistence(postgres_server.replace("/postgres?", "/latin?")):
                    pass
        finally:
            admin.execute("DROP DATABASE latin WITH (FORCE)")
