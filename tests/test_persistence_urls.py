"""What may be in a persistence URL, and what is said of one that is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from regnexe import ConfigurationError, RegnexeAgentBuilder, open_persistence
from regnexe.persistence.urls import MemoryUrl, PostgresUrl, SqliteUrl, read_url

SECRETS = ("hunter2", "hun", "ter2", "p@ss", "@ss", "ss@")


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///relative.db", "relative.db"),
        ("sqlite:///deep/er.db", "deep/er.db"),
        ("sqlite:////var/lib/absolute.db", "/var/lib/absolute.db"),
        ("SQLite:///x.db", "x.db"),
        ("sqlite:///a%20b%3Fc%23d%25.db", "a b?c#d%.db"),
        ("sqlite:///%E4%BC%9A%E8%AF%9D.db", "会话.db"),
        ("sqlite:///会话 1.db", "会话 1.db"),
        ("sqlite:///a#b.db", "a#b.db"),
        ("sqlite:///a+b.db", "a+b.db"),
        ("sqlite:///%FF.db", os.fsdecode(b"\xff.db")),
    ],
)
def test_a_sqlite_url_names_a_file(url: str, path: str) -> None:
    assert read_url(url) == SqliteUrl(path=path)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///C:/data/x.db", "C:/data/x.db"),
        (r"sqlite:///C:\data\x.db", r"C:\data\x.db"),
        ("sqlite:////C:/data/x.db", "C:/data/x.db"),
        ("sqlite://///server/share/x.db", "//server/share/x.db"),
        ("sqlite:///x.db", "x.db"),
    ],
)
def test_on_windows_a_sqlite_url_may_name_a_drive_or_a_share(url: str, path: str) -> None:
    assert read_url(url, windows=True) == SqliteUrl(path=path)


def test_options_are_read_from_the_url() -> None:
    assert read_url("sqlite:///x.db?busy_timeout=0.5&synchronous=FULL") == SqliteUrl(
        path="x.db", busy_timeout=0.5, synchronous="full"
    )
    assert read_url("memory://") == MemoryUrl()
    read = read_url("postgres://u:p%40ss@h:5433/d?pool_size=9&sslmode=require&pool_timeout=2&application_name=a%20b")
    assert read == PostgresUrl(
        conninfo="postgresql://u:p%40ss@h:5433/d?sslmode=require&application_name=a%20b", pool_size=9, pool_timeout=2.0
    )
    assert "ss@" not in repr(read)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite://x.db", "three slashes before a relative path and four before an absolute one"),
        ("sqlite:x.db", "after 'sqlite' a persistence URL has ://"),
        ("sqlite://", 'for sessions in memory use "memory://"'),
        ("sqlite:///", 'for sessions in memory use "memory://"'),
        ("sqlite:///:memory:", 'for sessions in memory use "memory://"'),
        ("sqlite:////tmp/", "names the directory '/tmp/'; name a file in it"),
        ("sqlite:///50%.db", "write a % of a name as %25"),
        ("sqlite:///%00.db", "NUL"),
        ("sqlite:///x\x00.db", "NUL"),
        ("sqlite:///x.db?busy_timout=3", "have no option 'busy_timout'; did you mean 'busy_timeout'?"),
        ("sqlite:///x.db?colour=red", "have no option 'colour'; known: busy_timeout, synchronous"),
        ("sqlite:///x.db?busy_timeout=soon", "a number of seconds from 0 to 3600, got 'soon'"),
        ("sqlite:///x.db?busy_timeout=nan", "a number of seconds from 0 to 3600, got 'nan'"),
        ("sqlite:///x.db?busy_timeout=-1", "a number of seconds from 0 to 3600, got '-1'"),
        ("sqlite:///x.db?busy_timeout=1&busy_timeout=2", "'busy_timeout' is in the URL twice"),
        ("sqlite:///x.db?synchronous=off", '"normal" or "full", got \'off\''),
        ("memory://sessions", "takes no name, got 'sessions'"),
        ("memory://?size=3", "have no option 'size'; known: none"),
        ("memory", "after 'memory' a persistence URL has ://"),
        ("", "this is no persistence URL"),
        ("sessions.db", "this is no persistence URL"),
        ("sqlit:///x.db", "no persistence for sqlit:// URLs. Did you mean sqlite://"),
        ("sqlite+aiosqlite:///x.db", "Did you mean sqlite://"),
        ("postgresql+psycopg://u:hunter2@h/d", "Did you mean postgresql://"),
        ("mysql://u:hunter2@h/d", "no persistence for mysql:// URLs. A persistence URL is"),
        ("u:hunter2@h/d", "this is no persistence URL"),
        ("postgresql://u:hunter2@h/d?ssl_mode=require", "no option 'ssl_mode'; did you mean 'sslmode'?"),
        ("postgresql://u:hunter2@h/d?pool_sise=3", "no option 'pool_sise'; did you mean 'pool_size'?"),
        ("postgresql://u:hunter2@h/d?pool_size=1", "a whole number from 2 to 1000, got '1'"),
        ("postgresql://u:hunter2@h/d?pool_size=%D9%A3", "a whole number from 2 to 1000"),
        ("postgresql://u:hunter2@h:port/d", "this PostgreSQL URL cannot be read"),
        ("postgresql://u:hunter2@[::1/d", "this PostgreSQL URL cannot be read"),
        ("postgresql://u:p@ss@h/d", "is not percent-encoded: write @ as %40"),
        ("postgresql://u:hun/ter2@h/d", "is not percent-encoded: write @ as %40"),
        ("postgresql://u:hun%ter2@h/d", "is not percent-encoded: write @ as %40"),
        ("postgresql://u:hun?ter2@h/d", r"write a \? that belongs to a name or a password as %3F"),
        (Path("x.db"), "a persistence URL is a str, got PosixPath; for a file"),
        (None, "a persistence URL is a str, got NoneType"),
        (b"memory://", "a persistence URL is a str, got bytes"),
    ],
)
def test_a_wrong_url_is_refused_with_what_to_write_and_without_its_password(url: Any, said: str) -> None:
    for use in (RegnexeAgentBuilder().with_persistence, open_persistence):
        with pytest.raises(ConfigurationError, match=said) as caught:
            use(url)
        error: BaseException | None = caught.value
        while error is not None:
            assert not [secret for secret in SECRETS if secret in f"{error} {error!r}"]
            error = error.__cause__ or error.__context__


@pytest.mark.parametrize("first", ["with_checkpointer", "with_store"])
def test_a_url_and_a_checkpointer_or_store_exclude_each_other_as_soon_as_both_are_there(first: str) -> None:
    given: Any = {"with_checkpointer": InMemorySaver(), "with_store": InMemoryStore()}[first]
    builder = RegnexeAgentBuilder()
    getattr(builder, first)(given)
    with pytest.raises(ConfigurationError, match=f"{first} was called, so leave with_persistence out"):
        builder.with_persistence("memory://")
    builder = RegnexeAgentBuilder().with_persistence("memory://")
    with pytest.raises(ConfigurationError, match=f"with_persistence was called, so leave {first} out"):
        getattr(builder, first)(given)
    builder.with_persistence("sqlite:///other.db")  # the last URL counts


def test_a_missing_driver_is_named_with_the_command_that_installs_it() -> None:
    script = """
    import sys
    sys.modules["psycopg_pool"] = None
    from regnexe import ConfigurationError, RegnexeAgentBuilder
    try:
        RegnexeAgentBuilder().with_persistence("postgresql://u:hunter2@h/d")
    except ConfigurationError as error:
        print(error)
    RegnexeAgentBuilder().with_model_spec("offline:demo").with_persistence("sqlite:///x.db").build()
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=True
    )
    assert 'pip install "regnexe[postgres]"' in ran.stdout
    assert "hunter2" not in ran.stdout


def test_building_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:///x.db", f"sqlite:///{tmp_path}/no/x.db", "postgresql://u:p@127.0.0.1:1/d"):
        RegnexeAgentBuilder().with_model_spec("offline:demo").with_persistence(url).build()
    assert list(tmp_path.iterdir()) == []
