"""Persistence URLs: what may be in one, and what it stands for."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from regnexe.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = ["MemoryUrl", "PostgresUrl", "SqliteUrl", "read_url"]

_FORMS = '"memory://", "sqlite:///relative.db", "sqlite:////absolute/path.db" or "postgresql://user@host/database"'
_ESCAPE = re.compile("%(?![0-9a-fA-F]{2})")
_OPTION_NAME = re.compile("[A-Za-z_]{1,40}")
_DRIVE = re.compile(r"/?[A-Za-z]:[/\\]")
_LONGEST_WAIT = 3600.0


@dataclass(frozen=True, kw_only=True)
class MemoryUrl:
    """`memory://`."""


@dataclass(frozen=True, kw_only=True)
class SqliteUrl:
    """A file.

    Attributes:
        path: as given, perhaps relative.
        busy_timeout: for how many seconds a write waits for those that have the file locked.
        synchronous: `"normal"` or `"full"`; see `regnexe.persistence.sqlite`.
    """

    path: str
    busy_timeout: float = 10.0
    synchronous: str = "normal"


@dataclass(frozen=True, kw_only=True)
class PostgresUrl:
    """A database.

    Attributes:
        conninfo: the URL for the client library, without our options. Holds the password, and is shown nowhere.
        pool_size: how many connections there may be for each event loop.
        pool_timeout: for how many seconds a call waits for a connection.
    """

    conninfo: str = field(repr=False)
    pool_size: int = 5
    pool_timeout: float = 30.0


def read_url(url: str, *, windows: bool = os.name == "nt") -> MemoryUrl | SqliteUrl | PostgresUrl:
    """Return what the URL says.

    Raises:
        ConfigurationError: it is no such URL; the message says what to write, and holds no password.
    """
    if not isinstance(url, str):
        hint = f'; for a file: f"sqlite:///{{path}}" (got {os.fspath(url)!r})' if isinstance(url, os.PathLike) else ""
        raise ConfigurationError(f"a persistence URL is a str, got {type(url).__name__}{hint}")
    if "\x00" in url:
        raise ConfigurationError("a persistence URL holds no NUL character")
    scheme, separator, rest = url.partition("://")
    reader = _READERS.get(scheme.lower()) if separator else None
    if reader is None:
        raise ConfigurationError(_unknown_scheme(scheme if separator else None, url))
    place, _, query = rest.partition("?")
    return reader(place, query, windows)


def _memory(place: str, query: str, windows: bool) -> MemoryUrl:
    if place.strip("/"):
        raise ConfigurationError(
            f'"memory://" takes no name, got {place!r}; each agent has a memory of its own, and agents share one when '
            "they are given the same checkpointer (with_checkpointer)"
        )
    _options(query, {}, "memory://")
    return MemoryUrl()


def _sqlite(place: str, query: str, windows: bool) -> SqliteUrl:
    options = _options(query, {"busy_timeout": _seconds, "synchronous": _synchronous}, "sqlite://")
    if place and not place.startswith("/"):
        raise ConfigurationError(
            "sqlite URLs have three slashes before a relative path and four before an absolute one "
            '("sqlite:///sessions.db", "sqlite:////var/lib/sessions.db"), this one has two'
        )
    path = os.fsdecode(_decoded(place[1:]))
    if path in ("", ":memory:"):
        raise ConfigurationError('this sqlite URL names no file; for sessions in memory use "memory://"')
    if "\x00" in path:
        raise ConfigurationError("a file name holds no NUL character (%00)")
    if path.endswith(("/", "\\") if windows else "/"):
        raise ConfigurationError(f"this sqlite URL names the directory {path!r}; name a file in it")
    if windows and path.startswith("/") and _DRIVE.match(path):
        path = path[1:]  # sqlite:////C:/sessions.db
    return SqliteUrl(path=path, **options)


def _postgres(place: str, query: str, windows: bool) -> PostgresUrl:
    _require_driver()
    # More than one @, or a / before it, is a password that was not encoded: the client library would take a part of it
    # for the host, and show it.
    user, at, _ = place.rpartition("@")
    if "@" in user or "/" in user or (at and _ESCAPE.search(user)):
        raise ConfigurationError(
            "the user name or the password in this PostgreSQL URL is not percent-encoded: write @ as %40, : as %3A, "
            "/ as %2F, ? as %3F and % as %25 (urllib.parse.quote(password, safe='') does)"
        )
    own: dict[str, Callable[[str, str], Any]] = {"pool_size": _size, "pool_timeout": _seconds}
    parts = [part for part in query.split("&") if part]
    ours = [part for part in parts if part.partition("=")[0] in own]
    libpq = [part for part in parts if part not in ours]
    options = _options("&".join(ours), own, "postgresql://")
    for part in libpq:
        _check_name(part.partition("=")[0], {*own, *_libpq_options()}, "postgresql://")
    conninfo = f"postgresql://{place}" + (f"?{'&'.join(libpq)}" if libpq else "")
    return PostgresUrl(conninfo=conninfo, **options)


_READERS: dict[str, Callable[[str, str, bool], MemoryUrl | SqliteUrl | PostgresUrl]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
}


def _unknown_scheme(scheme: str | None, url: str) -> str:
    # Whatever stands after the scheme may hold a password.
    if scheme is None or not re.fullmatch("[A-Za-z0-9+.-]{1,30}", scheme):
        beginning = url.partition(":")[0]
        if beginning in _READERS:
            return f"after {beginning!r} a persistence URL has ://; it is {_FORMS}"
        return f"this is no persistence URL; it is {_FORMS}"
    known = difflib.get_close_matches(scheme.lower().partition("+")[0], _READERS, 1, 0.6)
    hint = f"Did you mean {known[0]}://? " if known else ""
    return f"there is no persistence for {scheme}:// URLs. {hint}A persistence URL is {_FORMS}"


def _options(query: str, known: dict[str, Callable[[str, str], Any]], scheme: str) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for part in query.split("&"):
        if not part:
            continue
        name, _, value = part.partition("=")
        _check_name(name, known, scheme)
        if name in given:
            raise ConfigurationError(f"the option {name!r} is in the URL twice")
        given[name] = known[name](name, os.fsdecode(_decoded(value)))
    return given


def _check_name(name: str, known: Collection[str], scheme: str) -> None:
    if name in known:
        return
    if not _OPTION_NAME.fullmatch(name):
        # Not shown: behind a ? that was not encoded there may be the rest of a password.
        raise ConfigurationError(
            "after ? a persistence URL holds options, name=value joined by &; write a ? that belongs to a name or a "
            "password as %3F"
        )
    near = difflib.get_close_matches(name.lower(), known, 1, 0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known)) or 'none'}"
    raise ConfigurationError(f"{scheme} URLs have no option {name!r}; {hint}")


def _seconds(name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST_WAIT:
        raise ConfigurationError(f"{name} is a number of seconds from 0 to {_LONGEST_WAIT:g}, got {value!r}")
    return seconds


def _size(name: str, value: str) -> int:
    # Two at least: the checkpointer may hold one while a tool uses the store.
    if not re.fullmatch("[0-9]{1,4}", value) or not 2 <= int(value) <= 1000:
        raise ConfigurationError(f"{name} is a whole number from 2 to 1000, got {value!r}")
    return int(value)


def _synchronous(name: str, value: str) -> str:
    if value.lower() not in ("normal", "full"):
        raise ConfigurationError(f'{name} is "normal" or "full", got {value!r}')
    return value.lower()


def _decoded(text: str) -> bytes:
    if _ESCAPE.search(text):
        raise ConfigurationError("a % in a persistence URL begins an escape such as %20; write a % of a name as %25")
    return unquote_to_bytes(text)


def _require_driver() -> None:
    try:
        for module in ("psycopg", "psycopg_pool", "langgraph.checkpoint.postgres.aio", "langgraph.store.postgres.aio"):
            import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f'PostgreSQL URLs need packages that are not installed ({error}): pip install "regnexe[postgres]"'
        ) from error


def _libpq_options() -> set[str]:
    from psycopg.pq import Conninfo

    return {option.keyword.decode() for option in Conninfo.get_defaults()}
